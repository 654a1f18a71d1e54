"""Runs that are killed: what was finished is never done again, and what is unknown is said."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from coilclaw.agent.sop import stage_attempt
from coilclaw.agent.sop.run_journal import HASH_FIELD, Decision, RunFile, SopRun
from coilclaw.kernel.errors import DeniedError, UsageError
from coilclaw.kernel.journal_verification import verify_journal
from coilclaw.kernel.messages import ToolCall, TurnRecord
from coilclaw.workspace.tree.writer import Writer
from tests.support.agents import calls, says
from tests.support.scale import scaled
from tests.support.sops import SopHome, statuses

STAGES = 4
UNCONFINED = '[security]\nautonomy = "full"\nsandbox = "none"\n'


class Killer(logging.Handler):
    """Kills this process when so many events were logged."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.left = after

    def emit(self, record: logging.LogRecord) -> None:  # noqa: ARG002 - its shape
        if not self.left:
            os.kill(os.getpid(), signal.SIGKILL)
        self.left -= 1


def forked(work: Callable[[], object], *, events: int | None = None, after_s: float = -1) -> bool:
    """Do some work in a child; say whether it was killed before it was done."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if events is not None:
                logger = logging.getLogger("coilclaw")
                logger.setLevel(logging.INFO)
                logger.addHandler(Killer(events))
            work()
            code = 0
        finally:
            os._exit(code)
    if after_s >= 0:
        time.sleep(after_s)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    killed = os.WIFSIGNALED(status)
    assert killed or os.WEXITSTATUS(status) == 0
    return killed


def appending(home: SopHome) -> None:
    """A SOP whose stages each leave one line."""
    lines = ['on_failure = "continue"']
    for number in range(STAGES):
        script = f"printf '{number}\\\\n' >> log"
        lines += [
            f'[[steps]]\nid = "s{number}"\nkind = "tool"\ntool = "shell"',
            f'args = {{ argv = ["sh", "-c", "{script}"] }}',
            f'[[steps]]\nid = "r{number}"\nkind = "tool"\ntool = "file_list"',
            'args = { path = "." }',
        ]
    home.write("probe", "\n".join(lines) + "\n")


def go_on(home: SopHome) -> None:
    """Begin the run, or resume the one that there is; a run that ended stays as it is."""
    folder = home.agent.home / "sops" / "runs"
    if not folder.exists() or not any(path.stat().st_size for path in folder.glob("*.jsonl")):
        home.run("probe")
    elif home.last().ending is None:
        with contextlib.suppress(DeniedError):
            home.resume(home.last().id)
        if home.last().ending is None:
            home.resume(home.last().id, how="skip")


def check(home: SopHome, kills: int) -> SopRun:
    """Everything that was finished happened once; what is unknown happened at most once."""
    run = home.last()
    log = home.workspace / "log"
    lines = log.read_text().splitlines() if log.exists() else []
    unknown = []
    for number in range(STAGES):
        outcome = run.outcomes[f"s{number}"]
        happened = lines.count(str(number))
        if outcome.status == "done":
            assert happened == 1, (run, lines)
        else:
            assert (outcome.status, run.settlements[-1].how) == ("skipped", "skip")
            assert happened <= 1, (run, lines)
            unknown.append(number)
        assert run.outcomes[f"r{number}"].status == "done"
    assert lines == sorted(lines)
    assert len(unknown) <= kills
    assert run.status == "done"
    return run


def events_of_a_run(folder: Path) -> int:
    """How many events a run logs that nobody kills."""
    folder.mkdir()
    home = SopHome.make(folder, UNCONFINED)
    appending(home)
    counter = Killer(10**6)
    logger = logging.getLogger("coilclaw")
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(counter)
    try:
        go_on(home)
    finally:
        logger.removeHandler(counter)
        logger.setLevel(level)
    check(home, 0)
    return 10**6 - counter.left


def test_killed_at_every_boundary_it_resumes_without_repeating(tmp_path: Path) -> None:
    total = events_of_a_run(tmp_path / "count")
    instants = list(range(total))
    if len(instants) > (most := scaled(full=total, default=16)):
        instants = sorted(random.sample(instants, most))
    unknown = 0
    for instant in instants:
        folder = tmp_path / str(instant)
        folder.mkdir()
        home = SopHome.make(folder, UNCONFINED)
        appending(home)
        assert forked(lambda home=home: go_on(home), events=instant)  # type: ignore[misc]
        go_on(home)
        run = check(home, 1)
        unknown += len(run.settlements)
    # Only what was under way at that instant can be unknown.
    assert unknown < len(instants)


def test_killed_at_random_again_and_again_it_comes_to_its_end(tmp_path: Path) -> None:
    chance = random.Random(5)
    kills = 0
    runs = 0
    while kills < scaled(full=60, default=15):
        runs += 1
        folder = tmp_path / str(runs)
        folder.mkdir()
        home = SopHome.make(folder, UNCONFINED)
        appending(home)
        here = 0
        while forked(lambda home=home: go_on(home), after_s=chance.uniform(0, 0.25)):  # type: ignore[misc]
            here += 1
        check(home, here)
        kills += here
        assert runs < 500, "it is never killed in time"


def interrupted(home: SopHome, event: str) -> SopRun:
    """Run a SOP and be killed at the first event of that name."""

    class AtEvent(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if getattr(record, "event", "") == event:
                os.kill(os.getpid(), signal.SIGKILL)

    def work() -> None:
        logging.getLogger("coilclaw").setLevel(logging.INFO)
        logging.getLogger("coilclaw").addHandler(AtEvent())
        home.run("probe")

    assert forked(work)
    run = home.last()
    assert run.status == "interrupted"
    return run


ONE = (
    '[[steps]]\nid = "w"\nkind = "tool"\ntool = "file_write"\n'
    'args = { path = "a.txt", content = "x" }\n'
)


def test_a_call_with_a_receipt_is_not_made_again(tmp_path: Path) -> None:
    home = SopHome.make(tmp_path)
    home.write(
        "probe",
        ONE + '[[steps]]\nid = "next"\nkind = "tool"\ntool = "file_write"\n'
        'args = { path = "b.txt", content_from = "w" }\n',
    )
    run = interrupted(home, "receipt_written")
    (home.workspace / "a.txt").write_text("changed since")
    run = home.resume(run.id)
    done = run.outcomes["w"]
    assert (done.status, done.output_known, done.receipt) == (
        "done",
        False,
        home.agent.records()[0]["id"],
    )
    assert (home.workspace / "a.txt").read_text() == "changed since"
    # Its output is gone, and nothing else is taken for it.
    assert (run.status, run.outcomes["next"].rule) == ("failed", "sop.output_lost")
    assert not (home.workspace / "b.txt").exists()


def test_a_call_that_had_not_begun_is_made(tmp_path: Path) -> None:
    home = SopHome.make(tmp_path)
    home.write("probe", ONE)
    run = interrupted(home, "tool_requested")
    run = home.resume(run.id)
    assert (run.status, run.outcomes["w"].attempt) == ("done", 1)
    assert (home.workspace / "a.txt").read_text() == "x"


def killed_in_its_stage(folder: Path) -> SopHome:
    """A run whose process was killed by the command of its stage, which has had its effect."""
    home = SopHome.make(folder, UNCONFINED)
    home.write(
        "probe",
        '[[steps]]\nid = "w"\nkind = "tool"\ntool = "shell"\n'
        'args = { argv = ["sh", "-c", "echo x >> log; test -e again || kill -9 $PPID"] }\n'
        'retry = 3\non_failure = "continue"\n' + NEXT,
    )
    if not forked(lambda: home.run("probe")):
        pytest.skip("the command runs below another parent here")
    (home.workspace / "again").touch()
    assert home.last().status == "interrupted"
    return home


NEXT = (
    '[[steps]]\nid = "next"\nkind = "tool"\ntool = "file_write"\n'
    'args = { path = "next.txt", content = "x" }\nwhen = "w.success"\n'
)


def test_a_stage_of_unknown_effect_waits_for_a_decision(tmp_path: Path) -> None:
    home = killed_in_its_stage(tmp_path)
    name = home.last().id
    with pytest.raises(DeniedError) as caught:
        home.resume(name)
    assert caught.value.rule == stage_attempt.UNKNOWN_RULE
    assert "'w' (attempt 1)" in caught.value.message
    assert all(f"--{how}" in (caught.value.hint or "") for how in ("redo", "accept", "skip"))
    # Nothing was repeated, and nothing is lost.
    assert (home.last().status, home.last().ending) == ("interrupted", None)
    assert (home.workspace / "log").read_text() == "x\n"


@pytest.mark.parametrize(
    ("how", "stages", "log", "attempt"),
    [
        ("redo", {"w": "done", "next": "done"}, "x\nx\n", 2),
        ("accept", {"w": "done", "next": "done"}, "x\n", 1),
        ("skip", {"w": "skipped", "next": "skipped"}, "x\n", 1),
    ],
)
def test_an_interrupted_stage_is_redone_accepted_or_skipped(
    tmp_path: Path, how: Decision, stages: dict[str, str], log: str, attempt: int
) -> None:
    home = killed_in_its_stage(tmp_path)
    run = home.resume(home.last().id, how=how)
    assert (run.status, statuses(run)) == ("done", stages)
    assert (home.workspace / "log").read_text() == log
    assert run.outcomes["w"].attempt == attempt
    assert run.outcomes["w"].output_known == (how != "accept")
    (said,) = run.settlements
    assert (said.stage, said.attempt, said.how, said.by, said.note) == (
        "w",
        1,
        how,
        "person me",
        "I looked",
    )
    journal = home.agent.home / "sops" / "runs" / f"{run.id}.jsonl"
    key = home.agent.home / "keys" / "journal.key"
    assert verify_journal(journal, hash_field=HASH_FIELD, key_path=key).ok


@pytest.mark.parametrize(("how", "status"), [("accept", "done"), ("skip", "skipped")])
def test_what_a_person_decided_counts_though_the_process_was_killed_right_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: Decision, status: str
) -> None:
    home = killed_in_its_stage(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(
            RunFile, "record_outcome", lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
        )
        assert forked(lambda: home.resume(home.last().id, how=how))
    run = home.resume(home.last().id)
    assert (run.status, run.outcomes["w"].status) == ("done", status)
    assert (home.workspace / "log").read_text() == "x\n"


def test_what_was_not_interrupted_cannot_be_decided_about(tmp_path: Path) -> None:
    home = SopHome.make(tmp_path)
    home.write("probe", '[[steps]]\nid = "ask"\nkind = "approval"\nprompt = "?"\n' + ONE)
    run = home.run("probe")
    decisions: tuple[Decision, ...] = ("redo", "accept", "skip")
    for how in decisions:
        # An approval is answered, and nothing else takes the place of the answer.
        with pytest.raises(UsageError) as caught:
            home.resume(run.id, how=how)
        assert caught.value.rule == "sop.not_interrupted"
    assert home.last().settlements == ()
    home.desk.answer(run.approval, approved=True, by="me")
    assert home.resume(run.id).status == "done"


@pytest.mark.parametrize("written", [True, False])
def test_a_file_that_was_being_written_is_looked_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: bool
) -> None:
    home = SopHome.make(tmp_path)
    home.write("probe", ONE)
    killed = (Writer.apply, lambda: os.kill(os.getpid(), signal.SIGKILL))

    def apply(*args: object, **more: object) -> object:
        if written:
            killed[0](*args, **more)  # type: ignore[arg-type]  # passed on as they came
        killed[1]()
        raise AssertionError

    def work() -> None:
        monkeypatch.setattr(Writer, "apply", apply)
        home.run("probe")

    assert forked(work)
    assert (home.workspace / "a.txt").exists() == written
    run = home.resume(home.last().id)
    assert (run.status, run.outcomes["w"].attempt) == ("done", 1 if written else 2)
    assert (home.workspace / "a.txt").read_text() == "x"
    assert run.settlements == ()


def test_a_call_that_only_looks_is_made_again_for_its_output(tmp_path: Path) -> None:
    home = SopHome.make(tmp_path)
    (home.workspace / "a.txt").write_text("hello")
    home.write(
        "probe",
        '[[steps]]\nid = "w"\nkind = "tool"\ntool = "file_read"\nargs = { path = "a.txt" }\n',
    )
    run = interrupted(home, "receipt_written")
    run = home.resume(run.id)
    assert (statuses(run), run.outcomes["w"].attempt) == ({"w": "done"}, 2)
    assert "hello" in run.outcomes["w"].output


def test_an_agent_that_had_answered_is_not_asked_again(tmp_path: Path) -> None:
    home = SopHome.make(tmp_path, answers=(says("first"), says("second")))
    home.write("probe", '[[steps]]\nid = "say"\nkind = "agent"\nprompt = "Speak."\n')

    class AtSecond(logging.Handler):
        seen = 0

        def emit(self, record: logging.LogRecord) -> None:
            self.seen += getattr(record, "event", "") == "memory_persisted"
            if self.seen == 2:
                os.kill(os.getpid(), signal.SIGKILL)

    def work() -> None:
        logging.getLogger("coilclaw").setLevel(logging.INFO)
        logging.getLogger("coilclaw").addHandler(AtSecond())
        home.run("probe")

    assert forked(work)
    run = home.resume(home.last().id)
    assert (run.outcomes["say"].output, run.outcomes["say"].attempt) == ("first", 1)


@pytest.mark.parametrize(
    ("called", "asks"),
    [
        (("file_write", {"path": "a.txt", "content": "x"}), True),
        (("file_list", {"path": "."}), False),
    ],
)
def test_an_agent_that_may_have_changed_something_is_not_asked_again(
    tmp_path: Path, called: tuple[str, dict[str, object]], asks: bool
) -> None:
    home = SopHome.make(tmp_path, answers=(calls(called), says("done")))
    home.write("probe", '[[steps]]\nid = "say"\nkind = "agent"\nprompt = "Speak."\n')
    run = interrupted(home, "receipt_written")
    if asks:
        with pytest.raises(DeniedError) as caught:
            home.resume(run.id)
        assert caught.value.rule == stage_attempt.UNKNOWN_RULE
        assert home.resume(run.id, how="accept").status == "done"
    else:
        assert home.resume(run.id).status == "done"


def test_a_turn_that_was_stopped_at_its_bound_is_no_answer() -> None:
    said = TurnRecord("c", "t", "", "assistant", "I stopped (limits.max_tool_rounds). Go on?")
    assert stage_attempt.final_text((said,)) is None
    calling = TurnRecord("c", "t", "", "assistant", "", (ToolCall("1", "time", {}),))
    assert stage_attempt.final_text((calling,)) is None
    assert stage_attempt.final_text(()) is None
    assert stage_attempt.final_text((TurnRecord("c", "t", "", "assistant", "yes"),)) == "yes"


def test_an_approval_that_was_used_by_a_run_that_died_still_counts(tmp_path: Path) -> None:
    home = SopHome.make(tmp_path)
    home.write("probe", '[[steps]]\nid = "ask"\nkind = "approval"\nprompt = "?"\n' + ONE)
    run = home.run("probe")
    home.desk.answer(run.approval, approved=True, by="me")
    (asked,) = home.desk.list(pending_only=False)
    assert home.desk.use(asked.id, asked.question.digest)
    assert home.resume(run.id).status == "done"
