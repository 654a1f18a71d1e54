"""The real ``codex exec`` against a scripted model on loopback, in the sandbox of a task.

It needs the program: on PATH, or named by ``$COILCLAW_CODEX``.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from coilclaw.cli.model_server.server import ModelServer
from coilclaw.kernel.errors import DeniedError, EnvironmentFault
from coilclaw.kernel.messages import Budget, Part
from coilclaw.runners import agent_program
from coilclaw.runners.agent_answer import FORBIDDEN
from coilclaw.runners.codex.exec_runner import CodexExecRunner
from coilclaw.runners.runner import Ending
from tests.support.children import PATIENCE_S, marker, running
from tests.support.codexconfig import CODEX_CONFIG
from tests.support.performing import Performance
from tests.support.sandboxes import supported

pytestmark = pytest.mark.full

KEY = "sk-real-test-key-3"
OUTSIDE = Path(f"/etc/coilclaw-{marker()}")
SCHEMA = {"type": "object", "properties": {"summary": {"type": "string"}}}


@pytest.fixture(scope="module", autouse=True)
def program() -> Path:
    supported("bubblewrap")
    try:
        return agent_program.find(agent_program.KNOWN["codex"], os.environ)
    except EnvironmentFault as fault:
        pytest.skip(f"the real Codex is not tested with: {fault.message}")


@dataclass
class Bench:
    """A tree, a home, and a model that plays a script."""

    root: Path
    stage: Performance = field(init=False)
    parts: list[Part] = field(default_factory=list)
    requests: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.stage = Performance.make(self.root, "bubblewrap")
        (self.root / "base").mkdir()

    @property
    def left(self) -> list[str]:
        return sorted(path.name for path in self.stage.worktree.iterdir())

    def perform(
        self, script: Any, run_tests: Callable[[str], str] | None = None, **changes: Any
    ) -> Ending:
        """Have Codex go through one turn with a model that plays ``script``."""
        with ModelServer(script) as server:
            (self.root / "base" / "config.toml").write_text(CODEX_CONFIG.format(url=server.url))
            environ = {**os.environ, "SCRIPTED_KEY": KEY}
            runner = CodexExecRunner(base_home=self.root / "base", environ=environ)
            assignment = self.stage.assignment(**({"shell": "never"} | changes))
            self.parts, ending = self.stage.perform(runner, assignment, run_tests)
            self.requests = list(server.requests)
        return ending


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_it_runs_commands_writes_a_file_and_answers(bench: Bench) -> None:
    script = [
        {"shell": "echo hi; env; exit 3"},
        {"write": {"path": "sub/hello.txt", "content": "Hello\n"}},
        {"text": '{"summary": "done"}'},
    ]
    ending = bench.perform(script, output_schema=SCHEMA, model="gpt-5.5")
    assert (ending.status, ending.reason, ending.result) == ("done", "", {"summary": "done"})
    assert [(part.kind, part.tool, part.exit_code, part.files) for part in bench.parts] == [
        ("tool", "shell", 3, ()),
        ("patch", "apply_patch", None, ("sub/hello.txt",)),
        ("text", "", None, ()),
    ]
    assert bench.parts[0].output.startswith("hi\n")
    assert KEY not in bench.parts[0].output
    assert bench.left == ["sub"]
    assert all(json.loads(part.raw) for part in bench.parts)
    assert ending.version
    assert ending.usage is not None
    (held,) = ending.enforced
    assert (held.kind, held.filesystem, held.network) == ("bubblewrap", True, "blocked")
    assert bench.requests[0].body["text"]["format"]["schema"]["properties"] == SCHEMA["properties"]


def test_it_runs_the_tests(bench: Bench) -> None:
    asked: list[str] = []

    def run_tests(path: str) -> str:
        asked.append(path)
        return "3 of 7 passed"

    call = {"name": "mcp__coilclaw/run_tests", "arguments": {"test_path": "basics"}}
    script = [{"tool_calls": [call]}, {"text": "Bye."}]
    # Of a model that it does not know, Codex offers the tools of servers without a search.
    ending = bench.perform(script, run_tests, model="scripted")
    assert (ending.status, ending.reason) == ("done", "")
    assert asked == ["basics"]
    assert [(part.kind, part.tool, part.output) for part in bench.parts] == [
        ("tool", "coilclaw/run_tests", "3 of 7 passed"),
        ("text", "", ""),
    ]


def test_a_thread_goes_on_and_its_tokens_are_those_of_the_turn(bench: Bench) -> None:
    turns = {"turns": [[{"text": "One."}], [{"shell": "echo > x"}, {"text": "Two."}]]}
    first = bench.perform(turns)
    second = bench.perform(turns, thread_id=first.thread_id, instruction="Go on.")
    assert (first.text, second.text) == ("One.", "Two.")
    assert second.thread_id == first.thread_id
    assert bench.left == ["x"]
    assert first.usage is not None
    assert second.usage is not None
    assert first.usage.output_tokens == 1
    assert second.usage.output_tokens is not None
    assert second.usage.output_tokens > 1
    lost = bench.perform(turns, thread_id="01a1de99-705c-72f0-ace7-9482cc772c92")
    assert lost.status == "aborted"
    assert "no rollout found" in lost.reason
    assert [first.session_lost, second.session_lost, lost.session_lost] == [False, False, True]
    assert bench.stage.sessions == [first.thread_id] * 2


def test_what_codex_prints_nothing_of_is_a_part_at_its_place(bench: Bench) -> None:
    """It takes a failure whose words sound like a sandbox for a refusal, and has no item for it.

    Mostly: if the machine is busy it may have one. A part there is in any case, and only one.
    """
    calls = [
        {"name": "exec_command", "arguments": {"cmd": "echo sandbox; exit 2"}},
        {"name": "exec_command", "arguments": {"cmd": "echo fine; exit 4"}},
    ]
    turns = [
        [
            {"text": "One.", "shell": f"touch {OUTSIDE}"},
            {"shell": "echo two"},
            {"text": "Three."},
        ],
        [
            {"tool_calls": calls},
            {"tool_calls": [{"name": "nothing", "arguments": {"a": 1}}]},
            {"shell": "echo three; echo permission denied; exit 3"},
            {"text": "Bye."},
        ],
    ]
    first = bench.perform({"turns": turns}, model="gpt-5.5")
    assert [(part.kind, part.exit_code) for part in bench.parts] == [
        ("text", None),
        ("tool", 1),
        ("tool", 0),
        ("text", None),
    ]
    assert bench.parts[1].output == f"touch: cannot touch '{OUTSIDE}': Read-only file system\n"
    assert f"touch {OUTSIDE}" in bench.parts[1].input
    # Of a thread that goes on only what is new is told.
    bench.perform({"turns": turns}, thread_id=first.thread_id, instruction="Go on.")
    told = [(part.tool, part.exit_code, part.output) for part in bench.parts]
    assert sorted(told[:2]) == [("shell", 2, "sandbox\n"), ("shell", 4, "fine\n")]
    assert told[2:] == [
        ("nothing", None, "unsupported call: nothing"),
        ("shell", 3, "three\npermission denied\n"),
        ("", None, ""),
    ]
    assert all(json.loads(part.raw) for part in bench.parts)


@pytest.mark.parametrize("answer", [{"status": 400}, {"cut": True}])
def test_a_model_in_trouble_is_a_failure(bench: Bench, answer: Any) -> None:
    ending = bench.perform([answer])
    assert ending.status == "failed"
    assert ending.reason.startswith("Codex failed: ")


def test_where_each_command_asks_it_does_not_begin(bench: Bench) -> None:
    with pytest.raises(DeniedError) as caught:
        bench.perform([{"text": "Bye."}], shell="untrusted")
    assert caught.value.rule == "codex.exec"
    assert bench.requests == []


def test_without_a_shell_there_is_none(bench: Bench) -> None:
    call = {"name": "exec_command", "arguments": {"cmd": "touch x"}}
    bench.perform([{"tool_calls": [call]}, {"text": "Bye."}], shell="deny")
    assert bench.left == []
    assert [part.text for part in bench.parts] == [FORBIDDEN, "Bye."]
    offered = {tool.get("name") for tool in bench.requests[0].body["tools"]}
    assert not offered & {"exec_command", "shell", "write_stdin"}


def test_a_reader_writes_nothing(bench: Bench) -> None:
    script = [
        {"shell": f"touch x {OUTSIDE}"},
        {"write": {"path": "y", "content": "1"}},
        {"text": "Bye."},
    ]
    bench.perform(script, filesystem="read-only")
    assert bench.left == []
    bench.perform(script)
    assert bench.left == ["x", "y"]
    assert not OUTSIDE.exists()


def test_time_is_up(bench: Bench) -> None:
    ending = bench.perform([{"hang": True}], budget=Budget(wall_s=3.0))
    assert (ending.status, ending.reason) == ("exhausted", "The time of 3 s is used up.")


def test_killed_it_is_aborted(bench: Bench) -> None:
    mark = marker()

    def kill() -> None:
        until = time.monotonic() + PATIENCE_S
        while not running(mark) and time.monotonic() < until:
            time.sleep(0.01)
        bench.stage.cancel.cancel("enough")

    thread = threading.Thread(target=kill)
    thread.start()
    ending = bench.perform([{"shell": f"sleep {mark}"}, {"text": "Bye."}])
    thread.join()
    assert (ending.status, ending.reason) == ("aborted", "It was cancelled: enough.")
    assert running(mark) == []
    assert bench.left == []
