"""Search-and-replace blocks ⇄ operations.

    path/of/the/file
    <<<<<<< SEARCH
    lines that are there
    =======
    lines to put in their place
    >>>>>>> REPLACE

The path is the line before; it may be in backticks or bold, be a heading, follow "File:", end in a
colon, or, in backticks or bold, be an item of a list. Empty lines and the opening of a code fence
may stand between it and the block, and a fence such as ``python:path`` names the path itself. A
path with spaces needs backticks, so that no sentence is taken for one. A block right after another,
with only empty lines and fences between them, belongs to the same file. All blocks of a file become
one operation. A block that searches for nothing makes a new file and must be the only one of its
file; one that puts nothing takes lines away.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.changes import codefence
from coilclaw.changes.cursor import MAX_NAME_CHARS, Cursor, to_bytes, to_text
from coilclaw.changes.operations import (
    ADDED,
    REMOVED,
    Format,
    Hunk,
    HunkLine,
    Operation,
    Options,
    PatchFile,
    Source,
    WriteFile,
)
from coilclaw.changes.roundtrip import checked, unsaid
from coilclaw.domain.treepath import shown

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coilclaw.domain.treepath import TreePath

SEARCH: Final = "<<<<<<< SEARCH"
DIVIDER: Final = "======="
REPLACE: Final = ">>>>>>> REPLACE"
MAX_BLOCKS: Final = 10_000
"""Blocks one text may have."""

_NOUN: Final = "a search-and-replace block"
_MAX_LAYERS: Final = 8
_BLANKS: Final = " \t"
_MARKERS: Final = (SEARCH, DIVIDER, REPLACE)
_NEARLY: Final = re.compile(r"(?:<{5,9}\s*SEARCH|>{5,9}\s*REPLACE)\s*")
_HEADING: Final = re.compile(r"#{1,6} +")
_WORD: Final = r"(?:file(?:name)?|path)"
_LABEL: Final = re.compile(
    rf"(?:{_WORD}:|\*\*{_WORD}(?::\*\*|\*\*:))[ \t]*(?=[^\s*:])", re.IGNORECASE
)
# Without a dress, an item of a list is a sentence rather than a path.
_ITEM: Final = re.compile(r"(?:[-*+]|[0-9]{1,3}[.)])[ \t]+(?=`|\*\*|file:)", re.IGNORECASE)
_FENCE_PATH: Final = re.compile(r"[A-Za-z][A-Za-z0-9_+#.-]*:(?!//)(\S+)")


@dataclass(frozen=True, slots=True)
class _Block:
    path: TreePath
    old: tuple[bytes, ...]
    new: tuple[bytes, ...]
    line: int


def parse(text: str, *, first_line: int, options: Options) -> tuple[Operation, ...]:
    """Read blocks with their path lines; ``options`` make nothing looser here."""
    del options
    cursor = Cursor(text, first_line=first_line, form=Format.BLOCKS)
    by_path: dict[TreePath, list[_Block]] = {}
    path: TreePath | None = None
    count = 0
    while (found := _next_block(cursor, path)) is not None:
        path = found
        count += 1
        if count > MAX_BLOCKS:
            raise cursor.failure("long", f"the answer has more than {MAX_BLOCKS:,} blocks")
        by_path.setdefault(path, []).append(_block(cursor, path))
    if not by_path:
        raise cursor.failure("empty", f"there is no '{SEARCH}' block", line=first_line)
    return tuple(
        _operation(cursor, path, blocks, index)
        for index, (path, blocks) in enumerate(by_path.items())
    )


def render(operations: Iterable[Operation]) -> str:
    """Return the blocks that ``parse`` reads as these operations."""
    wanted = tuple(operations)
    lines: list[str] = []
    for operation in wanted:
        lines += _composed(operation)
    text = "".join(f"{line}\n" for line in lines)
    return checked(_NOUN, text, wanted, lambda text: parse(text, first_line=1, options=Options()))


def _next_block(cursor: Cursor, path: TreePath | None) -> TreePath | None:
    """Go to the next block and return its path; ``None`` when there are no more blocks."""
    named: int | None = None
    text = ""
    while (line := cursor.peek()) is not None:
        marker = line.rstrip(_BLANKS)
        if marker == SEARCH:
            if named is not None:
                return _path(cursor, text, named)
            if path is None:
                raise cursor.failure("path", "the block has no path on the line before it")
            return path
        if marker in _MARKERS:
            raise cursor.failure("marker", f"'{marker}' stands outside a block")
        _refuse_nearly(cursor, line.lstrip())
        if line.strip() and names_file(line):
            text, named = line, cursor.number
        cursor.take()
    return None


def names_file(line: str) -> bool:
    """Say whether a line that is not blank can only be the path of the block below it."""
    opener = codefence.at(line, 0)
    return opener is None or _FENCE_PATH.fullmatch(opener.info) is not None


def _path(cursor: Cursor, text: str, line: int) -> TreePath:
    if len(text) <= MAX_NAME_CHARS:
        name, quoted = _undressed(text)
        if quoted or not any(map(str.isspace, name)):
            return cursor.path(name, line=line)
    raise cursor.failure(
        "path",
        f"{shown(text)} stands where the path of a block is expected",
        line=line,
        hint="write the path alone on the line before the block, in backticks if it has spaces",
    )


def _undressed(text: str) -> tuple[str, bool]:
    """Take off what models put around a path; what is in backticks is taken as it stands."""
    text = text.strip()
    opener = codefence.at(text, 0)
    if opener is not None and (named := _FENCE_PATH.fullmatch(opener.info)):
        return named[1], False
    for _ in range(_MAX_LAYERS):
        mark = _HEADING.match(text) or _ITEM.match(text) or _LABEL.match(text)
        if mark:
            text = text[mark.end() :]
        elif text.endswith(":"):
            text = text[:-1].rstrip()
        elif text.startswith("**") and text.endswith("**"):
            text = text[2:-2].strip()
        elif len(text) > 2 and text[0] == "`" == text[-1]:
            return text[1:-1], True
        else:
            break
    return text, False


def _refuse_nearly(cursor: Cursor, line: str) -> None:
    if _NEARLY.fullmatch(line):
        raise cursor.failure(
            "marker",
            f"{shown(line)} is nearly a marker, but not one",
            hint=f"the markers are '{SEARCH}', '{DIVIDER}' and '{REPLACE}'",
        )


def _block(cursor: Cursor, path: TreePath) -> _Block:
    number = cursor.number
    cursor.take()
    old = _lines_until(cursor, DIVIDER, path, number)
    new = _lines_until(cursor, REPLACE, path, number)
    return _Block(path, old, new, number)


def _lines_until(cursor: Cursor, marker: str, path: TreePath, start: int) -> tuple[bytes, ...]:
    lines = []
    while True:
        line = cursor.peek()
        found = line.rstrip(_BLANKS) if line is not None else None
        if found == marker:
            break
        if line is None:
            raise cursor.failure(
                "unclosed",
                f"the block of {shown(str(path))} that starts here has no '{marker}'",
                line=start,
                path=str(path),
            )
        if found in _MARKERS:
            raise cursor.failure(
                "marker",
                f"'{found}' stands where '{marker}' must come first, in the block of line {start}",
                path=str(path),
                hint="lines that look like markers cannot be changed in this format",
            )
        _refuse_nearly(cursor, line)
        lines.append(to_bytes(cursor.take()))
    cursor.take()
    return tuple(lines)


def _operation(cursor: Cursor, path: TreePath, blocks: list[_Block], index: int) -> Operation:
    source = Source(Format.BLOCKS, blocks[0].line, index)
    empty = next((block for block in blocks if not block.old), None)
    if empty is not None and len(blocks) > 1:
        raise cursor.failure(
            "empty_search",
            f"a block that searches for nothing makes the new file {shown(str(path))}, but the "
            "file has other blocks too",
            line=empty.line,
            path=str(path),
        )
    if empty is not None:
        content = b"".join(line + b"\n" for line in empty.new)
        return WriteFile(path, content, new=True, source=source)
    hunks = [
        Hunk(
            (
                *(HunkLine(REMOVED, line) for line in block.old),
                *(HunkLine(ADDED, line) for line in block.new),
            ),
            source=Source(Format.BLOCKS, block.line, number),
        )
        for number, block in enumerate(blocks)
    ]
    return PatchFile(path, tuple(hunks), source=source)


def _composed(operation: Operation) -> list[str]:
    name = str(operation.path)
    if _undressed(name)[0] != name or name in _MARKERS or any(map(str.isspace, name)):
        name = f"`{name}`"
    match operation:
        case WriteFile(content=content) if not content or content.endswith(b"\n"):
            new = [to_text(text) for text in content.split(b"\n")[:-1]]
            return [name, SEARCH, DIVIDER, *new, REPLACE]
        case PatchFile(hunks=hunks):
            lines = [name]
            for hunk in hunks:
                old = [to_text(line.text) for line in hunk.old]
                new = [to_text(line.text) for line in hunk.new]
                lines += [SEARCH, *old, DIVIDER, *new, REPLACE]
            return lines
        case _:
            raise unsaid(_NOUN, operation)
