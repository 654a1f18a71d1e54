"""``Progress``: how far a run has come, folded from its events and from nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from coilclaw.contracts.eventtypes import EventType
from coilclaw.orchestrator.states import START, State

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

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
class Waiting:
    """An approval that the run waits for."""

    approval_id: str
    digest: str
    kind: str
    reason: str
    task_id: str = ""


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a run is. A value: each event makes the next one."""

    state: State = START
    created: Mapping[str, object] = field(default_factory=dict)
    """The payload of ``RUN_CREATED``; the baseline is where the run begins by now."""
    tasks: Mapping[str, TaskProgress] = field(default_factory=dict)
    attempt: int = 0
    """How many times the fix loop was entered with new contracts."""
    failures: tuple[str, ...] = ()
    """Why the last thing failed, for the one who repairs it."""
    blamed: tuple[str, ...] = ()
    """The tasks that have to be repaired; empty: all of them together."""
    outcome: str = ""
    """How a run that failed ended."""
    baseline: Mapping[str, object] = field(default_factory=dict)
    """What the tests said before anybody worked."""
    candidate: Mapping[str, object] = field(default_factory=dict)
    tested: Mapping[str, object] = field(default_factory=dict)
    approvals: Mapping[str, bool] = field(default_factory=dict)
    """Digest of what was asked → what was answered."""
    waiting: Mapping[str, Waiting] = field(default_factory=dict)
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


def folded(events: Iterable[Mapping[str, object]]) -> Progress:
    """What the events of a run come to."""
    progress = Progress()
    for event in events:
        progress = after(progress, event)
    return progress


def after(progress: Progress, event: Mapping[str, object]) -> Progress:
    """The progress once this has happened too."""
    payload = event["payload"]
    assert isinstance(payload, dict)
    kind = EventType(str(event["event_type"]))
    task_id = "" if event["task_id"] is None else str(event["task_id"])
    if kind in _TASK_EVENTS:
        return _task_event(progress, kind, task_id, payload)
    if kind in _APPROVAL_EVENTS:
        return _approval_event(progress, kind, task_id, payload)
    if kind in _LOCK_EVENTS:
        return _lock_event(progress, kind, payload)
    if kind in _PLANNING_EVENTS:
        return _planning_event(progress, kind, payload)
    return _run_event(progress, kind, payload)


_TASK_EVENTS = frozenset(
    {
        EventType.CONTRACT_WRITTEN,
        EventType.TASK_STARTED,
        EventType.TASK_RESULT_RECORDED,
        EventType.ROLLBACK_APPLIED,
        EventType.REVIEW_RESULT,
    }
)
_APPROVAL_EVENTS = frozenset(
    {
        EventType.HUMAN_APPROVAL_REQUIRED,
        EventType.HUMAN_APPROVAL_COMPLETED,
        EventType.HUMAN_APPROVAL_TIMEOUT,
    }
)
_LOCK_EVENTS = frozenset(
    {EventType.LOCKS_AWAITED, EventType.LOCKS_ACQUIRED, EventType.BASELINE_MOVED}
)


def _lock_event(progress: Progress, kind: EventType, payload: dict[str, object]) -> Progress:
    if kind is EventType.LOCKS_AWAITED:
        return replace(progress, queued=True)
    if kind is EventType.LOCKS_ACQUIRED:
        return replace(progress, locked=True)
    now = {name: payload[name] for name in ("baseline_commit", "policy_sha256")}
    return replace(progress, created={**progress.created, **now}, moved=True)


_PLANNING_EVENTS = frozenset(
    {EventType.PLAN_REFUSED, EventType.USER_ASKED, EventType.USER_ANSWERED}
)


