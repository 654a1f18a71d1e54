"""What ``codex exec`` prints, from a program that only prints: parts and endings."""

from __future__ import annotations

import json
import shutil
import tomllib
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from coilclaw.kernel.messages import Budget, Part, Usage
from coilclaw.runners.agent_answer import FORBIDDEN
from coilclaw.runners.codex import home as codexhome
from coilclaw.runners.codex.exec_runner import CodexExecRunner, arguments
from coilclaw.runners.codex.items import Items, usage_of
from coilclaw.runners.runner import Ending
from coilclaw.runners.test_tool import TestTool
from tests.support.children import given_time
from tests.support.performing import Performance, finish
from tests.support.sandboxes import supported

TREE = Path("/work/tree")
PROGRAM = """#!/bin/sh
[ "$1" = --version ] && echo codex-cli 9.9.9 && exit
printf '%s\\n' "$@" > "$CODEX_HOME/argv"
cat > "$CODEX_HOME/prompt"
ls "$CODEX_HOME" > "$CODEX_HOME/before"
cat {lines}
{then}
"""
STARTED = {"type": "thread.started", "thread_id": "t-1"}
TURN = {"type": "turn.started"}
SAID = {"type": "item.completed", "item": {"id": "i", "type": "agent_message", "text": "Bye."}}


def end(read: int = 100, written: int = 10) -> dict[str, Any]:
    return {
        "type": "turn.completed",
        "usage": {"input_tokens": read, "output_tokens": written, "cached_input_tokens": 1},
    }


@dataclass
class Bench:
    stage: Performance
    parts: list[Part] = field(default_factory=list)

    def play(self, *events: Any, then: str = "", **changes: Any) -> Ending:
        root = self.stage.home.parent
        lines = self.stage.home / "lines"
        lines.write_text("".join(f"{json.dumps(event)}\n" for event in events))
        program = root / "bin" / "codex"
        program.parent.mkdir(exist_ok=True)
        program.write_text(PROGRAM.replace("{lines}", str(lines)).replace("{then}", then))
        program.chmod(0o755)
        base = root / "base"
        base.mkdir(exist_ok=True)
        (base / "config.toml").write_text(
            'model_provider = "p"\n[model_providers.p]\nbase_url = "https://m.example"\n'
        )
        (base / "auth.json").write_text("{}")
        runner = CodexExecRunner(executable=program, base_home=base, environ={"PATH": "/bin"})
        # The program lies below /tmp, where the sandbox would have an empty one.
        changes.setdefault("shell", "never")
        assignment = _showing(self.stage.assignment(**changes), program)
        self.seen_one.unlink(missing_ok=True)
        performance = runner.perform(assignment, self.stage.means())
        self.parts, ending = finish(self._watched(performance))
        return ending

    @property
    def seen_one(self) -> Path:
        """Is there as soon as one part was seen: a program may wait for it."""
        return self.stage.home / "seen-one"

    def _watched(self, performance: Generator[Part, None, Ending]) -> Generator[Part, None, Ending]:
        while True:
            try:
                part = next(performance)
            except StopIteration as stop:
                ending: Ending = stop.value
                return ending
            self.seen_one.touch()
            yield part

    def seen(self, name: str) -> list[str]:
        return (self.stage.home / "codex" / name).read_text().splitlines()


def _showing(assignment: Any, program: Path) -> Any:
    from dataclasses import replace

    box = assignment.sandbox
    return replace(assignment, sandbox=replace(box, writable=(*box.writable, program.parent)))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    supported("bubblewrap")
    return Bench(Performance.make(tmp_path, "bubblewrap"))


