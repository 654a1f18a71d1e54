"""``rehydrate``: the course of a run, rebuilt from its events and reports without a model.

Reports are compared with the events. Each difference is a divergence with the number of its event;
the first one shows where to look. Nothing is written, and the run need not be sealed.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import CoilClawError, UsageError, digest_bytes, encode_record, read_raw_lines
from coilclaw.runs.contracts.event_types import EventType
from coilclaw.runs.evidence import bundle, layout
from coilclaw.runs.evidence.event_index import (
    EventIndex,
    EvidenceDivergence,
    RecordedEvent,
    compare_evidence,
    parse_json,
)
from coilclaw.runs.evidence.event_log import HASH_FIELD
from coilclaw.runs.evidence.progress import START

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from coilclaw.kernel import Json

_FIRST: Final = "0" * 64
_WITH_EVENT: Final = ("results/", "reviews/", "ci/")
_BESIDE: Final = "/work_report.json"
"""The result that an event names refers to the report of the work beside it."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A run came to a state."""

    event: int
    ts: str
    state: str
    trigger: str

    def json(self) -> dict[str, Json]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Rehydrated:
    """A run as its events and reports describe it."""

    run_id: str
    status: str
    """As the events end: ``SUCCESS``, ``FAILURE``, ``PAUSED`` or ``RUNNING``."""
    state: str
    sealed: bool
    events: int
    timeline: tuple[Moment, ...]
    tasks: Mapping[str, Mapping[str, Json]]
    """By task: its parent and contract, its attempts, the gates that judged it."""
    gates: tuple[Mapping[str, Json], ...]
    tests: tuple[Mapping[str, Json], ...]
    reviews: tuple[Mapping[str, Json], ...]
    fixes: tuple[Mapping[str, Json], ...]
    """The fix loop: which task was repaired by which, and why."""
    approvals: tuple[Mapping[str, Json], ...]
    divergences: tuple[EvidenceDivergence, ...]

    @property
    def first_divergence(self) -> EvidenceDivergence | None:
        return self.divergences[0] if self.divergences else None

    def json(self) -> dict[str, Json]:
        rows: dict[str, Json] = {
            name: [dict(row) for row in getattr(self, name)]
            for name in ("gates", "tests", "reviews", "fixes", "approvals")
        }
        first = self.first_divergence
        return {
            "run_id": self.run_id,
            "status": self.status,
            "state": self.state,
            "sealed": self.sealed,
            "events": self.events,
            "timeline": [moment.json() for moment in self.timeline],
            "tasks": {task: dict(facts) for task, facts in self.tasks.items()},
            **rows,
            "first_divergence": None if first is None else first.json(),
            "divergences": [divergence.json() for divergence in self.divergences],
        }


def rehydrate_run(directory: Path) -> Rehydrated:
    """Rebuild a run; raise ``UsageError`` if it does not exist."""
    if not bundle.bundle_exists(directory):
        raise UsageError(f"run {directory.name} does not exist", rule="run.unknown")
    events, broken = read_events(directory)
    timeline = [
        Moment(0, "", START.value, ""),
        *(
            Moment(told.number, told.ts, told.text("to"), told.text("trigger"))
            for told in events.of(EventType.STATE_TRANSITION)
        ),
    ]

    def list_rows(*kinds: EventType) -> tuple[dict[str, Json], ...]:
        return tuple(map(_make_row, events.of(*kinds)))

    return Rehydrated(
        run_id=directory.name,
        status=_read_status(events),
        state=timeline[-1].state,
        sealed=events.last(EventType.RUN_SEALED) is not None,
        events=len(events),
        timeline=tuple(timeline),
        tasks=_list_tasks(events),
        gates=tuple(_make_row(told) for told in events if told.passed is not None),
        tests=list_rows(EventType.TEST_RESULT),
        reviews=list_rows(EventType.REVIEW_RESULT),
        fixes=list_rows(EventType.FIX_LOOP_TRIGGERED),
        approvals=list_rows(
            EventType.HUMAN_APPROVAL_REQUIRED,
            EventType.HUMAN_APPROVAL_COMPLETED,
            EventType.HUMAN_APPROVAL_TIMEOUT,
        ),
        # What no event knows of comes last: it has no place in the story.
        divergences=tuple(
            sorted(
                (*broken, *_find_divergences(directory, events)),
                key=lambda one: (one.event == 0, one.event),
            )
        ),
    )


def read_events(directory: Path) -> tuple[EventIndex, tuple[EvidenceDivergence, ...]]:
    """Return the events of a bundle as far as their chain holds, and where it breaks."""
    events, previous = EventIndex(), _FIRST
    for number, line in enumerate(read_raw_lines(directory / layout.EVENTS), 1):
        event = parse_json(line)
        if not isinstance(event, dict) or event.get("previous_hash") != previous:
            break
        try:
            own = digest_bytes(encode_record({k: v for k, v in event.items() if k != HASH_FIELD}))
        except UsageError:
            break
        if event.get(HASH_FIELD) != own:
            break
        previous = own
        events.add(number, event)
    else:
        none = EvidenceDivergence(0, "no event exists", layout.EVENTS)
        return events, () if len(events) else (none,)
    return events, (EvidenceDivergence(number, "the chain of events is broken from here on"),)


def _find_divergences(directory: Path, events: EventIndex) -> list[EvidenceDivergence]:
    try:
        manifest = parse_json(bundle.find_file(directory, layout.MANIFEST))
    except CoilClawError:
        manifest = None
    found = [*compare_evidence(events, directory, directory.name, manifest)]
    named = events.named_files()
    for path in bundle.list_bundle(directory).files:
        is_report = path.startswith(_WITH_EVENT) and path.endswith(".json")
        if is_report and not path.endswith(_BESIDE) and path not in named:
            found.append(EvidenceDivergence(0, "no event names this report", path))
    return found


def _read_status(events: EventIndex) -> str:
    told = events.last(EventType.RUN_FINISHED, EventType.RUN_PAUSED, EventType.RUN_RESUMED)
    if told is None or told.kind == EventType.RUN_RESUMED:
        return "RUNNING"
    return "PAUSED" if told.kind == EventType.RUN_PAUSED else told.text("status")


def _list_tasks(events: EventIndex) -> dict[str, dict[str, Json]]:
    tasks: dict[str, dict[str, Json]] = {}
    for told in events:
        if told.task_id is None:
            continue
        facts = tasks.setdefault(
            told.task_id, {"parent": None, "contract": None, "status": None, "attempts": []}
        )
        attempts = facts["attempts"]
        assert isinstance(attempts, list)
        if told.kind == EventType.CONTRACT_WRITTEN:
            facts["parent"] = told.payload.get("parent_task_id")
            facts["contract"] = told.payload.get("path")
        elif told.kind == EventType.TASK_STARTED:
            attempts.append(_make_row(told))
        elif told.kind in {EventType.TASK_RESULT_RECORDED, EventType.RUNNER_FAILED}:
            facts["status"] = told.payload.get("status")
            attempts.append(_make_row(told))
    return tasks


def _make_row(told: RecordedEvent) -> dict[str, Json]:
    return {
        "event": told.number,
        "ts": told.ts,
        "event_type": told.kind,
        "task_id": told.task_id,
        "attempt": told.attempt,
        **told.payload,
    }
