"""What Codex writes down beside what it prints: calls that became no item, at their place."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from coilclaw.kernel.messages import Part
from coilclaw.runners.agent_answer import FORBIDDEN
from coilclaw.runners.codex import exec_runner as codexrollout
from coilclaw.runners.codex.exec_runner import Rollout
from coilclaw.runners.codex.items import Calls

THREAD = "01a1df4b-44d8-76f0-ba78-10f2981c1d7e"


def item(kind: str, name: str) -> dict[str, Any]:
    payload = {"type": "item_completed", "item": {"type": kind, "id": name}}
    return {"type": "event_msg", "payload": payload}


def call(name: str, tool: str = "exec_command", **more: Any) -> dict[str, Any]:
    payload = {"type": "function_call", "call_id": name, "name": tool, "arguments": '{"a":1}'}
    return {"type": "response_item", "payload": payload | more}


def output(name: str, said: Any = "Process exited with code 2\nOutput:\nx\n") -> dict[str, Any]:
    payload = {"type": "function_call_output", "call_id": name, "output": said}
    return {"type": "response_item", "payload": payload}


ASKED = item("UserMessage", "q")
"""What a turn begins with."""


@dataclass
class Thread:
    home: Path
    rollout: Rollout = field(init=False)

    def __post_init__(self) -> None:
        self.path.parent.mkdir(parents=True)
        self.rollout = Rollout(self.home, Calls(shell_denied=False))

    @property
    def path(self) -> Path:
        return self.home / "sessions" / "2026" / "11" / "15" / f"rollout-x-{THREAD}.jsonl"

    def write(self, *records: Any) -> None:
        with self.path.open("ab") as file:
            file.write(b"".join(json.dumps(record).encode() + b"\n" for record in records))

    def ids(self, printed: int | None = None) -> list[str]:
        return [part.call_id for part in self.rollout.parts(THREAD, printed)]


@pytest.fixture
def thread(tmp_path: Path) -> Thread:
    return Thread(tmp_path)


def test_a_call_that_became_no_item_is_a_part(thread: Thread) -> None:
    thread.write(
        ASKED, call("a"), output("a"), call("b"), item("CommandExecution", "b"), output("b")
    )
    (part,) = thread.rollout.parts(THREAD, None)
    assert part == Part(
        "tool",
        tool="shell",
        call_id="a",
        input='{"a":1}',
        output="x\n",
        exit_code=2,
        item_type="function_call_output",
        raw=json.dumps(output("a")),
    )
    assert thread.ids() == []


def test_it_comes_where_it_belongs_among_what_is_printed(thread: Thread) -> None:
    thread.write(
        *(ASKED, call("a"), output("a")),
        *(call("b"), item("CommandExecution", "b"), output("b")),
        *(call("c"), output("c"), item("Reasoning", "r"), item("AgentMessage", "m")),
        *(call("d"), output("d")),
    )
    # Nothing was printed yet; then b; then the text.
    assert [thread.ids(printed) for printed in (0, 0, 1, 2)] == [["a"], [], ["c"], ["d"]]


def test_lines_are_taken_when_they_are_whole(thread: Thread) -> None:
    assert thread.ids() == []
    thread.write(ASKED, call("a"))
    line = json.dumps(output("a")).encode() + b"\n"
    found = []
    for piece in (line[:9], line[9:]):
        with thread.path.open("ab") as file:
            file.write(piece)
        found.append(thread.ids())
    assert found == [[], ["a"]]


def test_what_goes_on_is_not_told_yet(thread: Thread) -> None:
    running = "Wall time: 1\nProcess running with session ID 7\nOutput:\n"
    thread.write(ASKED, call("a"), output("a", running))
    thread.write(call("b", "write_stdin"), output("b", running))
    assert thread.ids() == ["b"]


def test_of_a_thread_that_goes_on_only_what_is_new_is_told(thread: Thread) -> None:
    thread.write(ASKED, call("a"), output("a"))
    thread.rollout = Rollout(thread.home, Calls(shell_denied=False), THREAD)
    thread.write(ASKED, call("b"), output("b"))
    assert thread.ids() == ["b"]
    # Without its file nobody could tell where the turn begins.
    lost = Rollout(thread.home, Calls(shell_denied=False), "another")
    thread.path.rename(thread.path.with_name("rollout-y-another.jsonl"))
    assert lost.parts("another", None) == []


def test_a_codex_that_writes_down_no_items_does_not_say_what_became_one(thread: Thread) -> None:
    thread.write(call("a"), output("a"))
    assert thread.ids() == []


def test_a_shell_where_there_is_none_is_seen(thread: Thread) -> None:
    thread.rollout = Rollout(thread.home, Calls(shell_denied=True))
    thread.write(ASKED, call("a"), output("a", "unsupported call"))
    thread.write(call("b", "run", namespace="mcp__x"), output("b", ["no"]))
    told = [(part.tool, part.text, part.output) for part in thread.rollout.parts(THREAD, None)]
    assert told == [("shell", FORBIDDEN, "unsupported call"), ("mcp__x/run", "", '["no"]')]


@pytest.mark.parametrize("name", ["", "*", "../../x", "a/b", "x" * 101, "[0-9]*"])
def test_a_name_that_is_no_threads_finds_nothing(thread: Thread, name: str) -> None:
    thread.write(ASKED, call("a"), output("a"))
    assert thread.rollout.parts(name, None) == []


def test_what_is_no_record_is_passed_over(thread: Thread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codexrollout, "MAX_LINE_BYTES", 1000)
    monkeypatch.setattr(codexrollout, "_CHUNK", 300)
    thread.write(ASKED, 7, [], {}, {"payload": 1}, {"type": "response_item", "payload": [1]})
    thread.write({"type": "event_msg", "payload": {"type": "item_completed", "item": "x"}})
    thread.write({"type": "response_item", "payload": {"type": {}, "call_id": []}})
    with thread.path.open("ab") as file:
        file.write(b"\xff\xfe\n" + b"[" * 900 + b"\n{\n\n" + b"x" * 5000 + b"\n")
    thread.write(call("long", arguments="x" * 2000), call("a"), output("long"), output("a"))
    assert thread.ids() == ["a"]


def test_no_more_is_read_than_anybody_writes(
    thread: Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread.write(ASKED)
    monkeypatch.setattr(codexrollout, "MAX_BYTES", thread.path.stat().st_size)
    assert thread.ids() == []
    thread.write(call("a"), output("a"))
    assert thread.ids() == []


def test_only_a_file_is_read(thread: Thread, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    thread.write(ASKED, call("a"), output("a"))
    thread.path.rename(secret)
    thread.path.symlink_to(secret)
    assert thread.ids() == []
    thread.path.unlink()
    os.mkfifo(thread.path)
    assert thread.ids() == []