# --- endings -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("events", "then", "status", "reason"),
    [
        ([STARTED, TURN, SAID], "", "aborted", "Codex did not finish: it ended in the middle"),
        ([STARTED, TURN, SAID], "kill -9 $$", "aborted", "Codex did not finish: it ended"),
        ([STARTED], "echo {", "aborted", "Codex did not finish: it wrote a line that is not JSON"),
        ([], "echo no rollout >&2; exit 1", "aborted", "Codex did not finish: it ended"),
        (
            [STARTED, TURN, {"type": "turn.failed", "error": {"message": "no credit"}}],
            "",
            "failed",
            "Codex failed: no credit.",
        ),
        (
            [STARTED, TURN, {"type": "error", "message": "Reconnecting"}, {"type": "turn.failed"}],
            "",
            "failed",
            "Codex failed: Reconnecting.",
        ),
    ],
)
def test_what_ends_badly_has_a_reason(
    bench: Bench, events: Any, then: str, status: str, reason: str
) -> None:
    ending = bench.play(*events, then=then)
    assert (ending.status, ending.reason[: len(reason)]) == (status, reason)
    assert ("Its last words: no rollout" in ending.reason) == ("rollout" in then)


def test_it_is_told_its_task_and_is_done(bench: Bench) -> None:
    ending = bench.play(STARTED, TURN, SAID, end(), instruction="Do\nit. 'quoted'")
    assert (ending.status, ending.reason, ending.text) == ("done", "", "Bye.")
    assert (ending.thread_id, ending.usage, ending.version) == ("t-1", Usage(100, 10), "9.9.9")
    assert bench.seen("prompt") == ["Do", "it. 'quoted'"]
    assert "auth.json" in bench.seen("before")
    assert not (bench.stage.home / "codex" / "auth.json").exists()


def test_the_tokens_of_a_turn_are_what_came_to_those_of_the_thread(bench: Bench) -> None:
    bench.play(STARTED, TURN, end(100, 10))
    assert bench.play(STARTED, TURN, end(180, 15), thread_id="t-1").usage == Usage(80, 5)
    other = {"type": "thread.started", "thread_id": "t-2"}
    assert bench.play(other, TURN, end(50, 5)).usage == Usage(50, 5)
    for said in ("[]", '["t-2", -1, 0]', '["t-2", "x", 0]', "{", '["t-2", true, 0, 1]'):
        (bench.stage.home / "codex-exec-usage.json").write_text(said)
        assert bench.play(other, TURN, end(60, 6), thread_id="t-2").usage == Usage(60, 6)


@pytest.mark.parametrize(
    ("budget", "reason", "parts"),
    [
        (Budget(parts=1, wall_s=60), "The 1 parts of the budget are used up.", 1),
        (Budget(tokens=109, wall_s=60), "The 109 tokens of the budget are used up.", 2),
    ],
)
def test_the_budget_ends_it(bench: Bench, budget: Budget, reason: str, parts: int) -> None:
    events = [STARTED, TURN, SAID, SAID] + ([end()] if budget.tokens else [])
    ending = bench.play(*events, then="sleep 600", budget=budget)
    assert (ending.status, ending.reason, len(bench.parts)) == ("exhausted", reason, parts)


def test_the_time_of_the_budget_ends_it(bench: Bench) -> None:
    def attempt(wall_s: float) -> list[Part]:
        ending = bench.play(
            *(STARTED, TURN, SAID, SAID), then="sleep 600", budget=Budget(wall_s=wall_s)
        )
        reason = f"The time of {wall_s:g} s is used up."
        assert (ending.status, ending.reason) == ("exhausted", reason)
        return bench.parts

    assert len(given_time(1.0, attempt, lambda parts: len(parts) == 2)) == 2


def test_an_answer_that_is_not_of_the_schema_is_a_failure(bench: Bench) -> None:
    ending = bench.play(STARTED, TURN, SAID, end(), output_schema={"type": "object"})
    assert (ending.status, ending.result) == ("failed", None)


# --- the command line ----------------------------------------------------------------------------


