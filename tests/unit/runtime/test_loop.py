"""The loop, with the mock provider and real tools."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from coilclaw.agent import history
from coilclaw.agent.estop import Estop
from coilclaw.agent.receipts.book import ReceiptBook, intents_path
from coilclaw.agent.receipts.verification import verify
from coilclaw.kernel.errors import ProviderError, UndoRefused, UsageError
from coilclaw.kernel.messages import ApprovalReply, Message, ToolAnswer, ToolCall, TurnRecord
from tests.support.agents import AgentHome, Person, calls, says
from tests.support.scale import scaled


def record(role: str, content: str = "", turn: str = "t", **more: object) -> TurnRecord:
    return TurnRecord("c", turn, "2026-01-01T00:00:00.000000Z", role, content, **more)  # type: ignore[arg-type]


def test_text_is_answered_and_kept(tmp_path: Path) -> None:
    home = AgentHome.make(tmp_path, answers=[says("hello")])
    with home.runtime() as runtime:
        outcome = runtime.turn("hi")
        kept = runtime.memory.conversation(outcome.conversation_id)
    assert (outcome.text, outcome.tool_rounds, outcome.exhausted) == ("hello", 0, False)
    assert [(one.role, one.content, one.turn_id) for one in kept] == [
        ("user", "hi", outcome.turn_id),
        ("assistant", "hello", outcome.turn_id),
    ]
    assert kept[1].provider == "scripted"


def test_tool_results_go_back_to_the_model_and_into_memory(tmp_path: Path) -> None:
    home = AgentHome.make(
        tmp_path,
        answers=[
            calls(("file_list", {"path": "."}), ("file_read", {"path": "/etc/passwd"})),
            says("done"),
        ],
    )
    (home.workspace / "here.txt").write_text("x")
    with home.runtime() as runtime:
        outcome = runtime.turn("look")
        kept = runtime.memory.conversation(outcome.conversation_id)
    assert (outcome.tool_rounds, outcome.tool_calls, outcome.denials) == (1, 2, 1)
    assert [one.role for one in kept] == ["user", "assistant", "tool", "assistant"]
    listed, denied = kept[2].tool_results
    assert "here.txt" in listed.output
    assert (denied.success, denied.tool) == (False, "file_read")
    assert "path.forbidden" in (denied.error or "")
    assert [answer.receipt_id for answer in kept[2].tool_results] == [
        one["id"] for one in home.records()
    ]
    told = [message.content for message in history.build_messages(kept) if message.role == "tool"]
    assert "here.txt" in told[0]
    assert told[1].startswith("error: denied by path.forbidden")


def test_rounds_are_bounded_and_the_last_calls_are_denied(tmp_path: Path) -> None:
    home = AgentHome.make(
        tmp_path, "[limits]\nmax_tool_rounds = 2\n", answers=[calls(("time", {}))] * 10
    )
    with home.runtime() as runtime:
        outcome = runtime.turn("go on for ever")
    assert outcome.exhausted
    assert (outcome.tool_rounds, outcome.tool_calls, outcome.denials) == (2, 3, 1)
    assert "2 rounds" in outcome.text
    assert [one["status"] for one in home.records()] == ["allowed", "allowed", "denied"]
    assert home.records()[-1]["approval"] == "policy limits.max_tool_rounds"


def test_a_conversation_is_resumed_with_unique_call_ids(tmp_path: Path) -> None:
    same = {"tool_calls": [{"id": "x", "name": "time", "arguments": {}}] * 2}
    home = AgentHome.make(tmp_path, answers=[same, says("one"), same, says("two")])
    with home.runtime() as runtime:
        runtime.turn("a", conversation_id="mine")
        runtime.turn("b", conversation_id="mine")
        kept = runtime.memory.conversation("mine")
    ids = [call.id for one in kept for call in one.tool_calls]
    assert len(ids) == len(set(ids)) == 4
    assert [answer.call_id for one in kept for answer in one.tool_results] == ids
    assert [message.role for message in history.build_messages(kept)] == [
        "user", "assistant", "tool", "tool", "assistant",
        "user", "assistant", "tool", "tool", "assistant",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["", "../x", "a b", "x" * 129, "-m"])
def test_a_conversation_id_that_is_none_is_refused(tmp_path: Path, name: str) -> None:
    home = AgentHome.make(tmp_path, answers=[says("x")])
    with home.runtime() as runtime, pytest.raises(UsageError) as caught:
        runtime.turn("hi", conversation_id=name)
    assert caught.value.rule == "conversation.id"


def test_an_answer_beyond_the_bound_is_a_provider_error(tmp_path: Path) -> None:
    home = AgentHome.make(
        tmp_path, "[limits]\nmax_response_bytes = 1024\n", answers=[says("x" * 1025), says("ok")]
    )
    with home.runtime() as runtime:
        with pytest.raises(ProviderError):
            runtime.turn("hi", conversation_id="c")
        assert runtime.turn("again", conversation_id="c").text == "ok"


def test_broken_and_hostile_calls_are_told_to_the_model(tmp_path: Path) -> None:
    hostile = {
        "tool_calls": [
            {"name": "file_read", "arguments": "{not json"},
            {"name": "no_such", "arguments": {}},
            {"id": "d", "name": "time", "arguments": {}},
            {"id": "d", "name": "time", "arguments": {"extra": 1}},
        ]
    }
    home = AgentHome.make(tmp_path, answers=[hostile, says("well")])
    with home.runtime() as runtime:
        outcome = runtime.turn("hi")
        answers = runtime.memory.conversation(outcome.conversation_id)[2].tool_results
    assert outcome.text == "well"
    assert [answer.success for answer in answers] == [False, False, True, False]
    assert [one["status"] for one in home.records()] == ["denied", "denied", "allowed", "denied"]


def test_with_the_stop_set_text_still_works_and_the_model_is_told(tmp_path: Path) -> None:
    home = AgentHome.make(tmp_path, answers=[calls(("time", {})), says("tools are stopped")])
    Estop.of(home.home).trigger("test")
    with home.runtime() as runtime:
        outcome = runtime.turn("hi")
    assert (outcome.text, outcome.denials) == ("tools are stopped", 1)


def test_undo_takes_back_what_tools_and_commands_changed(tmp_path: Path) -> None:
    home = AgentHome.make(
        tmp_path,
        '[security]\nautonomy = "full"\n',
        answers=[
            calls(
                ("file_write", {"path": "a.txt", "content": "new\n"}),
                ("shell", {"command": "echo more >> b.txt && mkdir d && touch d/e"}),
            ),
            says("done"),
        ],
    )
    (home.workspace / "a.txt").write_text("old\n")
    (home.workspace / "b.txt").write_text("b\n")
    with home.runtime() as runtime:
        outcome = runtime.turn("change", conversation_id="c")
        assert (home.workspace / "d" / "e").exists()
        (home.workspace / "mine.txt").write_text("the user's own, since\n")
        undone = runtime.undo("c")
        assert undone.turn_id == outcome.turn_id
        assert set(undone.paths) == {"a.txt", "b.txt", "d/e"}
        with pytest.raises(UndoRefused):
            runtime.undo("c")
    assert (home.workspace / "a.txt").read_text() == "old\n"
    assert (home.workspace / "b.txt").read_text() == "b\n"
    assert not (home.workspace / "d").exists()
    assert (home.workspace / "mine.txt").exists()


def test_undo_refuses_when_somebody_changed_the_same_file_since(tmp_path: Path) -> None:
    home = AgentHome.make(
        tmp_path, answers=[calls(("file_write", {"path": "a", "content": "x"})), says("done")]
    )
    with home.runtime(Person([ApprovalReply.YES])) as runtime:
        runtime.turn("go", conversation_id="c")
        (home.workspace / "a").write_text("mine")
        with pytest.raises(UndoRefused) as caught:
            runtime.undo("c")
    assert caught.value.paths == ("a",)
    assert (home.workspace / "a").read_text() == "mine"


def test_undo_of_another_conversation_finds_nothing(tmp_path: Path) -> None:
    home = AgentHome.make(
        tmp_path, answers=[calls(("file_write", {"path": "a", "content": "x"})), says("done")]
    )
    with home.runtime(Person([ApprovalReply.YES])) as runtime:
        runtime.turn("go", conversation_id="c")
        with pytest.raises(UndoRefused) as caught:
            runtime.undo("other")
    assert caught.value.rule == "undo.nothing"


def test_a_call_whose_answer_was_lost_is_answered(tmp_path: Path) -> None:
    lost = record("assistant", tool_calls=(ToolCall("x", "time", {}), ToolCall("y", "time", {})))
    answered = record("tool", tool_results=(ToolAnswer("x", "time", True, "now"),))
    found = history.build_messages([record("user", "a"), lost, answered, record("user", "b", "u")])
    assert found[1:] == (
        Message("assistant", "", lost.tool_calls),
        Message("tool", "now", tool_call_id="x"),
        Message("tool", f"error: {history.LOST}", tool_call_id="y"),
        Message("user", "b"),
    )


def test_history_is_cut_at_a_turn(tmp_path: Path) -> None:
    big = "x" * (history.MAX_HISTORY_BYTES // 2)
    turns = [record(role, big, str(n)) for n in range(4) for role in ("user", "assistant")]
    found = history.build_messages(turns)
    assert [message.role for message in found] == ["user", "assistant"]


def test_secrets_echoed_by_the_model_are_not_kept(tmp_path: Path) -> None:
    secret = "sk-canary-0123456789abcdef"
    home = AgentHome.make(
        tmp_path,
        '[providers.models.real]\nkind = "openai-compatible"\nmodel = "m"\n'
        'base_url = "http://127.0.0.1:9/v1"\napi_key_env = "MY_KEY"\n',
        answers=[
            calls(("file_write", {"path": "k", "content": f"{secret}\n"})),
            says(f"your key is {secret}"),
        ],
    )
    drafts: list[str] = []
    with home.runtime(Person([ApprovalReply.YES]), {"MY_KEY": secret}) as runtime:
        outcome = runtime.turn(f"hi, {secret} is my key", draft=drafts.append)
    assert secret not in outcome.text
    assert secret not in "".join(drafts)
    kept = b"".join(path.read_bytes() for path in home.home.rglob("*") if path.is_file())
    fixture = (home.home / "fixture.json").read_bytes()
    assert kept.count(secret.encode()) == fixture.count(secret.encode())
    assert secret not in (home.workspace / "k").read_text()


def test_a_killed_turn_leaves_a_conversation_that_goes_on(tmp_path: Path) -> None:
    """A process killed at any instant: receipts verify, effects have intents, memory goes on."""
    home = AgentHome.make(tmp_path, '[security]\nautonomy = "full"\n')
    rounds = [
        answer
        for number in range(4)
        for answer in (
            calls(("file_write", {"path": f"f{number}", "content": f"{number}\n"})),
            calls(("shell", {"argv": ["touch", f"s{number}"]})),
        )
    ]
    home.answer(*rounds, says("end"))
    home.configure('[security]\nautonomy = "full"\n[limits]\nmax_tool_rounds = 50\n')
    with home.runtime() as warm:
        warm.tools()
    crashes = 0
    for attempt in range(scaled(full=60, default=15)):
        pid = os.fork()
        if pid == 0:
            try:
                with home.runtime() as runtime:
                    runtime.turn(f"attempt {attempt}", conversation_id="c")
            finally:
                os._exit(0)
        time.sleep(0.01 + 0.012 * (attempt % 25))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        book = ReceiptBook(home.receipts, key_path=home.home / "keys" / "journal.key")
        if intents_path(home.receipts).exists():
            found = verify(book, lambda _: False)
            assert not found.problems, found.problems
            crashes = len(found.open_intents)
        made = len([p for p in home.workspace.iterdir() if p.name[0] in "fs"])
        lines = intents_path(home.receipts)
        assert made <= (len(lines.read_bytes().splitlines()) if lines.exists() else 0)
    assert crashes <= attempt + 1
    home.answer(says("still here"))
    with home.runtime() as runtime:
        assert runtime.turn("are you there?", conversation_id="c").text == "still here"
        kept = history.build_messages(runtime.memory.conversation("c"))
    open_calls: set[str] = set()
    for message in kept:
        if message.role == "tool":
            assert message.tool_call_id in open_calls
            open_calls.discard(message.tool_call_id)
        else:
            assert not open_calls
            open_calls = {one.id for one in message.tool_calls}
