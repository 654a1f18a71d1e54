"""``TreeState``: where our own state about one tree is kept, outside of it."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coilclaw.kernel import explain_os_errors

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class TreeState:
    """The directory of one tree's state below the home, and the paths in it."""

    home: Path
    tree: Path
    """The real path of the tree."""
    directory: Path
    changes: Path
    journal: Path
    pending: Path
    """Names the change that is being applied, from before its first effect until its record."""
    lock: Path
    """Every change of the tree is made under the lock on this file."""
    key: Path
    git: Path
    """An empty git directory of ours, for questions about the tree."""
    snapshots: Path

    @classmethod
    def of(cls, home: Path, tree: Path) -> TreeState:
        """Name the state of a tree; nothing is created before the first write."""
        real = tree.resolve()
        digest = hashlib.sha256(os.fsencode(real)).hexdigest()[:16]
        name = re.sub(r"[^A-Za-z0-9_.-]", "_", real.name)[:40].strip(".") or "root"
        return cls.at(home, real, home / "trees" / f"{name}-{digest}")

    @classmethod
    def at(cls, home: Path, tree: Path, directory: Path) -> TreeState:
        """Name the state that is kept in a directory."""
        return cls(
            home,
            tree,
            directory,
            changes=directory / "changes",
            journal=directory / "changes.jsonl",
            pending=directory / "pending",
            lock=directory / "lock",
            key=home / "keys" / "journal.key",
            git=directory / "git",
            snapshots=directory / "snapshots",
        )

    def create(self) -> None:
        """Make the directory, readable by its owner alone."""
        with explain_os_errors(
            f"create our state directory {self.directory}",
            rule="state.create",
            hint="set COILCLAW_HOME to a directory you can write",
        ):
            self.home.parent.mkdir(parents=True, exist_ok=True)
            own = (self.directory.parent, self.directory, self.changes, self.key.parent)
            for folder in (self.home, *own):
                folder.mkdir(exist_ok=True, mode=0o700)
