"""``Run``: one run that is open: its evidence, and how far it has come."""

from __future__ import annotations

import logging
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import EnvironmentFault, Stopped, write_atomic
from coilclaw.kernel import render_json as canonical_text
from coilclaw.runs.contracts.event_types import EventType
from coilclaw.runs.contracts.task_contract import TaskContract, parse_document
from coilclaw.runs.evidence import layout
from coilclaw.runs.evidence.progress import RunState, apply_event, fold_events, next_state
from coilclaw.runs.gates.table import GATES
from coilclaw.workspace import SandboxView, format_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    from coilclaw.agent import ApprovalStore
    from coilclaw.kernel import Checkpoint, Json, Provider, Redactor, SigningKey
    from coilclaw.runners import Network, Runner
    from coilclaw.runs.contracts.policy_set import PolicySet
    from coilclaw.runs.contracts.records import ArtifactRef
    from coilclaw.runs.engine.locks import Held, Locks
    from coilclaw.runs.evidence.bundle import Bundle
    from coilclaw.runs.evidence.event_log import EventLog, Level
    from coilclaw.runs.evidence.layout import RunPlaces
    from coilclaw.runs.evidence.progress import RunProgress, Trigger
    from coilclaw.runs.gates.result import GateResult
    from coilclaw.workspace import (
        Cancellation,
        Kind,
        Repository,
        SandboxSupport,
        Snapshot,
        SnapshotStore,
        Worktree,
        Worktrees,
    )


@dataclass(frozen=True, slots=True)
class RoleModel:
    """A model that a role is asked through."""

    provider: Provider
    name: str


@dataclass(frozen=True, slots=True)
class RunDependencies:
    """The parts of the world that a run touches; none of them belongs to one run alone."""

    places: RunPlaces
    repository: Repository
    worktrees: Worktrees
    snapshots: SnapshotStore
    locks: Locks
    policies: Callable[[str], PolicySet]
    """The policies for a baseline commit, from the control root, never from a worktree."""
    control_paths: tuple[str, ...]
    """Where they stand in the repository, if they stand there: no task may change them."""
    runner: Callable[[str, TaskContract], Runner]
    """Makes the runner of a contract, by the name that the run was started with."""
    model: Callable[[str], RoleModel | None]
    """The model of a role; ``None`` where none is bound."""
    desk: ApprovalStore
    secrets: Redactor
    """Takes out what must not be written anywhere."""
    support: SandboxSupport
    sandbox: Kind
    home: Path
    """Our own state, which no agent sees."""
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
    view: SandboxView = field(default_factory=SandboxView)
    """What the user lets every child see."""
    keep_checkpoint: Callable[[Checkpoint], None] = lambda _: None
    """Keeps the checkpoint of a run that was sealed where no agent can reach it; never raises."""
    ask_user: Callable[[str], str | None] = lambda _: None
    """Asks the user what the planner must know; ``None`` without an answer."""

    def now(self) -> str:
        """Return the time as records hold it."""
        return format_time(self.clock())

    def check_cancelled(self) -> None:
        """Raise ``Stopped`` once the run was cancelled."""
        if self.cancel.cancelled:
            raise Stopped(f"the run was stopped: {self.cancel.reason}")

    @contextmanager
    def open_worktree(self, path: Path, commit: str) -> Iterator[Worktree]:
        """Make a worktree of a commit, and remove it afterwards."""
        worktree = self.worktrees.add(path, commit)
        try:
            yield worktree
        finally:
            self.worktrees.remove(worktree)

    def take_snapshot(self, run_id: str, commit: str) -> Snapshot:
        """Take a snapshot of a commit in a worktree made for it."""
        path = self.places.own_worktree(run_id, "baseline")
        with self.open_worktree(path, commit):
            return self.snapshots.take(path)


_log = logging.getLogger(__name__)

AGENT_PART: Final = "agent_part"
"""The type of what ``show`` shows; it is in no event log."""
MAX_VIOLATIONS: Final = 50
"""Violations that get an event of their own."""


