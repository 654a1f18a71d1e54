"""Real processes killed while a call waits for approval, and the conversation that goes on."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from coilclaw.agent import history
from coilclaw.agent.approvals import ApprovalQuestion, ApprovalStore
from coilclaw.agent.open_turns import NOT_BEGUN, is_abandoned
from coilclaw.kernel.errors import UsageError
from coilclaw.kernel.messages import ApprovalAnswer, ApprovalReply, ApprovalRequest, TurnRecord
from tests.support.agents import AgentHome, Person, calls, says

WRITE = ("file_write", {"path": "note.txt", "content": "hello\n"})
ANN = "person ann"


class Dying(Person):
    """Puts the question on the desk, as the gateway does, and is killed before any answer."""

    def __init__(self, home: AgentHome, *, keeps: bool = True, after: int = 0) -> None:
        super().__init__()
        self._home, self._keeps, self._after = home, keeps, after

    def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        if self._after:
            self._after -= 1
            return ApprovalAnswer(ApprovalReply.YES, ANN)
        if self._keeps:
            desk_of(self._home).ask(
                ApprovalQuestion(
                    "tool",
                    request.conversation_id,
                    "write",
                    request.digest,
                    conversation_id=request.conversation_id,
                    turn_id=request.turn_id,
                    call_id=request.call_id,
                ),
                expires_s=3600,
            )
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError


def desk_of(home: AgentHome, later_s: float = 0) -> ApprovalStore:
    return ApprovalStore(home.home, lambda: datetime.now(UTC) + timedelta(seconds=later_s))


def die(home: AgentHome, person: Person) -> None:
    """Have a process killed in the middle of a turn of the conversation ``c``."""
    pid = os.fork()
    if pid == 0:
        try:
            with home.runtime(person) as runtime:
                runtime.turn("write it", conversation_id="c")
        finally:
            os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status)


@pytest.fixture
def home(tmp_path: Path) -> AgentHome:
    return AgentHome.make(tmp_path, answers=[calls(WRITE), says("never")])


def go_on(home: AgentHome, person: Person | None = None) -> list[tuple[str, str]]:
    """Say one more thing, and return the whole conversation as roles and texts."""
    home.answer(says("done with it"), says("hello again"))
    with home.runtime(person) as runtime:
        assert runtime.turn("and now?", conversation_id="c").text == "hello again"
        return [(one.role, one.content) for one in history.build_messages(_records(home))]


def _records(home: AgentHome) -> tuple[TurnRecord, ...]:
    with home.runtime() as runtime:
        return runtime.memory.conversation("c")


def approvals(home: AgentHome) -> list[tuple[object, object]]:
    return [(one["status"], one["approval"]) for one in home.records()]


@pytest.mark.parametrize("approved", [True, False])
def test_an_answered_turn_is_finished_before_the_next_message(
    home: AgentHome, approved: bool
) -> None:
    die(home, Dying(home))
    (waiting,) = desk_of(home).list()
    desk_of(home).answer(waiting.id, approved=approved, by=ANN)
    person = Person()
    said = go_on(home, person)
    told = "created note.txt (+1 -0 lines)" if approved else "error: denied by approval.denied"
    assert said[2][1].startswith(told)
    roles = ["user", "assistant", "tool", "assistant", "user", "assistant"]
    assert [role for role, _ in said] == roles
    assert (said[3][1], said[5][1]) == ("done with it", "hello again")
    assert (home.workspace / "note.txt").exists() is approved
    word, status = ("yes", "allowed") if approved else ("no", "denied")
    assert approvals(home) == [(status, f"{ANN} {word} path.workspace.write")]
    assert person.asked == []
    assert desk_of(home).find(waiting.id).state == ("used" if approved else "rejected")


def test_a_turn_whose_approval_is_pending_is_not_overtaken(home: AgentHome) -> None:
    die(home, Dying(home))
    (waiting,) = desk_of(home).list()
    before = _records(home)
    with home.runtime() as runtime, pytest.raises(UsageError) as caught:
        runtime.turn("and now?", conversation_id="c")
    assert caught.value.rule == "approval.open"
    assert waiting.id in (caught.value.hint or "")
    assert _records(home) == before
    home.answer(says("of course"))
    with home.runtime() as runtime:
        assert runtime.turn("elsewhere", conversation_id="d").text == "of course"


def test_an_approval_that_ran_out_is_a_denial(home: AgentHome) -> None:
    die(home, Dying(home))
    later = desk_of(home, 7200)
    assert later.list() == ()
    home.answer(says("done with it"))
    with home.runtime() as runtime:
        runtime.desk = lambda: later  # type: ignore[method-assign]  # two hours later
        outcome = runtime.loop.resume("c")
        assert outcome is not None
        assert (outcome.text, outcome.denials) == ("done with it", 1)
    assert approvals(home) == [("denied", "timeout no path.workspace.write")]
    assert not (home.workspace / "note.txt").exists()


def test_another_policy_asks_anew(home: AgentHome) -> None:
    die(home, Dying(home))
    (waiting,) = desk_of(home).list()
    desk_of(home).answer(waiting.id, approved=True, by=ANN)
    home.configure('[security]\nallowed_domains = ["example.org"]\n')
    person = Person()
    said = go_on(home, person)
    assert len(person.asked) == 1
    assert person.asked[0].digest != waiting.question.digest
    assert "denied by" in said[2][1]
    assert not (home.workspace / "note.txt").exists()
    assert desk_of(home).find(waiting.id).state == "approved", "it was used for nothing"


def test_another_file_at_the_place_asks_anew(home: AgentHome) -> None:
    die(home, Dying(home))
    (waiting,) = desk_of(home).list()
    desk_of(home).answer(waiting.id, approved=True, by=ANN)
    (home.workspace / "note.txt").write_text("mine\n")
    person = Person()
    go_on(home, person)
    assert len(person.asked) == 1
    assert (home.workspace / "note.txt").read_text() == "mine\n"


def test_calls_before_are_not_repeated_and_calls_after_follow(home: AgentHome) -> None:
    def touch(name: str) -> tuple[str, dict[str, object]]:
        return ("file_write", {"path": name, "content": name})

    home.answer(calls(touch("a"), touch("b"), touch("c")))
    die(home, Dying(home, after=1))
    (home.workspace / "a").unlink()
    (waiting,) = desk_of(home).list()
    desk_of(home).answer(waiting.id, approved=True, by=ANN)
    said = go_on(home, Person([ApprovalReply.YES]))
    assert sorted(path.name for path in home.workspace.iterdir()) == ["b", "c"]
    assert [text.split(" (")[0] for role, text in said if role == "tool"] == [
        "created a",
        "created b",
        "created c",
    ]
    assert [status for status, _ in approvals(home)] == ["allowed"] * 3


def test_a_call_that_nobody_kept_is_told_not_to_have_begun(home: AgentHome) -> None:
    die(home, Dying(home, keeps=False))
    home.answer(says("hello again"))
    with home.runtime() as runtime:
        assert runtime.turn("and now?", conversation_id="c").text == "hello again"
    said = history.build_messages(_records(home))
    assert [one.role for one in said] == ["user", "assistant", "tool", "user", "assistant"]
    assert said[2].content == f"error: {NOT_BEGUN}"
    assert approvals(home) == []


def test_an_approval_serves_once(home: AgentHome) -> None:
    die(home, Dying(home))
    (waiting,) = desk_of(home).list()
    desk_of(home).answer(waiting.id, approved=True, by=ANN)
    assert desk_of(home).use(waiting.id, waiting.question.digest)
    home.answer(says("hello again"))
    with home.runtime() as runtime:
        runtime.turn("and now?", conversation_id="c")
    assert history.build_messages(_records(home))[2].content == f"error: {NOT_BEGUN}"
    assert not (home.workspace / "note.txt").exists()


@pytest.mark.parametrize(
    ("dies_in", "told"),
    [("no effect", "had no effect"), ("effect", "had its effect"), ("run", history.LOST)],
)
def test_a_call_that_began_is_told_by_its_evidence(
    home: AgentHome, monkeypatch: pytest.MonkeyPatch, dies_in: str, told: str
) -> None:
    def end(*_: object, **__: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    call = ("shell", {"argv": ["ls"]}) if dies_in == "run" else WRITE
    if dies_in == "no effect":
        (home.workspace / "note.txt").write_text("hello\n")
    home.answer(calls(call))
    home.configure('[security]\nautonomy = "full"\n')
    where = (
        "workspace.process.command.run" if dies_in == "run" else "agent.tools.file_write.success"
    )
    with monkeypatch.context() as patch:
        patch.setattr(f"coilclaw.{where}", end)
        die(home, Person())
    home.answer(says("hello again"))
    with home.runtime() as runtime:
        _ = runtime.guard
        runtime.turn("and now?", conversation_id="c")
    assert told in history.build_messages(_records(home))[2].content


@pytest.mark.parametrize("keeps", [True, False])
def test_a_turn_that_another_process_runs_is_left_alone(
    home: AgentHome, monkeypatch: pytest.MonkeyPatch, keeps: bool
) -> None:
    die(home, Dying(home, keeps=keeps))
    monkeypatch.setattr("coilclaw.agent.loop.is_alive", lambda _: True)
    with home.runtime() as runtime:
        if keeps:
            with pytest.raises(UsageError) as caught:
                runtime.turn("and now?", conversation_id="c")
            assert caught.value.rule == "approval.open"
        else:
            assert runtime.loop.resume("c") is None
    assert len(_records(home)) == 2


def test_a_turn_that_another_program_resumes_is_left_alone(home: AgentHome) -> None:
    die(home, Dying(home))
    (waiting,) = desk_of(home).list()
    desk_of(home).answer(waiting.id, approved=True, by=ANN)
    before = _records(home)
    ready, done = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        # Another gateway has it, and has not come to its end yet.
        assert desk_of(home).take_over(waiting.id)
        os.write(ready[1], b"x")
        os.read(done[0], 1)
        os._exit(0)
    os.read(ready[0], 1)
    assert not is_abandoned(desk_of(home).find(waiting.id))
    with home.runtime() as runtime, pytest.raises(UsageError) as caught:
        runtime.loop.resume("c")
    assert (caught.value.rule, _records(home), home.records()) == ("approval.open", before, [])
    os.write(done[1], b"x")
    os.waitpid(pid, 0)
    # It is gone, so that the turn can be resumed here.
    assert go_on(home)[2][1].startswith("created note.txt")
    assert desk_of(home).find(waiting.id).state == "used"


def test_an_approval_that_a_denied_call_does_not_need_is_withdrawn(home: AgentHome) -> None:
    die(home, Dying(home))
    (waiting,) = desk_of(home).list()
    home.answer(says("done with it"))
    with home.runtime() as runtime:
        runtime.estop.trigger("enough")
        open_turns = replace(runtime.open_turns, waits=True)
        outcome = replace(runtime.loop, open_turns=open_turns).resume("c")
    assert outcome is not None
    assert outcome.denials == 1
    assert desk_of(home).find(waiting.id).state == "withdrawn"
    assert desk_of(home).list() == ()


def test_a_resumed_turn_is_taken_back_as_a_whole(home: AgentHome) -> None:
    first, second = (("file_write", {"path": name, "content": name}) for name in "ab")
    home.answer(calls(first, second))
    die(home, Dying(home, after=1))
    (waiting,) = desk_of(home).list()
    desk_of(home).answer(waiting.id, approved=True, by=ANN)
    home.answer(says("done with it"))
    with home.runtime() as runtime:
        assert runtime.loop.resume("c") is not None
        assert sorted(path.name for path in home.workspace.iterdir()) == ["a", "b"]
        assert sorted(runtime.undo("c").paths) == ["a", "b"]
    assert list(home.workspace.iterdir()) == []
