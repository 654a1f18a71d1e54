"""One turn of an ACP agent, without the agent: what is asked, what is ruled, how it ends."""

from __future__ import annotations

import os
import queue
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from coilclaw.kernel.errors import DeniedError, UsageError
from coilclaw.kernel.messages import Budget, Json, Part, Usage
from coilclaw.runners.acp.agents import AcpTurn, instruction_of
from coilclaw.runners.acp.session import AcpAnswer, AcpOpened, AcpQuestion, Event, Trouble, Updated
from coilclaw.runners.acp.updates import (
    MAX_CALLS,
    MAX_DIFF_CHARACTERS,
    MAX_TEXT_CHARACTERS,
    Updates,
    diff_lines,
)
from coilclaw.runners.agent_answer import FORBIDDEN
from coilclaw.runners.agent_requests import Denial
from coilclaw.runners.model_route import RouteTarget, target_of
from coilclaw.runners.runner import Deadline, Ending
from coilclaw.runners.test_tool import TestTool
from tests.support.acpserver import OPTIONS
from tests.support.performing import Performance, finish
from tests.support.sandboxes import supported

ALWAYS, ONCE, NO = OPTIONS
OPENED = AcpOpened("s-1", "4.2")
END = AcpAnswer("end_turn", None, None)


@dataclass
class Told:
    """Stands for the conversation: what happens is known from the beginning."""

    events: queue.SimpleQueue[Event] = field(default_factory=queue.SimpleQueue)
    calls: list[str] = field(default_factory=list)

    def go(self) -> None:
        self.calls.append("go")

    def cancel(self) -> None:
        self.calls.append("cancel")


class Obedient(Told):
    """One that ends its turn when it is told to."""

    def cancel(self) -> None:
        super().cancel()
        self.events.put(AcpAnswer("cancelled", None, None))


@dataclass
class Bench:
    stage: Performance
    told: Told = field(default_factory=Told)
    parts: list[Part] = field(default_factory=list)
    replies: list[str | None] = field(default_factory=list)

    def play(self, *events: Event, tests: bool = False, **changes: Any) -> Ending:
        for event in events:
            self.told.events.put(event)
        assignment = self.stage.assignment(**changes)
        turn = AcpTurn(
            title="It",
            talk=self.told,  # type: ignore[arg-type]  # as much of one as a turn needs
            assignment=assignment,
            means=self.stage.means(),
            deadline=Deadline.of(assignment.budget),
            tests=TestTool(self.stage.home) if tests else None,
        )
        self.parts, ending = finish(turn.perform(lambda: self.told.calls.append("opened")))
        return ending

    def ask(self, options: list[dict[str, str]] = OPTIONS, **fields: Any) -> AcpQuestion:
        call: dict[str, Any] = {"toolCallId": "c1", "title": "ls", "kind": "execute"}
        return AcpQuestion(call | fields, [dict(one) for one in options], self.replies.append)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    supported("bubblewrap")
    return Bench(Performance.make(tmp_path, "bubblewrap"))


def says(text: str) -> Updated:
    content: dict[str, Any] = {"type": "text", "text": text}
    return Updated({"sessionUpdate": "agent_message_chunk", "content": content}, "{}")


def call(name: str, **fields: Any) -> Updated:
    given = {"sessionUpdate": "tool_call", "toolCallId": name, "kind": "execute"}
    return Updated(given | fields, "{}")


# --- what is asked -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shell", "approved", "answer", "asked"),
    [
        ("deny", True, "r", 0),
        ("never", True, "o", 0),
        ("on-request", True, "o", 0),
        ("untrusted", False, "r", 1),
        ("untrusted", True, "o", 1),
    ],
)
def test_a_command_is_ruled_by_the_shell_of_the_assignment(
    bench: Bench, shell: str, approved: bool, answer: str, asked: int
) -> None:
    bench.stage.overseer.answers = [approved]
    given = {"command": "touch x\nrm y", "cwd": "/"}
    bench.play(OPENED, bench.ask(rawInput=given), END, shell=shell)
    assert bench.replies == [answer]
    assert [request.detail for request in bench.stage.overseer.asked] == [
        (
            f'directory: "{bench.stage.worktree}"',
            'with: {"cwd":"/"}',
            "command: touch x",
            "rm y",
        )
    ] * asked
    reasons = {
        "deny": "denied by tool_permissions.shell = deny",
        "untrusted": "denied: the request was not approved",
    }
    assert bench.stage.denied == (
        [Denial("touch x\nrm y", reasons[shell], "acp.shell", call_id="c1")]
        if answer == "r"
        else []
    )


def test_a_command_without_a_sandbox_is_beyond(bench: Bench) -> None:
    bench.stage.kind = "none"
    bench.play(OPENED, bench.ask(), END, shell="on-request")
    assert len(bench.stage.overseer.asked) == 1
    bench.play(OPENED, bench.ask(), END, shell="never")
    assert bench.replies == ["r", "r"]


