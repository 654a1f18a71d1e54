"""``Places``: where one trajectory keeps what it needs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.domain.treepath import TreePath
from coilclaw.errors import PathRefused, UsageError

if TYPE_CHECKING:
    from pathlib import Path

FOLDER: Final = "trajectories"
"""Below the home of the user; also what the keys of artifacts begin with."""
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


@dataclass(frozen=True, slots=True)
class Places:
    """All paths of one trajectory; making it touches nothing."""

    home: Path
    """``$COILCLAW_HOME``."""
    trajectory_id: str

    def __post_init__(self) -> None:
        checked(self.trajectory_id)

    @property
    def directory(self) -> Path:
        return self.home / FOLDER / self.trajectory_id

    @property
    def journal(self) -> Path:
        """The truth: every record, hash-chained and anchored."""
        return self.directory / "parts.jsonl"

    @property
    def key(self) -> Path:
        """The key of the journal's anchor."""
        return self.home / "keys" / "journal.key"

    @property
    def document(self) -> Path:
        return self.directory / "agent_trace.json"

    @property
    def repository(self) -> Path:
        """A bare repository of ours: the checkpoints, and the snapshots they are made from."""
        return self.directory / "repo.git"

    @property
    def bundle(self) -> Path:
        return self.directory / "repo.bundle"

    @property
    def bundles(self) -> Path:
        """One bundle a checkpoint, each with what is new in it."""
        return self.directory / "bundles"

    @property
    def results(self) -> Path:
        """Whole results of tests, by the id of the call."""
        return self.directory / "results"

    @property
    def workspace(self) -> Path:
        """Where the agent works."""
        return self.directory / "workspace"

    @property
    def agent_home(self) -> Path:
        """The agent's private home, which stays from turn to turn."""
        return self.directory / "homes" / "agent"

    @property
    def session(self) -> Path:
        """What the trajectory was asked for, as it is to go on with."""
        return self.directory / "session.json"

    @property
    def lock(self) -> Path:
        return self.directory / "lock"

    @property
    def recorder(self) -> Path:
        """Which process recorded last; while the lock is held, it still does."""
        return self.directory / "recorder.pid"

    @property
    def log(self) -> Path:
        """What a recording behind the terminal says."""
        return self.directory / "run.log"

    def key_of(self, name: str) -> str:
        """The key under which a file of the trajectory is kept in a store of artifacts."""
        return f"{FOLDER}/{self.trajectory_id}/{name}"


def checked(trajectory_id: str) -> str:
    """Return an id that is one path segment, or raise."""
    good = _ID.fullmatch(trajectory_id) and ".." not in trajectory_id
    try:
        TreePath.parse(trajectory_id)  # devices, and names that end in a dot
    except PathRefused:
        good = None
    if not good:
        raise UsageError(
            f"{trajectory_id[:200]!r} is no id of a trajectory",
            rule="trajectory.id",
            hint="letters, digits, '.', '_' and '-', at most 128, and a letter or digit first",
        )
    return trajectory_id
