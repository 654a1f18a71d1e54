"""Verification of the events: the chain, the anchor, each by itself, and the moves they tell."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from coilclaw.contracts.eventtypes import REQUIRED_KEYS, EventType
from coilclaw.contracts.schemas import problems
from coilclaw.errors import CoilClawError, VerificationFailed
from coilclaw.orchestrator import layout
from coilclaw.orchestrator.codes import Code
from coilclaw.orchestrator.eventlog import HASH_FIELD
from coilclaw.orchestrator.examination import part
from coilclaw.orchestrator.states import START, State
from coilclaw.storage.verify import verify as verify_journal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from coilclaw.orchestrator.examination import Examination
    from coilclaw.storage.verify import JournalReport

_TS: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


def check_events(examination: Examination, *, key_path: Path) -> None:
    """Follow the chain from the first event to the last, and to the anchor."""
    path = layout.EVENTS
    watcher = _Watcher(examination)
    try:
        report = verify_journal(
            examination.directory / path,
            hash_field=HASH_FIELD,
            key_path=key_path,
            observe=watcher.observe,
        )
    except VerificationFailed as problem:
        examination.say(Code.EVENTS_MISSING, problem.message, path)
        return
    except CoilClawError as problem:
        examination.say(Code.EVIDENCE_UNREADABLE, problem.message, path)
        return
    watcher.tell()
    _check_chain(examination, report)
    if report.records == 0:
        examination.say(Code.EVENTS_MISSING, "there is no event", path)
        return
    _check_end(examination, watcher.head, report.records)


class _Watcher:
    """Looks at each event while the chain is followed; which may begin anew."""

    def __init__(self, examination: Examination) -> None:
        self._examination = examination
        self._found: list[tuple[Code, str]] = []
        self._before = ""
        self.head = ""

    def observe(self, number: int, event: Mapping[str, object]) -> None:
        if number == 1:
            self._found, self._before = [], ""
        self._examination.chronicle.add(number, event)
        for problem in problems("orchestrator_event.v1", event):
            self._note(Code.EVENT_INVALID, f"event {number}{problem.path}: {problem.message}")
        self._check_payload(number, event)
        ts = event.get("ts")
        if not isinstance(ts, str) or not _is_time(ts):
            self._note(Code.EVENT_TS_INVALID, f"the time of event {number} is no UTC time")
        elif ts < self._before:
            self._note(Code.EVENT_ORDER_INVALID, f"event {number} is before the one before it")
        else:
            self._before = ts
        manifest = self._examination.manifest
        if manifest and event.get("run_id") != manifest["run_id"]:
            self._note(Code.RUN_ID_MISMATCH, f"event {number} is of run {event.get('run_id')}")
        self.head = str(event.get(HASH_FIELD))

    def tell(self) -> None:
        for code, message in self._found:
            self._examination.say(code, message, layout.EVENTS)

    def _check_payload(self, number: int, event: Mapping[str, object]) -> None:
        try:
            wanted = REQUIRED_KEYS[EventType(str(event.get("event_type")))]
        except ValueError:
            return  # the schema has said so
        payload = event.get("payload")
        missing = [key for key in wanted if not isinstance(payload, dict) or key not in payload]
        if missing:
            self._note(Code.EVENT_INVALID, f"event {number} lacks {', '.join(missing)}")

    def _note(self, code: Code, message: str) -> None:
        self._found.append((code, message))


def _is_time(text: str) -> bool:
    from datetime import datetime

    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return _TS.fullmatch(text) is not None


def _check_chain(examination: Examination, report: JournalReport) -> None:
    broken = report.break_
    if broken is not None and broken.reason == "wrong key":
        examination.say(Code.SEAL_KEY_OTHER, broken.sentence, layout.ANCHOR)
    elif broken is not None and broken.reason in {"anchor missing", "anchor edited"}:
        examination.say(Code.EVENTS_ANCHOR_INVALID, broken.sentence, layout.ANCHOR)
    elif broken is not None:
        examination.say(Code.EVENTS_HASHCHAIN_INVALID, broken.sentence, layout.EVENTS)
    if report.unanchored or report.torn_bytes:
        examination.say(
            Code.EVENTS_ANCHOR_INVALID,
            f"{report.unanchored} events and {report.torn_bytes} bytes stand after the anchor",
            layout.EVENTS,
        )


def _check_end(examination: Examination, head: str, count: int) -> None:
    say = examination.say
    kinds = [event.kind for event in examination.chronicle]
    if EventType.RUN_SEALED not in kinds[-1:] or EventType.RUN_SEALED in kinds[:-1]:
        say(Code.EVENTS_NOT_SEALED, "RUN_SEALED is not the last event", layout.EVENTS)
    if kinds[0] != EventType.RUN_CREATED or EventType.RUN_CREATED in kinds[1:]:
        say(Code.EVENT_INVALID, "RUN_CREATED is not the first event", layout.EVENTS)
    integrity = part(examination.manifest, "integrity")
    if not isinstance(integrity, dict):
        return
    if integrity["events_count"] != count:
        say(
            Code.EVENTS_COUNT_MISMATCH,
            f"there are {count} events, and {integrity['events_count']} were sealed",
            layout.EVENTS,
        )
    if str(integrity["events_head"]).lower() != head:
        say(Code.EVENTS_HEAD_MISMATCH, f"the last event's hash is {head}", layout.EVENTS)


def check_moves(examination: Examination, legal: Callable[[str, str, str], bool]) -> None:
    """Every move must be in the table, begin where the last one ended, and lead to the status."""
    say = examination.say
    state = START.value
    for told in examination.chronicle.of(EventType.STATE_TRANSITION):
        origin, target = told.text("from"), told.text("to")
        if origin != state:
            say(
                Code.STATE_TRANSITION_ILLEGAL,
                f"event {told.number} leaves {origin}, and the run was in {state}",
                layout.EVENTS,
            )
        if not legal(origin, target, told.text("trigger")):
            say(
                Code.STATE_TRANSITION_ILLEGAL,
                f"event {told.number} moves from {origin} to {target}, which is no move",
                layout.EVENTS,
            )
        state = target
    if examination.succeeded and state != State.DONE:
        say(Code.STATUS_MISMATCH, f"the run succeeded, and its last state is {state}")
    status = examination.manifest.get("status")
    for kind in (EventType.RUN_FINISHED, EventType.RUN_SEALED):
        told_last = examination.chronicle.last(kind)
        if told_last is not None and status and told_last.text("status") != status:
            say(
                Code.STATUS_MISMATCH,
                f"{kind} says {told_last.text('status')}, and the manifest says {status}",
                layout.MANIFEST,
            )
