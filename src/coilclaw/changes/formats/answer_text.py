"""Markdown around the blocks of an answer: code fences, blocks of text, indentation.

Models put their whole answer into a code block now and then, and show how an answer looks like in
one as well. A code block labelled as text is taken for the answer itself if there is nothing after
it and no more than a short lead-in before it. In any other, the code blocks within a longer fence
are an example.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import AnswerError, PathRefused, TreePath

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coilclaw.changes.formats.json_values import JsonObject
    from coilclaw.changes.operations import Format
    from coilclaw.kernel import CoilClawError


MAX_LINES: Final = 2_000_000
"""Lines one block may have."""
MAX_NAME_CHARS: Final = 16_384
"""Characters of a file name as it is written; octal escapes take four for one byte."""

_FINAL: Final = frozenset({"answer.bounds", "git.long", "envelope.long", "blocks.long"})
"""What is too much is not read any further."""
_SPACE: Final = re.compile(r"[ \t\r\n]*")
# Surrogates other than those that stand for a byte that was not UTF-8.
_LONE_SURROGATE: Final = re.compile("[\ud800-\udc7f\udd00-\udfff]")


def malformed_error(
    line: int, rule: str, message: str, *, path: str | None = None, hint: str | None = None
) -> AnswerError:
    """Return the error for a line of the answer, which the message names too."""
    return AnswerError(f"line {line}: {message}", rule=rule, line=line, path=path, hint=hint)


@contextmanager
def collect_failures(failures: list[CoilClawError], line: int | None = None) -> Iterator[None]:
    """Keep what is wrong with one part of an answer, so that the other parts are read too.

    A refused path without a line of its own gets the line of the part.
    """
    try:
        yield
    except (AnswerError, PathRefused) as problem:
        if problem.rule in _FINAL:
            raise
        if problem.line is None:
            problem.line = line
        failures.append(problem)


class Cursor:
    """Reads the lines of one block in order.

    A block whose lines *all* end in CRLF came through a transport that writes CRLF: that one
    carriage return belongs to no line. In any other block a carriage return is part of its line.
    """

    def __init__(self, text: str, *, first_line: int, form: Format) -> None:
        self._rules = form.value
        self._first = first_line
        self.position = 0
        if text.count("\n") > MAX_LINES:
            raise self.failure("long", f"the block has more than {MAX_LINES:,} lines")
        *lines, last = text.split("\n")
        if lines and all(line.endswith("\r") for line in lines):
            lines = [line[:-1] for line in lines]
            last = last.removesuffix("\r")
        if bad := _LONE_SURROGATE.search(text):
            self.position = text.count("\n", 0, bad.start())
            raise self.failure("encoding", "the line holds text that is not valid Unicode")
        self._lines = [*lines, last] if last else lines

    @property
    def number(self) -> int:
        """The number of the next line in the answer, from 1."""
        return self._first + self.position

    def peek(self, ahead: int = 0) -> str | None:
        """Return a line without taking it; ``None`` after the last one."""
        at = self.position + ahead
        return self._lines[at] if at < len(self._lines) else None

    def take(self) -> str:
        """Return the next line; there must be one."""
        line = self._lines[self.position]
        self.position += 1
        return line

    def skip_blank(self) -> None:
        """Pass over lines that are completely empty."""
        while self.peek() == "":
            self.position += 1

    def path(self, text: str, *, line: int) -> TreePath:
        """Check a path that the answer names."""
        if len(text) > MAX_NAME_CHARS:
            raise self.failure("path", "a file name is far too long to be one", line=line)
        try:
            return TreePath.parse(text)
        except PathRefused as problem:
            problem.line = line
            raise

    def failure(
        self,
        rule: str,
        message: str,
        *,
        line: int | None = None,
        path: str | None = None,
        hint: str | None = None,
    ) -> AnswerError:
        """Return the error for the next line, or for the line that is given."""
        at = self.number if line is None else line
        return malformed_error(at, f"{self._rules}.{rule}", message, path=path, hint=hint)


def to_bytes(text: str) -> bytes:
    """Encode text of an answer; a byte that was not UTF-8 becomes that byte again."""
    return text.encode("utf-8", "surrogateescape")


TEXT_LABELS: Final = frozenset({"markdown", "md", "text", "txt", "plaintext"})
MAX_LEAD_IN: Final = 200
"""Characters before a code block that is the whole answer."""
MAX_FENCES: Final = 100_000
"""Fence lines that are looked at to find out whether a code block wraps the answer."""

_LINE: Final = re.compile(r"([ \t]*)(`{3,}|~{3,})([^\n]*)")
_ANY: Final = re.compile(r"^[ \t]*(?:```|~~~)", re.MULTILINE)
_BARE: Final = {char: re.compile(rf"^([ \t]*)({char}{{3,}})\s*?$", re.MULTILINE) for char in "`~"}


@dataclass(frozen=True, slots=True)
class CodeFence:
    """A line that opens or closes a code block."""

    indent: int
    char: str
    length: int
    info: str
    """What follows the marks; nothing on a line that closes a block."""
    label: str
    """The language the block says it is in: the first word, in lower case."""

    def closed_by(self, line: CodeFence) -> bool:
        """Tell whether a line closes the block that this one opens."""
        return (
            line.info == ""
            and line.char == self.char
            and line.length >= self.length
            and line.indent <= self.indent
        )

    def can_hold(self, inner: CodeFence) -> bool:
        """Say whether a block of this fence can hold one of the other whole."""
        return inner.char != self.char or inner.length < self.length

    def holds_prose(self, text: str, body: int) -> bool:
        """Say whether the block is labelled as text, or unlabelled and begins with another."""
        if self.label:
            return self.label in TEXT_LABELS
        first = next_fence(text, body)
        inner = fence_at(text, first)
        return inner is not None and inner.info != "" and not text[body:first].strip()

    def closing_line(self, text: str, start: int, stop: int | None = None) -> int | None:
        """Return where the line begins that closes the block whose content starts at an offset."""
        stop = len(text) if stop is None else stop
        for match in _BARE[self.char].finditer(text, start, stop):
            if len(match[1]) <= self.indent and len(match[2]) >= self.length:
                return match.start()
        return None

    def end_of_answer(self, text: str, start: int, body: int) -> int | None:
        """Return the closing line of the block if it wraps all of an answer but a lead-in."""
        if len(text[:start].strip()) > MAX_LEAD_IN:
            return None
        last = text.rfind("\n", 0, len(text.rstrip())) + 1
        closer = fence_at(text, last)
        if last < body or closer is None or not self.closed_by(closer):
            return None
        ends = self.closing_line(text, body) == last or self._outermost_end(text, body) == last
        return last if ends else None

    def _outermost_end(self, text: str, body: int) -> int | None:
        """Return the closing line of the block when its inner ones have fences no shorter."""
        stack = [self]
        place = next_fence(text, body)
        for _ in range(MAX_FENCES):
            if place >= len(text):
                break
            line = fence_at(text, place)
            if line is not None and line.info:
                stack.append(line)
            elif line is not None and stack[-1].closed_by(line):
                stack.pop()
                if not stack:
                    return place
            place = next_fence(text, text.find("\n", place) + 1 or len(text))
        return None


def fence_at(text: str, start: int) -> CodeFence | None:
    """Return the fence that the line starting at an offset is, if it is one."""
    match = _LINE.match(text, start)
    if match is None:
        return None
    info = match[3].strip()
    # Three backticks with more of them after are inline code, not a block.
    if match[2][0] == "`" and "`" in info:
        return None
    label = info.split(None, 1)[0].lower() if info else ""
    return CodeFence(len(match[1]), match[2][0], len(match[2]), info, label)


def next_fence(text: str, start: int) -> int:
    """Return where the first line at or after a line start begins that looks like a fence."""
    match = _ANY.search(text, start)
    return match.start() if match else len(text)


def strip_indent(text: str, indent: str, first_line: int) -> str:
    """Take an indentation away, which every line that is not blank must have."""
    prefix = re.escape(indent)
    lacking = re.search(rf"^(?!{prefix}|[ \t\r]*$)", text, re.MULTILINE)
    if lacking and lacking.start() < len(text):
        raise malformed_error(
            first_line + text.count("\n", 0, lacking.start()),
            "answer.indent",
            f"the line lacks the indentation of the block it is in, which began in line "
            f"{first_line}",
            hint="give all lines of a block the same indentation, or better none",
        )
    return re.sub(rf"^(?:{prefix}|[ \t]+(?=\r?$))", "", text, flags=re.MULTILINE)


_INDENT: Final = re.compile(r"[ \t]*")


@dataclass(slots=True)
class AnswerSegment:
    """One block of an answer; its end may move while the answer is read."""

    kind: Format
    start: int
    end: int
    """Where the block stands in the answer."""
    first_line: int
    """The line of the answer that the block starts on, from 1."""
    document: JsonObject | None = None
    """What the block says, if it is JSON."""
    width: int = 0
    """The indentation of the code block around a patch."""
    more_line: int | None = None
    """The line right after the code block of a patch, if it looks like more of the patch."""
    closed: bool = False
    """The block is all that stands in a code block which is closed."""
    indented: list[tuple[int, int, str]] = field(default_factory=list)
    """Parts that are indented, and how."""
    text: str = ""
    """The block itself, without the code fence around it and its indentation."""


class BlockScan:
    """An answer with its lines, and the blocks that were found in it, in order.

    Asking for line numbers in the order of the text costs one pass over it.
    """

    def __init__(self, text: str, most: int) -> None:
        self.text = text
        self.end = len(text)
        self.first = self.skip_space(0)
        """Where the first thing that is not blank stands."""
        self.segments: list[AnswerSegment] = []
        self.bare_lines = 0
        """Lines of git patches that stand in prose."""
        self._most = most
        self._known = (0, 1)
        """An offset, and the number of the line it is on."""

    def after(self, place: int) -> int:
        """Return where the line after the one at an offset begins."""
        return self.text.find("\n", place) + 1 or self.end

    def line_start(self, place: int, floor: int = 0) -> int:
        """Return where the line at an offset begins, but not before another offset."""
        return max(self.text.rfind("\n", floor, place) + 1, floor)

    def skip_space(self, place: int) -> int:
        """Return where the next thing that is not blank stands."""
        match = _SPACE.match(self.text, place)
        assert match is not None
        return match.end()

    def line(self, place: int) -> int:
        """Return the number of the line at an offset, from 1."""
        known, line = self._known
        line += self.text.count("\n", known, place) - self.text.count("\n", place, known)
        self._known = (place, line)
        return line

    def add(self, segment: AnswerSegment) -> int:
        """Keep a block, and return where it ends."""
        if len(self.segments) >= self._most:
            message = f"the answer holds more than the bound of {self._most:,} blocks"
            raise malformed_error(segment.first_line, "answer.bounds", message)
        self.segments.append(segment)
        return segment.end

    def add_indented(self, kind: Format, start: int, marker: int, end: int, indent: str) -> int:
        """Keep a block that is indented from its marker on, if it is; return where it ends."""
        parts = [(marker, end, indent)] if indent else []
        return self.add(AnswerSegment(kind, start, end, self.line(start), indented=parts))

    def indent_at(self, start: int) -> str:
        """Return the blanks that a line begins with."""
        match = _INDENT.match(self.text, start)
        assert match is not None
        return match[0]

    def find_closing(self, pattern: str, start: int, indent: str) -> int | None:
        """Return where the next line begins that is like a pattern, indented like that."""
        closer = re.compile(f"^{re.escape(indent)}{pattern}", re.MULTILINE)
        match = closer.search(self.text, start)
        return match.start() if match else None

    def finish(self) -> tuple[AnswerSegment, ...]:
        """Return all blocks, each with its text."""
        for segment in self.segments:
            pieces: list[str] = []
            place, line = segment.start, segment.first_line
            for start, end, indent in segment.indented:
                line += self.text.count("\n", place, start)
                part = strip_indent(self.text[start:end], indent, line)
                pieces += (self.text[place:start], part)
                line += part.count("\n")
                place = end
            pieces.append(self.text[place : segment.end])
            segment.text = "".join(pieces)
            lines = segment.text.split("\n") if segment.width else []
            # The indentation of a code block in a list goes if all of its lines have it.
            if lines and not any(line[: segment.width].strip() for line in lines):
                segment.text = "\n".join(line[segment.width :] for line in lines)
        return tuple(self.segments)
