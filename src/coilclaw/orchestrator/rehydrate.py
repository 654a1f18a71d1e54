"""``rehydrate``: the course of a run, rebuilt from its events and reports. No model is asked.

The events are the story; the reports are held against it. Where both part, that is a divergence,
named by the number of the event; the first one is where to look. It only reads, and works for a run
that is not sealed, too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from coilclaw.contracts.eventtypes import EventType
from coilclaw.domain.canonical import digest, encode
from coilclaw.errors import CoilClawError, UsageError
from coilclaw.orchestrator import bundletree, layout
from coilclaw.orchestrator.chronicle import Chronicle, Told
from coilclaw.orchestrator.eventlog import HASH_FIELD
from coilclaw.orchestrator.examination import parsed, part
from coilclaw.orchestrator.states import START, legal
from coilclaw.storage.verify import raw_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from coilclaw.domain.messages import Json

_FIRST: Final = "0" * 64
_REPORTS: Final[Mapping[str, tuple[str, ...]]] = {
    EventType.TASK_RESULT_RECORDED: ("status",),
    EventType.TEST_RESULT: ("status",),
    EventType.REVIEW_RESULT: ("verdict",),
}
"""Events with a report, and what both must say alike."""
_WITH_EVENT: Final = ("results/", "reviews/", "ci/")
_BESIDE: Final = "/work_report.json"


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where the records part; ``event`` counts from 1, and 0 stands for no event at all."""

    event: int
    what: str
    path: str = ""
    told: Json = None
    recorded: Json = None

    def json(self) -> dict[str, Json]:
        return {
            "event": self.event,
            "what": self.what,
            "path": self.path,
            "told": self.told,
            "recorded": self.recorded,
        }


@dataclass(frozen=True, slots=True)
class Moment:
    """A run came to a state."""

    event: int
    ts: str
    state: str
    trigger: str

    def json(self) -> dict[str, Json]:
        return {"event": self.event, "ts": self.ts, "state": self.state, "trigger": self.trigger}


@dataclass(frozen=True, slots=True)
class Rehydrated:
    """A run as it can be told without having been there."""

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
    divergences: tuple[Divergence, ...]

    @property
    def first_divergence(self) -> Divergence | None:
        return self.divergences[0] if self.divergences else None

    def json(self) -> dict[str, Json]:
        first = self.first_divergence
        return {
            "run_id": self.run_id,
            "status": self.status,
            "state": self.state,
            "sealed": self.sealed,
            "events": self.events,
            "timeline": [moment.json() for moment in self.timeline],
            "tasks": {task: dict(facts) for task, facts in self.tasks.items()},
            "gates": [dict(row) for row in self.gates],
            "tests": [dict(row) for row in self.tests],
            "reviews": [dict(row) for row in self.reviews],
            "fixes": [dict(row) for row in self.fixes],
            "approvals": [dict(row) for row in self.approvals],
            "first_divergence": None if first is None else first.json(),
            "divergences": [divergence.json() for divergence in self.divergences],
        }


def rehydrate(directory: Path) -> Rehydrated:
    """Rebuild a run; a run that is not there is a ``UsageError``."""
    if not bundletree.exists(directory):
        raise UsageError(f"there is no run {directory.name}", rule="run.unknown")
    reading = _Reading(directory)
    reading.read_events()
    chronicle = reading.chronicle
    timeline = tuple(reading.moments())
    reading.compare()
    return Rehydrated(
        run_id=directory.name,
        status=_status(chronicle),
        state=timeline[-1].state,
        sealed=chronicle.last(EventType.RUN_SEALED) is not None,
        events=len(chronicle),
        timeline=timeline,
        tasks=_tasks(chronicle),
        gates=tuple(_row(t) for t in chronicle if isinstance(t.payload.get("passed"), bool)),
        tests=tuple(map(_row, chronicle.of(EventType.TEST_RESULT))),
        reviews=tuple(map(_row, chronicle.of(EventType.REVIEW_RESULT))),
        fixes=tuple(map(_row, chronicle.of(EventType.FIX_LOOP_TRIGGERED))),
        approvals=tuple(
            map(
                _row,
                chronicle.of(
                    EventType.HUMAN_APPROVAL_REQUIRED,
                    EventType.HUMAN_APPROVAL_COMPLETED,
                    EventType.HUMAN_APPROVAL_TIMEOUT,
                ),
            )
        ),
        # What no event knows of comes last: it has no place in the story.
        divergences=tuple(sorted(reading.found, key=lambda one: (one.event == 0, one.event))),
    )


def read_events(directory: Path) -> Chronicle:
    """Return the events of a bundle as far as their chain holds."""
    reading = _Reading(directory)
    reading.read_events()
    return reading.chronicle


