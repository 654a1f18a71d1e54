"""A plan: the exact bytes before and after, per path."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coilclaw.domain.files import FileState
    from coilclaw.domain.treepath import TreePath


@dataclass(frozen=True, slots=True)
class FileChange:
    """One path: what must be there now, and what will be there."""

    path: TreePath
    before: FileState
    after: FileState
    like: TreePath | None = field(default=None, compare=False)
    """A file whose permission bits a new one takes over: what it was moved or copied from."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Every path that would change, sorted; a path that would stay as it is has no place here."""

    changes: tuple[FileChange, ...]
    warnings: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        return not self.changes

    def inverted(self) -> Plan:
        """Return the plan that takes this one back."""
        return Plan(tuple(FileChange(c.path, c.after, c.before) for c in self.changes))
