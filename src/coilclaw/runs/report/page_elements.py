"""``Element``: the document model of a report. Text is escaped when it is rendered, only there.

A string among the children of an element is always text, so that no caller can forget to escape
it. Helpers return an empty string where there is nothing to show.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from coilclaw.kernel import escape_html

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from coilclaw.runs.report.report_source import Excerpt

ReportTone: TypeAlias = Literal["good", "bad", "warn", "plain"]


@dataclass(frozen=True, slots=True)
class Element:
    """One HTML element, or only its children where ``tag`` is empty."""

    tag: str
    children: tuple[Node, ...] = ()
    attributes: tuple[tuple[str, str], ...] = ()


Node: TypeAlias = str | Element


def tag(name: str, *children: Node, kind: str = "", **attributes: str) -> Element:
    """Make an element; ``kind`` is its class, and an empty attribute has only a name."""
    named = {"class": kind, **attributes} if kind else attributes
    return Element(name, children, tuple(named.items()))


def join_nodes(*children: Node) -> Element:
    """Put elements one after the other."""
    return Element("", children)


def render_element(node: Node) -> str:
    """Render a document as HTML."""
    if isinstance(node, str):
        return escape_html(node)
    inside = "".join(map(render_element, node.children))
    if not node.tag:
        return inside
    named = "".join(
        f' {name}="{escape_html(value)}"' if value else f" {name}"
        for name, value in node.attributes
    )
    return f"<{node.tag}{named}>{inside}{'' if node.tag == 'col' else f'</{node.tag}>'}"


def make_optional(name: str, child: Node, kind: str = "") -> Node:
    """Make an element, unless its only child is empty."""
    return tag(name, child, kind=kind) if child else ""


def add_heading(title: str, inside: Node) -> Node:
    """Put a heading above something that is not empty."""
    return join_nodes(tag("h3", title), inside) if inside else ""


def make_details(title: str, inside: Node) -> Node:
    """Hide something that is not empty until the reader opens it."""
    return tag("details", tag("summary", title), inside) if inside else ""


def make_list(kind: str, items: Iterable[Node], name: str = "ul") -> Node:
    """Make a list."""
    rows = [tag("li", item) for item in items]
    return tag(name, *rows, kind=kind) if rows else ""


def join_dots(*pieces: Node) -> Node:
    """Join the pieces that are not empty with dots."""
    found = [node for piece in pieces if piece for node in (" · ", piece)]
    return join_nodes(*found[1:]) if found else ""


def make_code(text: str) -> Node:
    """Show a name or a command."""
    return tag("code", text)


def make_pill(word: str, tone: ReportTone) -> Node:
    """Show a status."""
    return tag("span", word, kind=f"pill {tone}")


def make_note(text: str) -> Node:
    """Show a remark about what is shown."""
    return make_optional("p", text, "note")


def say_nothing(sentence: str) -> Node:
    """Say that a section has nothing to show."""
    return tag("p", sentence, kind="nothing")


def join_or_say(children: Sequence[Node], otherwise: str) -> Node:
    """Put elements one after the other, or say the sentence if none exists."""
    return join_nodes(*children) if children else say_nothing(otherwise)


def name_attempt(number: int | None) -> str:
    """Name an attempt; the first is number 0."""
    return "" if number is None else f"attempt {number + 1}"


def show_excerpt(shown: Excerpt, kind: str = "output") -> Node:
    """Show a text of several lines, with a note where it was cut."""
    if not shown.text:
        return ""
    return join_nodes(tag("pre", shown.text, kind=kind), make_note(shown.note))


def show_facts(rows: Iterable[tuple[str, str]]) -> Node:
    """Show facts beside their labels."""
    cells = [node for label, text in rows for node in (tag("dt", label), tag("dd", text))]
    return tag("dl", *cells, kind="facts") if cells else ""


def make_table(head: Sequence[str], rows: Iterable[Sequence[Node]], otherwise: str = "") -> Node:
    """Show a table, or the sentence ``otherwise`` instead of one without rows."""
    found = [tag("tr", *(tag("td", cell) for cell in row)) for row in rows]
    if otherwise and not found:
        return say_nothing(otherwise)
    titles = tag("thead", tag("tr", *(tag("th", name) for name in head)))
    return tag("div", tag("table", titles, tag("tbody", *found)), kind="wide")
