"""The ``*** Begin Patch`` envelope → operations.

    *** Begin Patch
    *** Add File: path            every line starts with +
    *** Update File: path         then, perhaps, *** Move to: path
    @@ heading                    starts a chunk; the first may do without
     context, -removed, +added    an empty line is an empty context line
    *** End of File               the chunk's old lines are the last of the file
    *** Delete File: path
    *** End Patch

The text after ``@@`` names a line that stands above the chunk; several such lines one under the
other (a class, then its method) are looked for one after the other, and a ``Hunk`` holds them in
its heading, separated by newlines. A heading may be closed with another ``@@``. Nothing may stand
outside the envelope but empty lines, and inside it nothing but this.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from coilclaw.changes.formats.answer_text import Cursor, collect_failures, malformed_error, to_bytes
from coilclaw.changes.operations import (
    ADDED,
    CONTEXT,
    LINE_MARKS,
    AnswerLimits,
    AnswerSource,
    DeleteFile,
    Format,
    Hunk,
    HunkLine,
    Operation,
    PatchFile,
    WriteFile,
)
from coilclaw.kernel import combine, quote_text

if TYPE_CHECKING:
    from coilclaw.changes.formats.answer_text import BlockScan
    from coilclaw.kernel import CoilClawError, TreePath

_END_LINE: Final = r"\*\*\* End Patch[ \t\r]*$"
BEGIN: Final = "*** Begin Patch"
END: Final = "*** End Patch"
ADD: Final = "*** Add File: "
UPDATE: Final = "*** Update File: "
DELETE: Final = "*** Delete File: "
MOVE: Final = "*** Move to: "
END_OF_FILE: Final = "*** End of File"
MARKS: Final = rf"[ \t]*\*\*\* Begin Patch[ \t\r]*$|{_END_LINE}"
MAX_CHUNKS: Final = 10_000
"""Chunks one file may have."""

_OPERATIONS: Final = AnswerLimits().operations
_LINE_NUMBERS: Final = re.compile(r"-[0-9]+(,[0-9]+)? \+[0-9]+(,[0-9]+)? @@")


def take(scan: BlockScan, start: int) -> int:
    """Keep the envelope that begins on a line, up to its end."""
    indent = scan.indent_at(start)
    begins = scan.text.startswith(BEGIN, start + len(indent))
    closing = scan.find_closing(_END_LINE, start, indent) if begins else None
    if closing is None:
        what = "an envelope has no" if begins else "no envelope begins before"
        raise malformed_error(scan.line(start), "envelope.end", f"{what} '{END}'")
    return scan.add_indented(Format.ENVELOPE, start, start, scan.after(closing), indent)


def parse(
    text: str, *, first_line: int, failures: list[CoilClawError] | None = None
) -> tuple[Operation, ...]:
    """Read an envelope.

    What is wrong with its files is raised as one error, or added to ``failures`` if that is given.
    """
    failed: list[CoilClawError] = [] if failures is None else failures
    cursor = Cursor(text, first_line=first_line, form=Format.ENVELOPE)
    cursor.skip_blank()
    if cursor.peek() != BEGIN:
        raise cursor.failure("begin", f"the envelope must start with '{BEGIN}'")
    cursor.take()
    operations: list[Operation] = []
    while cursor.peek() != END:
        if len(operations) == _OPERATIONS:
            raise cursor.failure("long", f"the envelope names more than {_OPERATIONS:,} files")
        start = cursor.position
        if cursor.peek() is None:
            raise cursor.failure("end", f"the envelope is not closed with '{END}'")
        count = len(operations)
        with collect_failures(failed):
            operations.append(_section(cursor, count))
        if len(operations) == count:
            _skip_section(cursor, start)
    if failed and failures is None:
        raise combine(failed)
    if not operations and not failed:
        raise cursor.failure("empty", "the envelope names no file")
    cursor.take()
    cursor.skip_blank()
    if (line := cursor.peek()) is not None:
        raise cursor.failure("end", f"{quote_text(line)} stands after '{END}'")
    return tuple(operations)


def _section(cursor: Cursor, index: int) -> Operation:
    source = AnswerSource(Format.ENVELOPE, cursor.number, index)
    line = cursor.peek() or ""
    if line.startswith(ADD):
        return _parse_added(cursor, _path(cursor, ADD), source)
    if line.startswith(UPDATE):
        return _parse_updated(cursor, _path(cursor, UPDATE), source)
    if line.startswith(DELETE):
        return DeleteFile(_path(cursor, DELETE), source=source)
    message = f"{quote_text(line)} is none of '{ADD}', '{UPDATE}', '{DELETE}' and '{END}'"
    raise cursor.failure("header", message)


def _skip_section(cursor: Cursor, start: int) -> None:
    """Go from a file that cannot be read to the next one, or to the end."""
    cursor.position = max(cursor.position, start + 1)
    while (line := cursor.peek()) is not None and not line.startswith((ADD, UPDATE, DELETE, END)):
        cursor.take()


def _path(cursor: Cursor, prefix: str) -> TreePath:
    line = cursor.number
    text = cursor.take()[len(prefix) :]
    if not text or text != text.strip():
        message = f"the file name {quote_text(text)} is empty or has spaces around it"
        raise cursor.failure("path", message, line=line)
    return cursor.path(text, line=line)


def _parse_added(cursor: Cursor, path: TreePath, source: AnswerSource) -> Operation:
    lines = []
    while (line := cursor.peek()) is not None and not line.startswith("*** "):
        if not line.startswith(ADDED):
            message = f"a line of the new file {quote_text(str(path))} lacks its '+'"
            raise cursor.failure("add", message, path=str(path))
        lines.append(to_bytes(cursor.take()[1:]) + b"\n")
    return WriteFile(path, b"".join(lines), new=True, source=source)


def _parse_updated(cursor: Cursor, path: TreePath, source: AnswerSource) -> Operation:
    name = str(path)
    target = None
    if (cursor.peek() or "").startswith(MOVE):
        number = cursor.number
        target = _path(cursor, MOVE)
        if target == path:
            message = f"{quote_text(name)} is moved to itself"
            raise cursor.failure("path", message, line=number, path=name)
    hunks: list[Hunk] = []
    while (line := cursor.peek()) is not None and not line.startswith("*** "):
        if len(hunks) == MAX_CHUNKS:
            raise cursor.failure("long", f"the file has more than {MAX_CHUNKS:,} chunks")
        if hunks and hunks[-1].at_end:
            raise cursor.failure("chunk", f"a chunk follows '{END_OF_FILE}'", path=name)
        hunks.append(_chunk(cursor, name, len(hunks)))
    if not hunks and target is None:
        raise cursor.failure(
            "chunk", f"the update of {quote_text(name)} changes nothing", path=name
        )
    return PatchFile(path, tuple(hunks), target=target, source=source)


def _chunk(cursor: Cursor, name: str, index: int) -> Hunk:
    number = cursor.number
    heading = _headings(cursor)
    lines: list[HunkLine] = []
    while (line := cursor.peek()) is not None and not line.startswith(("*** ", "@@")):
        mark = LINE_MARKS.get(line[:1])
        if mark is None:
            message = f"{quote_text(line)} starts with none of ' ', '-', '+' and '@@'"
            raise cursor.failure("chunk", message, path=name)
        lines.append(HunkLine(mark, to_bytes(cursor.take()[1:])))
    if all(line.mark == CONTEXT for line in lines):
        message = f"a chunk of {quote_text(name)} changes nothing"
        raise cursor.failure("chunk", message, line=number, path=name)
    at_end = cursor.peek() == END_OF_FILE
    if at_end:
        cursor.take()
    source = AnswerSource(Format.ENVELOPE, number, index)
    return Hunk(tuple(lines), heading=heading, at_end=at_end, source=source)


def _headings(cursor: Cursor) -> bytes:
    """Read the ``@@`` lines above a chunk; a bare one stands alone."""
    headings: list[str] = []
    while (line := cursor.peek()) is not None and line.startswith("@@"):
        text = line[3:]
        if line[2:3] not in {"", " "} or _LINE_NUMBERS.match(text):
            raise cursor.failure(
                "chunk",
                f"{quote_text(line)} is neither '@@' nor '@@ ' and a line of the file",
                hint="an envelope has no line numbers",
            )
        # A heading may be closed with another @@, as git closes its numbers.
        bare = text.rstrip(" \t")
        if bare == "@@" or bare.endswith((" @@", "\t@@")):
            text = bare[:-2].rstrip(" \t")
        if headings and not text.strip():
            raise cursor.failure("chunk", "a bare '@@' follows a heading")
        cursor.take()
        if not text.strip():
            break
        headings.append(text)
    return to_bytes("\n".join(headings))
