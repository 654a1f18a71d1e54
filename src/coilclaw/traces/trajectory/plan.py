"""``Places``: where one trajectory keeps what it needs."""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from coilclaw.kernel import (
    EnvironmentFault,
    FileLock,
    PathRefused,
    TreePath,
    UsageError,
    write_atomic,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


FOLDER: Final = "trajectories"
"""Below the home of the user; also what the keys of artifacts begin with."""
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


@dataclass(frozen=True, slots=True)
class TracePlaces:
    """All paths of one trajectory; making it touches nothing."""

    home: Path
    """``$COILCLAW_HOME``."""
    trajectory_id: str

    def __post_init__(self) -> None:
        check_trajectory_id(self.trajectory_id)

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
        """A private bare repository: the checkpoints, and the snapshots they are made from."""
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
        """What the trajectory was asked for, for resuming it."""
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
        """Return the key of a file of the trajectory in a store of artifacts."""
        return f"{FOLDER}/{self.trajectory_id}/{name}"


def is_trajectory_id(name: str) -> bool:
    """Return whether a name can be an id: one path segment without special meaning."""
    try:
        TreePath.parse(name)  # devices, and names that end in a dot
    except PathRefused:
        return False
    return _ID.fullmatch(name) is not None and ".." not in name


def check_trajectory_id(trajectory_id: str) -> str:
    """Return an id that is one path segment, or raise."""
    if not is_trajectory_id(trajectory_id):
        message = f"{trajectory_id[:200]!r} is not an id of a trajectory"
        hint = "letters, digits, '.', '_' and '-', at most 128, and a letter or digit first"
        raise UsageError(message, rule="trajectory.id", hint=hint)
    return trajectory_id


MAX_PARTS: Final = 1000
"""How many parts a trajectory has at most by default."""
MOST_PARTS: Final = 1_000_000
_FORM: Final = 1

Network: TypeAlias = Literal["deny", "allow"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrajectoryPlan:
    """One trajectory as it was asked for."""

    trajectory_id: str
    agent: str
    """Who performs, as a person names it."""
    model: str = ""
    prompt: str = ""
    environment: str = ""
    """Empty: without tests nothing is ever solved."""
    environment_version: str = ""
    template: str = ""
    """The directory with the files to start from; empty for none."""
    ignore: tuple[str, ...] = ()
    """Patterns of what does not belong to the agent's work."""
    required: tuple[str, ...] = ("",)
    """The paths of tests that have to be green; the empty one is all."""
    max_parts: int = MAX_PARTS
    max_turns: int | None = None
    timeout_s: float | None = None
    network: Network = "deny"
    trace_uri: str = ""
    bundle_uri: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    keep_raw: bool = False

    def __post_init__(self) -> None:
        check_trajectory_id(self.trajectory_id)
        if not 1 <= self.max_parts <= MOST_PARTS:
            raise _refusal_error(
                f"{self.max_parts} parts are not possible", f"from 1 to {MOST_PARTS}"
            )
        if self.max_turns is not None and self.max_turns < 1:
            raise _refusal_error(f"{self.max_turns} turns are not possible", "at least 1")
        if self.timeout_s is not None and not 0 < self.timeout_s < float("inf"):
            raise _refusal_error(f"{self.timeout_s} s is not a time", "more than 0")

    def save(self, path: Path) -> None:
        """Keep it where ``load`` finds it."""
        write_atomic(path, self.encode_plan(), mode=0o600)

    def encode_plan(self) -> bytes:
        """Encode the plan for ``load_plan``."""
        document = {"form": _FORM, **asdict(self)}
        return json.dumps(document, ensure_ascii=True, indent=1).encode("ascii")


def load_plan(path: Path) -> TrajectoryPlan:
    """Read what was kept."""
    try:
        with path.open("rb") as file:
            document = json.loads(file.read(64 * 2**20))
        if document.pop("form") != _FORM or set(document) != {
            one.name for one in fields(TrajectoryPlan)
        }:
            raise ValueError(path)
        lists = {name: tuple(document[name]) for name in ("ignore", "required")}
        return TrajectoryPlan(**{**document, **lists})
    except FileNotFoundError as problem:
        message = f"no trajectory was found at {path.parent}"
        raise UsageError(message, rule="trajectory.unknown") from problem
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
        message = f"{path} is not a valid plan of a trajectory"
        raise EnvironmentFault(message, rule="trajectory.session") from problem


def _refusal_error(message: str, hint: str) -> UsageError:
    return UsageError(message, rule="trajectory.budget", hint=hint)


_MAX_DIGITS: Final = 20


def note_recorder(places: TracePlaces) -> None:
    """Record the id of this process; call it while holding the lock of the trajectory."""
    write_atomic(places.recorder, f"{os.getpid()}\n".encode("ascii"), mode=0o600, sync=False)


def find_recorder(places: TracePlaces) -> int | None:
    """Return the id of the process that records a trajectory, 0 if unknown, ``None`` for none."""
    if FileLock(places.lock, shared=True, timeout_s=0.0).is_free():
        return None
    try:
        with places.recorder.open("rb") as file:
            said = file.read(_MAX_DIGITS).strip()
    except OSError:
        return 0
    return int(said) if said.isdigit() else 0
