"""What an answer asks for: one change set, whatever formats it was written in."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from coilclaw.kernel import PlanRefused, quote_text

if TYPE_CHECKING:
    from coilclaw.kernel import FileState, Found, TreePath


class Format(StrEnum):
    """The formats an answer may be written in; the values are those of ``apply --format``."""

    FENCE = "fence"
    BUNDLE = "bundle"
    PATCH = "patch"
    GIT = "git"
    ENVELOPE = "envelope"
    BLOCKS = "blocks"


@dataclass(frozen=True, slots=True)
class AnswerSource:
    """Where in the answer an operation stands. It explains; it does not make operations differ."""

    format: Format
    line: int
    """First line of the operation in the answer, from 1."""
    index: int = 0
    """Position of the entry within its block, from 0."""


@dataclass(frozen=True, slots=True)
class WriteFile:
    """Put a whole file; ``new`` refuses when something is there already."""

    path: TreePath
    content: bytes
    new: bool = False
    executable: bool | None = None
    """``None`` keeps the mode of a file that is there, and is plain for a new one."""
    source: AnswerSource | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class WriteLink:
    """Put a symbolic link (only where the caller allows links at all)."""

    path: TreePath
    target: bytes
    source: AnswerSource | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class DeleteFile:
    """Remove a file; where ``expected`` is given, only if it holds exactly that."""

    path: TreePath
    expected: bytes | None = None
    source: AnswerSource | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Replacement:
    """One literal find-and-replace."""

    find: str
    replace: str
    limit: Literal["once", "all"] = "once"


@dataclass(frozen=True, slots=True)
class EditText:
    """Literal replacements in one file, in order."""

    path: TreePath
    replacements: tuple[Replacement, ...]
    source: AnswerSource | None = field(default=None, compare=False)


CONTEXT: Final = " "
REMOVED: Final = "-"
ADDED: Final = "+"
LINE_MARKS: Final[dict[str, Literal[" ", "-", "+"]]] = {
    "": CONTEXT,
    " ": CONTEXT,
    "-": REMOVED,
    "+": ADDED,
}
"""What the first character of a hunk's line says; an empty line is an empty context line."""


@dataclass(frozen=True, slots=True)
class HunkLine:
    """One line of a hunk, without its newline; ``newline`` is false where there is none."""

    mark: Literal[" ", "-", "+"]
    text: bytes
    newline: bool = True


@dataclass(frozen=True, slots=True)
class Hunk:
    """Consecutive lines to find and what to put in their place."""

    lines: tuple[HunkLine, ...]
    old_start: int | None = None
    """Line the hunk says it starts at in the old file, from 1 (git patches)."""
    new_start: int | None = None
    heading: bytes = b""
    """Text after ``@@`` (git: decoration; envelope: a line that must precede the hunk)."""
    at_end: bool = False
    """The old lines must be the last of the file (envelope ``*** End of File``)."""
    source: AnswerSource | None = field(default=None, compare=False)

    @property
    def old(self) -> tuple[HunkLine, ...]:
        return tuple(line for line in self.lines if line.mark != ADDED)

    @property
    def new(self) -> tuple[HunkLine, ...]:
        return tuple(line for line in self.lines if line.mark != REMOVED)


@dataclass(frozen=True, slots=True)
class PatchFile:
    """Line edits in one file, which may also be moved, copied or get another mode."""

    path: TreePath
    hunks: tuple[Hunk, ...]
    target: TreePath | None = None
    """Where the result goes, when it is not ``path``."""
    keep: bool = False
    """With a target: leave ``path`` as it is (a copy, not a move)."""
    old_executable: bool | None = None
    executable: bool | None = None
    source: AnswerSource | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class PatchBinary:
    """A git binary patch: the whole new content, or a delta against exact old content."""

    path: TreePath
    method: Literal["literal", "delta"]
    data: bytes
    """Inflated: the content itself, or git's delta instructions."""
    size: int
    old_id: str
    """Full git blob ids from the ``index`` line; both are checked."""
    new_id: str
    target: TreePath | None = None
    keep: bool = False
    new: bool = False
    delete: bool = False
    executable: bool | None = None
    source: AnswerSource | None = field(default=None, compare=False)


Operation: TypeAlias = WriteFile | WriteLink | DeleteFile | EditText | PatchFile | PatchBinary


def named_paths(operation: Operation) -> tuple[TreePath, ...]:
    """Return the path of an operation, and its target if it has one."""
    target = operation.target if isinstance(operation, PatchFile | PatchBinary) else None
    return (operation.path,) if target is None else (operation.path, target)


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """All operations of one answer, in its order. They are applied together or not at all."""

    operations: tuple[Operation, ...]


@dataclass(frozen=True, slots=True)
class Refusal:
    """The model declined; ``sentence`` is what it said."""

    sentence: str
    line: int


@dataclass(frozen=True, slots=True)
class NoChanges:
    """The answer holds nothing that asks for a change."""


Answer: TypeAlias = ChangeSet | Refusal | NoChanges


@dataclass(frozen=True, slots=True)
class AnswerLimits:
    """Bounds on one answer."""

    answer_bytes: int = 64 * 2**20
    operations: int = 10_000
    file_bytes: int = 32 * 2**20
    """Largest file an operation may read or leave behind."""
    total_bytes: int = 256 * 2**20
    """Largest sum of all contents a plan may write."""


@dataclass(frozen=True, slots=True)
class AnswerOptions:
    """What a caller permits beyond the strict default."""

    lenient: bool = False
    """Aptix semantics: a missing ``find`` is skipped with a warning, the first match is taken."""
    binary: bool = False
    links: bool = False


@dataclass(frozen=True, slots=True)
class PathChange:
    """One path: what must be there now, and what will be there."""

    path: TreePath
    before: FileState
    after: FileState
    like: TreePath | None = field(default=None, compare=False)
    """A file whose permission bits a new one takes over: what it was moved or copied from."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Every path that would change, sorted; a path that would stay as it is has no place here."""

    changes: tuple[PathChange, ...]
    warnings: tuple[str, ...] = ()

    def invert(self) -> Plan:
        """Return the plan that takes this one back."""
        return Plan(tuple(PathChange(c.path, c.after, c.before) for c in self.changes))


@dataclass(frozen=True, slots=True)
class PathState:
    """What stands at a path that an operation names."""

    own: TreePath
    """Where the name itself stands, once directories that are links are followed."""
    own_found: Found
    real: TreePath
    """Where reading or writing it ends up, once a link at its end is followed too."""
    real_found: Found
    identity: tuple[int, int] | None = None
    """Device and inode of an existing file with one name, to notice two spellings of it."""


MAX_WORK: Final = 4 * 2**30
"""Bytes that may be gone through; some seconds' worth."""


@dataclass(slots=True)
class Work:
    """Counts the bytes that the edits of one plan search; each edit searches its whole file."""

    most: int = MAX_WORK
    spent: int = 0

    def spend(self, amount: int, *, path: str, line: int | None = None) -> None:
        """Count some bytes of a file; raise ``PlanRefused`` when the bound is reached."""
        self.spent += amount
        if self.spent > self.most:
            raise PlanRefused(
                f"the edits of {quote_text(path)} would go through more than {self.most:,} "
                "bytes, for they are many and the file is large",
                rule="plan.bounds",
                path=path,
                line=line,
                hint="make fewer edits in one answer, or give the file as a whole",
            )