def test_the_command_line_says_what_the_assignment_says(bench: Bench) -> None:
    stage = bench.stage
    assignment = stage.assignment(model="m", output_schema={"type": "object"}, network="allow")
    tests = TestTool(stage.home)
    with codexhome.prepare_home(assignment, None) as home:
        argv = arguments(assignment, home, tests)
    options = [argv[i + 1] for i, word in enumerate(argv) if word == "-c"]
    said = tomllib.loads("\n".join(options))
    assert said == {
        "sandbox_mode": "workspace-write",
        "sandbox_workspace_write": {
            "network_access": True,
            "writable_roots": [],
            "exclude_slash_tmp": False,
        },
        "mcp_servers": {
            "coilclaw": {
                "command": tests.argv[0],
                "args": tests.argv[1:],
                "tool_timeout_sec": 14400,
                "default_tools_approval_mode": "approve",
            }
        },
    }
    rest = [word for i, word in enumerate(argv) if "-c" not in (word, argv[i - 1])]
    schema = str(home.temporary / "output-schema.json")
    assert rest == [
        *("exec", "--json", "--skip-git-repo-check"),
        *("-m", "m", "--output-schema", schema, "-"),
    ]


def test_a_thread_is_resumed_by_its_name(bench: Bench) -> None:
    assignment = bench.stage.assignment(thread_id="t-1", filesystem="read-only")
    with codexhome.prepare_home(assignment, None) as home:
        argv = arguments(assignment, home, None)
    assert argv[:2] == ["exec", "resume"]
    assert argv[-2:] == ["t-1", "-"]
    assert 'sandbox_mode="read-only"' in argv
    assert not any("mcp_servers" in word for word in argv)


# --- items ---------------------------------------------------------------------------------------


def item(kind: str, **fields: Any) -> dict[str, Any]:
    return {"id": "i1", "type": kind, **fields}


@pytest.mark.parametrize(
    ("value", "part"),
    [
        (
            item("reasoning", text="Hm."),
            Part("reasoning", text="Hm.", item_type="reasoning", raw="R"),
        ),
        (
            item(
                "command_execution",
                command="ls",
                aggregated_output="a",
                exit_code=2,
                status="failed",
            ),
            Part(
                "tool",
                tool="shell",
                call_id="i1",
                input='{"command":"ls"}',
                output="a",
                exit_code=2,
                item_type="command_execution",
                raw="R",
            ),
        ),
        (
            item(
                "file_change",
                status="completed",
                changes=[{"path": "/work/tree/a", "kind": "add"}, {"path": "/b", "kind": "delete"}],
            ),
            Part(
                "patch",
                tool="apply_patch",
                call_id="i1",
                output="add /work/tree/a\ndelete /b",
                files=("a", "/b"),
                item_type="file_change",
                raw="R",
            ),
        ),
        (
            item(
                "mcp_tool_call", server="s", tool="t", arguments={"a": 1}, error={"message": "no"}
            ),
            Part(
                "tool",
                text="failed",
                tool="s/t",
                call_id="i1",
                input='{"a":1}',
                output="no",
                item_type="mcp_tool_call",
                raw="R",
            ),
        ),
        (
            item("web_search", query="q"),
            Part(
                "tool",
                tool="web_search",
                call_id="i1",
                input='{"id":"i1","query":"q","type":"web_search"}',
                item_type="web_search",
                raw="R",
            ),
        ),
        (item("error", message="Model metadata not found"), None),
        (item("todo_list", items=[]), None),
    ],
)
def test_an_item_is_one_part(value: Any, part: Part | None) -> None:
    assert Items(TREE, shell_denied=False).read_completed(value, "R") == part


def test_a_command_that_does_not_end_is_told_with_the_turn() -> None:
    items = Items(TREE, shell_denied=True)
    items.began(item("command_execution", command="sleep", status="in_progress"), "R")
    items.began({"id": "i2", "type": "mcp_tool_call"}, "R")
    (part,) = items.list_unfinished()
    assert (part.text, part.exit_code) == (FORBIDDEN, None)
    assert items.list_unfinished() == []


