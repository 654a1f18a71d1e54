"""A git patch as files with two columns: what was there, and what is there now.

For looking at, not for applying: whatever cannot be read is shown as it stands, nothing is refused,
and there is a bound on everything.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from coilclaw.kernel import UsageError
from coilclaw.runs.evidence import patch_names
from coilclaw.runs.report.page_elements import Node, make_code, make_note, make_optional, tag

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
        return len(rows), sum(map(_count_chars, rows))


def view_patch(text: str, *, max_rows: int = MAX_ROWS, max_chars: int = MAX_CHARS) -> PatchView:
    """Arrange a patch; other text has no files."""
    files: list[FileDiff] = []
    skipped = 0
    lines = text.split("\n")
    # A line of content never begins like a header.
    starts = [number for number, line in enumerate(lines) if line.startswith(_START)]
    for begin, end in zip_longest(starts, starts[1:], fillvalue=len(lines)):
        if len(files) >= MAX_FILES:
            skipped += 1
            continue
        file = _view_file(lines[begin:end], min(max_rows, MAX_FILE_ROWS), max_chars)
        max_rows -= len(file.rows)
        max_chars -= sum(map(_count_chars, file.rows))
        files.append(file)
    return PatchView(tuple(files), f"{skipped} more files are left out" if skipped else "")


def _view_file(lines: Sequence[str], max_rows: int, max_chars: int) -> FileDiff:
    body = next((n for n, line in enumerate(lines) if line.startswith("@@ -")), len(lines))
    header = lines[:body]
    try:
        old, new, copied = patch_names.read_pair(
            [line.encode("utf-8", "surrogateescape") for line in header]
        )
    except UsageError:
        shown = header[0][len(_START) :][:MAX_LINE_CHARS]
        old = new = shown.encode("utf-8", "surrogateescape")
        copied = False
    path, old_path = (
        name.decode("utf-8", "backslashreplace")[: 2 * MAX_LINE_CHARS] for name in (new, old)
    )
    rows: list[DiffRow] = []
    added = removed = total = 0
    for row in _pair_rows(lines[body:]):
        added += row.changed and row.new.number is not None
        removed += row.changed and row.old.number is not None
        total += 1
        max_chars -= _count_chars(row)
        if len(rows) < max_rows and max_chars >= 0:
            rows.append(row)
    notes = [line for line in header if _MODE.fullmatch(line)]
    if any(line.startswith(_BINARY) for line in header):
        notes.append("binary content, not shown")
    if total > len(rows):
        notes.append(f"{total - len(rows)} more lines are left out")
    kinds: dict[FileChange, bool] = {
        "copied": copied,
        "renamed": old != new,
        "added": any(line.startswith("new file mode ") for line in header),
        "deleted": any(line.startswith("deleted file mode ") for line in header),
        "modified": True,
    }
    change = next(kind for kind, applies in kinds.items() if applies)
    return FileDiff(path, old_path, change, added, removed, tuple(rows), tuple(notes))


def _pair_rows(lines: Sequence[str]) -> Iterator[DiffRow]:
    gone: list[DiffSide] = []
    came: list[DiffSide] = []
    old = new = 0
    for line in (*lines, ""):
        mark, side = line[:1], _cut_line(line[1:])
        if mark == "\\":
            continue  # about a missing newline, which no column can show
        if mark != "+" and (mark != "-" or came):
            pairs = zip_longest(gone, came, fillvalue=DiffSide())
            yield from (DiffRow(*pair, changed=True) for pair in pairs)
            gone, came = [], []
        if mark == "-":
            gone.append(DiffSide(old, side))
            old += 1
        elif mark == "+":
            came.append(DiffSide(new, side))
            new += 1
        elif found := _HUNK.match(line):
            old, new = int(found[1]), int(found[3])
            yield DiffRow(heading=_cut_line(line))
        elif mark == " ":
            yield DiffRow(DiffSide(old, side), DiffSide(new, side))
            old, new = old + 1, new + 1


def _count_chars(row: DiffRow) -> int:
    return len(row.old.text) + len(row.new.text) + len(row.heading)


def _cut_line(text: str) -> str:
    if len(text) <= MAX_LINE_CHARS:
        return text
    return f"{text[:MAX_LINE_CHARS]}… ({len(text) - MAX_LINE_CHARS} more characters)"


FOLDED_ROWS: Final = 400
"""A file with more rows is folded."""
_COLUMNS: Final = tag(
    "colgroup", tag("col", kind="n"), tag("col"), tag("col", kind="n"), tag("col")
)


def show_file(file: FileDiff) -> Node:
    """Show one file: before on the left, after on the right."""
    name = f"{file.old_path} → {file.path}" if file.old_path != file.path else file.path
    title = (
        *(make_code(name), " ", tag("small", file.change), " "),
        *(tag("span", f"+{file.added}", kind="good"), " "),
        tag("span", f"−{file.removed}", kind="bad"),
    )
    rows = [*map(_show_row, file.rows)]
    table = tag("table", _COLUMNS, tag("tbody", *rows), kind="diff") if rows else ""
    inside = (tag("summary", *title), *map(make_note, file.notes), table)
    if len(rows) > FOLDED_ROWS:
        return tag("details", *inside, kind="file")
    return tag("details", *inside, kind="file", open="")


def _show_row(row: DiffRow) -> Node:
    if row.heading:
        return tag("tr", tag("td", row.heading, colspan="4"), kind="hunk")
    old, new = row.old.text, row.new.text
    before = after = 0
    if row.changed and None not in {row.old.number, row.new.number}:
        before = _count_shared(old, new)
        after = _count_shared(old[before:][::-1], new[before:][::-1])
    sides = ((row.old, "gone", "del"), (row.new, "came", "ins"))
    cells: list[Node] = []
    for side, kind, mark in sides if row.changed else ((row.old, "", ""), (row.new, "", "")):
        if side.number is None:
            cells += (tag("td", kind="n none"), tag("td", kind="none"))
            continue
        # The part that differs is marked if the two lines have anything else in common.
        line, end = side.text, len(side.text) - after
        marked = make_optional(mark, line[before:end]) if before + after else line[before:end]
        content = (line[:before], marked, line[end:])
        cells += (
            tag("td", str(side.number), kind=f"n {kind}".strip()),
            tag("td", *content, kind=kind),
        )
    return tag("tr", *cells)


def _count_shared(one: str, other: str) -> int:
    """Return how many characters two texts begin with alike."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(one), len(other)))
