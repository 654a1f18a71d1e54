"""``Places``: where the runs of a repository keep what they need."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

RUNTIME_ROOT: Final = ".runtime-cache/cortexpilot"
"""Relative to the top of the repository."""
OVERRIDE: Final = "CORTEXPILOT_RUNTIME_ROOT"
_RUN_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{7,127}")


@dataclass(frozen=True, slots=True)
class Places:
    """All paths of one control root; real and absolute. Making it touches nothing."""

    repository: Path
    """The top of the user's worktree: the control root."""
    runtime: Path

    @property
    def runs(self) -> Path:
        """The run store: one bundle a directory."""
        return self.runtime / "runs"

    @property
    def worktrees(self) -> Path:
        return self.runtime / "worktrees"

    @property
    def locks(self) -> Path:
        return self.runtime / "locks"

    @property
    def snapshots(self) -> Path:
        """The store of snapshots, shared by all runs of the repository."""
        return self.runtime / "snapshots"

    @property
    def git(self) -> Path:
        """A git directory of our own, which borrows the repository's objects."""
        return self.runtime / "git"

    @property
    def homes(self) -> Path:
        """Private homes of agents, one a task: ``homes/<run_id>/<task_id>``."""
        return self.runtime / "homes"

    @property
    def setups(self) -> Path:
        """What set-up commands made, each by its key; shared by all runs."""
        return self.runtime / "setups"

    def bundle(self, run_id: str) -> Path:
        return self.runs / checked(run_id)

    def active(self, run_id: str) -> Path:
        """The contract that is being worked on."""
        return self.runtime / "active" / checked(run_id) / "contract.json"

    def worktree(self, run_id: str, task_id: str) -> Path:
        return self.worktrees / checked(run_id) / segment(task_id)

    def home(self, run_id: str, task_id: str) -> Path:
        return self.homes / checked(run_id) / segment(task_id)

    def own_worktree(self, run_id: str, name: str) -> Path:
        """A worktree of the orchestrator itself; no task's segment begins like its name."""
        return self.worktrees / checked(run_id) / f"_{name}"

    def own_home(self, run_id: str, name: str) -> Path:
        """A home of the orchestrator's own commands; no task has it."""
        return self.homes / checked(run_id) / f"_{name}"


def checked(run_id: str) -> str:
    """Return a run id that is one path segment, or raise."""
    if not _RUN_ID.fullmatch(run_id) or ".." in run_id:
        raise UsageError(f"{run_id[:200]!r} is no run id", rule="run.id")
    return run_id


def segment(task_id: str) -> str:
    """A task id as one path segment; two ids never share one."""
    if _RUN_ID.fullmatch(task_id) and ".." not in task_id:
        return task_id
    from hashlib import sha256

    plain = re.sub(r"[^A-Za-z0-9_-]", "-", task_id)[:64]
    return f"t-{plain}-{sha256(task_id.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"
