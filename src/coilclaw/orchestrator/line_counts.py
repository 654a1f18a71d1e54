"""``LineCounts``: how many lines of a file in a worktree were added and removed so far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.changes import unified
from coilclaw.changes.plan import FileChange, Plan
from coilclaw.domain.files import Obstacle, RegularFile
from coilclaw.domain.treepath import TreePath
from coilclaw.errors import CoilClawError
from coilclaw.workspace.resolve import Root

if TYPE_CHECKING:
    from pathlib import Path

    from coilclaw.workspace.repository import Repository

MAX_FILE_BYTES: Final = 2**18
"""Lines of a larger file are not counted while an agent waits."""


@dataclass(frozen=True, slots=True)
class LineCounts:
    """Compares files of a worktree with a commit."""

    directory: Path
    repository: Repository
    commit: str

    def count(self, path: str) -> tuple[int, int] | None:
        """Return the lines added and removed; ``None`` where that cannot be told.

        The path is an agent's word, and the agent may be at work: whatever is odd about the file is
        the diff gate's matter, and here only leaves the numbers out.
        """
        try:
            place = TreePath.parse(path)
            before = self.repository.read(self.commit, str(place), MAX_FILE_BYTES)
            with Root(self.directory) as root:
                after = root.read(place, limit=MAX_FILE_BYTES)
        except (CoilClawError, OSError):
            return None
        if isinstance(after, Obstacle):
            return None
        old = None if before is None else RegularFile(before)
        if old is None and after is None:
            return None
        (row,) = unified.summarise(Plan((FileChange(place, old, after),)))
        return None if row.binary else (row.added, row.removed)
