"""Our own runtime as a runner: held to the contract by the guard, with a receipt for each call."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from coilclaw.agent.estop import Estop
from coilclaw.agent.receipts.book import ReceiptBook
from coilclaw.agent.settings import AgentLimits
from coilclaw.agent.tools.contract import ToolLimits
from coilclaw.kernel.effects import Runs
from coilclaw.kernel.errors import CoilClawError, ProviderNetwork
from coilclaw.kernel.messages import Budget, ChatResponse, Part, Usage
from coilclaw.kernel.secret import NullRedactor
from coilclaw.policy.judgement import Terms
from coilclaw.runners.builtin import BuiltinRunner, default_rules
from coilclaw.runners.contract_policy import ContractPolicy
from tests.support.children import PATIENCE_S, marker, running, when
from tests.support.performing import TASK, Model, Performance, calls, contract, says
from tests.support.sandboxes import supported

RESULT = {"task_id": TASK, "status": "SUCCESS", "summary": "did", "failure": None}


class World:
    """A runner with a model that answers as told."""

    def __init__(self, folder: Path) -> None:
        supported("bubblewrap")
        self.ours = folder / "ours"
        self.ours.mkdir()
        self.stage = Performance.make(folder)

    def runner(self, *answers: ChatResponse | CoilClawError, **options: Any) -> BuiltinRunner:
        self.model = Model(list(answers), delay_s=options.pop("delay_s", 0.0))
        return BuiltinRunner(
            provider=self.model,
            model="m-1",
            redactor=NullRedactor(),
            estop=Estop.of(self.ours),
            key_path=self.ours / "keys" / "journal.key",
            **options,
        )

    def receipts(self, runner: BuiltinRunner) -> list[tuple[object, object]]:
        path = runner.receipts(self.stage.assignment())
        with ReceiptBook(path, key_path=runner.key_path) as book:
            return [(r["tool"], r["status"]) for r in book.receipts()]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def _outputs(parts: list[Part]) -> list[tuple[str, int | None, str]]:
    return [(p.tool, p.exit_code, p.output.split(":")[0]) for p in parts if p.kind == "tool"]


@pytest.mark.parametrize(
    ("path", "rule"),
    [
        ("other/a", "denied by contract.allowed_paths"),
        ("srcs/a", "denied by contract.allowed_paths"),
        ("src/../other/a", "denied by contract.allowed_paths"),
        ("src/link/a", "denied by contract.allowed_paths"),
        ("../a", "denied by path.outside"),
        ("/etc/a", "denied by path.forbidden"),
    ],
)
def test_a_write_outside_of_allowed_paths_is_denied_at_once(
    world: World, path: str, rule: str
) -> None:
    stage = world.stage
    (stage.worktree / "src").mkdir()
    (stage.worktree / "other").mkdir()
    (stage.worktree / "src" / "link").symlink_to(stage.worktree / "other")
    runner = world.runner(calls(("file_write", {"path": path, "content": "x"})), says("ok"))
    parts, _ = stage.perform(runner, stage.assignment(contract=contract("src")))
    assert _outputs(parts) == [("file_write", 126, rule)]
    assert stage.files() == {}
    assert world.receipts(runner) == [("file_write", "denied")]


def test_a_write_inside_is_made_and_leaves_a_receipt(world: World) -> None:
    stage = world.stage
    arguments = {"path": "src/a", "content": "x\n"}
    runner = world.runner(calls(("file_write", arguments), text="writing"), says("done"))
    parts, ending = stage.perform(runner, stage.assignment(contract=contract("src", "b.txt")))
    assert [(part.kind, part.text) for part in parts] == [
        ("text", "writing"),
        ("tool", ""),
        ("text", "done"),
    ]
    assert (parts[1].input, parts[1].files) == ('{"content":"x\\n","path":"src/a"}', ("src/a",))
    assert parts[1].exit_code == 0
    assert stage.files() == {"src/a": "x\n"}
    assert world.receipts(runner) == [("file_write", "allowed")]
    assert (ending.status, ending.text) == ("done", "done")
    assert ending.thread_id


def test_a_contract_that_names_no_paths_allows_none_and_no_contract_allows_all(
    world: World,
) -> None:
    stage = world.stage
    write = calls(("file_write", {"path": "a", "content": "x"}))
    stage.perform(world.runner(write, says("")), stage.assignment(contract={"task_id": TASK}))
    assert stage.files() == {}
    stage.perform(world.runner(write, says("")), stage.assignment(contract={}))
    assert stage.files() == {"a": "x"}


def test_read_only_denies_every_change(world: World) -> None:
    stage = world.stage
    (stage.worktree / "a").write_text("old")
    runner = world.runner(
        calls(
            ("file_write", {"path": "a", "content": "new"}),
            ("shell", {"command": "echo new > a"}),
            ("file_read", {"path": "a"}),
            ("shell", {"argv": ["cat", "a"]}),
        ),
        says("looked"),
    )
    parts, _ = stage.perform(runner, stage.assignment(filesystem="read-only"))
    assert [code for _, code, _ in _outputs(parts)] == [126, 126, 0, 0]
    assert parts[3].output == "old"
    assert stage.files() == {"a": "old"}
    offered = {tool.name for tool in world.model.asked[0].tools}
    assert offered == {"time", "file_list", "file_read", "shell"}


def test_a_denied_shell_is_neither_offered_nor_run(world: World) -> None:
    stage = world.stage
    runner = world.runner(calls(("shell", {"argv": ["ls"]})), says(""))
    parts, _ = stage.perform(runner, stage.assignment(shell="deny"))
    assert _outputs(parts) == [("shell", 126, "denied by contract.shell")]
    assert "shell" not in {tool.name for tool in world.model.asked[0].tools}


def test_untrusted_asks_with_the_exact_command(world: World) -> None:
    stage = world.stage
    stage.overseer.answers = [True, False]
    runner = world.runner(
        calls(("shell", {"argv": ["touch", "a"]}), ("shell", {"argv": ["touch", "b"]})), says("")
    )
    parts, _ = stage.perform(runner, stage.assignment(shell="untrusted"))
    assert [code for _, code, _ in _outputs(parts)] == [0, 126]
    assert stage.files() == {"a": ""}
    first, second = stage.overseer.asked
    assert (first.kind, first.task_id) == ("command", TASK)
    assert first.detail[0] == 'shell {"argv":["touch","a"]}'
    assert 'argv: ["touch", "a"]' in first.detail
    assert first.digest != second.digest


@pytest.mark.parametrize("shell", ["never", "on-request"])
def test_a_contained_command_runs_unasked(world: World, shell: str) -> None:
    stage = world.stage
    runner = world.runner(
        calls(("shell", {"command": "echo here > a; python3 -c 'exit(4)'"})), says("")
    )
    parts, _ = stage.perform(runner, stage.assignment(shell=shell))
    assert parts[0].exit_code == 4
    assert stage.files() == {"a": "here\n"}
    assert stage.overseer.asked == []


@pytest.mark.parametrize(
    ("argv", "filesystem", "network", "terms"),
    [
        (("pytest",), "read-only", "allow", Terms(writable=False, network=False)),
        (("pytest",), "workspace-write", "deny", Terms(writable=True, network=False)),
        (("pytest",), "workspace-write", "on-request", Terms(writable=True, network=False)),
        (("pytest",), "workspace-write", "allow", Terms(writable=True, network=True)),
        (("cat", "a"), "workspace-write", "allow", Terms(writable=False, network=False)),
    ],
)
def test_a_command_gets_no_more_than_the_assignment_has(
    world: World, argv: tuple[str, ...], filesystem: str, network: str, terms: Terms
) -> None:
    stage = world.stage
    assignment = stage.assignment(filesystem=filesystem, network=network)
    policy = ContractPolicy(assignment, stage.means(), runner_state(world), default_rules)
    assert policy.judge((Runs(argv=argv),)).terms == terms


def test_what_policy_forbids_stays_forbidden(world: World) -> None:
    stage = world.stage
    (stage.worktree / "a").write_text("x")
    runner = world.runner(calls(("shell", {"argv": ["rm", "-rf", "a"]})), says(""))
    parts, _ = stage.perform(runner)
    assert parts[0].exit_code == 126
    assert stage.files() == {"a": "x"}


def test_the_allowlist_of_the_run_is_asked_too(world: World) -> None:
    stage = world.stage
    runner = world.runner(
        calls(("shell", {"argv": ["touch", "a"]}), ("shell", {"argv": ["touch", "b"]})),
        says(""),
        refuse_command=lambda runs: "not listed" if runs.argv == ("touch", "a") else "",
    )
    parts, _ = stage.perform(runner)
    assert [p.output for p in parts[:1]] == ["denied by contract.command: not listed"]
    assert stage.files() == {"b": ""}


def test_its_own_state_cannot_be_reached(world: World) -> None:
    stage = world.stage
    look = (
        "import os; home = os.environ['HOME']; print(home, os.listdir(home + '/coilclaw')); "
        "open(home + '/coilclaw/receipts.jsonl', 'w')"
    )
    runner = world.runner(
        calls(
            ("file_read", {"path": str(runner_state(world) / "receipts.jsonl")}),
            ("shell", {"argv": ["python3", "-c", look]}),
        ),
        says(""),
    )
    parts, _ = stage.perform(runner)
    assert (parts[0].exit_code, parts[1].exit_code) == (126, 1)
    assert parts[1].output.startswith(f"{stage.home} []\n")
    assert world.receipts(runner) == [("file_read", "denied"), ("shell", "failed")]


def runner_state(world: World) -> Path:
    return world.stage.home / "coilclaw"


@pytest.mark.parametrize(("network", "rule"), [("deny", "contract.network"), ("on-request", "")])
def test_the_network_needs_a_word(world: World, network: str, rule: str) -> None:
    stage = world.stage
    runner = world.runner(calls(("http", {"url": "https://example.com/"})), says(""))
    parts, _ = stage.perform(runner, stage.assignment(network=network))
    assert parts[0].exit_code == 126
    assert len(stage.overseer.asked) == (0 if rule else 1)


def test_the_answer_is_asked_for_by_its_schema_and_read_strictly(world: World) -> None:
    stage = world.stage
    schema = {"type": "object"}
    given = stage.assignment(output_schema=schema)
    _, ending = stage.perform(world.runner(says(json.dumps(RESULT))), given)
    assert (ending.status, ending.result) == ("done", RESULT)
    assert world.model.asked[0].output_schema == schema
    for text in (f"```json\n{json.dumps(RESULT)}\n```", "done", '{"a": 1, "a": 2}', "[]"):
        _, ending = stage.perform(world.runner(says(text), says(text)), given)
        assert (ending.status, ending.result) == ("failed", None), text
        assert "the final answer" in ending.reason
    said = {**RESULT, "status": "FAILED", "failure": {"message": "cannot"}}
    _, ending = stage.perform(world.runner(says(json.dumps(said))), given)
    assert (ending.status, ending.result) == ("failed", said)


def test_a_model_that_ends_in_prose_is_asked_for_its_answer_once(world: World) -> None:
    stage = world.stage
    given = stage.assignment(output_schema={"type": "object"})
    runner = world.runner(says("I repaired it."), says(json.dumps(RESULT)))
    _, ending = stage.perform(runner, given)
    assert (ending.status, ending.result) == ("done", RESULT)
    first, second = world.model.asked
    assert "I repaired it." in str(second.messages)
    assert len(second.messages) > len(first.messages)


def test_without_a_schema_any_text_is_an_end(world: World) -> None:
    _, ending = world.stage.perform(world.runner(says("done")))
    assert (ending.status, ending.result, ending.text) == ("done", None, "done")
    assert world.model.asked[0].output_schema is None


def test_rounds_tokens_and_time_are_limits(world: World) -> None:
    stage = world.stage
    again = calls(("time", {}), usage=Usage(60, 10))
    budget = Budget(tool_rounds=2)
    _, ending = stage.perform(world.runner(again, again, again), stage.assignment(budget=budget))
    assert ending.status == "exhausted"
    assert ending.usage == Usage(180, 30)
    _, ending = stage.perform(
        world.runner(again, again, says("")), stage.assignment(budget=Budget(tokens=100))
    )
    assert (ending.status, ending.reason) == (
        "exhausted",
        "the budget of 100 tokens is used up",
    )
    mark = marker()
    runner = world.runner(calls(("shell", {"argv": ["sleep", mark]})), says(""))
    began = time.monotonic()
    parts, ending = stage.perform(runner, stage.assignment(budget=Budget(wall_s=0.5)))
    assert (parts, ending.status) == ([], "exhausted")
    assert time.monotonic() - began < PATIENCE_S
    assert running(mark) == []


def test_cancelling_ends_a_command(world: World) -> None:
    stage = world.stage
    mark = marker()
    runner = world.runner(calls(("shell", {"argv": ["sleep", mark]})), says("after"))
    stopping = when(lambda: running(mark), lambda: stage.cancel.cancel("enough"))
    parts, ending = stage.perform(runner)
    stopping.join()
    assert (parts, ending.status, ending.reason) == ([], "aborted", "cancelled: enough")
    assert running(mark) == []
    assert len(world.model.asked) == 1


def test_a_provider_that_fails_raises(world: World) -> None:
    with pytest.raises(ProviderNetwork):
        world.stage.perform(world.runner(ProviderNetwork("gone", provider="model")))


def test_the_emergency_stop_holds_here_too(world: World) -> None:
    Estop.of(world.ours).trigger("test")
    runner = world.runner(calls(("file_write", {"path": "a", "content": "x"})), says(""))
    parts, _ = world.stage.perform(runner)
    assert _outputs(parts) == [("file_write", 126, "denied by estop")]
    assert world.stage.files() == {}


def test_a_thread_goes_on(world: World) -> None:
    stage = world.stage
    _, first = stage.perform(world.runner(says("one")))
    _, second = stage.perform(
        world.runner(says("two")), stage.assignment(thread_id=first.thread_id)
    )
    assert second.thread_id == first.thread_id
    said = [(m.role, m.content) for m in world.model.asked[0].messages]
    assert said == [("user", "do it"), ("assistant", "one"), ("user", "do it")]


def test_a_slow_command_ends_by_the_limit_of_the_tool(world: World) -> None:
    limits = AgentLimits(tools=ToolLimits(shell_timeout_s=0.3))
    runner = world.runner(calls(("shell", {"argv": ["sleep", "999"]})), says("on"), limits=limits)
    parts, ending = world.stage.perform(runner)
    assert parts[0].exit_code not in {None, 0}
    assert "limit of 0.3 s" in parts[0].output
    assert ending.status == "done"
