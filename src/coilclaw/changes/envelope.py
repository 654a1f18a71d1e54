"""The ``*** Begin Patch`` envelope ⇄ operations.

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
from typing import TYPE_CHECKING, Final, Literal

from coilclaw.changes.cursor import Cursor, to_bytes, to_text
from coilclaw.changes.fault import collect
from coilclaw.changes.operations import (
    ADDED,
    CONTEXT,
    REMOVED,
    DeleteFile,
    Format,
    Hunk,
    HunkLine,
    Limits,
    Operation,
    Options,
    PatchFile,
    Source,
    WriteFile,
)
from coilclaw.changes.roundtrip import checked, unsaid
from coilclaw.domain.treepath import shown
from coilclaw.errors import combine

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coilclaw.domain.treepath import TreePath
    from coilclaw.errors import CoilClawError

BEGIN: Final = "*** Begin Patch"
END: Final = "*** End Patch"
ADD: Final = "*** Add File: "
UPDATE: Final = "*** Update File: "
DELETE: Final = "*** Delete File: "
MOVE: Final = "*** Move to: "
END_OF_FILE: Final = "*** End of File"
MAX_CHUNKS: Final = 10_000
"""Chunks one file may have."""

_NOUN: Final = "an envelope"
_OPERATIONS: Final = Limits().operations
_MARKS: Final[dict[str, Literal[" ", "-", "+"]]] = {
    "": CONTEXT,
    " ": CONTEXT,
    "-": REMOVED,
    "+": ADDED,
}
_LINE_NUMBERS: Final = re.compile(r"-[0-9]+(,[0-9]+)? \+[0-9]+(,[0-9]+)? @@")


def parse(
    text: str,
    *,
    first_line: int,
    options: Options,
    failures: list[CoilClawError] | None = None,
) -> tuple[Operation, ...]:
    """Read an envelope; ``options`` make nothing looser here.

    What is wrong with its files is raised as one error, or added to ``failures`` if that is given.
    """
    del options
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
        with collect(failed):
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
        raise cursor.failure("end", f"{shown(line)} stands after '{END}'")
    return tuple(operations)


def render(operations: Iterable[Operation]) -> str:
    """Return the envelope that ``parse`` reads as these operations."""
    wanted = tuple(operations)
    lines = [BEGIN]
    for operation in wanted:
        lines += _composed(operation)
    text = "".join(f"{line}\n" for line in (*lines, END))
    return checked(_NOUN, text, wanted, lambda text: parse(text, first_line=1, options=Options()))


def _section(cursor: Cursor, index: int) -> Operation:
    source = Source(Format.ENVELOPE, cursor.number, index)
    line = cursor.peek() or ""
    for prefix, read in ((ADD, _added), (UPDATE, _updated), (DELETE, _deleted)):
        if line.startswith(prefix):
            return read(cursor, _path(cursor, prefix), source)
    raise cursor.failure(
        "header",
        f"{shown(line)} is none of '{ADD}', '{UPDATE}', '{DELETE}' and '{END}'",
    )


def _skip_section(cursor: Cursor, start: int) -> None:
    """Go from a file that cannot be read to the next one, or to the end."""
    cursor.position = max(cursor.position, start + 1)
    while (line := cursor.peek()) is not None and not line.startswith((ADD, UPDATE, DELETE, END)):
        cursor.take()


def _path(cursor: Cursor, prefix: str) -> TreePath:
    line = cursor.number
    text = cursor.take()[len(prefix) :]
    if not text or text != text.strip():
        raise cursor.failure(
            "path", f"the file name {shown(text)} is empty or has spaces around it", line=line
        )
    return cursor.path(text, line=line)


def _added(cursor: Cursor, path: TreePath, source: Source) -> Operation:
    lines = []
    while (line := cursor.peek()) is not None and not line.startswith("*** "):
        if not line.startswith(ADDED):
            raise cursor.failure(
                "add", f"a line of the new file {shown(str(path))} lacks its '+'", path=str(path)
            )
        lines.append(to_bytes(cursor.take()[1:]) + b"\n")
    return WriteFile(path, b"".join(lines), new=True, source=source)


def _deleted(_: Cursor, path: TreePath, source: Source) -> Operation:
    return DeleteFile(path, source=source)


def _updated(cursor: Cursor, path: TreePath, source: Source) -> Operation:
    target = None
    if (cursor.peek() or "").startswith(MOVE):
        target = _path(cursor, MOVE)
        if target == path:
            raise cursor.failure(
                "path",
                f"{shown(str(path))} is moved to itself",
                line=cursor.number - 1,
                path=str(path),
            )
    hunks: list[Hunk] = []
    while (line := cursor.peek()) is not None and not line.startswith("*** "):
        if len(hunks) == MAX_CHUNKS:
            raise cursor.failure("long", f"the file has more than {MAX_CHUNKS:,} chunks")
        if hunks and hunks[-1].at_end:
            raise cursor.failure("chunk", f"a chunk follows '{END_OF_FILE}'", path=str(path))
        hunks.append(_chunk(cursor, path, len(hunks)))
    if not hunks and target is None:
        raise cursor.failure(
            "chunk", f"the update of {shown(str(path))} changes nothing", path=str(path)
        )
    return PatchFile(path, tuple(hunks), target=target, source=source)


def _chunk(cursor: Cursor, path: TreePath, index: int) -> Hunk:
    number = cursor.number
    heading = _headings(cursor)
    lines: list[HunkLine] = []
    while (line := cursor.peek()) is not None and not line.startswith(("*** ", "@@")):
        mark = _MARKS.get(line[:1])
        if mark is None:
            raise cursor.failure(
                "chunk",
                f"{shown(line)} starts with none of ' ', '-', '+' and '@@'",
                path=str(path),
            )
        lines.append(HunkLine(mark, to_bytes(cursor.take()[1:])))
    if all(line.mark == CONTEXT for line in lines):
        raise cursor.failure(
            "chunk",
            f"a chunk of {shown(str(path))} changes nothing",
            line=number,
            path=str(path),
        )
    at_end = cursor.peek() == END_OF_FILE
    if at_end:
        cursor.take()
    return Hunk(
        tuple(lines),
        heading=heading,
        at_end=at_end,
        source=Source(Format.ENVELOPE, number, index),
    )


def _headings(cursor: Cursor) -> bytes:
    """Read the ``@@`` lines above a chunk; a bare one stands alone."""
    headings: list[str] = []
    while (line := cursor.peek()) is not None and line.startswith("@@"):
        text = line[3:]
        if line[2:3] not in {"", " "} or _LINE_NUMBERS.match(text):
            raise cursor.failure(
                "chunk",
                f"{shown(line)} is neither '@@' nor '@@ ' and a line of the file",
                hint="an envelope has no line numbers",
            )
        cursor.take()
        text = _opened(text)
        if text.strip():
            headings.append(text)
        elif not headings:
            break
        else:
            raise cursor.failure("chunk", "a bare '@@' follows a heading", line=cursor.number - 1)
    return to_bytes("\n".join(headings))


def _opened(heading: str) -> str:
    """Take off the ``@@`` that a heading may be closed with, as git closes its numbers."""
    bare = heading.rstrip(" \t")
    if bare == "@@" or bare.endswith((" @@", "\t@@")):
        return bare[:-2].rstrip(" \t")
    return heading


def _composed(operation: Operation) -> list[str]:
    match operation:
        case WriteFile(content=content) if not content or content.endswith(b"\n"):
            texts = content.split(b"\n")[:-1]
            return [f"{ADD}{operation.path}", *(ADDED + to_text(text) for text in texts)]
        case DeleteFile():
            return [f"{DELETE}{operation.path}"]
        case PatchFile():
            lines = [f"{UPDATE}{operation.path}"]
            if operation.target is not None:
                lines.append(f"{MOVE}{operation.target}")
            for hunk in operation.hunks:
                lines += _composed_chunk(hunk)
            return lines
        case _:
            raise unsaid(_NOUN, operation)


def _composed_chunk(hunk: Hunk) -> list[str]:
    headings = to_text(hunk.heading).split("\n") if hunk.heading else [""]
    lines = [f"@@ {heading}" if heading else "@@" for heading in headings]
    lines += [line.mark + to_text(line.text) for line in hunk.lines]
    return [*lines, END_OF_FILE] if hunk.at_end else lines
