"""``RunProgress``: how far a run has come, folded from its events and from nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from coilclaw.kernel import EnvironmentFault
from coilclaw.runs.contracts.event_types import EventType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


class RunState(StrEnum):
    """Where a run is."""

    PM = "S0_PM"
    TECH_LEAD = "S1_TECH_LEAD"
    WORKER = "S2_WORKER"
    REVIEWER = "S3_REVIEWER"
    TEST = "S4_TEST"
    FIX = "S5_FIX"
    DONE = "S6_DONE"
    FAILED = "FAILED"

    @property
    def ended(self) -> bool:
        """Whether no agent will work on the run any more."""
        return self in {RunState.DONE, RunState.FAILED}


class Trigger(StrEnum):
    """What moved it there."""

    CONTRACT_ACCEPTED = "contract_accepted"
    SPLIT_ACCEPTED = "split_accepted"
    WORK_ACCEPTED = "work_accepted"
    WORK_REJECTED = "work_rejected"
    REVIEW_PASSED = "review_passed"
    REVIEW_BLOCKED = "review_blocked"
    TESTS_PASSED = "tests_passed"
    TESTS_FAILED = "tests_failed"
    FIX_CONTRACTED = "fix_contracted"
    FIX_EXHAUSTED = "fix_exhausted"
    GATE_FAILED = "gate_failed"
    DENIED = "denied"
    FAULT = "fault"
    """The system itself is at fault: a reviewer that wrote, evidence that cannot be kept."""


START: Final = RunState.PM

_ENDINGS: Final = (Trigger.GATE_FAILED, Trigger.DENIED, Trigger.FAULT)

TRANSITIONS: Final[Mapping[tuple[RunState, Trigger], RunState]] = {
    (RunState.PM, Trigger.CONTRACT_ACCEPTED): RunState.TECH_LEAD,
    (RunState.TECH_LEAD, Trigger.SPLIT_ACCEPTED): RunState.WORKER,
    (RunState.WORKER, Trigger.WORK_ACCEPTED): RunState.REVIEWER,
    (RunState.WORKER, Trigger.WORK_REJECTED): RunState.FIX,
    (RunState.REVIEWER, Trigger.REVIEW_PASSED): RunState.TEST,
    (RunState.REVIEWER, Trigger.REVIEW_BLOCKED): RunState.FIX,
    (RunState.TEST, Trigger.TESTS_PASSED): RunState.DONE,
    (RunState.TEST, Trigger.TESTS_FAILED): RunState.FIX,
    (RunState.FIX, Trigger.FIX_CONTRACTED): RunState.WORKER,
    (RunState.FIX, Trigger.FIX_EXHAUSTED): RunState.FAILED,
    **{
        (state, trigger): RunState.FAILED
        for state in RunState
        if state is not RunState.FAILED
        for trigger in _ENDINGS
    },
}
"""Every move there is; also out of ``DONE``, where merging may still fail."""


def next_state(state: RunState, trigger: Trigger) -> RunState:
    """Return where a trigger leads; a move that is not in the table is our own fault."""
    try:
        return TRANSITIONS[state, trigger]
    except KeyError:
        raise EnvironmentFault(
            f"a run cannot leave {state} because of {trigger}", rule="run.transition"
        ) from None


def is_legal_move(origin: str, target: str, trigger: str) -> bool:
    """Whether a recorded move is one of the table."""
    try:
        return TRANSITIONS.get((RunState(origin), Trigger(trigger))) == RunState(target)
    except ValueError:
        return False


TaskState: TypeAlias = Literal["pending", "started", "accepted", "rejected", "superseded"]
Merge: TypeAlias = Literal["not_requested", "pending", "merged", "failed", "none"]


@dataclass(frozen=True, slots=True)
class TaskProgress:
    """One task of a run."""

    task_id: str
    path: str
    """Where its contract stands in the bundle."""
    parent_task_id: str
    replaces: tuple[str, ...] = ()
    """The tasks whose work this one repairs, and whose patches its own takes the place of."""
    state: TaskState = "pending"
    origin: str = ""
    """The snapshot that its work is measured against."""
    snapshot: str = ""
    tree: str = ""
    patch_sha256: str = ""
    reviewed: str = ""
    """The verdict on its patch."""
    reason: str = ""
    """Why it was rejected."""
    below: tuple[str, ...] = ()
    """The tasks on whose work it began, because they share paths under a declared lock."""


@dataclass(frozen=True, slots=True)
class PendingApproval:
    """An approval that the run waits for."""

    approval_id: str
    digest: str
    kind: str
    reason: str
    task_id: str = ""


@dataclass(frozen=True, slots=True)
class RunProgress:
    """Where a run is. A value: each event makes the next one."""

    state: RunState = START
    created: Mapping[str, object] = field(default_factory=dict)
    """The payload of ``RUN_CREATED``; the baseline is where the run begins by now."""
    tasks: Mapping[str, TaskProgress] = field(default_factory=dict)
    attempt: int = 0
    """How many times the fix loop was entered with new contracts."""
    failures: tuple[str, ...] = ()
    """Why the last stage failed, for the repair."""
    blamed: tuple[str, ...] = ()
    """The tasks that have to be repaired; empty: all of them together."""
    outcome: str = ""
    """How a run that failed ended."""
    baseline: Mapping[str, object] = field(default_factory=dict)
    """The result of the tests before any work."""
    candidate: Mapping[str, object] = field(default_factory=dict)
    tested: Mapping[str, object] = field(default_factory=dict)
    approvals: Mapping[str, bool] = field(default_factory=dict)
    """Digest of what was asked → what was answered."""
    waiting: Mapping[str, PendingApproval] = field(default_factory=dict)
    """Approvals that were asked for and not settled, by their ids."""
    queued: bool = False
    """Whether it had to wait for its paths."""
    moved: bool = False
    """Whether it begins at a later commit than the one that it was created at."""
    refused_plans: tuple[tuple[str, ...], ...] = ()
    """Why each plan of the PM was refused."""
    question: str = ""
    """What the PM asked the user and has no answer to yet."""
    answers: tuple[tuple[str, str], ...] = ()
    """What the user was asked and answered; an answer that was given at once has no question."""
    locked: bool = False
    merging: Mapping[str, object] = field(default_factory=dict)
    merge: Merge = "none"
    finished: Mapping[str, object] = field(default_factory=dict)
    sealed: bool = False

    @property
    def root(self) -> TaskProgress | None:
        """The task of the run's own contract."""
        return next(iter(self.tasks.values()), None)

    @property
    def active(self) -> tuple[TaskProgress, ...]:
        """The tasks whose work, together, is the run's.

        They are in the order of their contracts; a repair stands where the repaired work stood.
        """
        order = {name: number for number, name in enumerate(self.tasks)}

        def place(task: TaskProgress) -> int:
            return min(
                (place(self.tasks[name]) for name in task.replaces), default=order[task.task_id]
            )

        kept = (task for task in self.working if task.state != "superseded")
        return tuple(sorted(kept, key=place))

    @property
    def working(self) -> tuple[TaskProgress, ...]:
        """All tasks that were given to a worker."""
        split = {task.parent_task_id for task in self.tasks.values() if not task.replaces}
        return tuple(task for task in self.tasks.values() if task.task_id not in split)


