"""Events as lines: nothing in them can act on a terminal, and nothing is endless."""

from __future__ import annotations

from coilclaw.cli.runs.run_events import MAX_CHARS, Event


def test_what_an_agent_wrote_is_made_visible_and_bounded() -> None:
    event = {
        "event_type": "RUNNER_FAILED",
        "task_id": "t\x1b[2J",
        "payload": {"status": "failed", "reason": "\u202e" + "x" * 10_000},
        "level": "ERROR",
    }
    said = Event(event).line
    assert said.startswith(r"RUNNER_FAILED t\x1b[2J status=failed reason=\u202exx")
    assert len(said) < 2 * MAX_CHARS
    assert Event(event).style == "red"


def test_states_stand_out() -> None:
    event = {
        "event_type": "STATE_TRANSITION",
        "ts": "2026-11-15T10:00:01.000000Z",
        "task_id": None,
        "payload": {"from": "S4_TEST", "to": "S6_DONE", "trigger": "tests_passed"},
        "level": "INFO",
    }
    assert Event(event).line == "10:00:01 == S4_TEST -> S6_DONE (tests_passed)"
    assert Event(event).style == "bold"


def test_a_gate_says_what_it_has_against_it() -> None:
    payload = {"gate": "diff_gate", "passed": False, "violations": ["diff.scope: no"], "facts": ""}
    event = {"event_type": "DIFF_GATE_RESULT", "task_id": "t", "payload": payload, "level": "ERROR"}
    assert Event(event).line == "DIFF_GATE_RESULT t FAILED: diff.scope: no"
    passed = {**event, "payload": {**payload, "passed": True}, "level": "INFO"}
    assert (Event(passed).line, Event(passed).style) == ("DIFF_GATE_RESULT t passed", None)


def test_a_wait_is_told_in_a_sentence() -> None:
    reason = "waits since now for run \x1b[2J, which has held 'src' since then" + "x" * 10_000
    event = {"event_type": "LOCKS_AWAITED", "task_id": None, "payload": {"reason": reason}}
    assert Event(event).line.startswith(r"waits since now for run \x1b[2J, which has held 'src'")
    assert len(Event(event).line) < 11 * MAX_CHARS
