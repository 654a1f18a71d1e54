"""Code blocks that hold Markdown: one around a whole answer, or an example in one.

Models put their whole answer into a code block now and then, and show how an answer looks like in
one as well. A code block labelled as text is taken for the answer itself if there is nothing after
it and no more than a short lead-in before it. In any other, the code blocks within a longer fence
are an example.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coilclaw.changes import codefence

if TYPE_CHECKING:
    from coilclaw.changes.codefence import CodeFence

LABELS: Final = frozenset({"markdown", "md", "text", "txt", "plaintext"})
MAX_LEAD_IN: Final = 200
"""Characters before a code block that is the whole answer."""
MAX_FENCES: Final = 100_000
"""Fence lines that are looked at to find out whether a code block wraps the answer."""


def holds_prose(opener: CodeFence, text: str, body: int) -> bool:
    """Say whether a code block is labelled as text, or unlabelled and begins with another."""
    if opener.label in LABELS:
        return True
    if opener.label:
        return False
    first = codefence.next_line(text, body)
    return first < len(text) and not text[body:first].strip() and _is_labelled(text, first)


def end_of_answer(opener: CodeFence, text: str, start: int, body: int) -> int | None:
    """Return the closing line of a code block if it wraps all of an answer but a lead-in."""
    if len(text[:start].strip()) > MAX_LEAD_IN:
        return None
    last = text.rfind("\n", 0, len(text.rstrip())) + 1
    closer = codefence.at(text, last)
    if last < body or closer is None or not opener.closed_by(closer):
        return None
    if codefence.closing_line(opener, text, body) == last:
        return last
    return last if _outermost_end(opener, text, body) == last else None


def outranks(outer: CodeFence, inner: CodeFence) -> bool:
    """Say whether one fence can hold the other whole."""
    return inner.char != outer.char or inner.length < outer.length


def _outermost_end(opener: CodeFence, text: str, body: int) -> int | None:
    """Return the closing line of a code block whose inner ones have fences no shorter."""
    stack = [opener]
    place = codefence.next_line(text, body)
    for _ in range(MAX_FENCES):
        if place >= len(text):
            return None
        line = codefence.at(text, place)
        if line is not None and line.info:
            stack.append(line)
        elif line is not None and stack[-1].closed_by(line):
            stack.pop()
            if not stack:
                return place
        finish = text.find("\n", place)
        place = codefence.next_line(text, finish + 1) if finish >= 0 else len(text)
    return None


def _is_labelled(text: str, place: int) -> bool:
    line = codefence.at(text, place)
    return line is not None and line.info != ""