@dataclass(slots=True)
class _Reading:
    """One look at one bundle."""

    directory: Path
    chronicle: Chronicle = field(default_factory=Chronicle)
    found: list[Divergence] = field(default_factory=list)

    def read_events(self) -> None:
        """Read as far as the chain holds; what comes after it is no story."""
        previous, ts = _FIRST, ""
        for number, line in enumerate(raw_lines(self.directory / layout.EVENTS), 1):
            event = _event(line, previous)
            if event is None:
                self._note(number, "the chain of events is broken from here on")
                return
            previous = str(event[HASH_FIELD])
            self.chronicle.add(number, event)
            if event.get("run_id") != self.directory.name:
                self._note(number, "the event is of another run", recorded=self.directory.name)
            if str(event.get("ts")) < ts:
                self._note(number, "the event is before the one before it")
            ts = str(event.get("ts"))
        if not len(self.chronicle):
            self._note(0, "there is no event", layout.EVENTS)

    def moments(self) -> Iterator[Moment]:
        state = START.value
        yield Moment(0, "", state, "")
        for told in self.chronicle.of(EventType.STATE_TRANSITION):
            origin, target, trigger = (told.text(key) for key in ("from", "to", "trigger"))
            if origin != state or not legal(origin, target, trigger):
                self._note(
                    told.number, "the run moved where it cannot", told=f"{origin} → {target}",
                    recorded=state,
                )  # fmt: skip
            state = target
            yield Moment(told.number, told.ts, target, trigger)

    def compare(self) -> None:
        """Hold every file that an event names, and every report, against the events."""
        named = self.chronicle.named_files()
        latest = {path: numbers[-1][0] for path, numbers in named.items()}
        for told in self.chronicle:
            path = told.text("path")
            replaced = layout.is_latest(path) and latest.get(path) != told.number
            if path and told.text("sha256") and not replaced:
                self._compare_file(told, path)
        for path in self._reports():
            if path not in named:
                self._note(0, "no event knows of this report", path)
        self._compare_manifest()

    def _compare_file(self, told: Told, path: str) -> None:
        data = self._read(path)
        if data is None:
            self._note(told.number, "the file that the event names is not there", path)
            return
        if digest(data) != told.text("sha256").lower():
            self._note(
                told.number, "the file is not the one of the event", path,
                told=told.text("sha256"), recorded=digest(data),
            )  # fmt: skip
        keys = _REPORTS.get(told.kind)
        if keys is None:
            return
        report = parsed(data)
        for key in (*keys, "run_id", "task_id", "attempt"):
            expected = _expected(told, key, self.directory.name)
            recorded = part(report, key)
            if expected is not None and recorded is not None and recorded != expected:
                self._note(
                    told.number, f"event and report differ in {key}", path,
                    told=expected, recorded=recorded,
                )  # fmt: skip

    def _compare_manifest(self) -> None:
        manifest = parsed(self._read(layout.MANIFEST) or b"")
        ended = self.chronicle.last(EventType.RUN_FINISHED)
        status = part(manifest, "status")
        if ended is not None and status not in {None, "RUNNING", ended.text("status")}:
            self._note(
                ended.number, "the manifest ends otherwise", layout.MANIFEST,
                told=ended.text("status"), recorded=status,
            )  # fmt: skip

    def _reports(self) -> tuple[str, ...]:
        files = bundletree.listing(self.directory).files
        found = (p for p in files if p.startswith(_WITH_EVENT) and p.endswith(".json"))
        # The result that an event names refers to the report of the work beside it.
        return tuple(p for p in found if not p.endswith(_BESIDE))

    def _read(self, path: str) -> bytes | None:
        try:
            return bundletree.read(self.directory, path, limit=bundletree.MAX_PATCH_BYTES)
        except CoilClawError:
            return None

    def _note(
        self, event: int, what: str, path: str = "", *, told: Json = None, recorded: Json = None
    ) -> None:
        self.found.append(Divergence(event, what, path, told, recorded))


def _event(line: bytes, previous: str) -> dict[str, object] | None:
    """The event on a line, if it follows the one before it and is what it was."""
    event = parsed(line)
    if not isinstance(event, dict) or event.get("previous_hash") != previous:
        return None
    body = {key: value for key, value in event.items() if key != HASH_FIELD}
    try:
        own = digest(encode(body))
    except UsageError:
        return None
    return dict(event) if event.get(HASH_FIELD) == own else None


def _expected(told: Told, key: str, run_id: str) -> Json:
    if key == "run_id":
        return run_id
    if key == "task_id":
        return told.task_id
    return told.attempt if key == "attempt" else told.payload.get(key)


def _status(chronicle: Chronicle) -> str:
    told = chronicle.last(EventType.RUN_FINISHED, EventType.RUN_PAUSED, EventType.RUN_RESUMED)
    if told is None or told.kind == EventType.RUN_RESUMED:
        return "RUNNING"
    return "PAUSED" if told.kind == EventType.RUN_PAUSED else told.text("status")


def _tasks(chronicle: Chronicle) -> dict[str, dict[str, Json]]:
    tasks: dict[str, dict[str, Json]] = {}
    for told in chronicle:
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
            attempts.append(_row(told))
        elif told.kind in {EventType.TASK_RESULT_RECORDED, EventType.RUNNER_FAILED}:
            facts["status"] = told.payload.get("status")
            attempts.append(_row(told))
    return tasks


def _row(told: Told) -> dict[str, Json]:
    return {
        "event": told.number,
        "ts": told.ts,
        "event_type": told.kind,
        "task_id": told.task_id,
        "attempt": told.attempt,
        **told.payload,
    }
