"""``Run``: one run that is open: its evidence, and how far it has come."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final

from coilclaw.contracts.eventtypes import EventType
from coilclaw.contracts.reading import parse
from coilclaw.contracts.taskcontract import TaskContract
from coilclaw.domain.freeform import text as canonical_text
from coilclaw.errors import EnvironmentFault
from coilclaw.orchestrator import states
from coilclaw.orchestrator.places import segment
from coilclaw.orchestrator.progress import after, folded
from coilclaw.storage.atomic import write_atomic

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from coilclaw.domain.messages import Json
    from coilclaw.gates.result import GateName, GateResult
    from coilclaw.orchestrator.bundle import Bundle
    from coilclaw.orchestrator.eventlog import EventLog, Level
    from coilclaw.orchestrator.locks import Held
    from coilclaw.orchestrator.places import Places
    from coilclaw.orchestrator.progress import Progress
    from coilclaw.orchestrator.states import Trigger

_log = logging.getLogger(__name__)

GATE_EVENTS: Final[Mapping[GateName, EventType]] = {
    "schema_gate": EventType.SCHEMA_GATE_RESULT,
    "output_schema_gate": EventType.OUTPUT_SCHEMA_ENFORCED,
    "policy_gate": EventType.POLICY_GATE_RESULT,
    "lock_gate": EventType.LOCK_GATE_RESULT,
    "diff_gate": EventType.DIFF_GATE_RESULT,
    "tool_gate": EventType.TOOL_GATE_RESULT,
    "network_gate": EventType.NETWORK_GATE_RESULT,
    "mcp_gate": EventType.MCP_TOOL_GATE_RESULT,
    "integrated_gate": EventType.INTEGRATED_GATE_RESULT,
    "sampling_gate": EventType.MCP_SAMPLING_GATE_RESULT,
    "reviewer_gate": EventType.REVIEWER_GATE_RESULT,
    "tests_gate": EventType.TESTS_GATE_RESULT,
    "human_approval_gate": EventType.HUMAN_APPROVAL_GATE_RESULT,
    "merge_gate": EventType.MERGE_GATE_RESULT,
}
VIOLATING: Final[frozenset[GateName]] = frozenset({"diff_gate", "policy_gate", "tool_gate"})
"""Gates whose failure is somebody's doing, not only a result that is not good enough."""
AGENT_PART: Final = "agent_part"
"""The type of what ``show`` shows; it is in no event log."""
MAX_TOLD: Final = 50
"""Violations that get an event of their own."""


class Run:
    """What everybody who works on a run shares. Threads may emit at the same time."""

    def __init__(
        self,
        places: Places,
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
        self._progress: Progress = folded(log.read()) if log.path.exists() else folded(())

    @property
    def progress(self) -> Progress:
        return self._progress

    def emit(
        self,
        kind: EventType,
        payload: Mapping[str, object],
        *,
        task_id: str | None = None,
        level: Level = "INFO",
    ) -> None:
        """Put an event on the disk; only then has it happened."""
        attempt = self._progress.attempt
        with self._guard:
            self.log.append(kind, payload, level=level, task_id=task_id, attempt=attempt)
            event = {"event_type": kind.value, "payload": dict(payload), "task_id": task_id}
            self._progress = after(self._progress, event)
        _log.info(
            "run event: %s",
            kind.value,
            extra={
                "event": "run_event",
                "fields": {"run_id": self.id, "event_type": kind.value, "task_id": task_id or ""},
            },
        )
        self._tell(event, attempt, level)

    def show(self, payload: Mapping[str, object], *, task_id: str) -> None:
        """Show what an agent does to whoever watches; it is no event of the run, and not kept."""
        event = {"event_type": AGENT_PART, "payload": dict(payload), "task_id": task_id}
        self._tell(event, self._progress.attempt, "INFO")

    def _tell(self, event: Mapping[str, object], attempt: int, level: Level) -> None:
        """Tell whoever watches, without any secret."""
        payload = self.log.clean(event["payload"])
        self._watch(
            {**event, "payload": payload, "run_id": self.id, "attempt": attempt, "level": level}
        )

    def move(
        self,
        trigger: Trigger,
        *,
        failures: tuple[str, ...] = (),
        blamed: tuple[str, ...] = (),
        outcome: str = "",
    ) -> None:
        """Go to the state that the table names; ``outcome`` says how a run that fails ends."""
        origin = self._progress.state
        target = states.after(origin, trigger)
        payload: dict[str, object] = {
            "from": origin.value,
            "to": target.value,
            "trigger": trigger.value,
            "failures": list(failures),
            "blamed": list(blamed),
        }
        if target is states.State.FAILED:
            payload["outcome"] = outcome
        self.emit(EventType.STATE_TRANSITION, payload)

    def judged(self, result: GateResult, *, task_id: str | None = None) -> bool:
        """Record what a gate said, with an event for the failure and for each violation."""
        self.emit(
            GATE_EVENTS[result.gate],
            {
                "gate": result.gate,
                "passed": result.passed,
                "violations": [str(each) for each in result.violations],
                "facts": canonical_text(dict(result.facts)),
                **({} if result.passed else {"paths": [each.path for each in result.violations]}),
            },
            task_id=task_id,
            level="INFO" if result.passed else "ERROR",
        )
        if result.passed:
            return True
        first = result.violations[0]
        if result.gate in VIOLATING:
            for each in result.violations[:MAX_TOLD]:
                self.emit(
                    EventType.POLICY_VIOLATION,
                    {"reason": each.message, "rule": each.rule, "path": each.path},
                    task_id=task_id,
                    level="ERROR",
                )
        self.emit(
            EventType.GATE_FAILED,
            {"gate": result.gate, "reason": first.message, "rule": first.rule},
            task_id=task_id,
            level="ERROR",
        )
        return False

    def write_contract(
        self, contract: TaskContract, *, replaces: tuple[str, ...] = (), root: bool = False
    ) -> None:
        """Keep a contract; from now on it is what its task is about."""
        if contract.task_id in self._progress.tasks:
            return
        path = contract_path(contract.task_id)
        value = contract.json()
        reference = self.bundle.write_json(path, value)
        if root:
            self.bundle.write_json("contract.json", value)
            self._activate()
        payload: dict[str, object] = {
            "path": path,
            "sha256": reference.sha256,
            "parent_task_id": contract.parent_task_id or "",
            "replaces": list(replaces),
        }
        self.emit(EventType.CONTRACT_WRITTEN, payload, task_id=contract.task_id)

    def _activate(self) -> None:
        """Put the contract where hooks look for it; the run's own copy is what counts."""
        place = self.places.active(self.id)
        place.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(place, self.bundle.read("contract.json"))

    def contract(self, task_id: str) -> TaskContract:
        """Read a task's contract back from the evidence."""
        if task_id not in self._contracts:
            task = self._progress.tasks.get(task_id)
            if task is None:
                raise EnvironmentFault(f"run {self.id} has no task {task_id!r}", rule="run.task")
            self._contracts[task_id] = TaskContract.of(parse(self.bundle.read(task.path)))
        return self._contracts[task_id]

    @property
    def root_contract(self) -> TaskContract:
        root = self._progress.root
        if root is None:
            raise EnvironmentFault(f"run {self.id} has no contract", rule="run.task")
        return self.contract(root.task_id)

    def option(self, name: str) -> Json:
        """What the run was started with."""
        return self._progress.created.get(name)  # type: ignore[return-value]  # it is JSON


def contract_path(task_id: str) -> str:
    """Where a task's contract stands in the bundle."""
    return f"tasks/{segment(task_id)}.json"