@pytest.mark.parametrize(
    ("path", "changes", "answer", "asked"),
    [
        ("a", {}, "o", 0),
        ("a", {"shell": "deny"}, "o", 0),
        ("a", {"filesystem": "read-only"}, "r", 0),
        ("../a", {}, "r", 0),
        ("/etc/passwd", {}, "r", 0),
        ("a", {"shell": "untrusted"}, "r", 1),
        (None, {}, "r", 0),
    ],
)
def test_a_change_stays_in_the_directory(
    bench: Bench, path: str | None, changes: Any, answer: str, asked: int
) -> None:
    places = [] if path is None else [{"path": os.path.join(bench.stage.worktree, path)}]
    bench.play(OPENED, bench.ask(kind="edit", locations=places), END, **changes)
    assert bench.replies == [answer]
    assert len(bench.stage.overseer.asked) == asked


@pytest.mark.parametrize(
    ("fields", "changes", "answer", "asked"),
    [
        ({"kind": "read"}, {}, "o", 0),
        ({"kind": "fetch"}, {}, "r", 0),
        ({"kind": "fetch"}, {"network": "allow"}, "r", 1),
        ({"kind": "other"}, {}, "r", 1),
        ({"kind": "other"}, {"shell": "never"}, "r", 0),
        ({"kind": None}, {"shell": "never"}, "r", 0),
        ({"kind": "other", "title": "mcp__coilclaw__run_tests"}, {"shell": "never"}, "o", 0),
        ({"kind": "execute", "title": "mcp__coilclaw__run_tests"}, {"shell": "deny"}, "r", 0),
    ],
)
def test_what_is_not_known_is_asked_or_refused(
    bench: Bench, fields: Any, changes: Any, answer: str, asked: int
) -> None:
    bench.play(OPENED, bench.ask(**fields), END, tests=True, **changes)
    assert bench.replies == [answer]
    assert len(bench.stage.overseer.asked) == asked


@pytest.mark.parametrize(
    ("options", "shell", "answer"),
    [
        ([ALWAYS], "never", None),
        ([ALWAYS, NO], "never", None),
        ([ALWAYS, ONCE], "deny", None),
        ([ALWAYS, ONCE], "never", "o"),
        ([{"optionId": "n", "kind": "reject_always"}], "deny", "n"),
        ([], "never", None),
    ],
)
def test_a_yes_that_would_hold_for_longer_is_never_given(
    bench: Bench, options: Any, shell: str, answer: str | None
) -> None:
    bench.play(OPENED, bench.ask(options), END, shell=shell)
    assert bench.replies == [answer]


def test_before_there_is_a_session_and_after_the_end_nothing_is_granted(bench: Bench) -> None:
    asks = [bench.ask(toolCallId=name) for name in ("a", "b")]
    bench.stage.cancel.cancel("enough")
    bench.play(asks[0], OPENED, asks[1], END, shell="never")
    assert bench.replies == [None]


# --- endings -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stop", "status"),
    [
        ("end_turn", "done"),
        ("refusal", "failed"),
        ("max_tokens", "failed"),
        ("max_turn_requests", "failed"),
        ("cancelled", "aborted"),
        ("something_new", "failed"),
    ],
)
def test_each_stop_reason_has_its_ending(bench: Bench, stop: str, status: str) -> None:
    ending = bench.play(says("of old"), OPENED, says("Bye."), AcpAnswer(stop, None, None))
    assert ending.status == status
    assert bool(ending.reason) == (status != "done")
    assert (ending.text, ending.thread_id, ending.version) == ("Bye.", "s-1", "4.2")
    assert bench.told.calls == ["opened", "go"]
    assert [part.text for part in bench.parts] == ["Bye."]


def test_a_failure_told_as_an_answer_is_one(bench: Bench) -> None:
    meta: dict[str, Any] = {"codex": {"threadStatus": {"type": "systemError"}}}
    ending = bench.play(OPENED, says("bad request"), AcpAnswer("end_turn", None, meta))
    assert (ending.status, ending.reason) == ("failed", "It failed: bad request.")


def test_trouble_is_a_failure_or_an_abortion(bench: Bench) -> None:
    ending = bench.play(Trouble("log in", gone=False))
    assert (ending.status, ending.reason) == ("failed", "It failed: log in.")
    ending = bench.play(OPENED, call("c1"), Trouble("it ended", gone=True))
    assert (ending.status, ending.reason) == ("aborted", "It did not finish: it ended.")
    assert [part.text for part in bench.parts] == ["inProgress"]


