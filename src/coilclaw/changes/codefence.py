"""Markdown code fences: the line that opens one, and the line that closes it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_LINE: Final = re.compile(r"([ \t]*)(`{3,}|~{3,})([^\n]*)")
_ANY: Final = re.compile(r"^[ \t]*(?:```|~~~)", re.MULTILINE)
_BARE: Final = {
    "`": re.compile(r"^([ \t]*)(`{3,})\s*?$", re.MULTILINE),
    "~": re.compile(r"^([ \t]*)(~{3,})\s*?$", re.MULTILINE),
}


@dataclass(frozen=True, slots=True)
class CodeFence:
    """A line that opens or closes a code block."""

    indent: int
    char: str
    length: int
    info: str

    @property
    def label(self) -> str:
        """The language the block says it is in."""
        return self.info.split(None, 1)[0].lower() if self.info else ""

    def closed_by(self, line: CodeFence) -> bool:
        return (
            line.info == ""
            and line.char == self.char
            and line.length >= self.length
            and line.indent <= self.indent
        )

    def needs_more_than(self, other: CodeFence) -> bool:
        """Say whether every line that closes this one would close the other."""
        return (
            self.char == other.char and self.length >= other.length and self.indent <= other.indent
        )


def at(text: str, start: int) -> CodeFence | None:
    """Return the fence that the line starting at an offset is, if it is one."""
    match = _LINE.match(text, start)
    if match is None:
        return None
    info = match[3].strip()
    # Three backticks with more of them after are inline code, not a block.
    if match[2][0] == "`" and "`" in info:
        return None
    return CodeFence(len(match[1]), match[2][0], len(match[2]), info)


def next_line(text: str, start: int) -> int:
    """Return where the first line at or after a line start begins that looks like a fence."""
    match = _ANY.search(text, start)
    return match.start() if match else len(text)


def closing_line(fence: CodeFence, text: str, start: int, stop: int | None = None) -> int | None:
    """Return where the line begins that closes a fence whose content starts at an offset."""
    stop = len(text) if stop is None else stop
    for match in _BARE[fence.char].finditer(text, start, stop):
        if len(match[1]) <= fence.indent and len(match[2]) >= fence.length:
            return match.start()
    return None
