"""Search-and-replace blocks → operations.

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
from typing import TYPE_CHECKING, Final, NamedTuple

from coilclaw.changes.formats.answer_text import (
    MAX_NAME_CHARS,
    Cursor,
    fence_at,
    malformed_error,
    to_bytes,
)
from coilclaw.changes.operations import (
    ADDED,
    REMOVED,
    AnswerSource,
    Format,
    Hunk,
    HunkLine,
    Operation,
    PatchFile,
    WriteFile,
)
from coilclaw.kernel import quote_text

if TYPE_CHECKING:
    from coilclaw.changes.formats.answer_text import BlockScan
    from coilclaw.kernel import TreePath

SEARCH: Final = "<<<<<<< SEARCH"
DIVIDER: Final = "======="
REPLACE: Final = ">>>>>>> REPLACE"
MAX_BLOCKS: Final = 10_000
"""Blocks one text may have."""
MAX_GAP: Final = 1000
"""Blank lines and code fences between a block and its path."""

_REPLACE_LINE: Final = r">{5,9}[ \t]*REPLACE[ \t\r]*$"
MARKS: Final = rf"[ \t]*<{{5,9}}[ \t]*SEARCH[ \t\r]*$|{_REPLACE_LINE}"
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


class _Block(NamedTuple):
    """One block: the lines to find, those to put there, and its first line in the answer."""

    old: tuple[bytes, ...]
    new: tuple[bytes, ...]
    line: int


def take(scan: BlockScan, start: int) -> int:
    """Keep the block that begins on a line, with the line of its path before it."""
    indent = scan.indent_at(start)
    if scan.text.startswith(">", start + len(indent)):
        raise malformed_error(
            scan.line(start),
            "blocks.marker",
            f"'{REPLACE}' stands outside a block",
            hint=f"a block starts with '{SEARCH}'",
        )
    closing = scan.find_closing(_REPLACE_LINE, start, indent)
    if closing is None and indent:
        message = f"an indented block has no '{REPLACE}' with the same indentation"
        raise malformed_error(scan.line(start), "blocks.unclosed", message)
    end = scan.end if closing is None else scan.after(closing)
    last = scan.segments[-1] if scan.segments else None
    floor = last.end if last else 0
    place = start
    for _ in range(MAX_GAP):
        if place <= floor:
            break
        place = scan.line_start(place - 1, floor)
        line = scan.text[place : scan.after(place)]
        if line.strip() and _names_file(line):
            break
    if last and last.kind is Format.BLOCKS and last.end == place:
        # Nothing but blanks and code fences lie between: the block goes with the one before.
        last.end = end
        if indent:
            last.indented.append((start, end, indent))
        return end
    return scan.add_indented(Format.BLOCKS, place, start, end, indent)


def parse(text: str, *, first_line: int) -> tuple[Operation, ...]:
    """Read blocks with their path lines."""
    cursor = Cursor(text, first_line=first_line, form=Format.BLOCKS)
    by_path: dict[TreePath, list[_Block]] = {}
    path: TreePath | None = None
    count = 0
    while (path := _next_block(cursor, path)) is not None:
        count += 1
        if count > MAX_BLOCKS:
            raise cursor.failure("long", f"the answer has more than {MAX_BLOCKS:,} blocks")
        number = cursor.number
        cursor.take()
        old = _lines_until(cursor, DIVIDER, path, number)
        new = _lines_until(cursor, REPLACE, path, number)
        by_path.setdefault(path, []).append(_Block(old, new, number))
    if not by_path:
        raise cursor.failure("empty", f"there is no '{SEARCH}' block", line=first_line)
    return tuple(
        _operation(cursor, path, blocks, index)
        for index, (path, blocks) in enumerate(by_path.items())
    )


def _next_block(cursor: Cursor, path: TreePath | None) -> TreePath | None:
    """Go to the next block and return its path; ``None`` after the last block."""
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
        if line.strip() and _names_file(line):
            text, named = line, cursor.number
        cursor.take()
    return None


def _names_file(line: str) -> bool:
    """Say whether a line that is not blank can only be the path of the block below it."""
    opener = fence_at(line, 0)
    return opener is None or _FENCE_PATH.fullmatch(opener.info) is not None


def _path(cursor: Cursor, text: str, line: int) -> TreePath:
    if len(text) <= MAX_NAME_CHARS:
        name, quoted = undress_path(text)
        if quoted or not any(map(str.isspace, name)):
            return cursor.path(name, line=line)
    raise cursor.failure(
        "path",
        f"{quote_text(text)} stands where the path of a block is expected",
        line=line,
        hint="write the path alone on the line before the block, in backticks if it has spaces",
    )


def undress_path(text: str) -> tuple[str, bool]:
    """Take off what models put around a path; what is in backticks is taken as it stands."""
    text = text.strip()
    opener = fence_at(text, 0)
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
            f"{quote_text(line)} is nearly a marker, but not one",
            hint=f"the markers are '{SEARCH}', '{DIVIDER}' and '{REPLACE}'",
        )


def _lines_until(cursor: Cursor, marker: str, path: TreePath, start: int) -> tuple[bytes, ...]:
    lines: list[bytes] = []
    while (line := cursor.peek()) is not None:
        found = line.rstrip(_BLANKS)
        if found == marker:
            cursor.take()
            return tuple(lines)
        if found in _MARKERS:
            raise cursor.failure(
                "marker",
                f"'{found}' stands where '{marker}' must come first, in the block of line {start}",
                path=str(path),
                hint="lines that look like markers cannot be changed in this format",
            )
        _refuse_nearly(cursor, line)
        lines.append(to_bytes(cursor.take()))
    message = f"the block of {quote_text(str(path))} that starts here has no '{marker}'"
    raise cursor.failure("unclosed", message, line=start, path=str(path))


def _operation(cursor: Cursor, path: TreePath, blocks: list[_Block], index: int) -> Operation:
    source = AnswerSource(Format.BLOCKS, blocks[0].line, index)
    empty = next((block for block in blocks if not block.old), None)
    if empty is not None and len(blocks) > 1:
        raise cursor.failure(
            "empty_search",
            f"a block that searches for nothing makes the new file {quote_text(str(path))}, "
            "but the "
            "file has other blocks too",
            line=empty.line,
            path=str(path),
        )
    if empty is not None:
        content = b"".join(line + b"\n" for line in empty.new)
        return WriteFile(path, content, new=True, source=source)
    hunks = []
    for number, (old, new, line) in enumerate(blocks):
        removed, added = (
            (HunkLine(REMOVED, text) for text in old),
            (HunkLine(ADDED, text) for text in new),
        )
        hunks.append(Hunk((*removed, *added), source=AnswerSource(Format.BLOCKS, line, number)))
    return PatchFile(path, tuple(hunks), source=source)
