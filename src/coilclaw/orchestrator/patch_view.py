"""A git patch as files with two columns: what was there, and what is there now.

For looking at, not for applying: whatever cannot be read is shown as it stands, nothing is refused,
and there is a bound on everything.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from coilclaw.errors import UsageError
from coilclaw.orchestrator import patchnames

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MAX_FILES: Final = 300
MAX_FILE_ROWS: Final = 1500
MAX_ROWS: Final = 6000
MAX_CHARS: Final = 1_500_000
"""Of one patch, all files together, like ``MAX_ROWS``."""
MAX_LINE_CHARS: Final = 600
_START: Final = "diff --git "
_HUNK: Final = re.compile(r"@@ -([0-9]{1,9})(?:,([0-9]{1,9}))? \+([0-9]{1,9})(?:,([0-9]{1,9}))? @@")
_BINARY: Final = ("GIT binary patch", "Binary files ")
_MODE: Final = re.compile(r"(?:old|new|new file|deleted file) mode ([0-7]{6})")

FileChange: TypeAlias = Literal["modified", "added", "deleted", "renamed", "copied"]


@dataclass(frozen=True, slots=True)
class DiffSide:
    """A line on one side; ``number`` is ``None`` where that side has no line."""

    number: int | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class DiffRow:
    """Two lines beside each other; ``heading`` is that of a hunk, and then there are none."""

    old: DiffSide = DiffSide()
    new: DiffSide = DiffSide()
    changed: bool = False
    heading: str = ""


@dataclass(frozen=True, slots=True)
class FileDiff:
    """What a patch does to one file."""

    path: str
    old_path: str
    change: FileChange
    added: int
    removed: int
    rows: tuple[DiffRow, ...]
    notes: tuple[str, ...] = ()
    """Modes, binary content, and what was cut."""


@dataclass(frozen=True, slots=True)
class PatchView:
    """The files of a patch, as many as are shown."""

    files: tuple[FileDiff, ...] = ()
    note: str = ""
    """What was left out; empty where nothing was."""

    @property
    def size(self) -> tuple[int, int]:
        """How many rows and characters are shown."""
        rows = [row for file in self.files for row in file.rows]
        return len(rows), sum(map(_length, rows))


def view_patch(text: str, *, max_rows: int = MAX_ROWS, max_chars: int = MAX_CHARS) -> PatchView:
    """Arrange a patch; text that is no patch has no files."""
    files: list[FileDiff] = []
    skipped = 0
    for section in _sections(text.split("\n")):
        if len(files) >= MAX_FILES:
            skipped += 1
            continue
        file = _view_file(section, min(max_rows, MAX_FILE_ROWS), max_chars)
        max_rows -= len(file.rows)
        max_chars -= sum(map(_length, file.rows))
        files.append(file)
    return PatchView(tuple(files), f"{skipped} more files are left out" if skipped else "")


def _sections(lines: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield the lines of each file; a line of content never begins like a header."""
    starts = [number for number, line in enumerate(lines) if line.startswith(_START)]
    for begin, end in zip_longest(starts, starts[1:], fillvalue=len(lines)):
        yield lines[begin:end]


def _view_file(lines: Sequence[str], max_rows: int, max_chars: int) -> FileDiff:
    body = next((n for n, line in enumerate(lines) if line.startswith("@@ -")), len(lines))
    header = lines[:body]
    old, new, copied = _names(header)
    rows, added, removed, total = _view_hunks(lines[body:], max_rows, max_chars)
    notes = [line for line in header if _MODE.fullmatch(line)]
    if any(line.startswith(_BINARY) for line in header):
        notes.append("binary content, not shown")
    if total > len(rows):
        notes.append(f"{total - len(rows)} more lines are left out")
    change = _change(header, renamed=old != new, copied=copied)
    return FileDiff(new, old, change, added, removed, rows, tuple(notes))


def _names(header: Sequence[str]) -> tuple[str, str, bool]:
    named = [line.encode("utf-8", "surrogateescape") for line in header]
    try:
        old, new, copied = patchnames.read_pair(named)
    except UsageError:
        shown = header[0][len(_START) :][:MAX_LINE_CHARS]
        return shown, shown, False
    return _decoded(old), _decoded(new), copied


def _decoded(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")[: 2 * MAX_LINE_CHARS]


def _change(header: Sequence[str], *, renamed: bool, copied: bool) -> FileChange:
    if copied:
        return "copied"
    if renamed:
        return "renamed"
    if any(line.startswith("new file mode ") for line in header):
        return "added"
    return (
        "deleted" if any(line.startswith("deleted file mode ") for line in header) else "modified"
    )


def _view_hunks(
    lines: Sequence[str], max_rows: int, max_chars: int
) -> tuple[tuple[DiffRow, ...], int, int, int]:
    """Return rows, lines added, lines removed, and how many rows there would be."""
    rows: list[DiffRow] = []
    added = removed = total = 0
    for row in _rows(lines):
        added += row.changed and row.new.number is not None
        removed += row.changed and row.old.number is not None
        total += 1
        max_chars -= _length(row)
        if len(rows) < max_rows and max_chars >= 0:
            rows.append(row)
    return tuple(rows), added, removed, total


def _rows(lines: Sequence[str]) -> Iterator[DiffRow]:
    gone: list[DiffSide] = []
    came: list[DiffSide] = []
    old = new = 0
    for line in lines:
        mark, text = line[:1], line[1:]
        if mark == "-" and not came:
            gone.append(DiffSide(old, _cut(text)))
            old += 1
            continue
        if mark == "+":
            came.append(DiffSide(new, _cut(text)))
            new += 1
            continue
        if mark == "\\":
            continue  # about a missing newline, which no column can show
        yield from _paired(gone, came)
        gone, came = [], []
        if mark == "-":
            gone.append(DiffSide(old, _cut(text)))
            old += 1
        elif found := _HUNK.match(line):
            old, new = int(found[1]), int(found[3])
            yield DiffRow(heading=_cut(line))
        elif mark == " ":
            yield DiffRow(DiffSide(old, _cut(text)), DiffSide(new, _cut(text)))
            old, new = old + 1, new + 1
    yield from _paired(gone, came)


def _paired(gone: Sequence[DiffSide], came: Sequence[DiffSide]) -> Iterator[DiffRow]:
    for old, new in zip_longest(gone, came, fillvalue=DiffSide()):
        yield DiffRow(old, new, changed=True)


def _length(row: DiffRow) -> int:
    return len(row.old.text) + len(row.new.text) + len(row.heading)


def _cut(text: str) -> str:
    if len(text) <= MAX_LINE_CHARS:
        return text
    return f"{text[:MAX_LINE_CHARS]}… ({len(text) - MAX_LINE_CHARS} more characters)"
