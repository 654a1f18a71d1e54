"""The difference between two pictures of a tree."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


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
