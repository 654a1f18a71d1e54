"""git patches: ``diff --git`` sections or plain unified diffs → operations.

Text before the first file (mail headers, a commit message) is passed over, and so is the signature
that git puts under a mail. Anything else that is not part of a file's section refuses the patch.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from coilclaw.changes.formats import git_binary, git_header
from coilclaw.changes.formats.answer_text import Cursor, collect_failures, to_bytes
from coilclaw.changes.line_edits import join_lines
from coilclaw.changes.operations import (
    ADDED,
    CONTEXT,
    LINE_MARKS,
    REMOVED,
    AnswerLimits,
    AnswerOptions,
    AnswerSource,
    DeleteFile,
    Format,
    Hunk,
    HunkLine,
    Operation,
    PatchBinary,
    PatchFile,
    WriteFile,
    WriteLink,
)
from coilclaw.kernel import combine, quote_text

if TYPE_CHECKING:
    from coilclaw.changes.formats.git_header import FileHeader
    from coilclaw.kernel import AnswerError, CoilClawError, TreePath

MAX_HUNKS: Final = 100_000
"""Hunks one file of a patch may have."""
HUNK_START: Final = "@@ -"
NO_NEWLINE: Final = "\\ "

_LIMITS: Final = AnswerLimits()
_HUNK_HEADER: Final = re.compile(
    r"@@ -([0-9]{1,9})(?:,([0-9]{1,9}))? \+([0-9]{1,9})(?:,([0-9]{1,9}))? @@ ?(.*)", re.DOTALL
)
_EMPTY_BLOBS: Final = (
    "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391",
    "473a0f4c3be8a93681a267e3b1e9a7dcda1185436fe141f7749120a303721813",
)
_EXECUTABLE: Final = {None: None, git_header.PLAIN: False, git_header.EXECUTABLE: True}
_SUBPROJECT: Final = re.compile(rb"Subproject commit [0-9a-f]{40,64}(?:-dirty)?")
_FULL_ID: Final = re.compile("[0-9a-f]{40}")
_COMMAND: Final = re.compile(r"diff -(?!-git )|Index: |={10,}$|RCS file: |retrieving revision ")
_COMBINED: Final = ("diff --cc ", "diff --combined ")
# What belongs to a file's section and must not be passed over as prose in front of the first one.
_STRAY: Final = (HUNK_START, "+++ ", git_binary.START, *_COMBINED)
_MAKE: Final = "make it with git diff --binary --full-index"


def parse(
    text: str,
    *,
    first_line: int,
    options: AnswerOptions,
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
    while cursor.peek() is not None and not _starts_signature(cursor):
        if not git_header.starts(cursor):
            raise _garbage(cursor)
        if len(operations) == _LIMITS.operations:
            raise cursor.failure("long", f"the patch has more than {_LIMITS.operations:,} files")
        start = cursor.position
        known = len(failed)
        with collect_failures(failed):
            operation = _Section(cursor, len(operations), options, whole=whole).parse()
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


def _skip_preamble(cursor: Cursor) -> None:
    first = cursor.number
    while (line := cursor.peek()) is not None and not git_header.starts(cursor):
        if line.startswith(_STRAY):
            raise _garbage(cursor)
        cursor.take()
    if cursor.peek() is None:
        message = "the patch names no file with 'diff --git' or with '---' and '+++' lines"
        raise cursor.failure("empty", message, line=first)


def _skip_section(cursor: Cursor, start: int) -> None:
    """Go from a file that cannot be read to the next one, or to the end."""
    cursor.position = max(cursor.position, start + 1)
    while (line := cursor.peek()) is not None:
        if line.startswith(git_header.GIT_START) or _starts_file(cursor):
            return
        cursor.take()


def _skip_command(cursor: Cursor) -> None:
    """Pass over what diff, CVS and Subversion write above the names of a file."""
    ahead = 0
    while _COMMAND.match(cursor.peek(ahead) or ""):
        ahead += 1
    if ahead and git_header.starts_plain(cursor, ahead):
        cursor.position += ahead


def _garbage(cursor: Cursor) -> AnswerError:
    line = cursor.peek() or ""
    if line.startswith(_COMBINED):
        return cursor.failure("combined", "a combined diff of a merge cannot be applied")
    if line.startswith(("@@", "+++ ", "--- ", git_binary.START)):
        return cursor.failure("header", f"{quote_text(line)} stands without the header of its file")
    return cursor.failure("garbage", f"{quote_text(line)} is not part of a patch")


class _Section:
    """One file of a patch."""

    def __init__(self, cursor: Cursor, index: int, options: AnswerOptions, *, whole: bool) -> None:
        self._cursor = cursor
        self._options = options
        self._whole = whole
        self._header: FileHeader = git_header.parse(cursor)
        self._name = quote_text(self._header.new)
        self._modes = {self._header.old_mode, self._header.new_mode, self._header.index_mode}
        self._source = AnswerSource(Format.GIT, self._header.line, index)

    def parse(self) -> Operation:
        cursor, header = self._cursor, self._header
        self._check_kind()
        line = cursor.peek() or ""
        if line.startswith("Binary files ") and line.endswith(" differ"):
            message = f"the patch says that {self._name} is binary and differs, but not how"
            raise cursor.failure("binary", message, path=header.new, hint=_MAKE)
        if line == git_binary.START:
            return self._binary()
        hunks = self._hunks()
        if bool(hunks) != header.named:
            says = (
                "hunks but no '---' and '+++' lines"
                if hunks
                else "'---' and '+++' lines but no hunk"
            )
            raise self._failure("header", f"{self._name} has {says}")
        if any(
            all(line.mark != CONTEXT and _SUBPROJECT.fullmatch(line.text) for line in hunk.lines)
            for hunk in hunks
        ):
            raise self._submodule()
        return self._textual(hunks)

    def _failure(
        self, rule: str, message: str, *, line: int | None = None, hint: str | None = None
    ) -> AnswerError:
        """Return the error for this file, at its header if no line is given."""
        at = self._header.line if line is None else line
        return self._cursor.failure(rule, message, line=at, path=self._header.new, hint=hint)

    def _submodule(self) -> AnswerError:
        return self._failure("submodule", f"{self._name} is a submodule, which no patch may change")

    def _check_kind(self) -> None:
        if git_header.SUBMODULE in self._modes:
            raise self._submodule()
        if git_header.LINK not in self._modes:
            return
        if not self._options.links:
            raise self._failure(
                "link", f"{self._name} is a symbolic link, and links are not permitted"
            )
        if not (self._header.created or self._header.deleted):
            raise self._failure(
                "link",
                f"the symbolic link {self._name} would be modified, which no patch may do",
                hint="delete the link and create the new one in a second answer",
            )

    def _textual(self, hunks: tuple[Hunk, ...]) -> Operation:
        header, source = self._header, self._source
        path = self._cursor.path(header.old, line=header.line)
        if header.created:
            content = self._content(hunks, ADDED)
            if header.new_mode == git_header.LINK:
                return WriteLink(path, self._link_target(content), source)
            return WriteFile(
                path, content, new=True, executable=_EXECUTABLE[header.new_mode], source=source
            )
        if header.deleted:
            content = self._content(hunks, REMOVED)
            if header.old_mode == git_header.LINK:
                content = self._link_target(content)
            return DeleteFile(path, content, source)
        if not (hunks or header.renamed or header.copied or header.new_mode):
            if self._cursor.peek() and not git_header.starts(self._cursor):
                raise _garbage(self._cursor)
            raise self._failure("empty", f"the section of {self._name} changes nothing")
        return PatchFile(
            path,
            hunks,
            target=self._target(path),
            keep=header.copied,
            old_executable=_EXECUTABLE[header.old_mode],
            executable=_EXECUTABLE[header.new_mode],
            source=source,
        )

    def _target(self, path: TreePath) -> TreePath | None:
        if not (self._header.renamed or self._header.copied):
            return None
        target = self._cursor.path(self._header.new, line=self._header.line)
        if target == path:
            raise self._failure("names", f"{self._name} is renamed or copied to itself")
        return target

    def _content(self, hunks: tuple[Hunk, ...], mark: str) -> bytes:
        """Return the content of a file that comes or goes whole: one hunk of one mark, or none."""
        what = "new" if mark == ADDED else "deleted"
        if not hunks:
            stated = self._header.ids[mark == ADDED] if self._header.ids else _EMPTY_BLOBS[0]
            if not any(blob.startswith(stated) for blob in _EMPTY_BLOBS):
                raise self._failure(
                    "corrupt",
                    f"the {what} file {self._name} is not empty by its index line, but the patch "
                    "has no content for it",
                )
            return b""
        hunk = hunks[0]
        starts = (0, 1) if mark == ADDED else (1, 0)
        if (
            len(hunks) > 1
            or (hunk.old_start, hunk.new_start) != starts
            or any(line.mark != mark for line in hunk.lines)
        ):
            raise self._failure(
                "corrupt",
                f"the {what} file {self._name} needs one hunk with '{mark}' lines only, from "
                f"line {starts[0]} to line {starts[1]}",
                line=hunk.source.line if hunk.source else None,
            )
        return join_lines(hunk.lines)

    def _link_target(self, content: bytes) -> bytes:
        if not content or b"\n" in content or b"\0" in content:
            message = (
                f"the target of the symbolic link {self._name} must be one line without a newline"
            )
            raise self._failure("link", message)
        return content

    def _binary(self) -> PatchBinary:
        cursor, header = self._cursor, self._header
        if not self._options.binary:
            message = f"{self._name} is a binary patch, and binary patches are not permitted"
            raise cursor.failure("binary", message, path=header.new)
        ids = header.ids or ("", "")
        if not all(_FULL_ID.fullmatch(stated) for stated in ids):
            message = f"the binary patch of {self._name} needs an index line with full ids"
            raise self._failure("binary", message, hint=_MAKE)
        if (header.created, header.deleted) != tuple(stated == git_binary.ABSENT for stated in ids):
            message = f"the ids of {self._name} contradict what the header says is done with it"
            raise self._failure("header", message)
        if header.named or git_header.LINK in self._modes:
            message = f"the header of {self._name} does not fit a binary patch"
            raise cursor.failure("header", message)
        method, data = git_binary.parse(cursor, header.new)
        if header.deleted and (method, data) != ("literal", b""):
            message = f"the binary patch deletes {self._name} and gives it content"
            raise self._failure("corrupt", message)
        path = cursor.path(header.old, line=header.line)
        return PatchBinary(
            path,
            method,
            data,
            len(data),
            *ids,
            target=self._target(path),
            keep=header.copied,
            new=header.created,
            delete=header.deleted,
            executable=_EXECUTABLE[header.new_mode],
            source=self._source,
        )

    def _hunks(self) -> tuple[Hunk, ...]:
        """Read all hunks; unless the patch is whole, its text may have been cut off."""
        hunks: list[Hunk] = []
        while (self._cursor.peek() or "").startswith("@@"):
            if len(hunks) == MAX_HUNKS:
                raise self._cursor.failure("long", f"the file has more than {MAX_HUNKS:,} hunks")
            hunks.append(self._hunk(len(hunks)))
        return tuple(hunks)

    def _hunk(self, index: int) -> Hunk:
        cursor = self._cursor
        number = cursor.number
        header = _HUNK_HEADER.fullmatch(cursor.take())
        if header is None:
            message = "a hunk header must look like '@@ -1,4 +1,5 @@'"
            raise cursor.failure("corrupt", message, line=number)
        stated = _Counts(int(header[2] or 1), int(header[4] or 1))
        lines = _take_stated(cursor, stated)
        if lines is None:
            lines, actual = _recount(cursor)
            is_short = actual.old < stated.old and actual.new < stated.new
            # What is missing at the end may be lost: a line that closes a code block ends a patch.
            is_cut = is_short and not self._whole and cursor.peek(len(lines)) is None
            if not self._options.lenient or not lines or is_cut:
                right = f"@@ -{header[1]},{actual.old} +{header[3]},{actual.new} @@"
                hint = f"for the lines that follow it is '{right}'; --lenient counts them anew"
                if is_cut:
                    hint = f"see that the patch is complete, then write '{right}'"
                raise cursor.failure(
                    "corrupt",
                    f"the hunk header announces {stated}, but {actual} follow"
                    + (" before the patch ends" if is_cut else ""),
                    line=number,
                    hint=hint if lines or is_cut else None,
                )
            cursor.position += len(lines)
            lines = lines[: _count_trimmed(lines)]
        return Hunk(
            lines=_hunk_lines(cursor, lines, number),
            old_start=int(header[1]),
            new_start=int(header[3]),
            heading=to_bytes(header[5]),
            source=AnswerSource(Format.GIT, number, index),
        )


@dataclass(frozen=True, slots=True)
class _Counts:
    """How many lines of each side a hunk has."""

    old: int
    new: int

    def __str__(self) -> str:
        return f"{self.old} old and {self.new} new lines"


def _starts_file(cursor: Cursor, ahead: int = 0) -> bool:
    """Say whether the names of a plain diff and a hunk of it start here."""
    has_hunk = (cursor.peek(ahead + 2) or "").startswith(HUNK_START)
    return has_hunk and git_header.starts_plain(cursor, ahead)


def _starts_signature(cursor: Cursor, ahead: int = 0) -> bool:
    """Say whether the mail signature that git puts under a patch starts here and ends the text."""
    if cursor.peek(ahead) not in {"-- ", "--"}:
        return False
    ahead += 1 if cursor.peek(ahead + 1) is None else 2
    while cursor.peek(ahead) == "":
        ahead += 1
    return cursor.peek(ahead) is None


def _take_stated(cursor: Cursor, counts: _Counts) -> list[str] | None:
    """Take exactly the lines that the header announces, or take nothing and return ``None``."""
    old, new = counts.old, counts.new
    lines: list[str] = []
    while (line := cursor.peek(len(lines))) is not None:
        if not line.startswith(NO_NEWLINE):
            if old <= 0 and new <= 0:
                break
            mark = LINE_MARKS.get(line[:1])
            old -= mark != ADDED
            new -= mark != REMOVED
            if mark is None or old < 0 or new < 0:
                return None
        lines.append(line)
    ahead = len(lines)
    is_over = git_header.starts(cursor, ahead) or _starts_signature(cursor, ahead)
    if old > 0 or new > 0 or (line and line[0] in LINE_MARKS and not is_over):
        return None
    cursor.position += ahead
    return lines


def _recount(cursor: Cursor) -> tuple[list[str], _Counts]:
    """Look at the lines up to the next header, whatever was announced; take nothing."""
    lines: list[str] = []
    while (line := cursor.peek(len(lines))) is not None:
        if line[:1] not in LINE_MARKS and not line.startswith(NO_NEWLINE):
            break
        if _starts_signature(cursor, len(lines)) or _starts_file(cursor, len(lines)):
            break
        lines.append(line)
    marks = [
        LINE_MARKS[line[:1]] for line in lines[: _count_trimmed(lines)] if line[:1] in LINE_MARKS
    ]
    return lines, _Counts(len(marks) - marks.count(ADDED), len(marks) - marks.count(REMOVED))


def _count_trimmed(lines: list[str]) -> int:
    """Return how many lines are left when empty ones at the end are taken for separators."""
    end = len(lines)
    while end and lines[end - 1] == "":
        end -= 1
    return end


def _hunk_lines(cursor: Cursor, lines: list[str], number: int) -> tuple[HunkLine, ...]:
    """Turn the lines of a hunk into values; only the last of a side may lack its newline."""
    body: list[HunkLine] = []
    ended: set[str] = set()
    for at, line in enumerate(lines, number + 1):
        if line.startswith(NO_NEWLINE):
            if not body or not body[-1].newline or not body[-1].text:
                raise cursor.failure("corrupt", "the no-newline marker belongs to no line", line=at)
            body[-1] = replace(body[-1], newline=False)
            ended |= {REMOVED, ADDED} if body[-1].mark == CONTEXT else {body[-1].mark}
            continue
        mark = LINE_MARKS[line[:1]]
        if mark in ended or (mark == CONTEXT and ended):
            message = "a line follows one that is marked as the last of the file"
            raise cursor.failure("corrupt", message, line=at)
        body.append(HunkLine(mark, to_bytes(line[1:])))
    if all(line.mark == CONTEXT for line in body):
        raise cursor.failure("corrupt", "the hunk changes nothing", line=number)
    return tuple(body)
