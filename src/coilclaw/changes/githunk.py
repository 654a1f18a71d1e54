"""The hunks of a git patch."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

from coilclaw.changes import githeader
from coilclaw.changes.cursor import to_bytes
from coilclaw.changes.operations import (
    ADDED,
    CONTEXT,
    REMOVED,
    Format,
    Hunk,
    HunkLine,
    Source,
)

if TYPE_CHECKING:
    from coilclaw.changes.cursor import Cursor
    from coilclaw.changes.operations import Options

MAX_HUNKS: Final = 100_000
"""Hunks one file of a patch may have."""
START: Final = "@@ -"
NO_NEWLINE: Final = "\\ "

_HEADER: Final = re.compile(
    r"@@ -([0-9]{1,9})(?:,([0-9]{1,9}))? \+([0-9]{1,9})(?:,([0-9]{1,9}))? @@ ?(.*)", re.DOTALL
)
_MARKS: Final[dict[str, Literal[" ", "-", "+"]]] = {
    "": CONTEXT,
    " ": CONTEXT,
    "-": REMOVED,
    "+": ADDED,
}


@dataclass(frozen=True, slots=True)
class _Counts:
    old: int
    new: int

    def without(self, mark: str) -> _Counts:
        return _Counts(self.old - (mark != ADDED), self.new - (mark != REMOVED))

    @property
    def used_up(self) -> bool:
        return self.old <= 0 and self.new <= 0

    @property
    def exceeded(self) -> bool:
        return self.old < 0 or self.new < 0

    def __str__(self) -> str:
        return f"{self.old} old and {self.new} new lines"


def parse(cursor: Cursor, options: Options, *, whole: bool) -> tuple[Hunk, ...]:
    """Read all hunks of one file; unless it is ``whole``, the text may have been cut off."""
    hunks: list[Hunk] = []
    while (line := cursor.peek()) is not None and line.startswith("@@"):
        if len(hunks) == MAX_HUNKS:
            raise cursor.failure("long", f"the file has more than {MAX_HUNKS:,} hunks")
        hunks.append(_hunk(cursor, len(hunks), options, whole=whole))
    return tuple(hunks)


def starts_signature(cursor: Cursor, ahead: int = 0) -> bool:
    """Say whether the mail signature that git puts under a patch starts here and ends the text."""
    if cursor.peek(ahead) not in {"-- ", "--"}:
        return False
    ahead += 1
    if cursor.peek(ahead) is not None:
        ahead += 1
    while cursor.peek(ahead) == "":
        ahead += 1
    return cursor.peek(ahead) is None


def _hunk(cursor: Cursor, index: int, options: Options, *, whole: bool) -> Hunk:
    number = cursor.number
    line = cursor.take()
    header = _HEADER.fullmatch(line)
    if header is None:
        raise cursor.failure(
            "corrupt",
            "a hunk header must look like '@@ -1,4 +1,5 @@'",
            line=number,
        )
    stated = _Counts(int(header[2] or 1), int(header[4] or 1))
    lines = _stated(cursor, stated)
    if lines is None:
        lines, actual = _recounted(cursor)
        is_short = actual.old < stated.old and actual.new < stated.new
        # What is missing at the end may be lost: a line that closes a code block ends a patch.
        is_cut = is_short and not whole and cursor.peek(len(lines)) is None
        if not options.lenient or not lines or is_cut:
            raise cursor.failure(
                "corrupt",
                f"the hunk header announces {stated}, but {actual} follow"
                + (" before the patch ends" if is_cut else ""),
                line=number,
                hint=_hint(_header_of(header, actual), lines, is_cut=is_cut),
            )
        cursor.position += len(lines)
        lines = lines[: _trimmed(lines)]
    body = _body(cursor, lines, number)
    return Hunk(
        lines=body,
        old_start=int(header[1]),
        new_start=int(header[3]),
        heading=to_bytes(header[5]),
        source=Source(Format.GIT, number, index),
    )


def _header_of(header: re.Match[str], counts: _Counts) -> str:
    """Return the header that announces what follows it."""
    return f"@@ -{header[1]},{counts.old} +{header[3]},{counts.new} @@"


def _hint(header: str, lines: list[str], *, is_cut: bool) -> str | None:
    if is_cut:
        return f"see that the patch is complete, then write '{header}'"
    if lines:
        return f"for the lines that follow it is '{header}'; --lenient counts them anew"
    return None


def _stated(cursor: Cursor, counts: _Counts) -> list[str] | None:
    """Take exactly the lines that the header announces, or take nothing and return ``None``."""
    start = cursor.position
    lines = []
    while (line := cursor.peek()) is not None:
        if line.startswith(NO_NEWLINE):
            lines.append(cursor.take())
            continue
        if counts.used_up:
            break
        mark = _MARKS.get(line[:1])
        counts = counts if mark is None else counts.without(mark)
        if mark is None or counts.exceeded:
            cursor.position = start
            return None
        lines.append(cursor.take())
    if not counts.used_up or _goes_on(cursor):
        cursor.position = start
        return None
    return lines


def _goes_on(cursor: Cursor) -> bool:
    """Say whether more of a hunk follows where it should be over."""
    line = cursor.peek()
    if line is None or line == "" or githeader.starts(cursor) or starts_signature(cursor):
        return False
    return line[0] in _MARKS


def _recounted(cursor: Cursor) -> tuple[list[str], _Counts]:
    """Look at the lines up to the next header, whatever was announced; take nothing."""
    lines: list[str] = []
    ahead = 0
    while (line := cursor.peek(ahead)) is not None:
        if line[:1] not in _MARKS and not line.startswith(NO_NEWLINE):
            break
        if starts_signature(cursor, ahead) or (
            githeader.starts_plain(cursor, ahead)
            and (cursor.peek(ahead + 2) or "").startswith(START)
        ):
            break
        lines.append(line)
        ahead += 1
    marks = [_MARKS[line[:1]] for line in lines[: _trimmed(lines)] if line[:1] in _MARKS]
    return lines, _Counts(
        sum(mark != ADDED for mark in marks), sum(mark != REMOVED for mark in marks)
    )


def _trimmed(lines: list[str]) -> int:
    """Return how many lines are left when empty ones at the end are taken for separators."""
    end = len(lines)
    while end and lines[end - 1] == "":
        end -= 1
    return end


def _body(cursor: Cursor, lines: list[str], number: int) -> tuple[HunkLine, ...]:
    """Turn the lines of a hunk into values; only the last of a side may lack its newline."""
    body: list[HunkLine] = []
    ended: set[str] = set()
    for offset, line in enumerate(lines, 1):
        if line.startswith(NO_NEWLINE):
            if not body or not body[-1].newline or not body[-1].text:
                raise cursor.failure(
                    "corrupt", "the no-newline marker belongs to no line", line=number + offset
                )
            body[-1] = replace(body[-1], newline=False)
            ended |= {REMOVED, ADDED} if body[-1].mark == CONTEXT else {body[-1].mark}
            continue
        mark = _MARKS[line[:1]]
        if mark in ended or (mark == CONTEXT and ended):
            raise cursor.failure(
                "corrupt",
                "a line follows one that is marked as the last of the file",
                line=number + offset,
            )
        body.append(HunkLine(mark, to_bytes(line[1:])))
    if all(line.mark == CONTEXT for line in body):
        raise cursor.failure("corrupt", "the hunk changes nothing", line=number)
    return tuple(body)
