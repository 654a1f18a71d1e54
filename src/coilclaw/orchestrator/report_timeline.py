"""The timeline of a report: what happened, one sentence an event that matters."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final

from coilclaw.contracts.eventtypes import EventType
from coilclaw.orchestrator.run_report import TimelineEntry
from coilclaw.orchestrator.states import State, Trigger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from coilclaw.orchestrator.chronicle import Told
    from coilclaw.orchestrator.report_source import ReportSource
    from coilclaw.orchestrator.run_report import ReportTone

MAX_ENTRIES: Final = 600
STATE_NAMES: Final[Mapping[str, str]] = {
    State.PM: "Contract",
    State.TECH_LEAD: "Split",
    State.WORKER: "Work",
    State.REVIEWER: "Review",
    State.TEST: "Tests",
    State.FIX: "Repair",
    State.DONE: "Done",
    State.FAILED: "Failed",
}
_TRIGGERS: Final[Mapping[str, str]] = {
    Trigger.CONTRACT_ACCEPTED: "The contract was accepted.",
    Trigger.SPLIT_ACCEPTED: "The tasks were accepted, and their paths locked.",
    Trigger.WORK_ACCEPTED: "All work stayed in its scope.",
    Trigger.WORK_REJECTED: "Work was refused.",
    Trigger.REVIEW_PASSED: "The review passed.",
    Trigger.REVIEW_BLOCKED: "The review blocked the change.",
    Trigger.TESTS_PASSED: "The acceptance tests passed.",
    Trigger.TESTS_FAILED: "The acceptance tests failed.",
    Trigger.FIX_CONTRACTED: "A repair was contracted.",
    Trigger.FIX_EXHAUSTED: "No repair is left.",
    Trigger.GATE_FAILED: "A gate refused.",
    Trigger.DENIED: "The run was denied.",
    Trigger.FAULT: "The system itself was at fault.",
}
_SENTENCES: Final[Mapping[str, tuple[str, ReportTone]]] = {
    EventType.RUN_CREATED: ("The run began with the runner {runner}.", "plain"),
    EventType.RUN_RESUMED: ("The run was resumed.", "plain"),
    EventType.RUN_PAUSED: ("The run paused: {reason}", "warn"),
    EventType.RUN_FINISHED: ("The run ended: {status}. {reason}", "plain"),
    EventType.RUN_SEALED: ("The evidence was sealed.", "plain"),
    EventType.MODEL_ASKED: ("{role} asked the model {model}.", "plain"),
    EventType.TASK_STARTED: ("Work began with {runner}.", "plain"),
    EventType.TASK_RESULT_RECORDED: ("Work ended: {status}. {reason}", "plain"),
    EventType.RUNNER_FAILED: ("The runner failed: {reason}", "bad"),
    EventType.ROLLBACK_APPLIED: ("The work was rolled back.", "warn"),
    EventType.CANDIDATE_PREPARED: ("The candidate is commit {commit}.", "plain"),
    EventType.COMMAND_FINISHED: ("{name} ended with exit code {exit_code}.", "plain"),
    EventType.SETUP_RESULT: ("The set-up: {status}.", "plain"),
    EventType.BASELINE_RESULT: ("Tests of the baseline: {status}. {fault}", "plain"),
    EventType.TEST_RESULT: ("Tests of the {where}: {status}. {reason}", "plain"),
    EventType.REVIEW_RESULT: ("Review by {reviewer}: {verdict}.", "plain"),
    EventType.FIX_LOOP_TRIGGERED: ("{child_task_id} repairs it: {reason}", "warn"),
    EventType.FIX_LOOP_EXHAUSTED: ("No repair is left: {reason}", "bad"),
    EventType.HUMAN_APPROVAL_REQUIRED: ("An approval is needed: {reason}", "warn"),
    EventType.HUMAN_APPROVAL_TIMEOUT: ("The approval ended without an answer.", "bad"),
    EventType.MERGE_STARTED: ("Merging into {branch} began.", "plain"),
    EventType.MERGE_COMPLETED: ("Merged into {branch} as {commit}.", "good"),
    EventType.MERGE_PENDING: ("The merge into {branch} is pending. {reason}", "warn"),
    EventType.POLICY_VIOLATION: ("Refused by {rule}: {reason}", "bad"),
}
_STATUS_TONES: Final[Mapping[str, ReportTone]] = {
    "SUCCESS": "good",
    "PASS": "good",
    "FAILURE": "bad",
    "FAILED": "bad",
    "FAIL": "bad",
    "ERROR": "bad",
    "BLOCKED": "bad",
}


def tone_of(status: str) -> ReportTone:
    """How a status of a report looks."""
    return _STATUS_TONES.get(status, "plain")


def read_timeline(events: Iterable[Told], source: ReportSource) -> tuple[TimelineEntry, ...]:
    """Tell all events that matter to a reader, in order."""
    found: list[TimelineEntry] = []
    start: datetime | None = None
    refusals: set[str] = set()
    for told in events:
        if _is_repetition(told, refusals):
            continue
        now = _time(told.ts)
        start = start or now
        elapsed = None if now is None or start is None else (now - start).total_seconds()
        for text, tone, state in _say(told, source.sentence):
            found.append(
                TimelineEntry(
                    told.number, source.sentence(told.ts, 40), elapsed, text, tone, state,
                    source.sentence(told.task_id or "", 200), told.attempt,
                )
            )  # fmt: skip
    return tuple(found)


def _say(told: Told, clean: Callable[[object], str]) -> Iterator[tuple[str, ReportTone, str]]:
    if told.kind == EventType.STATE_TRANSITION:
        state = told.text("to")
        tone: ReportTone = (
            "good" if state == State.DONE else "bad" if state == State.FAILED else "plain"
        )
        reasons = told.payload.get("failures")
        said = [_TRIGGERS.get(told.text("trigger"), told.text("trigger"))]
        said += (
            [each for each in reasons if isinstance(each, str)][:3]
            if isinstance(reasons, list)
            else []
        )
        yield clean(" ".join(said)), tone, clean(STATE_NAMES.get(state, state))
    elif told.payload.get("passed") is False:
        violations = told.payload.get("violations")
        first = violations[0] if isinstance(violations, list) and violations else "no reason"
        yield clean(f"{told.text('gate')} refused: {first}"), "bad", ""
    elif told.kind == EventType.HUMAN_APPROVAL_COMPLETED:
        yes = told.payload.get("approved") is True
        word = "approved" if yes else "rejected"
        yield clean(f"{told.text('by') or 'The user'} {word} it."), "good" if yes else "bad", ""
    elif told.kind in _SENTENCES:
        form, tone = _SENTENCES[told.kind]
        yield clean(form.format_map(_Facts(told))).rstrip(), _tone(told, tone), ""
    elif told.text("reason"):
        yield clean(f"{told.kind}: {told.text('reason')}"), "warn", ""


def _is_repetition(told: Told, refusals: set[str]) -> bool:
    """Say whether an event only repeats what a red gate said before it."""
    violations = told.payload.get("violations")
    if isinstance(violations, list):
        refusals.update(each for each in violations if isinstance(each, str))
    if told.kind == EventType.POLICY_VIOLATION:
        return f"{told.text('rule')}: {told.text('reason')}" in refusals
    return told.kind == EventType.GATE_FAILED


class _Facts(dict[str, str]):
    """What a sentence asks for; what the event does not say is a question mark."""

    def __init__(self, told: Told) -> None:
        super().__init__()
        self._told = told

    def __missing__(self, key: str) -> str:
        value = self._told.payload.get(key)
        if key == "commit" and isinstance(value, str):
            return value[:12]
        if value is None:
            return "" if key == "reason" else "?"
        return str(value)


def _tone(told: Told, usual: ReportTone) -> ReportTone:
    if told.kind == EventType.COMMAND_FINISHED:
        return "good" if told.payload.get("exit_code") == 0 else "bad"
    return tone_of(told.text("status") or told.text("verdict")) if usual == "plain" else usual


def _time(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None
