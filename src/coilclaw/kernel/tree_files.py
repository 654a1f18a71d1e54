"""The difference between two pictures of a tree."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class RegularFile:
    """The exact bytes of a file and whether its owner may execute it."""

    content: bytes
    executable: bool = False

    @property
    def digest(self) -> str:
        return sha256(self.content).hexdigest()


@dataclass(frozen=True, slots=True)
class Symlink:
    """A symbolic link and the text it holds, which may be any bytes."""

    target: bytes

    @property
    def digest(self) -> str:
        return sha256(self.target).hexdigest()


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Something that is neither: a directory, a FIFO, a socket or a device."""

    kind: Literal["directory", "fifo", "socket", "device"]


FileState: TypeAlias = RegularFile | Symlink | None
"""What a plan may put at a path; ``None`` is nothing."""

Found: TypeAlias = FileState | Obstacle
"""What may be found at a path."""


class ChangeKind(StrEnum):
    """What happened to one path."""

    ADDED = "added"
    REMOVED = "removed"
    MODIFIED = "modified"
    RENAMED = "renamed"
    COPIED = "copied"
    MODE = "mode"
    TYPE = "type"


class EntryType(StrEnum):
    """What stands at a path in a snapshot."""

    FILE = "file"
    EXECUTABLE = "executable"
    SYMLINK = "symlink"
    DIRECTORY = "directory"
    OPAQUE = "opaque"
    """A nested repository's ``.git``, a FIFO, a socket or a device: only a digest is kept."""


@dataclass(frozen=True, slots=True)
class TreeChange:
    """One changed path. Names that are not UTF-8 carry surrogate escapes."""

    kind: ChangeKind
    path: str
    old_path: str | None = None
    old_type: EntryType | None = None
    new_type: EntryType | None = None
    old_id: str | None = None
    new_id: str | None = None

    @property
    def paths(self) -> tuple[str, ...]:
        """Both ends of a rename or copy, else the one path."""
        return (self.path,) if self.old_path is None else (self.old_path, self.path)


@dataclass(frozen=True, slots=True)
class TreeDiff:
    """All changed paths between two snapshots, sorted by path."""

    changes: tuple[TreeChange, ...]
    git_changes: tuple[str, ...] = ()
    """Parts of the tree's own ``.git`` (hooks, config, …) whose fingerprint changed."""

    def __iter__(self) -> Iterator[TreeChange]:
        return iter(self.changes)

    def __len__(self) -> int:
        return len(self.changes)

    def __bool__(self) -> bool:
        """Whether anything changed, in the tree or in its own ``.git``."""
        return not self.empty

    @property
    def empty(self) -> bool:
        return not self.changes and not self.git_changes
