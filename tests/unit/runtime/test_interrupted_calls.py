"""Real processes killed inside real calls, and what the next start finds out about them."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from coilclaw.agent.open_turns import look_up_call, read_boot_id
from coilclaw.agent.receipts.book import Intent, ReceiptBook, intents_path
from coilclaw.agent.receipts.verification import ReceiptVerification, verify
from coilclaw.kernel.messages import Json, ToolCall
from coilclaw.workspace.process.owner import is_alive
from tests.support.agents import AgentHome
from tests.support.children import PATIENCE_S

EVENTS = frozenset(
    {"open", "os.link", "os.remove", "os.rename", "os.mkdir", "fcntl.flock", "subprocess.Popen"}
)


@pytest.fixture
def home(tmp_path: Path) -> AgentHome:
    return AgentHome.make(tmp_path, '[security]\nautonomy = "full"\n')


def killed(
    work: Callable[[], None], at: int, log: Path | None = None, what: str = "", path: str = ""
) -> bool:
    """Do the work in a process that is killed at an event; say whether it was.

    With a log, events count from the moment when it has grown; with ``what`` and ``path``, only
    those do that are of this kind and about such a path.
    """
    before = size(log)
    pid = os.fork()
    if pid == 0:
        left = [at]

        def count(event: str, about: tuple[object, ...]) -> None:
            if what and not (event == what and str(about[0]).endswith(path)):
                return
            if event in EVENTS and (log is None or size(log) > before):
                left[0] -= 1
                if left[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(count)
        try:
            work()
        finally:
            os._exit(0)
    _, status = os.waitpid(pid, 0)
    return os.WIFSIGNALED(status)


def size(log: Path | None) -> int:
    return log.stat().st_size if log is not None and log.exists() else 0


def call(home: AgentHome, name: str, **arguments: Json) -> Callable[[], None]:
    def work() -> None:
        with home.runtime() as runtime:
            runtime.call(ToolCall("call-1", name, arguments))

    return work


def book_of(home: AgentHome) -> ReceiptBook:
    return ReceiptBook(home.receipts, key_path=home.home / "keys" / "journal.key")


def restart(home: AgentHome) -> ReceiptVerification:
    """Start once more, which settles, and verify."""
    with home.runtime() as runtime:
        assert runtime.guard.book is not None
        return verify(runtime.guard.book, is_alive)


def settlements(home: AgentHome) -> list[tuple[object, object]]:
    return [(one["tool"], one["happened"]) for one in book_of(home).entries() if "settles" in one]


@pytest.mark.parametrize(
    ("what", "path", "happened"), [("", "", "no"), ("os.remove", "/pending", "yes")]
)
def test_a_kill_inside_file_write_is_settled(
    home: AgentHome, what: str, path: str, happened: str
) -> None:
    work = call(home, "file_write", path="f", content="new\n")
    log = intents_path(home.receipts)
    call(home, "time")()
    assert killed(work, 1, log, what, path)
    before = verify(book_of(home), is_alive)
    assert (before.ok, before.unsettled, before.settled) == (True, 1, False)
    found = restart(home)
    assert (found.ok, found.unsettled, found.settled) == (True, 0, True)
    assert settlements(home) == [("file_write", happened)]
    assert (home.workspace / "f").exists() == (happened == "yes")


def test_a_kill_before_a_command_starts_is_settled(home: AgentHome) -> None:
    call(home, "time")()
    log = intents_path(home.receipts)
    assert killed(call(home, "shell", argv=["touch", "f"]), 1, log)
    assert restart(home).settled
    assert settlements(home) == [("shell", "no")]


def test_a_kill_while_a_command_runs_is_left_to_a_person(home: AgentHome) -> None:
    pid = os.fork()
    if pid == 0:
        try:
            call(home, "shell", command="touch f; sleep 600")()
        finally:
            os._exit(0)
    deadline = time.monotonic() + PATIENCE_S
    while not (home.workspace / "f").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert verify(book_of(home), is_alive).unsettled == 0, "it runs"
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    found = restart(home)
    assert (found.ok, found.unsettled, settlements(home)) == (True, 1, [])


@pytest.mark.full
def test_a_kill_anywhere_inside_file_write_is_settled_by_what_became_of_the_file(
    home: AgentHome,
) -> None:
    seen: set[object] = set()
    for at in range(1, 400, 3):
        target = home.workspace / f"f{at}"
        work = call(home, "file_write", path=target.name, content="new\n")
        before = len(settlements(home))
        if not killed(work, at, intents_path(home.receipts)):
            break
        found = restart(home)
        assert (found.problems, found.unsettled, found.settled) == ((), 0, True), at
        made = settlements(home)[before:]
        if made:  # else it had its receipt already
            assert made == [("file_write", "yes" if target.exists() else "no")], at
            seen.add(made[0][1])
    assert seen == {"yes", "no"}
    assert at > 1


@pytest.mark.full
def test_a_kill_anywhere_inside_a_command_is_settled_only_if_it_never_started(
    home: AgentHome,
) -> None:
    seen: set[object] = set()
    for at in range(1, 400, 3):
        target = home.workspace / f"f{at}"
        work = call(home, "shell", argv=["touch", target.name])
        before = len(settlements(home))
        if not killed(work, at, intents_path(home.receipts)):
            break
        found = restart(home)
        made = settlements(home)[before:]
        assert (found.ok, found.problems) == (True, ()), at
        if made:
            assert made == [("shell", "no")]
            assert not target.exists()
        seen.add(made[0][1] if made else found.unsettled > 0)
    assert "no" in seen
    assert True in seen, "a command that had started is left to a person"


def test_a_kill_while_settling_settles_once(home: AgentHome) -> None:
    log = intents_path(home.receipts)
    for at in range(1, 40):
        target = home.workspace / f"f{at}"
        before = len(settlements(home))
        assert killed(call(home, "file_write", path=target.name, content="x"), 3, log)

        def start() -> None:
            with home.runtime() as runtime:
                _ = runtime.guard

        died = killed(start, at * 15)
        found = restart(home)
        assert (found.problems, found.unsettled) == ((), 0), at
        assert len(settlements(home)) == before + 1
        if not died:
            break
    assert at > 1


def intent(lookup: str) -> dict[str, object]:
    made = Intent("intent-1", "t", "c", "shell", "a", "low", "p", "policy x", "1:1", lookup=lookup)
    return made.record()


@pytest.mark.parametrize(
    ("lookup", "happened"),
    [
        ("nothing", "no"),
        ("request", "unknown"),
        (f"start {read_boot_id()}", "no"),
        ("start 00000000-0000-0000-0000-000000000000", None),
        ("start ", None),
        ("change x-1/20260101-000000-abc", "no"),
        ("change ../x/20260101-000000-abc", None),
        ("change x-1/../../x", None),
        ("", None),
        ("later", None),
    ],
)
def test_what_can_be_looked_up(home: AgentHome, lookup: str, happened: str | None) -> None:
    found = look_up_call(intent(lookup), book_of(home), home.home)
    assert (None if found is None else found.happened) == happened


def test_a_command_that_was_about_to_start_is_not_looked_up(home: AgentHome) -> None:
    book = book_of(home)
    book.create()
    book.mark_start("intent-1")
    assert look_up_call(intent(f"start {read_boot_id()}"), book, home.home) is None


def test_calls_leave_no_marks_behind_and_say_where_to_look(home: AgentHome) -> None:
    (home.workspace / "a").write_text("a")
    call(home, "shell", argv=["ls"])()
    call(home, "file_read", path="a")()
    call(home, "file_write", path="b", content="b")()
    lookups = [str(one.get("lookup", "")).split(" ")[0] for one in book_of(home).intents()]
    assert lookups == ["start", "nothing", "change"]
    assert list((home.home / "keys" / "started").iterdir()) == []