@pytest.mark.parametrize("counted", [None, 7, {}, {"input_tokens": 1}, {"output_tokens": "x"}])
def test_what_is_no_count_is_none(counted: Any) -> None:
    assert usage_of(counted) is None


# --- sessions ------------------------------------------------------------------------------------


def test_a_thread_is_told_when_it_is_named(bench: Bench) -> None:
    bench.play(STARTED, TURN, then="kill -9 $$")
    assert bench.stage.sessions == ["t-1"]
    bench.play()
    assert bench.stage.sessions == ["t-1"]


@pytest.mark.parametrize(
    ("thread", "events", "then", "lost"),
    [
        ("t-1", [], "exit 1", True),
        ("t-1", [STARTED], "exit 1", True),
        ("", [], "exit 1", False),
        ("t-1", [STARTED, TURN], "kill -9 $$", False),
        ("t-1", [STARTED, TURN, SAID, end()], "", False),
        ("t-1", [STARTED, TURN, {"type": "turn.failed"}], "", False),
    ],
)
def test_a_thread_is_lost_if_it_could_not_be_gone_on_with(
    bench: Bench, thread: str, events: Any, then: str, lost: bool
) -> None:
    assert bench.play(*events, then=then, thread_id=thread).session_lost == lost


def test_out_of_time_no_thread_is_lost(bench: Bench) -> None:
    ending = bench.play(then="sleep 600", thread_id="t-1", budget=Budget(wall_s=1.0))
    assert (ending.status, ending.session_lost) == ("exhausted", False)


def test_calls_that_are_only_written_down_are_parts_within_the_budget(bench: Bench) -> None:
    """The program writes its thread down as Codex does, and prints a text."""
    place = "$CODEX_HOME/sessions/2026/11/15"
    records = [{"type": "event_msg", "payload": {"type": "item_completed", "item": {"id": "q"}}}]
    for name in ("a", "b"):
        call = {"type": "function_call", "call_id": name, "name": "f", "arguments": "{}"}
        done = {"type": "function_call_output", "call_id": name, "output": "no"}
        records += [{"type": "response_item", "payload": one} for one in (call, done)]
    lines = "\n".join(json.dumps(record) for record in records)
    waits = f"until [ -e {bench.seen_one} ]; do sleep 0.01; done"
    writes = f"{waits}; mkdir -p {place}; cat > {place}/rollout-x-t-1.jsonl <<'EOF'\n{lines}\nEOF\n"
    last = json.dumps(end())
    bench.play(STARTED, TURN, SAID, then=f"{writes}echo '{last}'")
    assert [(part.kind, part.call_id) for part in bench.parts] == [
        ("text", ""),
        ("tool", "a"),
        ("tool", "b"),
    ]
    sessions = bench.stage.home / "codex" / "sessions"
    shutil.rmtree(sessions)
    shorter = bench.play(
        *(STARTED, TURN, SAID), then=f"{writes}echo '{last}'", budget=Budget(parts=2, wall_s=60)
    )
    assert [part.call_id for part in bench.parts] == ["", "a"]
    assert (shorter.status, shorter.reason) == (
        "exhausted",
        "The 2 parts of the budget are used up.",
    )
    shutil.rmtree(sessions)
    # The runner notes the tokens once it has dealt with the end: only then are the calls written.
    noted = bench.stage.home / "codex-exec-usage.json"
    noted.unlink()
    dealt_with = f"until [ -e {noted} ]; do sleep 0.01; done"
    late = bench.play(
        *(STARTED, TURN, SAID),
        then=f"echo '{last}'; {dealt_with}; {writes}",
        budget=Budget(parts=2, wall_s=60),
    )
    assert late.status == "done"
    assert [part.call_id for part in bench.parts] == ["", "a"]