@pytest.mark.parametrize(
    ("budget", "reason", "parts"),
    [
        (Budget(parts=1, wall_s=60), "The 1 parts of the budget are used up.", 1),
        (Budget(tool_rounds=0, wall_s=60), "The 0 tool calls are used up.", 1),
    ],
)
def test_the_budget_ends_it(bench: Bench, budget: Budget, reason: str, parts: int) -> None:
    events: list[Event] = [OPENED, says("One."), call("c1", status="completed"), END]
    ending = bench.play(*events, budget=budget)
    assert (ending.status, ending.reason, len(bench.parts)) == ("exhausted", reason, parts)
    assert bench.told.calls == ["opened", "go", "cancel"]


def test_tokens_are_counted_at_the_end(bench: Bench) -> None:
    end = AcpAnswer("end_turn", {"input_tokens": 7, "output_tokens": 3}, None)
    assert bench.play(OPENED, end, budget=Budget(tokens=10)).usage == Usage(7, 3)
    ending = bench.play(OPENED, end, budget=Budget(tokens=9))
    assert (ending.status, ending.reason) == (
        "exhausted",
        "The 9 tokens of the budget are used up.",
    )


def test_time_is_up_and_the_agent_is_told(bench: Bench) -> None:
    bench.told = Obedient()
    ending = bench.play(OPENED, says("One."), budget=Budget(wall_s=0.2))
    assert (ending.status, ending.reason) == ("exhausted", "The time of 0.2 s is used up.")
    assert bench.told.calls[-1] == "cancel"
    assert [part.text for part in bench.parts] == ["One."]
    ending = bench.play(budget=Budget(wall_s=0.1))
    assert (ending.status, ending.thread_id) == ("exhausted", "")


# --- what is said --------------------------------------------------------------------------------


def test_the_answer_is_of_a_schema(bench: Bench) -> None:
    schema = {"type": "object"}
    ending = bench.play(OPENED, says('```json\n{"a": 1}\n```'), END, output_schema=schema)
    assert (ending.status, ending.result) == ("done", {"a": 1})
    ending = bench.play(OPENED, says("I did it."), END, output_schema=schema)
    assert (ending.status, ending.result) == ("failed", None)
    told = instruction_of(bench.stage.assignment(output_schema=schema))
    assert told.endswith('It fits this JSON Schema:\n{"type":"object"}\n')
    assert instruction_of(bench.stage.assignment()) == "do it"


def test_a_shell_where_there_is_none_is_seen(bench: Bench) -> None:
    bench.play(OPENED, call("c1", status="completed"), END, shell="deny")
    assert [part.text for part in bench.parts] == [FORBIDDEN]


@pytest.mark.parametrize(
    ("output", "code"),
    [
        ({"metadata": {"exit": 3}}, 3),
        ({"exit_code": 1}, 1),
        ({"exitCode": 0}, 0),
        ({"exitStatus": {"exitCode": 9}}, 9),
        ({"metadata": {"exit": True}}, None),
        ({"metadata": []}, None),
        ("Exit code 3\nhi", 3),
        ("3", None),
        ("hi\nExit code 3", None),
        (None, None),
    ],
)
def test_the_exit_code_is_where_agents_put_it(bench: Bench, output: Any, code: int | None) -> None:
    bench.play(OPENED, call("c1", status="completed", rawOutput=output), END)
    assert [part.exit_code for part in bench.parts] == [code]


def test_more_calls_than_anybody_makes_are_refused() -> None:
    updates = Updates(Path("/w"), shell_denied=False)
    updates._done = {str(number) for number in range(MAX_CALLS)}
    with pytest.raises(UsageError) as caught:
        updates.heard({"sessionUpdate": "tool_call", "toolCallId": "x"}, "")
    assert caught.value.rule == "acp.calls"


def test_a_long_change_is_shown_whole() -> None:
    long = "x" * MAX_DIFF_CHARACTERS
    lines = diff_lines([{"path": "a\nb", "oldText": long, "newText": "y"}])
    assert lines == ['change "a\\nb"', f"  -{long}", "  +y"]


def test_a_model_without_tls_is_on_this_machine() -> None:
    with pytest.raises(DeniedError):
        target_of("http://models.example")
    assert target_of("https://models.example/v1") == RouteTarget("models.example", 443)


def test_a_text_that_does_not_end_is_a_part_each_time_that_it_is_too_long() -> None:
    updates = Updates(Path("/w"), shell_denied=False)
    piece = "x" * (MAX_TEXT_CHARACTERS // 4)
    update: dict[str, Json] = {
        "sessionUpdate": "agent_message_chunk",
        "content": {"type": "text", "text": piece},
    }
    parts = [part for _ in range(9) for part in updates.heard(update, "{}")]
    assert [len(part.text) for part in parts] == [MAX_TEXT_CHARACTERS] * 2
    assert [part.text for part in updates.finish()] == [piece]
