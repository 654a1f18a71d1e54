"""The desk: who may answer what, once, in time, and for exactly what was asked."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from coilclaw.agent.approvals import (
    APPROVAL_HASH_FIELD,
    APPROVALS_FILE,
    MAX_TEXT_CHARS,
    Approval,
    ApprovalQuestion,
    ApprovalStore,
)
from coilclaw.kernel.errors import UsageError
from coilclaw.kernel.journal_verification import verify_journal
from coilclaw.kernel.messages import ApprovalAnswer, ApprovalReply
from coilclaw.workspace.process.cancellation import Cancellation
from coilclaw.workspace.process.owner import this_process
from tests.support.children import PATIENCE_S

SOP = ApprovalQuestion("sop", "sop-1", "a run", "digest-1", detail=("line",))
TOOL = ApprovalQuestion("tool", "conv-1", "a call", "digest-2", tool="shell", arguments="{}")


@dataclass
class Clock:
    moment: datetime = field(default_factory=lambda: datetime(2025, 1, 1, tzinfo=UTC))

    def __call__(self) -> datetime:
        return self.moment

    def later(self, seconds: float) -> None:
        self.moment += timedelta(seconds=seconds)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def desk(tmp_path: Path, clock: Clock) -> ApprovalStore:
    return ApprovalStore(tmp_path / "home", clock)


def in_child(work: Callable[[], object]) -> None:
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def rule(work: Callable[[], object]) -> str:
    with pytest.raises(UsageError) as caught:
        work()
    return caught.value.rule


def test_an_empty_desk_makes_nothing(desk: ApprovalStore, tmp_path: Path) -> None:
    assert desk.list() == ()
    assert rule(lambda: desk.find("approval-00000000")) == "approval.unknown"
    assert not (tmp_path / "home").exists()


def test_what_is_asked_lies_there_as_it_was_asked(desk: ApprovalStore) -> None:
    name = desk.ask(SOP)
    assert desk.list() == (
        Approval(
            name,
            SOP,
            "2025-01-01T00:00:00.000000Z",
            "2025-01-02T00:00:00.000000Z",
            this_process(),
        ),
    )


def test_a_yes_is_taken_once_and_only_for_what_was_asked(desk: ApprovalStore) -> None:
    name = desk.ask(SOP)
    assert not desk.use(name, SOP.digest)
    answered = desk.answer(name, approved=True, by="me")
    assert (answered.state, answered.answered_by) == ("approved", "me")
    assert not desk.use(name, "another digest")
    assert desk.use(name, SOP.digest)
    assert not desk.use(name, SOP.digest)
    assert desk.find(name).state == "used"


def test_a_no_is_no_yes(desk: ApprovalStore) -> None:
    name = desk.ask(SOP)
    assert desk.answer(name, approved=False, by="me").state == "rejected"
    assert not desk.use(name, SOP.digest)


@pytest.mark.parametrize("first", [True, False])
def test_the_first_answer_counts(desk: ApprovalStore, first: bool) -> None:
    name = desk.ask(SOP)
    desk.answer(name, approved=first, by="one")
    assert rule(lambda: desk.answer(name, approved=not first, by="two")) == "approval.closed"
    assert desk.find(name).state == ("approved" if first else "rejected")


def test_of_many_answers_at_once_one_counts_and_the_others_hear_of_it(
    desk: ApprovalStore, tmp_path: Path
) -> None:
    name = desk.ask(SOP)
    start = threading.Barrier(8)
    heard: list[tuple[bool, str]] = []

    def answer(number: int) -> None:
        mine = ApprovalStore(tmp_path / "home", Clock())
        start.wait()
        try:
            heard.append((True, mine.answer(name, approved=number % 2 == 0, by=str(number)).id))
        except UsageError as problem:
            heard.append((False, problem.rule))

    threads = [threading.Thread(target=answer, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(heard) == [(False, "approval.closed")] * 7 + [(True, name)]


def test_of_many_who_take_an_approval_over_the_first_has_it(
    desk: ApprovalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = desk.ask(SOP)
    assert desk.take_over(name), "it is ours already"
    asked = desk.find(name).process
    monkeypatch.setattr("coilclaw.agent.approvals.this_process", lambda: "2:1")
    assert not desk.take_over(name), "whoever waits for it is alive"
    monkeypatch.setattr("coilclaw.agent.approvals.is_alive", lambda one: one != asked)
    assert desk.take_over(name)
    # Another had looked before that was written.
    desk._append(name, "taken_over", by="3:1", instead_of=asked)
    assert desk.find(name).process == "2:1"


def test_of_many_users_at_once_one_has_it(desk: ApprovalStore, tmp_path: Path) -> None:
    name = desk.ask(SOP)
    desk.answer(name, approved=True, by="me")
    start = threading.Barrier(8)
    used: list[bool] = []

    def use() -> None:
        mine = ApprovalStore(tmp_path / "home", Clock())
        start.wait()
        used.append(mine.use(name, SOP.digest))

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(used) == [False] * 7 + [True]


def test_after_its_time_it_is_neither_answered_nor_used(desk: ApprovalStore, clock: Clock) -> None:
    pending, approved, used = desk.ask(SOP), desk.ask(SOP), desk.ask(SOP)
    for name in (approved, used):
        desk.answer(name, approved=True, by="me")
    assert desk.use(used, SOP.digest)
    clock.later(24 * 3600 + 1)
    assert rule(lambda: desk.answer(pending, approved=True, by="me")) == "approval.closed"
    assert not desk.use(approved, SOP.digest)
    assert [one.state for one in desk.list(pending_only=False)] == ["expired", "expired", "used"]
    assert desk.list() == ()


def test_just_in_time_is_in_time(desk: ApprovalStore, clock: Clock) -> None:
    name = desk.ask(SOP, expires_s=10)
    clock.later(10)
    assert desk.answer(name, approved=True, by="me").state == "approved"


def test_what_is_withdrawn_is_not_answered(desk: ApprovalStore) -> None:
    name = desk.ask(SOP)
    desk.withdraw(name)
    assert rule(lambda: desk.answer(name, approved=True, by="me")) == "approval.closed"
    answered = desk.ask(SOP)
    desk.answer(answered, approved=True, by="me")
    desk.withdraw(answered)
    assert desk.find(answered).state == "approved"


def test_a_call_waits_as_long_as_its_process_and_a_run_waits_longer(desk: ApprovalStore) -> None:
    in_child(lambda: (desk.ask(TOOL), desk.ask(SOP)))
    assert [one.question.kind for one in desk.list()] == ["sop"]
    call, run = desk.list(pending_only=False)
    assert rule(lambda: desk.answer(call.id, approved=True, by="me")) == "approval.closed"
    assert desk.answer(run.id, approved=True, by="me").state == "approved"
    mine = desk.ask(TOOL)
    assert desk.answer(mine, approved=True, by="me").state == "approved"


def test_it_is_named_by_enough_of_its_id_and_by_nothing_else(desk: ApprovalStore) -> None:
    name = desk.ask(SOP)
    digits = name.removeprefix("approval-")
    for text in (name, name[:-3], digits, digits[:4]):
        assert desk.find(text).id == name
    for text in ("", "a", "approval-", digits[:3], f"approval-{digits[:3]}", name + "0"):
        assert rule(lambda text=text: desk.find(text)) == "approval.unknown"  # type: ignore[misc]


def test_waiting_hears_a_yes_from_elsewhere(desk: ApprovalStore, tmp_path: Path) -> None:
    name = desk.ask(TOOL)
    other = ApprovalStore(tmp_path / "home", Clock())
    timer = threading.Timer(0.05, lambda: other.answer(name, approved=True, by="me"))
    timer.start()
    assert desk.wait(name, TOOL.digest, cancel=Cancellation(), timeout_s=PATIENCE_S)
    assert desk.find(name).state == "used"


@pytest.mark.parametrize(
    ("happens", "state"),
    [("rejected", "rejected"), ("cancelled", "withdrawn"), ("late", "withdrawn")],
)
def test_waiting_for_anything_else_is_a_no(desk: ApprovalStore, happens: str, state: str) -> None:
    name = desk.ask(TOOL)
    cancel = Cancellation()
    if happens == "rejected":
        desk.answer(name, approved=False, by="me")
    elif happens == "cancelled":
        cancel.cancel("test")
    timeout_s = 0.05 if happens == "late" else PATIENCE_S
    assert not desk.wait(name, TOOL.digest, cancel=cancel, timeout_s=timeout_s)
    assert desk.find(name).state == state


def test_waiting_ends_when_the_time_of_the_question_is_over(
    desk: ApprovalStore, clock: Clock
) -> None:
    name = desk.ask(TOOL, expires_s=10)
    timer = threading.Timer(0.05, lambda: clock.later(11))
    timer.start()
    assert not desk.wait(name, TOOL.digest, cancel=Cancellation(), timeout_s=PATIENCE_S)
    assert desk.find(name).state == "expired"


@pytest.mark.parametrize(
    ("happens", "by", "reason"),
    [
        ("yes", "person ann", ""),
        ("no", "client ci", ""),
        ("late", "timeout", "no answer within 86400 s"),
        ("patience", "timeout", "no answer within 0 s"),
        ("estop", "estop", "the emergency stop is set"),
        ("halt", "shutdown", "the gateway is being stopped"),
        ("gone", "nobody", "no answer: the client went away"),
        ("other", "nobody", "no answer: the approval is not for this call"),
    ],
)
def test_an_answer_names_who_or_what_gave_it(
    desk: ApprovalStore, clock: Clock, happens: str, by: str, reason: str
) -> None:
    name, cancel = desk.ask(SOP), Cancellation()
    match happens:
        case "yes" | "other":
            desk.answer(name, approved=True, by="person ann")
        case "no":
            desk.answer(name, approved=False, by="client ci")
        case "late":
            clock.later(2 * 86400)
        case "estop":
            cancel.cancel("the emergency stop is set")
        case "halt":
            cancel.cancel("the client does not want the call any more")
        case "gone":
            cancel.cancel("the client went away")
    answer = desk.wait_for_answer(
        name,
        SOP.digest if happens != "other" else "another",
        cancel=cancel,
        timeout_s=0 if happens == "patience" else None,
        stopping=lambda: "the gateway is being stopped" if happens in {"halt", "estop"} else None,
    )
    reply = ApprovalReply.YES if happens == "yes" else ApprovalReply.NO
    assert answer == ApprovalAnswer(reply, by, reason)


def test_waiting_for_another_thing_than_was_asked_is_a_no(desk: ApprovalStore) -> None:
    name = desk.ask(TOOL)
    desk.answer(name, approved=True, by="me")
    assert not desk.wait(name, "another", cancel=Cancellation(), timeout_s=PATIENCE_S)


def test_what_no_journal_holds_is_made_to_fit(desk: ApprovalStore) -> None:
    odd = replace(
        TOOL,
        title="name \udcff",
        arguments="x" * (MAX_TEXT_CHARS + 5),
        detail=("\ud800", "y" * MAX_TEXT_CHARS),
    )
    kept = desk.find(desk.ask(odd)).question
    assert kept.title == "name \\udcff"
    assert kept.arguments.endswith("x… 5 more characters")
    assert kept.detail[0] == "\\ud800"
    assert kept.detail[-1].endswith("… 7 more characters")
    assert kept.digest == odd.digest


def test_a_question_takes_words_and_nothing_else_does(desk: ApprovalStore) -> None:
    asked = desk.ask(ApprovalQuestion("question", "conv-1", "which one?", "d"))
    with pytest.raises(UsageError) as caught:
        desk.answer(asked, approved=True, by="me")
    assert (caught.value.rule, "--text" in str(caught.value.hint)) == ("approval.words", True)
    answered = desk.answer(asked, approved=True, by="me", words="the red one")
    assert (answered.state, answered.text) == ("approved", "the red one")
    other = desk.ask(SOP)
    words = rule(lambda: desk.answer(other, approved=True, by="me", words="yes"))
    assert words == "approval.words"


def test_the_journal_is_whole_and_holds_it_all(desk: ApprovalStore, tmp_path: Path) -> None:
    name = desk.ask(SOP)
    desk.answer(name, approved=True, by="me")
    desk.use(name, SOP.digest)
    home = tmp_path / "home"
    report = verify_journal(
        home / APPROVALS_FILE,
        hash_field=APPROVAL_HASH_FIELD,
        key_path=home / "keys" / "journal.key",
    )
    assert report.ok
    assert len((home / APPROVALS_FILE).read_text().splitlines()) == 3
    assert home.stat().st_mode & 0o077 == 0
