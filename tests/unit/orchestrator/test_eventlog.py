"""The event stream: what it takes, what it refuses, and that its times never go back."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from coilclaw.kernel.errors import CoilClawError, DeniedError, UsageError
from coilclaw.kernel.journal_verification import verify_journal
from coilclaw.kernel.schemas import find_schema_problems
from coilclaw.runs.contracts.event_types import EventType
from coilclaw.runs.evidence.event_log import HASH_FIELD, MAX_EVENT_BYTES, EventLog
from tests.support.bundles import RUN_ID, Clock, unredacted


def _log(
    tmp_path: Path, clock: object = None, redact: object = unredacted, run_id: str = RUN_ID
) -> EventLog:
    return EventLog(
        tmp_path / "events.jsonl",
        run_id,
        tmp_path / "key",
        redact,  # type: ignore[arg-type]  # any callable will do
        clock or Clock(),  # type: ignore[arg-type]  # likewise
        trace_id="trace-1",
    )


@pytest.mark.parametrize("run_id", ["", "../../../x", "short", "a/bcdefgh", "a..bcdefgh"])
def test_what_is_no_run_id_is_refused(tmp_path: Path, run_id: str) -> None:
    with pytest.raises(UsageError) as caught:
        _log(tmp_path, run_id=run_id)
    assert caught.value.rule == "run.id"


@pytest.mark.parametrize("kind", list(EventType))
def test_every_required_key_is_required(tmp_path: Path, kind: EventType) -> None:
    for key in kind.required:
        payload = {name: "x" for name in kind.required if name != key}
        with pytest.raises(UsageError, match=key) as caught:
            _log(tmp_path).append(kind, payload)
        assert caught.value.rule == "event.payload"
    assert not (tmp_path / "events.jsonl").exists()
    _log(tmp_path).append(kind, dict.fromkeys(kind.required, "x"))


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"level": "LOUD"}, "event.level"),
        ({"attempt": -1}, "event.attempt"),
        ({"attempt": True}, "event.attempt"),
        ({"task_id": ""}, "event.id"),
        ({"task_id": "x" * 257}, "event.id"),
        ({"trace_id": ""}, "event.id"),
        ({"payload": {"reason": 0.5}}, "canonical.type"),
        ({"payload": {"reason": "x", "schön": 1}}, "canonical.key"),
        ({"payload": {"reason": 2**53}}, "canonical.integer"),
        ({"payload": {"reason": "x" * MAX_EVENT_BYTES}}, "event.large"),
    ],
)
def test_what_no_event_may_hold_is_refused(
    tmp_path: Path, change: dict[str, object], rule: str
) -> None:
    options: dict[str, object] = {"payload": {"reason": "x"}, **change}
    payload = options.pop("payload")
    log = _log(tmp_path)
    log.trace_id = str(options.pop("trace_id", log.trace_id))
    with pytest.raises(CoilClawError) as caught:
        log.append(EventType.RUN_PAUSED, payload, **options)  # type: ignore[arg-type]
    assert caught.value.rule == rule
    assert not (tmp_path / "events.jsonl").exists()


def test_a_payload_nested_without_end_is_refused(tmp_path: Path) -> None:
    deep: object = "x"
    for _ in range(40):
        deep = [deep]
    with pytest.raises(UsageError) as caught:
        _log(tmp_path).append(EventType.RUN_PAUSED, {"reason": deep})
    assert caught.value.rule == "event.depth"


def test_nothing_is_taken_after_the_seal_by_this_or_another_log(tmp_path: Path) -> None:
    log = _log(tmp_path)
    log.append(EventType.RUN_SEALED, {"status": "SUCCESS"})
    for again in (log, _log(tmp_path)):
        with pytest.raises(DeniedError) as caught:
            again.append(EventType.RUN_PAUSED, {"reason": "late"})
        assert caught.value.rule == "event.sealed"
    assert log.last_type == "RUN_SEALED"


def test_an_event_has_exactly_the_fields_of_its_schema(tmp_path: Path) -> None:
    log = _log(tmp_path)
    own = log.append(
        EventType.GATE_FAILED,
        {"gate": "diff_gate", "reason": "r", "rule": "diff.x", "paths": ("a", "b")},
        level="ERROR",
        task_id="task-1",
        attempt=2,
    )
    (event,) = log.read()
    assert event == {
        "ts": "2026-05-12T14:00:01.000000Z",
        "level": "ERROR",
        "event_type": "gate_failed",
        "run_id": RUN_ID,
        "task_id": "task-1",
        "attempt": 2,
        "payload": {"gate": "diff_gate", "reason": "r", "rule": "diff.x", "paths": ["a", "b"]},
        "trace_id": "trace-1",
        "previous_hash": "0" * 64,
        "event_hash": own,
    }
    assert find_schema_problems("orchestrator_event.v1", event) == ()


def test_secrets_are_taken_out_wherever_they_stand(tmp_path: Path) -> None:
    log = _log(tmp_path, redact=lambda text: text.replace("hunter2", "[redacted]"))
    log.append(
        EventType.RUN_PAUSED,
        {"reason": "hunter2", "more": {"list": ["a hunter2 b", {"x": "hunter2"}]}},
        task_id="task-1",
    )
    assert b"hunter2" not in (tmp_path / "events.jsonl").read_bytes()
    (event,) = log.read()
    assert event["payload"] == {
        "reason": "[redacted]",
        "more": {"list": ["a [redacted] b", {"x": "[redacted]"}]},
    }


def test_an_id_that_holds_a_secret_is_refused(tmp_path: Path) -> None:
    log = _log(tmp_path, redact=lambda text: text.replace("hunter2", "[redacted]"))
    with pytest.raises(UsageError) as caught:
        log.append(EventType.RUN_PAUSED, {"reason": "x"}, task_id="task-hunter2")
    assert caught.value.rule == "event.secret"
    assert "hunter2" not in str(caught.value)


def test_half_a_surrogate_pair_becomes_a_mark(tmp_path: Path) -> None:
    log = _log(tmp_path)
    log.append(EventType.RUN_PAUSED, {"reason": "a\ud800b"})
    (event,) = log.read()
    assert event["payload"] == {"reason": "a?b"}


def test_time_never_goes_back_even_if_the_clock_does(tmp_path: Path) -> None:
    start = datetime(2026, 5, 12, 14, 0, tzinfo=UTC)
    times = iter([start, start - timedelta(days=400), start + timedelta(microseconds=1)])
    log = _log(tmp_path, clock=lambda: next(times))
    for _ in range(3):
        log.append(EventType.RUN_PAUSED, {"reason": "x"})
    assert [event["ts"] for event in log.read()] == [
        "2026-05-12T14:00:00.000000Z",
        "2026-05-12T14:00:00.000000Z",
        "2026-05-12T14:00:00.000001Z",
    ]
    resumed = _log(tmp_path, clock=lambda: start - timedelta(days=1))
    resumed.append(EventType.RUN_RESUMED, {"process": "1:2"})
    assert list(resumed.read())[-1]["ts"] == "2026-05-12T14:00:00.000001Z"


def test_times_of_other_zones_are_written_in_utc(tmp_path: Path) -> None:
    zone = timezone(timedelta(hours=5, minutes=30))
    log = _log(tmp_path, clock=lambda: datetime(2026, 5, 12, 14, 0, tzinfo=zone))
    log.append(EventType.RUN_PAUSED, {"reason": "x"})
    assert next(log.read())["ts"] == "2026-05-12T08:30:00.000000Z"


def test_threads_share_a_log(tmp_path: Path) -> None:
    log = _log(tmp_path)

    def work(number: int) -> None:
        for _ in range(20):
            log.append(EventType.RUN_PAUSED, {"reason": str(number)}, task_id=f"task-{number}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    events = list(log.read())
    assert len(events) == 160
    assert [event["ts"] for event in events] == sorted(str(event["ts"]) for event in events)
    found = verify_journal(
        tmp_path / "events.jsonl", hash_field=HASH_FIELD, key_path=tmp_path / "key"
    )
    assert (found.ok, found.records) == (True, 160)


def test_a_torn_end_is_mended_before_the_next_event(tmp_path: Path) -> None:
    log = _log(tmp_path)
    log.append(EventType.RUN_PAUSED, {"reason": "x"})
    log.close()
    with open(tmp_path / "events.jsonl", "ab") as file:
        file.write(b'{"attempt":null,"event_ha')
    again = _log(tmp_path)
    again.append(EventType.RUN_RESUMED, {"process": "1:2"})
    kinds = [event["event_type"] for event in again.read()]
    assert kinds == ["RUN_PAUSED", "RUN_RESUMED"]
    for line in (tmp_path / "events.jsonl").read_bytes().splitlines():
        json.loads(line)


def test_making_a_log_touches_nothing(tmp_path: Path) -> None:
    log = _log(tmp_path)
    assert list(log.read()) == []
    assert list(tmp_path.iterdir()) == []