def fold_events(events: Iterable[Mapping[str, object]]) -> RunProgress:
    """Return the progress that the events of a run amount to."""
    progress = RunProgress()
    for event in events:
        progress = apply_event(progress, event)
    return progress


def apply_event(progress: RunProgress, event: Mapping[str, object]) -> RunProgress:
    """Return the progress after one more event."""
    payload = event["payload"]
    assert isinstance(payload, dict)
    kind = EventType(str(event["event_type"]))
    task_id = "" if event["task_id"] is None else str(event["task_id"])
    if kind in _FACTS:
        return replace(progress, **_FACTS[kind](progress, payload))
    if kind is EventType.CONTRACT_WRITTEN:
        replaces = _texts(payload.get("replaces"))
        task = TaskProgress(task_id, str(payload["path"]), str(payload["parent_task_id"]), replaces)
        tasks = {
            name: replace(old, state="superseded") if name in replaces else old
            for name, old in progress.tasks.items()
        }
        return replace(progress, tasks={**tasks, task_id: task})
    if kind in _TASK_FACTS:
        task = replace(progress.tasks[task_id], **_TASK_FACTS[kind](payload))
        return replace(progress, tasks={**progress.tasks, task_id: task})
    if kind is EventType.HUMAN_APPROVAL_REQUIRED:
        about = {key: str(payload[key]) for key in ("approval_id", "digest", "kind", "reason")}
        asked = PendingApproval(**about, task_id=task_id)
        return replace(progress, waiting={**progress.waiting, asked.approval_id: asked})
    if kind in {EventType.HUMAN_APPROVAL_COMPLETED, EventType.HUMAN_APPROVAL_TIMEOUT}:
        left = dict(progress.waiting)
        settled = left.pop(str(payload["approval_id"]), None)
        if settled is not None:
            answers = {**progress.approvals, settled.digest: payload.get("approved") is True}
            return replace(progress, waiting=left, approvals=answers)
    return progress