class Run:
    """The shared state of a run. Threads may emit at the same time."""

    def __init__(
        self,
        places: RunPlaces,
        bundle: Bundle,
        log: EventLog,
        watch: Callable[[Mapping[str, object]], None] = lambda _: None,
    ) -> None:
        self.places = places
        self.bundle = bundle
        self.log = log
        self.id = bundle.run_id
        self._watch = watch
        self._guard = threading.RLock()
        self._contracts: dict[str, TaskContract] = {}
        self.held: Held | None = None
        """The locks, as long as this process has them."""
        self._progress: RunProgress = fold_events(log.read() if log.path.exists() else ())

    @property
    def progress(self) -> RunProgress:
        return self._progress

    def option(self, name: str) -> Json:
        """Return what the run was started with."""
        return self._progress.created.get(name)  # type: ignore[return-value]  # it is JSON

    @property
    def baseline(self) -> str:
        """The commit that the run begins at."""
        return str(self.option("baseline_commit"))

    @property
    def branch(self) -> str:
        """The branch that the work is for; empty where none was checked out."""
        return str(self.option("branch") or "")

    @property
    def runner(self) -> str:
        return str(self.option("runner"))

    def emit(
        self,
        kind: EventType,
        payload: Mapping[str, object],
        *,
        task_id: str | None = None,
        level: Level = "INFO",
    ) -> None:
        """Write an event to the disk; only then it counts."""
        attempt = self._progress.attempt
        with self._guard:
            self.log.append(kind, payload, level=level, task_id=task_id, attempt=attempt)
            event = {"event_type": kind.value, "payload": dict(payload), "task_id": task_id}
            self._progress = apply_event(self._progress, event)
        fields = {"run_id": self.id, "event_type": kind.value, "task_id": task_id or ""}
        _log.info("run event: %s", kind.value, extra={"event": "run_event", "fields": fields})
        self._notify(event, attempt, level)

    def show(self, payload: Mapping[str, object], *, task_id: str) -> None:
        """Show the watcher what an agent does; it is not an event of the run, and not kept."""
        event = {"event_type": AGENT_PART, "payload": dict(payload), "task_id": task_id}
        self._notify(event, self._progress.attempt, "INFO")

    def _notify(self, event: Mapping[str, object], attempt: int, level: Level) -> None:
        payload = self.log.clean(event["payload"])
        about = {"run_id": self.id, "attempt": attempt, "level": level}
        self._watch({**event, "payload": payload, **about})

    def move(
        self,
        trigger: Trigger,
        *,
        failures: Sequence[str] = (),
        blamed: Sequence[str] = (),
        outcome: str = "",
    ) -> None:
        """Go to the state that the table names; ``outcome`` says how a run that fails ends."""
        origin = self._progress.state
        target = next_state(origin, trigger)
        payload: dict[str, object] = {
            "from": origin.value,
            "to": target.value,
            "trigger": trigger.value,
            "failures": list(failures),
            "blamed": list(blamed),
            **({"outcome": outcome} if target is RunState.FAILED else {}),
        }
        self.emit(EventType.STATE_TRANSITION, payload)

    def record_gate(self, result: GateResult, *, task_id: str | None = None) -> bool:
        """Record the result of a gate, and return whether the gate passed.

        A failure has an event of its own, and so has each violation that the agent is to blame for.
        """
        violations = result.violations
        gate = GATES[result.gate]
        payload = {
            "gate": result.gate,
            "passed": result.passed,
            "violations": [str(each) for each in violations],
            "facts": canonical_text(dict(result.facts)),
        }
        if result.passed:
            self.emit(gate.event, payload, task_id=task_id)
            return True
        payload["paths"] = [each.path for each in violations]
        self.emit(gate.event, payload, task_id=task_id, level="ERROR")
        for each in violations[:MAX_VIOLATIONS] if gate.blames_agent else ():
            said = {"reason": each.message, "rule": each.rule, "path": each.path}
            self.emit(EventType.POLICY_VIOLATION, said, task_id=task_id, level="ERROR")
        first = violations[0]
        failed = {"gate": result.gate, "reason": first.message, "rule": first.rule}
        self.emit(EventType.GATE_FAILED, failed, task_id=task_id, level="ERROR")
        return False

    def record_report(
        self,
        kind: EventType,
        report: ArtifactRef,
        facts: Mapping[str, object],
        *,
        task_id: str | None = None,
        good: bool,
    ) -> None:
        """Record a report that is in the bundle, by its path and hash."""
        payload = {**facts, "path": report.path, "sha256": report.sha256}
        self.emit(kind, payload, task_id=task_id, level="INFO" if good else "ERROR")

    def write_contract(
        self, contract: TaskContract, *, replaces: tuple[str, ...] = (), root: bool = False
    ) -> None:
        """Write the contract of a task into the bundle."""
        if contract.task_id in self._progress.tasks:
            return
        reference = self.bundle.write_json(
            f"tasks/{layout.make_segment(contract.task_id)}.json", contract.json()
        )
        if root:
            self.bundle.write_json(layout.CONTRACT, contract.json())
            # Hooks look for it there; the run's own copy is what counts.
            place = self.places.active(self.id)
            place.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(place, self.bundle.read(layout.CONTRACT))
        parent = {"parent_task_id": contract.parent_task_id or "", "replaces": list(replaces)}
        self.record_report(
            EventType.CONTRACT_WRITTEN, reference, parent, task_id=contract.task_id, good=True
        )

    def contract(self, task_id: str) -> TaskContract:
        """Read a task's contract back from the evidence."""
        if task_id not in self._contracts:
            task = self._progress.tasks.get(task_id)
            if task is None:
                raise EnvironmentFault(f"run {self.id} has no task {task_id!r}", rule="run.task")
            self._contracts[task_id] = TaskContract.of(parse_document(self.bundle.read(task.path)))
        return self._contracts[task_id]

    @property
    def root_contract(self) -> TaskContract:
        root = self._progress.root
        if root is None:
            raise EnvironmentFault(f"run {self.id} has no contract", rule="run.task")
        return self.contract(root.task_id)

    @property
    def active_contracts(self) -> list[TaskContract]:
        """The contracts of the tasks whose work, together, is the run's."""
        return [self.contract(task.task_id) for task in self._progress.active]

    @property
    def test_network(self) -> Network:
        """What the commands of the contract may do with the network."""
        return "allow" if self.root_contract.tool_permissions.network == "allow" else "deny"
