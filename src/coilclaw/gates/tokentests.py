"""The tests of a source that is read by its words: comments and texts do not count."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from coilclaw.gates.testcase import Case, Source
from coilclaw.gates.testgrammar import GRAMMARS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coilclaw.gates.testgrammar import Grammar

_KEPT: Final = re.compile(r"[^\n]")
_TEXT: Final = re.compile(r"""(['"`])((?:\\.|(?!\1)[^\\])*)\1""", re.DOTALL)
_OPENS: Final = re.compile(r"(?:=>|\))[\w\s:<>,&?\[\].]{0,120}\{")
_ROW: Final = re.compile(
    r"^[ \t]*(?:['\"][^'\"\n]*['\"]\s*:\s*)?[\[{(][^\n]*[\]}),]\s*$", re.MULTILINE
)
_RETURN: Final = re.compile(r"[{}]|\breturn\b")
_BUILD_TAG: Final = re.compile(r"^//\s*(?:go:build|\+build)\b.*$", re.MULTILINE)
MAX_NAME_DISTANCE: Final = 2000


def read(data: bytes, language: str) -> Source:
    """Return the tests of a file in a language that ``testgrammar`` knows."""
    grammar = GRAMMARS[language]
    text = data.decode("utf-8", "replace")
    code = grammar.noise.sub(_blanked, text)
    spans = [*_spans(grammar, code)]
    cases = tuple(_case(grammar, text, code, *span) for span in spans)
    outside = _without(code, [(start, end) for start, end, _ in spans])
    marks = [found[0].strip() for found in grammar.skip.finditer(outside)]
    if language == "go":
        marks += [found[0] for found in _BUILD_TAG.finditer(text)]
    return Source(cases, tuple(marks), len(grammar.exits.findall(code)))


def _blanked(found: re.Match[str]) -> str:
    """Blank out a comment, and what stands between the quotes of a text; nothing moves."""
    whole = found[0]
    if whole[0] in "'\"`" and len(whole) > 1:
        return whole[0] + _KEPT.sub(" ", whole[1:-1]) + whole[-1]
    return _KEPT.sub(" ", whole)


def _spans(grammar: Grammar, code: str) -> Iterator[tuple[int, int, re.Match[str]]]:
    """Where each test begins and ends."""
    heads = [
        head
        for head in grammar.case.finditer(code)
        if grammar.marked is None or grammar.marked.search(head["marks"])
    ]
    limits = [*(head.start() for head in heads[1:]), len(code)]
    for head, limit in zip(heads, limits, strict=False):
        end = _end(code, head.end(), limit) if grammar.braces else limit
        yield head.start(), end, head


def _end(code: str, start: int, limit: int) -> int:
    """The end of the braces that open after a head."""
    opening = _OPENS.search(code, max(start - 1, 0), limit)
    at = opening.end() - 1 if opening is not None else code.find("{", start, limit)
    if at < 0:
        return limit
    depth = 0
    for brace in re.compile(r"[{}]").finditer(code, at, limit):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return brace.end()
    return limit


def _case(
    grammar: Grammar, text: str, code: str, start: int, end: int, head: re.Match[str]
) -> Case:
    whole = code[start:end]
    body = _reachable(code[head.end() : end]) if grammar.braces else code[head.end() : end]
    trivial = len(grammar.trivial.findall(body))
    found = [*grammar.assertion.finditer(body)]
    lines = text[head.end() : head.end() + len(body)]
    assertions = tuple(_line(lines, item.start()) for item in found)
    rows = len(_ROW.findall(whole))
    return Case(
        _name(text, head),
        assertions,
        max(len(found) - trivial, 0) + rows,
        len(grammar.exact.findall(body)),
        trivial,
        tuple(item[0].strip() for item in grammar.skip.finditer(whole)),
        " ".join(text[start:end].split()),
    )


def _name(text: str, head: re.Match[str]) -> str:
    groups = head.groupdict()
    for group in ("name", "plain"):
        if groups.get(group):
            return " ".join(text[head.start(group) : head.end(group)].split())
    # The quote may belong to the head.
    found = _TEXT.search(text, max(head.end() - 1, 0), head.end() + MAX_NAME_DISTANCE)
    return found[2] if found is not None else ""


def _line(text: str, at: int) -> str:
    """An assertion as it stands in its line, whatever the blanks."""
    end = text.find("\n", at)
    return "".join(text[at : end if end >= 0 else len(text)].split()).rstrip(";,")


def _reachable(body: str) -> str:
    """A body up to the first return that nothing decides over."""
    depth = 0
    for found in _RETURN.finditer(body):
        if found[0] == "return":
            before = body[: found.start()].rstrip()[-1:]
            if depth == 1 and before in {"{", ";", "}"}:
                end = body.find(";", found.end())
                return body[: end if end >= 0 else found.end()]
        else:
            depth += 1 if found[0] == "{" else -1
    return body


def _without(code: str, spans: list[tuple[int, int]]) -> str:
    kept, at = [], 0
    for start, end in spans:
        kept.append(code[at:start])
        at = max(at, end)
    return "\n".join([*kept, code[at:]])