def _run_event(progress: Progress, kind: EventType, payload: dict[str, object]) -> Progress:
    match kind:
        case EventType.RUN_CREATED:
            return replace(progress, created=payload)
        case EventType.STATE_TRANSITION:
            return _moved(progress, State(str(payload["to"])), payload)
        case EventType.BASELINE_RESULT:
            return replace(progress, baseline=payload)
        case EventType.CANDIDATE_PREPARED:
            return replace(progress, candidate=payload, tested={})
        case EventType.TEST_RESULT:
            return replace(progress, tested=payload)
        case EventType.MERGE_STARTED:
            return replace(progress, merging=payload)
        case EventType.MERGE_COMPLETED:
            return replace(progress, merge="merged", merging=payload)
        case EventType.MERGE_PENDING:
            return replace(progress, merge="pending", merging=payload)
        case EventType.RUN_FINISHED:
            return replace(progress, finished=payload)
        case EventType.RUN_SEALED:
            return replace(progress, sealed=True)
        case _:
            return progress


def _planning_event(progress: Progress, kind: EventType, payload: dict[str, object]) -> Progress:
    if kind is EventType.PLAN_REFUSED:
        refused = (*progress.refused_plans, _texts(payload["problems"]))
        return replace(progress, refused_plans=refused)
    question = str(payload["question"])
    if kind is EventType.USER_ASKED:
        return replace(progress, question=question)
    answer = (question, str(payload["answer"]))
    return replace(progress, question="", answers=(*progress.answers, answer))


def _moved(progress: Progress, state: State, payload: dict[str, object]) -> Progress:
    told, blamed = _texts(payload.get("failures")), _texts(payload.get("blamed"))
    if state is State.WORKER and progress.state is State.FIX:
        return replace(progress, state=state, attempt=progress.attempt + 1, candidate={}, tested={})
    outcome = str(payload.get("outcome", ""))
    return replace(progress, state=state, failures=told, blamed=blamed, outcome=outcome)


def _texts(value: object) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else ()


def _task_event(
    progress: Progress, kind: EventType, task_id: str, payload: dict[str, object]
) -> Progress:
    if kind is EventType.CONTRACT_WRITTEN:
        return _contracted(progress, task_id, payload)
    task = progress.tasks[task_id]
    match kind:
        case EventType.TASK_STARTED:
            task = replace(
                task,
                state="started",
                origin=str(payload["baseline"]),
                below=_texts(payload.get("below")),
            )
        case EventType.TASK_RESULT_RECORDED:
            task = replace(
                task,
                state="accepted" if payload["status"] == "SUCCESS" else "rejected",
                snapshot=str(payload["snapshot"]),
                tree=str(payload["tree"]),
                patch_sha256=str(payload["patch_sha256"]),
                reason=str(payload.get("reason", "")),
            )
        case EventType.REVIEW_RESULT:
            task = replace(task, reviewed=str(payload["verdict"]))
        case _:
            return progress
    return replace(progress, tasks={**progress.tasks, task_id: task})


def _contracted(progress: Progress, task_id: str, payload: dict[str, object]) -> Progress:
    replaces = _texts(payload.get("replaces"))
    task = TaskProgress(task_id, str(payload["path"]), str(payload["parent_task_id"]), replaces)
    tasks = {
        name: replace(old, state="superseded") if name in replaces else old
        for name, old in progress.tasks.items()
    }
    return replace(progress, tasks={**tasks, task_id: task})


def _approval_event(
    progress: Progress, kind: EventType, task_id: str, payload: dict[str, object]
) -> Progress:
    approval_id = str(payload["approval_id"])
    if kind is EventType.HUMAN_APPROVAL_REQUIRED:
        waiting = Waiting(
            approval_id,
            str(payload["digest"]),
            str(payload["kind"]),
            str(payload["reason"]),
            task_id,
        )
        return replace(progress, waiting={**progress.waiting, approval_id: waiting})
    settled = progress.waiting.get(approval_id)
    if settled is None:
        return progress
    left = {name: one for name, one in progress.waiting.items() if name != approval_id}
    answer = payload.get("approved") is True
    return replace(progress, waiting=left, approvals={**progress.approvals, settled.digest: answer})
