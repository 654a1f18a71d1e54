"""``Cursor``: the lines of one block of an answer, each with its number in the whole answer."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from coilclaw.changes.fault import malformed, path_at
from coilclaw.domain.treepath import TreePath

if TYPE_CHECKING:
    from coilclaw.changes.operations import Format
    from coilclaw.errors import AnswerError

MAX_LINES: Final = 2_000_000
"""Lines one block may have."""
MAX_NAME_CHARS: Final = 16_384
"""Characters of a file name as it is written; octal escapes take four for one byte."""

# Surrogates other than those that stand for a byte that was not UTF-8.
_LONE_SURROGATE: Final = re.compile("[\ud800-\udc7f\udd00-\udfff]")


class Cursor:
    """Reads the lines of one block in order.

    A block whose lines *all* end in CRLF came through a transport that writes CRLF: that one
    carriage return belongs to no line. In any other block a carriage return is part of its line.
    """

    def __init__(self, text: str, *, first_line: int, form: Format) -> None:
        self._rules = form.value
        self._first = first_line
        self.position = 0
        self._lines: list[str] = []
        if text.count("\n") > MAX_LINES:
            raise self.failure("long", f"the block has more than {MAX_LINES:,} lines")
        lines = text.split("\n")
        last = lines.pop()
        if lines and all(line.endswith("\r") for line in lines):
            lines = [line[:-1] for line in lines]
            last = last.removesuffix("\r")
        if last:
            lines.append(last)
        bad = _LONE_SURROGATE.search(text)
        if bad:
            self.position = text.count("\n", 0, bad.start())
            raise self.failure("encoding", "the line holds text that is not valid Unicode")
        self._lines = lines

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
        with path_at(line):
            return TreePath.parse(text)

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
        return malformed(at, f"{self._rules}.{rule}", message, path=path, hint=hint)


def to_bytes(text: str) -> bytes:
    """Encode text of an answer; a byte that was not UTF-8 becomes that byte again."""
    return text.encode("utf-8", "surrogateescape")


def to_text(data: bytes) -> str:
    """Decode bytes so that ``to_bytes`` gives them back."""
    return data.decode("utf-8", "surrogateescape")
