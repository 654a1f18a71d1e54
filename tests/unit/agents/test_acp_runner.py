"""An agent that speaks ACP, as a real process in the sandbox: parts, requests, endings."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from coilclaw.kernel.errors import DeniedError, EnvironmentFault
from coilclaw.kernel.messages import Budget, Part, Usage
from coilclaw.runners.acp.agents import AcpRunner, find_agent, find_targets, make_environment
from coilclaw.runners.model_route import RouteTarget
from coilclaw.runners.runner import Ending, Means, ask_nobody
from coilclaw.workspace.process.confinement import SandboxSupport
from tests.support import acpserver
from tests.support.children import PATIENCE_S, marker, running
from tests.support.performing import Performance
from tests.support.sandboxes import supported

PLAYER = str(Path(acpserver.__file__).resolve())
NOWHERE = ("https://models.example",)
ONE = Budget(parts=1, wall_s=60)


@pytest.fixture(scope="module", autouse=True)
def _support() -> SandboxSupport:
    return supported("bubblewrap")


@dataclass
class Bench:
    """A tree, a home, and an agent that plays a script."""

    root: Path
    stage: Performance = field(init=False)
    parts: list[Part] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.stage = Performance.make(self.root, "bubblewrap")

    @property
    def seen(self) -> dict[str, Any]:
        seen: dict[str, Any] = json.loads((self.stage.home / "seen.json").read_text())
        return seen

    def runner(self, *turn: dict[str, Any], **script: Any) -> AcpRunner:
        path = self.stage.home / "script.json"
        path.write_text(json.dumps({"turn": list(turn), **script}))
        argv = (sys.executable, PLAYER, str(path), str(self.stage.home / "seen.json"))
        return AcpRunner(argv, os.environ, addresses=NOWHERE)

    def play(
        self,
        *turn: dict[str, Any],
        script: dict[str, Any] | None = None,
        run_tests: Any = None,
        **changes: Any,
    ) -> Ending:
        runner = self.runner(*turn, **(script or {}))
        assignment = self.stage.assignment(**changes)
        self.parts, ending = self.stage.perform(runner, assignment, run_tests)
        return ending

    def text(self, name: str) -> str:
        return str(self.stage.worktree / name)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def chunk(text: str, word: str = "agent_message_chunk", **more: str) -> dict[str, Any]:
    content = {"type": "text", "text": text}
    return {"update": {"sessionUpdate": word, "content": content, **more}}


def call(name: str, **fields: Any) -> dict[str, Any]:
    given = {"title": "bash", "kind": "execute", "status": "pending"} | fields
    return {"update": {"sessionUpdate": "tool_call", "toolCallId": name, **given}}


def more(name: str, **fields: Any) -> dict[str, Any]:
    return {"update": {"sessionUpdate": "tool_call_update", "toolCallId": name, **fields}}


def said(text: str) -> list[dict[str, Any]]:
    return [{"type": "content", "content": {"type": "text", "text": text}}]


def ask(**fields: Any) -> dict[str, Any]:
    given: dict[str, Any] = {"toolCallId": "c1", "title": "ls", "kind": "execute"}
    return {"ask": given | fields}


# --- parts ---------------------------------------------------------------------------------------


def test_each_part_is_whole_and_in_order(bench: Bench) -> None:
    path = bench.text("a.txt")
    ending = bench.play(
        chunk("Let ", "agent_thought_chunk"),
        chunk("me.", "agent_thought_chunk"),
        chunk("I ", messageId="1"),
        chunk("run.", messageId="1"),
        chunk("Now.", messageId="2"),
        call("c1"),
        more("c1", status="in_progress", title="ls -l", rawInput={"command": "ls -l"}),
        call("c2", title="Read the file of notes", kind="read"),
        more("c1", status="completed", content=said("x\n"), rawOutput={"metadata": {"exit": 2}}),
        more("c2", status="failed", content=said("no such file")),
        more("c2", status="failed"),
        call("c3", title="write", kind="edit", locations=[{"path": path}]),
        more(
            "c3",
            status="completed",
            content=[{"type": "diff", "path": path, "oldText": "1\n", "newText": "2\n"}],
        ),
        chunk("Done."),
        script={
            "answer": {
                "stopReason": "end_turn",
                "usage": {"inputTokens": 7, "outputTokens": 3, "totalTokens": 10},
            }
        },
    )
    assert all(json.loads(part.raw) for part in bench.parts)
    assert [_bare(part) for part in bench.parts] == [
        Part("reasoning", text="Let me.", item_type="agent_thought"),
        Part("text", text="I run.", item_type="agent_message"),
        Part("text", text="Now.", item_type="agent_message"),
        Part(
            "tool",
            tool="shell",
            call_id="c1",
            input='{"command":"ls -l"}',
            output="x\n",
            exit_code=2,
            item_type="execute",
        ),
        Part(
            "tool",
            text="failed",
            tool="read",
            call_id="c2",
            input='{"title":"Read the file of notes"}',
            output="no such file",
            item_type="read",
        ),
        Part(
            "patch",
            tool="write",
            call_id="c3",
            input='{"title":"write"}',
            output=f"change {path}\n  @@ -1,2 +1,2 @@\n  -1\n  +2\n   ",
            files=("a.txt",),
            item_type="edit",
        ),
        Part("text", text="Done.", item_type="agent_message"),
    ]
    assert (ending.status, ending.reason, ending.text) == ("done", "", "Done.")
    assert (ending.thread_id, ending.version) == (acpserver.SESSION, "4.2")
    assert ending.usage == Usage(7, 3)
    (held,) = ending.enforced
    assert (held.kind, held.network) == ("bubblewrap", "blocked")
    assert held.notes == ("Of the network only the model could be reached: models.example:443.",)


def _bare(part: Part) -> Part:
    from dataclasses import replace

    return replace(part, raw="")


# --- requests ------------------------------------------------------------------------------------


def answers(bench: Bench) -> list[str]:
    return [one.get("optionId", one["outcome"]) for one in bench.seen["answers"]]


def test_what_was_refused_is_told_so(bench: Bench) -> None:
    bench.play(
        call("c1", rawInput={"command": "rm x"}),
        ask(rawInput={"command": "rm x", "why": "?"}),
        more("c1", status="failed"),
        shell="untrusted",
    )
    assert [(part.text, part.input) for part in bench.parts] == [("declined", '{"command":"rm x"}')]


# --- sessions ------------------------------------------------------------------------------------


def test_a_mode_is_chosen_in_which_the_agent_asks(bench: Bench) -> None:
    bench.play(script={"modes": ["yolo", "plan", "read-only", "default"]})
    assert bench.seen["mode"] == ["default"]
    bench.play(script={"modes": ["build", "plan"]})
    assert "mode" not in bench.seen


def test_a_model_is_chosen_if_the_agent_lets_it(bench: Bench) -> None:
    bench.play(script={"models": ["one", "two"]}, model="two")
    assert bench.seen["option"] == [["m", "two"]]
    ending = bench.play(model="two")
    assert ending.status == "failed"
    assert ending.reason.endswith(" failed: it does not offer a choice of models.")
    assert "prompt" not in bench.seen


@pytest.mark.parametrize("script", [{"loads": True}, {"resumes": True, "loads": True}])
def test_a_session_goes_on_and_its_history_is_nobodys_work(bench: Bench, script: Any) -> None:
    ending = bench.play(chunk("New."), script=script, thread_id="old-1")
    assert [part.text for part in bench.parts] == ["New."]
    assert (ending.thread_id, ending.session_lost) == ("old-1", False)
    assert bench.stage.sessions == ["old-1"]
    assert bench.seen["resume" if "resumes" in script else "load"] == ["old-1"]


def test_an_agent_that_cannot_go_on_says_so(bench: Bench) -> None:
    ending = bench.play(thread_id="old-1")
    assert ending.status == "failed"
    assert ending.reason.endswith(" failed: it cannot resume a session.")
    assert (ending.session_lost, bench.stage.sessions) == (True, [])


def test_it_runs_the_tests(bench: Bench) -> None:
    ending = bench.play({"tests": "basics"}, run_tests=lambda path: f"{path}: 3 of 7")
    assert ending.status == "done"
    ((name, hello, listed, answer),) = bench.seen["tests"]
    assert name == "coilclaw"
    assert hello["result"]["protocolVersion"] == "2025-06-18"
    assert [tool["name"] for tool in listed["result"]["tools"]] == ["run_tests"]
    content = [{"type": "text", "text": "basics: 3 of 7"}]
    assert answer["result"] == {"content": content, "isError": False}


def test_it_is_held_by_the_sandbox(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_SECRET", "s")
    outside = f"/etc/coilclaw-{marker()}"
    bench.play({"shell": f"touch {outside}; touch in; echo $HOME"})
    assert bench.seen["shell"] == [[0, f"{bench.stage.home}\n"]]
    assert not Path(outside).exists()
    assert list(bench.stage.files()) == ["in"]
    assert "SOME_SECRET" not in bench.seen["environ"][0]


# --- endings -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "status", "reason"),
    [
        ({"error": "no credit"}, "failed", "failed: Internal error: no credit."),
        ({"kill": 9}, "aborted", "did not finish: it ended in the middle of its work."),
        ({"raw": "{"}, "aborted", "did not finish: it wrote a line that is not JSON."),
    ],
)
def test_what_goes_wrong_has_a_reason_and_no_part_is_lost(
    bench: Bench, action: Any, status: str, reason: str
) -> None:
    ending = bench.play(chunk("One."), call("c1"), action, {"hang": True})
    assert (ending.status, ending.reason.partition(" ")[2]) == (status, reason)
    assert [part.text for part in bench.parts] == ["One.", "inProgress"]
    assert ending.thread_id == acpserver.SESSION


def test_without_a_session_it_fails_with_the_agents_words(bench: Bench) -> None:
    ending = bench.play(script={"session_error": {"message": "log in"}})
    assert not ending.session_lost
    assert ending.status == "failed"
    assert ending.reason.endswith(" failed: Authentication required: log in.")


def test_updates_that_nobody_knows_are_no_parts(bench: Bench) -> None:
    line = {"jsonrpc": "2.0", "method": "session/update", "params": {"update": {"x": 1}}}
    strange = [{**line, "params": 7}, {**line, "params": {"update": []}}, line, {"jsonrpc": "2.0"}]
    ending = bench.play(*({"raw": json.dumps(one)} for one in strange), chunk("Bye."))
    assert ending.status == "done"
    assert [part.text for part in bench.parts] == ["Bye."]


def test_an_agent_that_does_not_stop_is_killed(bench: Bench) -> None:
    script = {"deaf": True}
    ending = bench.play(
        chunk("One."), call("c1", status="completed"), {"hang": True}, script=script, budget=ONE
    )
    assert (ending.status, ending.reason) == ("exhausted", "The 1 parts of the budget are used up.")
    assert bench.seen["cancel"] == [True]


def test_cancelled_it_is_told_to_stop_and_nothing_is_left(bench: Bench) -> None:
    mark = marker()

    def wait() -> None:
        until = time.monotonic() + PATIENCE_S
        while not running(mark) and time.monotonic() < until:
            time.sleep(0.01)
        bench.stage.cancel.cancel("enough")

    thread = threading.Thread(target=wait)
    thread.start()
    ending = bench.play({"shell": f"setsid sleep {mark} & true"}, {"hang": True})
    thread.join()
    assert (ending.status, ending.reason) == ("aborted", "It was cancelled: enough.")
    assert running(mark) == []


def test_closing_the_performance_ends_the_agent(bench: Bench) -> None:
    mark = marker()
    runner = bench.runner(chunk("One."), call("c1"), {"shell": f"sleep {mark}"})
    performance = runner.perform(bench.stage.assignment(), bench.stage.means())
    assert next(performance).text == "One."
    performance.close()
    assert running(mark) == []
    assert running(PLAYER) == []


# --- where it is, and what it may reach ----------------------------------------------------------


def test_where_the_model_is_not_known_nothing_starts(bench: Bench) -> None:
    from dataclasses import replace

    runner = replace(bench.runner(), addresses=())
    with pytest.raises(DeniedError) as caught:
        next(runner.perform(bench.stage.assignment(), bench.stage.means()))
    assert caught.value.rule == "acp.route"
    allowed = bench.stage.assignment(network="allow")
    assert bench.stage.perform(runner, allowed)[1].status == "done"


def test_without_bubblewrap_the_model_alone_cannot_be_reached(bench: Bench) -> None:
    means = Means(ask_nobody, bench.stage.cancel, SandboxSupport(landlock_abi=7))
    with pytest.raises(EnvironmentFault) as caught:
        next(bench.runner().perform(bench.stage.assignment(), means))
    assert caught.value.rule == "acp.sandbox"


def test_a_program_that_is_not_there_is_said(bench: Bench) -> None:
    for word in ("no-such-agent", "/no/such/agent"):
        runner = AcpRunner((word,), {"PATH": "/usr/bin"})
        with pytest.raises(EnvironmentFault) as caught:
            next(runner.perform(bench.stage.assignment(), bench.stage.means()))
        assert caught.value.rule == "acp.missing"
    assert AcpRunner(("x",)).name == "acp"


def test_known_agents_reach_their_own_model(bench: Bench) -> None:
    claude = find_agent(Path("/x/claude-agent-acp"))
    assert find_targets(claude, (), {}) == (RouteTarget("api.anthropic.com", 443),)
    own = {"ANTHROPIC_BASE_URL": "http://127.0.0.1:4000"}
    assert find_targets(claude, (), own) == (RouteTarget("127.0.0.1", 4000, plain=True),)
    task = bench.stage.assignment()
    given = make_environment(claude, task, {}, ())
    assert given["CLAUDE_CONFIG_DIR"] == f"{task.home}/.claude"
    assert find_agent(Path("/x/other")).title == "other"