def _move(progress: RunProgress, payload: _Payload) -> dict[str, Any]:
    state = RunState(str(payload["to"]))
    if state is RunState.WORKER and progress.state is RunState.FIX:
        attempt = progress.attempt + 1
        return {"state": state, "attempt": attempt, "candidate": {}, "tested": {}}
    return {
        "state": state,
        "failures": _texts(payload.get("failures")),
        "blamed": _texts(payload.get("blamed")),
        "outcome": str(payload.get("outcome", "")),
    }


def _texts(value: object) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else ()


_Payload: TypeAlias = dict[str, object]
_FACTS: Final[Mapping[EventType, Callable[[RunProgress, _Payload], dict[str, Any]]]] = {
    EventType.RUN_CREATED: lambda _, payload: {"created": payload},
    EventType.STATE_TRANSITION: _move,
    EventType.BASELINE_RESULT: lambda _, payload: {"baseline": payload},
    EventType.CANDIDATE_PREPARED: lambda _, payload: {"candidate": payload, "tested": {}},
    EventType.TEST_RESULT: lambda _, payload: {"tested": payload},
    EventType.MERGE_STARTED: lambda _, payload: {"merging": payload},
    EventType.MERGE_COMPLETED: lambda _, payload: {"merge": "merged", "merging": payload},
    EventType.MERGE_PENDING: lambda _, payload: {"merge": "pending", "merging": payload},
    EventType.RUN_FINISHED: lambda _, payload: {"finished": payload},
    EventType.RUN_SEALED: lambda *_: {"sealed": True},
    EventType.LOCKS_AWAITED: lambda *_: {"queued": True},
    EventType.LOCKS_ACQUIRED: lambda *_: {"locked": True},
    EventType.BASELINE_MOVED: lambda progress, payload: {
        "created": {
            **progress.created,
            **{name: payload[name] for name in ("baseline_commit", "policy_sha256")},
        },
        "moved": True,
    },
    EventType.PLAN_REFUSED: lambda progress, payload: {
        "refused_plans": (*progress.refused_plans, _texts(payload["problems"]))
    },
    EventType.USER_ASKED: lambda _, payload: {"question": str(payload["question"])},
    EventType.USER_ANSWERED: lambda progress, payload: {
        "question": "",
        "answers": (*progress.answers, (str(payload["question"]), str(payload["answer"]))),
    },
}
"""What an event of the run changes."""
_TASK_FACTS: Final[Mapping[EventType, Callable[[_Payload], dict[str, Any]]]] = {
    EventType.TASK_STARTED: lambda payload: {
        "state": "started",
        "origin": str(payload["baseline"]),
        "below": _texts(payload.get("below")),
    },
    EventType.TASK_RESULT_RECORDED: lambda payload: {
        "state": "accepted" if payload["status"] == "SUCCESS" else "rejected",
        "snapshot": str(payload["snapshot"]),
        "tree": str(payload["tree"]),
        "patch_sha256": str(payload["patch_sha256"]),
        "reason": str(payload.get("reason", "")),
    },
    EventType.REVIEW_RESULT: lambda payload: {"reviewed": str(payload["verdict"])},
}
"""What an event of a task changes."""
