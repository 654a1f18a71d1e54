"""``Equipment``: everything that a run is carried out with, handed in by whoever wires it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from coilclaw.workspace.sandbox_view import View

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime
    from pathlib import Path

    from coilclaw.agents.runner import Runner
    from coilclaw.contracts.policyset import PolicySet
    from coilclaw.contracts.taskcontract import TaskContract
    from coilclaw.domain.messages import Provider
    from coilclaw.domain.redacting import Redacting
    from coilclaw.orchestrator.locks import Locks
    from coilclaw.orchestrator.places import Places
    from coilclaw.runtime.approvals import Desk
    from coilclaw.storage.checkpoint import Checkpoint
    from coilclaw.storage.signing import SigningKey
    from coilclaw.workspace.cancel import Cancellation
    from coilclaw.workspace.repository import Repository
    from coilclaw.workspace.sandbox import Kind, SandboxSupport
    from coilclaw.workspace.snapshot import SnapshotStore
    from coilclaw.workspace.worktrees import Worktrees


@dataclass(frozen=True, slots=True)
class Model:
    """A model that a role is asked through."""

    provider: Provider
    name: str


@dataclass(frozen=True, slots=True)
class Equipment:
    """The parts of the world that a run touches; none of them belongs to one run alone."""

    places: Places
    repository: Repository
    worktrees: Worktrees
    snapshots: SnapshotStore
    locks: Locks
    policies: Callable[[str], PolicySet]
    """The policies for a baseline commit, from the control root, never from a worktree."""
    control_paths: tuple[str, ...]
    """Where they stand in the repository, if they stand there: nobody may change them."""
    runner: Callable[[str, TaskContract], Runner]
    """Makes who performs a contract, by the name that the run was started with."""
    model: Callable[[str], Model | None]
    """The model of a role; ``None`` where none is bound."""
    desk: Desk
    secrets: Redacting
    """Takes out what must not be written anywhere."""
    support: SandboxSupport
    sandbox: Kind
    home: Path
    """Our own state, which nobody who works on a task sees."""
    environ: Mapping[str, str]
    """The user's environment: programs are found with its PATH; nothing else of it is passed on."""
    clock: Callable[[], datetime]
    cancel: Cancellation
    key_path: Path
    signing_key: SigningKey | None = None
    max_workers: int = 8
    wait_s: float = 0.0
    """How long an approval is waited for before the run pauses."""
    lock_wait_s: float | None = None
    """How long paths that other runs hold are waited for before the run fails; ``None`` waits as
    long as it takes if the run waited before it was stopped, and not otherwise."""
    live_wait_s: float = 300.0
    """How long an agent waits for one."""
    approval_expires_s: float = 24 * 3600.0
    view: View = field(default_factory=View)
    """What the user lets every child see."""
    keep_checkpoint: Callable[[Checkpoint], None] = lambda _: None
    """Keeps the checkpoint of a run that was sealed where no agent can reach it; never raises."""
    ask_user: Callable[[str], str | None] = lambda _: None
    """Asks the user what the planner must know; ``None`` where nobody answers."""
