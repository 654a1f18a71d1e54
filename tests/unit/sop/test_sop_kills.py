"""Runs that are killed: what was finished is never done again, and what is unknown is said."""

from __future__ import annotations

import logging
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from coilclaw.domain.messages import ToolCall
from coilclaw.domain.turns import TurnRecord
from coilclaw.sop import evidence
from coilclaw.sop.runfile import Run
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
        home.resume(home.last().id)


def check(home: SopHome, kills: int) -> Run:
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
            assert outcome.rule == evidence.UNKNOWN_RULE
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
        unknown += sum(one.rule == evidence.UNKNOWN_RULE for one in run.outcomes.values())
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


def interrupted(home: SopHome, event: str) -> Run:
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


@pytest.mark.parametrize(
    ("policy", "status"), [("abort", "failed"), ("continue", "done"), ("retry(3)", "failed")]
)
def test_a_call_of_unknown_effect_is_not_repeated(tmp_path: Path, policy: str, status: str) -> None:
    home = SopHome.make(tmp_path, UNCONFINED)
    home.write(
        "probe",
        '[[steps]]\nid = "w"\nkind = "tool"\ntool = "shell"\n'
        'args = { argv = ["sh", "-c", "echo x >> log; kill -9 $PPID"] }\n'
        f'on_failure = "{policy}"\n',
    )
    killed = forked(lambda: home.run("probe"))
    if not killed:
        pytest.skip("the command runs below another parent here")
    # Were it repeated, it would kill this one as well.
    assert not forked(lambda: home.resume(home.last().id))
    run = home.last()
    assert (run.status, run.outcomes["w"].error, run.outcomes["w"].attempt) == (
        status,
        evidence.UNKNOWN,
        1,
    )
    assert (home.workspace / "log").read_text() == "x\n"


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
    ("called", "expected"),
    [
        (("file_write", {"path": "a.txt", "content": "x"}), ("failed", evidence.UNKNOWN)),
        (("file_list", {"path": "."}), ("done", "")),
    ],
)
def test_an_agent_that_may_have_changed_something_is_not_asked_again(
    tmp_path: Path, called: tuple[str, dict[str, object]], expected: tuple[str, str]
) -> None:
    home = SopHome.make(tmp_path, answers=(calls(called), says("done")))
    home.write("probe", '[[steps]]\nid = "say"\nkind = "agent"\nprompt = "Speak."\n')
    run = interrupted(home, "receipt_written")
    run = home.resume(run.id)
    assert (run.outcomes["say"].status, run.outcomes["say"].error) == expected


def test_a_turn_that_was_stopped_at_its_bound_is_no_answer() -> None:
    said = TurnRecord("c", "t", "", "assistant", "I stopped (limits.max_tool_rounds). Go on?")
    assert evidence.final_text((said,)) is None
    calling = TurnRecord("c", "t", "", "assistant", "", (ToolCall("1", "time", {}),))
    assert evidence.final_text((calling,)) is None
    assert evidence.final_text(()) is None
    assert evidence.final_text((TurnRecord("c", "t", "", "assistant", "yes"),)) == "yes"


def test_an_approval_that_was_used_by_a_run_that_died_still_counts(tmp_path: Path) -> None:
    home = SopHome.make(tmp_path)
    home.write("probe", '[[steps]]\nid = "ask"\nkind = "approval"\nprompt = "?"\n' + ONE)
    run = home.run("probe")
    home.desk.answer(run.approval, approved=True, by="me")
    (asked,) = home.desk.list(pending_only=False)
    assert home.desk.use(asked.id, asked.question.digest)
    assert home.resume(run.id).status == "done"
