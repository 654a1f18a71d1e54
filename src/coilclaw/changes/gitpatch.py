"""git patches: ``diff --git`` sections or plain unified diffs ⇄ operations.

Text before the first file (mail headers, a commit message) is passed over, and so is the signature
that git puts under a mail. Anything else that is not part of a file's section refuses the patch.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from coilclaw.changes import gitbinary, githeader, githunk, gitrender
from coilclaw.changes.cursor import Cursor
from coilclaw.changes.fault import collect
from coilclaw.changes.lines import joined
from coilclaw.changes.operations import (
    ADDED,
    CONTEXT,
    REMOVED,
    DeleteFile,
    Format,
    Limits,
    Operation,
    Options,
    PatchBinary,
    PatchFile,
    Source,
    WriteFile,
    WriteLink,
)
from coilclaw.changes.roundtrip import checked
from coilclaw.domain.treepath import shown
from coilclaw.errors import combine

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from coilclaw.changes.githeader import FileHeader
    from coilclaw.changes.operations import Hunk
    from coilclaw.domain.treepath import TreePath
    from coilclaw.errors import AnswerError, CoilClawError

_LIMITS: Final = Limits()
_EMPTY_BLOBS: Final = (
    "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391",
    "473a0f4c3be8a93681a267e3b1e9a7dcda1185436fe141f7749120a303721813",
)
_EXECUTABLE: Final = {githeader.PLAIN: False, githeader.EXECUTABLE: True}
_SUBPROJECT: Final = re.compile(rb"Subproject commit [0-9a-f]{40,64}(?:-dirty)?")
_FULL_ID: Final = re.compile("[0-9a-f]{40}")
_COMMAND: Final = re.compile(r"diff -(?!-git )|Index: |={10,}$|RCS file: |retrieving revision ")
# What belongs to a file's section and must not be passed over as prose in front of the first one.
_STRAY: Final = ("@@ -", "+++ ", gitbinary.START, "diff --cc ", "diff --combined ")


def parse(
    text: str,
    *,
    first_line: int,
    options: Options,
    whole: bool = True,
    failures: list[CoilClawError] | None = None,
) -> tuple[Operation, ...]:
    """Read a patch; its first line is line ``first_line`` of the answer.

    Where its end is not certain (it is not ``whole``), its last hunk is never counted down. What is
    wrong with its files is raised as one error, or added to ``failures`` if that is given.
    """
    failed: list[CoilClawError] = [] if failures is None else failures
    cursor = Cursor(text, first_line=first_line, form=Format.GIT)
    _skip_preamble(cursor)
    operations: list[Operation] = []
    inflated = 0
    while cursor.peek() is not None:
        if githunk.starts_signature(cursor):
            break
        if not githeader.starts(cursor):
            raise _garbage(cursor)
        if len(operations) == _LIMITS.operations:
            raise cursor.failure("long", f"the patch has more than {_LIMITS.operations:,} files")
        start = cursor.position
        known = len(failed)
        with collect(failed):
            operation = _section(cursor, len(operations), options, whole=whole)
        if len(failed) > known:
            _skip_section(cursor, start)
            continue
        if isinstance(operation, PatchBinary):
            inflated += len(operation.data)
            if inflated > _LIMITS.total_bytes:
                raise cursor.failure(
                    "long", f"the patch holds more than {_LIMITS.total_bytes:,} binary bytes"
                )
        operations.append(operation)
        cursor.skip_blank()
        _skip_command(cursor)
    if failed and failures is None:
        raise combine(failed)
    return tuple(operations)


def render(operations: Iterable[Operation]) -> str:
    """Return the patch that ``parse`` reads as these operations."""
    wanted = tuple(operations)
    permissive = Options(binary=True, links=True)
    return checked(
        gitrender.NOUN,
        gitrender.compose(wanted),
        wanted,
        lambda text: parse(text, first_line=1, options=permissive),
    )


def _skip_preamble(cursor: Cursor) -> None:
    first = cursor.number
    while (line := cursor.peek()) is not None and not githeader.starts(cursor):
        if line.startswith(_STRAY):
            raise _garbage(cursor)
        cursor.take()
    if cursor.peek() is None:
        raise cursor.failure(
            "empty",
            "the patch names no file with 'diff --git' or with '---' and '+++' lines",
            line=first,
        )


def _skip_section(cursor: Cursor, start: int) -> None:
    """Go from a file that cannot be read to the next one, or to the end."""
    cursor.position = max(cursor.position, start + 1)
    while (line := cursor.peek()) is not None:
        if line.startswith(githeader.GIT_START):
            return
        if githeader.starts_plain(cursor) and (cursor.peek(2) or "").startswith(githunk.START):
            return
        cursor.take()


def _skip_command(cursor: Cursor) -> None:
    """Pass over what diff, CVS and Subversion write above the names of a file."""
    ahead = 0
    while _COMMAND.match(cursor.peek(ahead) or ""):
        ahead += 1
    if ahead and githeader.starts_plain(cursor, ahead):
        cursor.position += ahead


def _garbage(cursor: Cursor) -> AnswerError:
    line = cursor.peek() or ""
    if line.startswith(("diff --cc ", "diff --combined ")):
        return cursor.failure("combined", "a combined diff of a merge cannot be applied")
    if line.startswith(("@@", "+++ ", "--- ", gitbinary.START)):
        return cursor.failure("header", f"{shown(line)} stands without the header of its file")
    return cursor.failure("garbage", f"{shown(line)} is not part of a patch")


def _section(cursor: Cursor, index: int, options: Options, *, whole: bool) -> Operation:
    header = githeader.parse(cursor)
    source = Source(Format.GIT, header.line, index)
    _refuse_kinds(cursor, header, options)
    line = cursor.peek() or ""
    if line.startswith("Binary files ") and line.endswith(" differ"):
        raise cursor.failure(
            "binary",
            f"the patch says that {shown(header.new)} is binary and differs, but not how",
            path=header.new,
            hint="make it with git diff --binary --full-index",
        )
    if line == gitbinary.START:
        return _binary(cursor, header, source, options)
    hunks = githunk.parse(cursor, options, whole=whole)
    if bool(hunks) != header.named:
        raise cursor.failure(
            "header",
            f"{shown(header.new)} has hunks but no '---' and '+++' lines"
            if hunks
            else f"{shown(header.new)} has '---' and '+++' lines but no hunk",
            line=header.line,
            path=header.new,
        )
    if any(_is_subproject(hunk) for hunk in hunks):
        raise _submodule(cursor, header)
    return _textual(cursor, header, hunks, source)


def _refuse_kinds(cursor: Cursor, header: FileHeader, options: Options) -> None:
    if githeader.SUBMODULE in header.modes:
        raise _submodule(cursor, header)
    if githeader.LINK not in header.modes:
        return
    if not options.links:
        raise cursor.failure(
            "link",
            f"{shown(header.new)} is a symbolic link, and links are not permitted",
            line=header.line,
            path=header.new,
        )
    if not (header.created or header.deleted):
        raise cursor.failure(
            "link",
            f"the symbolic link {shown(header.new)} would be modified, which no patch may do",
            line=header.line,
            path=header.new,
            hint="delete the link and create the new one in a second answer",
        )


def _submodule(cursor: Cursor, header: FileHeader) -> AnswerError:
    return cursor.failure(
        "submodule",
        f"{shown(header.new)} is a submodule, which no patch may change",
        line=header.line,
        path=header.new,
    )


def _is_subproject(hunk: Hunk) -> bool:
    return all(
        line.mark != CONTEXT and _SUBPROJECT.fullmatch(line.text) is not None for line in hunk.lines
    )


def _textual(
    cursor: Cursor, header: FileHeader, hunks: tuple[Hunk, ...], source: Source
) -> Operation:
    path = cursor.path(header.old, line=header.line)
    if header.created:
        content = _whole(cursor, header, hunks, ADDED)
        if header.new_mode == githeader.LINK:
            return WriteLink(path, _link_target(cursor, header, content), source)
        executable = None if header.new_mode is None else _EXECUTABLE[header.new_mode]
        return WriteFile(path, content, new=True, executable=executable, source=source)
    if header.deleted:
        content = _whole(cursor, header, hunks, REMOVED)
        if header.old_mode == githeader.LINK:
            content = _link_target(cursor, header, content)
        return DeleteFile(path, content, source)
    if not (hunks or header.renamed or header.copied or header.new_mode):
        if cursor.peek() and not githeader.starts(cursor):
            raise _garbage(cursor)
        raise cursor.failure(
            "empty",
            f"the section of {shown(header.new)} changes nothing",
            line=header.line,
            path=header.new,
        )
    return PatchFile(
        path,
        hunks,
        target=_target(cursor, header, path),
        keep=header.copied,
        old_executable=None if header.old_mode is None else _EXECUTABLE[header.old_mode],
        executable=None if header.new_mode is None else _EXECUTABLE[header.new_mode],
        source=source,
    )


def _target(cursor: Cursor, header: FileHeader, path: TreePath) -> TreePath | None:
    if not (header.renamed or header.copied):
        return None
    target = cursor.path(header.new, line=header.line)
    if target == path:
        raise cursor.failure(
            "names",
            f"{shown(header.old)} is renamed or copied to itself",
            line=header.line,
            path=header.old,
        )
    return target


def _whole(cursor: Cursor, header: FileHeader, hunks: Sequence[Hunk], mark: str) -> bytes:
    """Return the content of a file that comes or goes whole: one hunk of one mark, or none."""
    what = "new" if mark == ADDED else "deleted"
    if not hunks:
        stated = header.ids[mark == ADDED] if header.ids else _EMPTY_BLOBS[0]
        if not any(blob.startswith(stated) for blob in _EMPTY_BLOBS):
            raise cursor.failure(
                "corrupt",
                f"the {what} file {shown(header.new)} is not empty by its index line, but the "
                "patch has no content for it",
                line=header.line,
                path=header.new,
            )
        return b""
    hunk = hunks[0]
    starts = (0, 1) if mark == ADDED else (1, 0)
    if (
        len(hunks) > 1
        or (hunk.old_start, hunk.new_start) != starts
        or any(line.mark != mark for line in hunk.lines)
    ):
        raise cursor.failure(
            "corrupt",
            f"the {what} file {shown(header.new)} needs one hunk with '{mark}' lines only, from "
            f"line {starts[0]} to line {starts[1]}",
            line=hunk.source.line if hunk.source else header.line,
            path=header.new,
        )
    return joined(hunk.lines)


def _link_target(cursor: Cursor, header: FileHeader, content: bytes) -> bytes:
    if not content or b"\n" in content or b"\0" in content:
        raise cursor.failure(
            "link",
            f"the target of the symbolic link {shown(header.new)} must be one line without a "
            "newline",
            line=header.line,
            path=header.new,
        )
    return content


def _binary(cursor: Cursor, header: FileHeader, source: Source, options: Options) -> PatchBinary:
    if not options.binary:
        raise cursor.failure(
            "binary",
            f"{shown(header.new)} is a binary patch, and binary patches are not permitted",
            path=header.new,
        )
    old_id, new_id = _full_ids(cursor, header)
    if header.named or githeader.LINK in header.modes:
        raise cursor.failure(
            "header", f"the header of {shown(header.new)} does not fit a binary patch"
        )
    half = gitbinary.parse(cursor, header.new)
    if header.deleted and half != gitbinary.Half("literal", b""):
        raise cursor.failure(
            "corrupt",
            f"the binary patch deletes {shown(header.new)} and gives it content",
            line=header.line,
            path=header.new,
        )
    path = cursor.path(header.old, line=header.line)
    return PatchBinary(
        path,
        half.method,
        half.data,
        len(half.data),
        old_id,
        new_id,
        target=_target(cursor, header, path),
        keep=header.copied,
        new=header.created,
        delete=header.deleted,
        executable=None if header.new_mode is None else _EXECUTABLE[header.new_mode],
        source=source,
    )


def _full_ids(cursor: Cursor, header: FileHeader) -> tuple[str, str]:
    ids = header.ids or ("", "")
    if not all(_FULL_ID.fullmatch(stated) for stated in ids):
        raise cursor.failure(
            "binary",
            f"the binary patch of {shown(header.new)} needs an index line with full ids",
            line=header.line,
            path=header.new,
            hint="make it with git diff --binary --full-index",
        )
    absent = (ids[0] == gitbinary.ABSENT, ids[1] == gitbinary.ABSENT)
    if absent != (header.created, header.deleted):
        raise cursor.failure(
            "header",
            f"the ids of {shown(header.new)} contradict what the header says is done with it",
            line=header.line,
            path=header.new,
        )
    return ids
