"""The timeline of a report: one sentence for each event that matters to a reader."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final

from coilclaw.runs.contracts.event_types import EventType
from coilclaw.runs.evidence.progress import RunState, Trigger
from coilclaw.runs.report import page_elements as page
from coilclaw.runs.report.report_sections import choose_tone

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from coilclaw.runs.evidence.event_index import RecordedEvent
    from coilclaw.runs.report.page_elements import Element, ReportTone
    from coilclaw.runs.report.report_source import ReportSource

MAX_ENTRIES: Final = 600
STATE_NAMES: Final[Mapping[str, str]] = {
    RunState.PM: "Contract",
    RunState.TECH_LEAD: "Split",
    RunState.WORKER: "Work",
    RunState.REVIEWER: "Review",
    RunState.TEST: "Tests",
    RunState.FIX: "Repair",
    RunState.DONE: "Done",
    RunState.FAILED: "Failed",
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


def read_timeline(events: Iterable[RecordedEvent], source: ReportSource) -> list[Element]:
    """Return an entry for each event that matters, in order."""
    found: list[Element] = []
    start: datetime | None = None
    refusals: set[str] = set()
    for event in events:
        if _is_repetition(event, refusals):
            continue
        now = _parse_time(event.ts)
        start = start or now
        elapsed = f"+{(now - start).total_seconds():.1f} s" if now and start else ""
        text, tone, state = _describe_event(event)
        if not text and not state:
            continue
        task_id, title = source.sentence(event.task_id, 200), source.sentence(event.ts, 40)
        who = page.join_dots(task_id, page.name_attempt(event.attempt) if task_id else "")
        moved = page.tag("b", source.sentence(state), kind="state") if state else ""
        found.append(
            page.tag(
                "li",
                page.tag("span", elapsed, kind="when", title=f"{title}, event {event.number}"),
                page.tag(
                    "span",
                    page.join_nodes(moved, " ") if moved else "",
                    source.sentence(text).rstrip(),
                    page.join_nodes(" ", page.make_optional("small", who)) if who else "",
                ),
                kind=f"{tone} move" if state else tone,
            )
        )
    return found


def _describe_event(event: RecordedEvent) -> tuple[str, ReportTone, str]:
    """Return a sentence, how it looks, and the state that a run came to; all empty for most."""
    payload = event.payload
    if event.kind == EventType.STATE_TRANSITION:
        state, failures = event.text("to"), payload.get("failures")
        reasons = failures if isinstance(failures, list) else []
        sentences = [_TRIGGERS.get(event.text("trigger"), event.text("trigger"))]
        sentences += [each for each in reasons if isinstance(each, str)][:3]
        tones: dict[str, ReportTone] = {RunState.DONE: "good", RunState.FAILED: "bad"}
        return " ".join(sentences), tones.get(state, "plain"), STATE_NAMES.get(state, state)
    if payload.get("passed") is False:
        violations = payload.get("violations")
        first = violations[0] if isinstance(violations, list) and violations else "no reason"
        return f"{event.text('gate')} refused: {first}", "bad", ""
    if event.kind == EventType.HUMAN_APPROVAL_COMPLETED:
        who = event.text("by") or "The user"
        yes = payload.get("approved") is True
        return (f"{who} approved it.", "good", "") if yes else (f"{who} rejected it.", "bad", "")
    if event.kind in _SENTENCES:
        form, tone = _SENTENCES[event.kind]
        if event.kind == EventType.COMMAND_FINISHED:
            tone = "good" if payload.get("exit_code") == 0 else "bad"
        elif tone == "plain":
            tone = choose_tone(event.text("status") or event.text("verdict"))
        return form.format_map(_Facts(event)), tone, ""
    reason = event.text("reason")
    return (f"{event.kind}: {reason}" if reason else ""), "warn", ""


def _is_repetition(event: RecordedEvent, refusals: set[str]) -> bool:
    """Say whether an event only repeats what a red gate said before it."""
    violations = event.payload.get("violations")
    if isinstance(violations, list):
        refusals.update(each for each in violations if isinstance(each, str))
    if event.kind == EventType.POLICY_VIOLATION:
        return f"{event.text('rule')}: {event.text('reason')}" in refusals
    return event.kind == EventType.GATE_FAILED


class _Facts(dict[str, str]):
    """What a sentence asks for; what the event does not say is a question mark."""

    def __init__(self, event: RecordedEvent) -> None:
        super().__init__()
        self._event = event

    def __missing__(self, key: str) -> str:
        value = self._event.payload.get(key)
        if key == "commit" and isinstance(value, str):
            return value[:12]
        if value is None:
            return "" if key == "reason" else "?"
        return str(value)


def _parse_time(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None
