"""A run in sentences: nothing that an agent or a model wrote can act, and nothing is endless."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from coilclaw.cli.console import Console
from coilclaw.cli.runs.run_narrator import MAX_CHARS, Narrator, describe_time


class Told:
    def __init__(self, folder: Path) -> None:
        self.out = io.StringIO()
        console = Console.of(self.out, io.StringIO(), {})
        self.narrator = Narrator(console, lambda _: folder)

    def __call__(self, kind: str, /, **payload: Any) -> str:
        """What is printed for one event."""
        before = len(self.out.getvalue())
        task = payload.pop("task_id", "task-1")
        event = {"event_type": kind, "run_id": "r", "task_id": task, "payload": payload}
        self.narrator.watch(event)
        return self.out.getvalue()[before:]


@pytest.fixture
def told(tmp_path: Path) -> Told:
    return Told(tmp_path)


@pytest.mark.parametrize(
    ("payload", "line"),
    [
        ({"kind": "thought", "text": "Hm.", "tokens": 7}, "  1:05  thinks: Hm. · 7 tokens\n"),
        (
            {"kind": "command", "text": "pytest -q", "exit_code": 1},
            "  1:05  $ pytest -q (exit code 1)\n",
        ),
        (
            {
                "kind": "file",
                "files": [
                    {"path": "a", "added": 2, "removed": 1},
                    {"path": "b", "added": None, "removed": None},
                ],
            },
            "  1:05  a +2 −1\n  1:05  b changed\n",
        ),
        ({"kind": "tool", "text": "time"}, "  1:05  time\n"),
        ({"kind": "output", "text": "\x1b[2Jcleared\x07"}, "  1:05  | cleared\\x07\n"),
        ({"kind": "thought", "text": ""}, ""),
        ({"kind": "end", "tokens": 1234}, "  task-1: the agent ends after 1:05, 1,234 tokens\n"),
    ],
)
def test_a_part_is_one_line(told: Told, payload: dict[str, Any], line: str) -> None:
    assert told("agent_part", elapsed_s=65.4, **{"tokens": 0, **payload}) == line


def test_parts_name_their_task_where_several_are_at_work(told: Told) -> None:
    told("TASK_STARTED", runner="builtin", task_id="one")
    part = {"kind": "thought", "text": "x", "elapsed_s": 0, "tokens": 0}
    assert told("agent_part", task_id="one", **part) == "  0:00  thinks: x\n"
    told("TASK_STARTED", runner="builtin", task_id="two")
    assert told("agent_part", task_id="one", **part) == "  one: 0:00  thinks: x\n"


@pytest.mark.parametrize(
    "kind", ["RUNNER_FAILED", "MODEL_ASKED", "LOCKS_AWAITED", "LOCKS_ACQUIRED", "agent_part"]
)
def test_what_others_wrote_is_bounded_and_harmless(told: Told, kind: str) -> None:
    hostile = "\x1b[2J\u202e\r\n" + "x" * 100_000
    fields = ("reason", "status", "role", "model", "text", "kind", "provider")
    said = told(kind, **dict.fromkeys(fields, hostile), paths=[hostile] * 1000)
    assert not set("\x1b\u202e\r") & set(said)
    assert len(said) < 40 * MAX_CHARS


def test_a_run_that_waits_says_for_whom_and_where_it_begins_then(told: Told) -> None:
    why = "waits since 1 for run other, which has held 'a' since 0"
    assert told("LOCKS_AWAITED", task_id=None, reason=why) == f"  {why}\n"
    reclaimed = told("LOCK_RECLAIMED", task_id=None, path="a", owner="x", run_id="other")
    assert reclaimed == "  a is taken over from other, which is not active\n"
    assert not told("LOCK_RECLAIMED", task_id=None, path="a", owner="x", run_id="r")
    moved = told("BASELINE_MOVED", task_id=None, baseline_commit="1" * 40)
    assert moved == f"  the branch has moved: the work starts from {'1' * 12}\n"


def test_a_refusal_says_what_and_why_and_gates_are_told_once(told: Told) -> None:
    assert told(
        "policy_violation", rule="tool.denied", reason="r", path="", what="rm", why="no"
    ) == ("  task-1: refused: rm: no\n")
    assert told("policy_violation", rule="diff.out_of_scope", reason="r", path="p") == ""
    said = told(
        "DIFF_GATE_RESULT",
        gate="diff_gate",
        passed=False,
        violations=["a.b: no"],
        facts="{}",
        paths=["src/x"],
    )
    assert said == "  task-1: REFUSED by the diff gate: a.b: no (src/x)\n"
    assert told("TASK_RESULT_RECORDED", status="FAILED", reason="why") == "  task-1: not accepted\n"
    assert told("TASK_RESULT_RECORDED", status="FAILED", reason="why", task_id="other") == (
        "  other: not accepted: why\n"
    )


def test_states_have_no_names_here(told: Told) -> None:
    said = told("STATE_TRANSITION", **{"from": "S3_REVIEWER", "to": "S4_TEST", "trigger": "x"})
    assert said == "\n1. The tests, run by the orchestrator alone\n"


def test_times_are_short() -> None:
    assert [describe_time(t) for t in (0, 59.9, 60, 3599, 3600, 36000)] == [
        "0:00",
        "0:59",
        "1:00",
        "59:59",
        "1:00:00",
        "10:00:00",
    ]


def test_a_command_that_was_stopped_is_not_red(told: Told) -> None:
    facts = {"name": "acceptance-1", "exit_code": 143, "task_id": None}
    said = told("COMMAND_FINISHED", outcome="cancelled", where="baseline", **facts)
    assert said == "  acceptance-1 on the baseline: stopped before it ended\n"
    said = told("COMMAND_FINISHED", outcome="exited", **facts)
    assert said == "  acceptance-1: RED (exit code 143)\n"


def test_the_planner_is_named_and_what_it_tries_is_told_once(told: Told) -> None:
    facts = {"name": "trial-1", "exit_code": 1, "outcome": "exited", "task_id": None}
    assert told("COMMAND_FINISHED", where="plan", **facts) == ""
    assert told("COMMAND_FINISHED", **facts) == "  trial-1: RED (exit code 1)\n"
    end = {"kind": "end", "elapsed_s": 2, "tokens": 0}
    assert told("agent_part", task_id="plan-0001", **end) == "  the PM ends after 0:02\n"
    assert told("agent_part", task_id="plan-1", **end) == "  plan-1: the agent ends after 0:02\n"
