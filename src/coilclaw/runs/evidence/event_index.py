"""The events of a bundle as an index, and where its records differ from them.

Verification and rehydration compare events, files and reports with ``compare_evidence``; each turns
what it yields into its own form.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import CoilClawError, EnvironmentFault, find_schema_problems, valid_text
from coilclaw.runs.contracts.event_types import EventType
from coilclaw.runs.contracts.records import GateOutcome
from coilclaw.runs.evidence import bundle, layout
from coilclaw.runs.evidence.progress import START, is_legal_move
from coilclaw.runs.evidence.verification_codes import LENIENT, WARNINGS, Code

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from coilclaw.kernel import Json

MAX_EVENTS: Final = 500_000
MAX_FINDINGS: Final = 1000
MAX_PER_CODE: Final = 100
MAX_MESSAGE_CHARS: Final = 500
_COMMITS: Final = ("baseline_commit", "commit", "candidate_commit", "target_commit")
_TS: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
_REPORT_KEYS: Final[Mapping[str, str]] = {
    EventType.TASK_RESULT_RECORDED: "status",
    EventType.SETUP_RESULT: "status",
    EventType.BASELINE_RESULT: "status",
    EventType.TEST_RESULT: "status",
    EventType.REVIEW_RESULT: "verdict",
}
"""Events with a report, and what both must say alike."""


def summarize_gates(
    events: Iterable[tuple[str, str | None, Mapping[str, object]]],
) -> dict[str, GateOutcome]:
    """Sum up what the gates of a run said; each event comes as its type, task and payload.

    A gate passed if it passed every task; what was said of work that another task repaired does
    not count any more.
    """
    words: dict[str, dict[str | None, GateOutcome]] = {}
    for kind, task_id, payload in events:
        if kind == EventType.CONTRACT_WRITTEN:
            repaired = payload.get("replaces")
            for name in repaired if isinstance(repaired, list) else ():
                for said in words.values():
                    said.pop(str(name), None)
        gate, passed = payload.get("gate"), payload.get("passed")
        if isinstance(gate, str) and isinstance(passed, bool):
            listed = payload.get("violations")
            violations = tuple(map(str, listed)) if isinstance(listed, list) else ()
            words.setdefault(gate, {})[task_id] = GateOutcome(passed=passed, violations=violations)
    return {
        gate: GateOutcome(
            passed=all(word.passed for word in said.values()),
            violations=tuple(each for word in said.values() for each in word.violations),
        )
        for gate, said in words.items()
        if said
    }


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """One event; ``number`` counts from 1."""

    number: int
    ts: str
    kind: str
    task_id: str | None
    attempt: int | None
    payload: Mapping[str, Json]
    run_id: object

    def text(self, key: str) -> str:
        """Return a text of the payload; empty where there is none."""
        value = self.payload.get(key)
        return value if isinstance(value, str) else ""

    @property
    def passed(self) -> bool | None:
        """The result of a gate; ``None`` for every other event."""
        passed = self.payload.get("passed")
        return passed if isinstance(passed, bool) else None


class EventIndex:
    """Events in order. A value that does not have the form of an event counts as an empty one."""

    def __init__(self, events: Iterable[Mapping[str, object]] = ()) -> None:
        self._events: list[RecordedEvent] = []
        self._paths: dict[str, list[RecordedEvent]] = {}
        for number, event in enumerate(events, 1):
            self.add(number, event)

    def add(self, number: int, event: Mapping[str, object]) -> None:
        """Take the next event; the first may come again, when reading starts over."""
        if number == 1:
            self._events.clear()
            self._paths.clear()
        if number > MAX_EVENTS:
            raise EnvironmentFault(f"there are more than {MAX_EVENTS} events", rule="event.many")
        task_id, attempt, payload = (event.get(k) for k in ("task_id", "attempt", "payload"))
        told = RecordedEvent(
            number,
            str(event.get("ts")),
            str(event.get("event_type")),
            task_id if isinstance(task_id, str) else None,
            attempt if type(attempt) is int else None,
            payload if isinstance(payload, dict) else {},
            event.get("run_id"),
        )
        self._events.append(told)
        if told.text("path"):
            self._paths.setdefault(told.text("path"), []).append(told)

    def __iter__(self) -> Iterator[RecordedEvent]:
        return iter(self._events)

    def __len__(self) -> int:
        return len(self._events)

    def of(self, *kinds: EventType) -> tuple[RecordedEvent, ...]:
        """Return all events of some types."""
        wanted = {kind.value for kind in kinds}
        return tuple(event for event in self._events if event.kind in wanted)

    def last(self, *kinds: EventType) -> RecordedEvent | None:
        """Return the last event of some types."""
        return next(reversed(self.of(*kinds)), None)

    @property
    def baseline(self) -> str:
        """The commit that the run began at; it may move until the first task is started."""
        found = ""
        for event in self._events:
            if event.kind == EventType.TASK_STARTED:
                break
            if event.kind in {EventType.RUN_CREATED, EventType.BASELINE_MOVED}:
                found = event.text("baseline_commit")
        return found

    @property
    def commits(self) -> frozenset[str]:
        """Every commit that some event names."""
        return frozenset(event.text(key) for event in self._events for key in _COMMITS) - {""}

    @property
    def gates(self) -> dict[str, GateOutcome]:
        """The results of the gates over the whole run."""
        return summarize_gates((one.kind, one.task_id, one.payload) for one in self._events)

    def gate(
        self, gate: str, task_id: str, attempt: Json, *, before: int = MAX_EVENTS + 1
    ) -> RecordedEvent | None:
        """Return the event that a result speaks of when it names a gate; it came before the result.

        The last one of the same task and attempt; where there is none, of the same task, then of
        the run itself, then of whichever task: a result of the whole run sums up its tasks.
        """
        found = [
            told
            for told in self._events[: before - 1]
            if told.passed is not None and told.text("gate") == gate
        ]
        own = [told for told in found if told.task_id == task_id]
        same = [told for told in own if attempt is not None and told.attempt == attempt]
        whole = [told for told in found if told.task_id is None]
        return next((several[-1] for several in (same, own, whole, found) if several), None)

    def naming(self, path: str) -> RecordedEvent | None:
        """Return the last event that names a file."""
        return next(reversed(self._paths.get(path, [])), None)

    def named_files(self) -> dict[str, list[RecordedEvent]]:
        """Return each path that events name together with a hash, and the events that count.

        Of a file that holds the latest of several, that is the last event only.
        """
        hashed = {
            path: [told for told in several if told.text("sha256")]
            for path, several in self._paths.items()
        }
        return {
            path: several[-1:] if layout.is_latest(path) else several
            for path, several in hashed.items()
            if several
        }


@dataclass(frozen=True, slots=True)
class EvidenceDivergence:
    """Where records differ; ``event`` counts from 1, and 0 means no event."""

    event: int
    what: str
    path: str = ""
    told: Json = None
    recorded: Json = None
    code: Code = field(default=Code.EVENTS_HASHCHAIN_INVALID, compare=False)

    def json(self) -> dict[str, Json]:
        names = ("event", "what", "path", "told", "recorded")
        return {name: getattr(self, name) for name in names}

    def __str__(self) -> str:
        if self.told is None and self.recorded is None:
            return f"event {self.event}: {self.what}"
        return f"event {self.event}: {self.what}: {self.told}, and recorded is {self.recorded}"


def compare_evidence(
    events: EventIndex,
    directory: Path,
    run_id: str,
    manifest: Json,
    is_legal: Callable[[str, str, str], bool] = is_legal_move,
) -> Iterator[EvidenceDivergence]:
    """Compare events, the files and reports that they name, and the manifest."""
    before = ""
    for told in events:
        if told.run_id != run_id:
            what = "the event is of another run"
            yield EvidenceDivergence(told.number, what, recorded=run_id, code=Code.RUN_ID_MISMATCH)
        if is_time(told.ts) and told.ts < before:
            what = "the event is before the one before it"
            yield EvidenceDivergence(told.number, what, code=Code.EVENT_ORDER_INVALID)
        elif is_time(told.ts):
            before = told.ts
    state = START.value
    for told in events.of(EventType.STATE_TRANSITION):
        origin, target, trigger = (told.text(key) for key in ("from", "to", "trigger"))
        if origin != state or not is_legal(origin, target, trigger):
            yield EvidenceDivergence(
                told.number,
                "the run moved where it cannot",
                "",
                f"{origin} → {target}",
                state,
                Code.STATE_TRANSITION_ILLEGAL,
            )
        state = target
    for path, several in events.named_files().items():
        for told in several:
            yield from _compare_file(told, directory, path, run_id)
    status = get_part(manifest, "status")
    for kind in (EventType.RUN_FINISHED, EventType.RUN_SEALED):
        ended = events.last(kind)
        if ended is not None and status not in {None, "RUNNING", ended.text("status")}:
            yield EvidenceDivergence(
                ended.number,
                "the manifest ends otherwise",
                layout.MANIFEST,
                ended.text("status"),
                status,
                Code.STATUS_MISMATCH,
            )


def _compare_file(
    told: RecordedEvent, directory: Path, path: str, run_id: str
) -> Iterator[EvidenceDivergence]:
    """Compare a file with the event that names it; a report also says what its event says."""
    code = Code.EVENT_EVIDENCE_MISMATCH
    try:
        actual = bundle.measure_file(directory, path).sha256
        key = _REPORT_KEYS.get(told.kind)
        report = None if key is None else parse_json(bundle.read_file(directory, path))
    except CoilClawError:
        what = "the file that the event names is not there"
        yield EvidenceDivergence(told.number, what, path, code=code)
        return
    if actual != told.text("sha256").lower():
        what = "the file is not the one of the event"
        yield EvidenceDivergence(told.number, what, path, told.text("sha256"), actual, code)
    for name, expected, code in (
        (key or "", told.payload.get(key or ""), Code.STATUS_MISMATCH),
        ("run_id", run_id, Code.RUN_ID_MISMATCH),
        ("task_id", told.task_id, Code.TASK_ID_MISMATCH),
        ("attempt", told.attempt, Code.ATTEMPT_MISMATCH),
    ):
        recorded = get_part(report, name)
        if expected is not None and recorded is not None and recorded != expected:
            what = f"event and report differ in {name}"
            yield EvidenceDivergence(told.number, what, path, expected, recorded, code)


@dataclass(frozen=True, slots=True)
class EvidenceFinding:
    """One problem, and where it is."""

    code: Code
    message: str
    path: str = ""

    def json(self) -> dict[str, Json]:
        return {"code": self.code.value, "message": self.message, "path": self.path}


@dataclass(slots=True)
class Examination:
    """Reads a bundle and gathers findings."""

    directory: Path
    strict: bool
    errors: list[EvidenceFinding] = field(default_factory=list)
    warnings: list[EvidenceFinding] = field(default_factory=list)
    manifest: Mapping[str, Json] = field(default_factory=dict)
    """Empty where there is none that can be read."""
    events: EventIndex = field(default_factory=EventIndex)
    contracts: dict[str, Mapping[str, Json]] = field(default_factory=dict)
    """Every contract that can be read, by its task."""
    _counts: dict[Code, int] = field(default_factory=dict)

    def say(self, code: Code, message: str, path: str = "", *, softly: bool = False) -> None:
        """Note a problem; ``softly`` makes it a warning."""
        count = self._counts[code] = self._counts.get(code, 0) + 1
        warning = softly or code in WARNINGS or (code in LENIENT and not self.strict)
        found = self.warnings if warning else self.errors
        # The first of a kind is always noted, so that a flood of one hides no other.
        if count == 1 or (count <= MAX_PER_CODE and len(found) < MAX_FINDINGS):
            found.append(
                EvidenceFinding(code, valid_text(message)[:MAX_MESSAGE_CHARS], valid_text(path))
            )

    def find(self, path: str, limit: int = bundle.MAX_JSON_BYTES) -> bytes | None:
        """Return a file's bytes; ``None`` where there is none that can be read.

        Missing files, links and unreadable ones are noted when all files are hashed.
        """
        try:
            return bundle.find_file(self.directory, path, limit=limit)
        except CoilClawError:
            return None

    def load(
        self, path: str, schema: str, invalid: Code, *, softly: bool = False
    ) -> Mapping[str, Json] | None:
        """Return a JSON file that fits a schema; ``None`` where it does not, which is noted."""
        value = parse_json(self.find(path))
        found = find_schema_problems(schema, value)
        for problem in found:
            self.say(invalid, f"{path}{problem.path}: {problem.message}", path, softly=softly)
        return value if isinstance(value, dict) and not found else None

    @property
    def succeeded(self) -> bool:
        """Whether the manifest claims a success."""
        return self.manifest.get("status") == "SUCCESS"


def is_time(text: str) -> bool:
    """Return whether a text is a UTC time in microseconds."""
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return _TS.fullmatch(text) is not None


def parse_json(data: bytes | None) -> Json:
    """Return the JSON in some bytes; ``None``, which no schema accepts, where there is none."""
    try:
        value: Json = json.loads(data or b"")
    except (ValueError, RecursionError):
        return None
    return value


def get_part(value: object, *keys: str) -> Json:
    """Return the value under some keys of nested objects; ``None`` if one is missing."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value  # type: ignore[return-value]  # JSON all the way down
