"""Sessions: built once, tested often, ended in every way there is, and nothing left of them."""

from __future__ import annotations

import os
import random
import signal
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from coilclaw.kernel.errors import CoilClawError, EnvironmentFault, Stopped, UsageError
from coilclaw.traces.environments import catalogue
from coilclaw.traces.environments.archives import UploadBounds
from coilclaw.traces.environments.session_process import ServerPlace, hold
from coilclaw.traces.environments.sessions import SessionLimits, SessionOpening, Sessions
from coilclaw.workspace.process.owner import Owner
from coilclaw.workspace.process.sandbox import probe_sandboxes
from tests.support.children import PATIENCE_S, running
from tests.support.envclient import workers
from tests.support.environments import submit, write_environment
from tests.support.scale import scaled

COUNTING = """
import os, time
from pathlib import Path
from coilclaw.environments.authoring import (
    Documents, case, case_path, check, fail, run, session_path, setup, suite, teardown, test,
)

count = 0
told = Path({told!r})

@setup(timeout_s=1)
def build(documents: Documents, greeting: str = "hello", hang: bool = False) -> None:
    "Make what the tests look at."
    if hang:
        time.sleep(600)
    if (documents.dir / "broken").exists():
        fail("it does not build: line 3")
    (documents.dir / "built").write_text(greeting)

@teardown(timeout_s=1)
def end(leave: str = "down") -> None:
    with told.open("a") as file:
        file.write(f"{{leave}} {{count}} {{(session_path() / 'built').exists()}}\\n")
    if leave == "fail":
        fail("it stays up")
    if leave == "hang":
        time.sleep(600)

@test
def counts() -> None:
    global count
    count += 1
    print(f"number {{count}}")

@test
def greets(wanted: str = "hello", greeting: str = "hello") -> None:
    check((session_path() / "built").read_text() == wanted, "another greeting")

@test
def dies() -> None:
    os._exit(7)

@test(timeout_s=600)
def sleeps(marker: str) -> None:
    run(["sleep", marker], timeout_s=600)

@test(timeout_s=600)
def dozes(seconds: float = 600.0) -> None:
    time.sleep(seconds)

@suite("line").test("n_{{n}}", n=range(6), timeout_s=600)
def line(n: int) -> None:
    with told.open("a") as file:
        file.write("begun\\n")
    run(["sleep", "600"], timeout_s=600)

@suite("many").test("n_{{n}}", n=(1, 2, 3))
def many(n: int) -> None:
    (case_path() / "x").write_text("x")
    check(n != 2, "two")
"""


def eventually(holds: Callable[[], bool]) -> bool:
    until = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


class World:
    """Sessions of the counting environment in a directory of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.told = folder / "told"
        write_environment(folder / "counting", COUNTING.format(told=str(self.told)))
        self.home = folder / "home"

    def sessions(self, **limits: object) -> Sessions:
        return Sessions(
            catalogue.find_environment(str(self.folder / "counting")),
            support=probe_sandboxes(),
            home=self.home,
            environ=os.environ,
            jobs=2,
            limits=SessionLimits(**limits),  # type: ignore[arg-type]  # as each test names them
        )

    def left(self) -> list[str]:
        """What lies in the home, which others may be removing things from."""
        return [
            os.path.join(top, name)
            for top, folders, files in os.walk(self.home)
            for name in (*folders, *files)
        ]

    def said(self) -> list[str]:
        return self.told.read_text().splitlines() if self.told.exists() else []


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    assert eventually(lambda: workers(made.home) == [])


def upload(opening: SessionOpening, **files: str) -> SessionOpening:
    """Put files into an upload."""
    source = opening.directory.parent / f"source-{opening.directory.name}"
    source.mkdir()
    for name, text in files.items():
        (source / name).write_text(text)
    with tarfile.open(opening.upload, "w:gz") as archive:
        archive.add(source, ".")
    for path in source.iterdir():
        path.unlink()
    source.rmdir()
    return opening


def test_a_session_is_built_once_and_keeps_what_its_process_knows(world: World) -> None:
    with world.sessions() as sessions:
        made = upload(sessions.begin(), a="x").open({}, 60)
        first = sessions.test(made, "counts", {})
        second = sessions.test(made, "counts", {})
        assert [case.log for case in (*first.cases, *second.cases)] == ["number 1\n", "number 2\n"]
        other = sessions.begin().open({}, 60)
        assert sessions.test(other, "counts", {}).cases[0].log == "number 1\n"
        assert sessions.count() == 2
        assert sessions.close(made) is None
        assert world.said() == ["down 2 True"]
    assert world.said() == ["down 2 True", "down 1 True"]
    assert world.left() == []


def test_every_path_answers_in_one_shape(world: World) -> None:
    with world.sessions() as sessions:
        made = sessions.begin().open({}, 60)
        result = sessions.test(made, "many", {})
        assert (result.passed, result.failed, result.total) == (2, 1, 3)
        assert [case.id for case in result.cases] == ["many/n_1", "many/n_2", "many/n_3"]
        assert sessions.test(made, "many/n_{n}", {}).statuses() == result.statuses()
        assert sessions.test(made, "many/n_2", {}).cases[0].log == "two"
        with pytest.raises(UsageError) as caught:
            sessions.test(made, "many/n_4", {})
        assert caught.value.rule == "environment.path"
        assert sessions.test(made, "many/n_1", {}).solved, "a wrong path ends nothing"


def test_parameters_of_the_session_hold_for_its_tests_and_a_call_may_give_its_own(
    world: World,
) -> None:
    with world.sessions() as sessions:
        made = sessions.begin().open({"greeting": "hi", "wanted": "hi"}, 60)
        assert sessions.test(made, "greets", {}).solved
        assert not sessions.test(made, "greets", {"wanted": "hello"}).solved
        assert sessions.test(made, "greets", {}).solved
        for params, rule in (
            ({"stray": 1}, "environment.parameter.unknown"),
            ({"hang": True}, "environment.parameter.unknown"),
            ({"wanted": 1}, "environment.parameter.type"),
        ):
            with pytest.raises(UsageError) as caught:
                sessions.test(made, "greets", params)
            assert caught.value.rule == rule
        with pytest.raises(UsageError) as caught:
            sessions.test(made, "sleeps", {})
        assert caught.value.rule == "environment.parameter.missing"


def test_what_the_server_sets_nobody_else_may_give(world: World) -> None:
    sessions = Sessions(
        catalogue.find_environment(str(world.folder / "counting")),
        support=probe_sandboxes(),
        home=world.home,
        environ=os.environ,
        fixed={"greeting": "set", "wanted": "set"},
    )
    with sessions:
        for params in ({"greeting": "hi"}, {"wanted": "set"}):
            with pytest.raises(UsageError) as caught:
                sessions.begin().open(params, 60)
            assert caught.value.rule == "session.parameter"
        made = sessions.begin().open({"leave": "own"}, 60)
        assert sessions.test(made, "greets", {}).solved
        with pytest.raises(UsageError) as caught:
            sessions.test(made, "greets", {"wanted": "hello"})
        assert caught.value.rule == "session.parameter"
        assert sessions.count() == 1


@pytest.mark.parametrize(
    ("params", "rule"),
    [
        ({"stray": 1}, "environment.parameter.unknown"),
        ({"greeting": 1}, "environment.parameter.type"),
    ],
)
def test_what_cannot_be_set_up_leaves_nothing(
    world: World, params: dict[str, int], rule: str
) -> None:
    with world.sessions() as sessions:
        with pytest.raises(CoilClawError) as caught:
            sessions.begin().open(params, 60)
        assert caught.value.rule == rule
        assert sessions.count() == 0
        assert len(world.left()) == 1, "the directory of the server"
        assert workers(world.home) == []
    assert world.said() == []


def test_a_build_that_fails_says_why(world: World) -> None:
    with world.sessions() as sessions, pytest.raises(EnvironmentFault) as caught:
        upload(sessions.begin(), broken="").open({}, 60)
    assert caught.value.message == "the setup failed: it does not build: line 3"
    assert caught.value.rule == "session.setup"


def test_an_upload_that_is_refused_leaves_nothing(world: World) -> None:
    with world.sessions(bounds=UploadBounds(unpacked_bytes=10)) as sessions:
        with pytest.raises(UsageError) as caught:
            upload(sessions.begin(), a="x" * 11).open({}, 60)
        assert caught.value.rule == "upload.large"
        assert len(world.left()) == 1
        upload(sessions.begin(), a="x" * 10).open({}, 60)


def test_there_are_no_more_sessions_than_allowed(world: World) -> None:
    with world.sessions(sessions=2) as sessions:
        first = sessions.begin()
        sessions.begin().open({}, 60)
        with pytest.raises(UsageError) as caught:
            sessions.begin()
        assert caught.value.rule == "session.many"
        first.discard()
        first.discard()
        made = sessions.begin().open({}, 60)
        with pytest.raises(UsageError):
            sessions.begin()
        sessions.close(made)
        sessions.begin().discard()


def test_a_session_that_nobody_uses_expires_and_one_in_use_does_not(world: World) -> None:
    with world.sessions() as sessions:
        idle = sessions.begin().open({"leave": "idle"}, 1)
        busy = sessions.begin().open({"leave": "busy"}, 1)
        assert sessions.test(busy, "dozes", {"seconds": 1.6}).solved
        assert world.said() == ["idle 0 True"]
        with pytest.raises(UsageError) as caught:
            sessions.test(idle, "counts", {})
        assert caught.value.rule == "session.unknown"
        assert sessions.test(busy, "counts", {}).solved, "the call itself was a use"
        assert eventually(lambda: sessions.count() == 0 and len(world.said()) == 2)
        assert eventually(lambda: len(world.left()) == 1)


def test_a_process_that_dies_is_told_once_and_then_there_is_no_session(world: World) -> None:
    with world.sessions() as sessions:
        for kill in (True, False):
            made = sessions.begin().open({}, 60)
            if kill:
                (pid,) = workers(world.home)
                os.kill(pid, signal.SIGKILL)
            with pytest.raises(EnvironmentFault) as caught:
                sessions.test(made, "dies", {})
            assert caught.value.rule == "session.lost"
            assert ("signal 9" if kill else "exit code 7") in caught.value.message
            with pytest.raises(UsageError):
                sessions.test(made, "counts", {})
        assert len(world.left()) == 1


def test_a_call_that_takes_too_long_ends_the_session(world: World) -> None:
    with world.sessions(call_s=1.0) as sessions:
        made = sessions.begin().open({}, 60)
        with pytest.raises(EnvironmentFault) as caught:
            sessions.test(made, "dozes", {})
        assert caught.value.rule == "session.timeout"
        assert sessions.count() == 0
        assert len(world.left()) == 1


def test_closing_stops_what_runs_and_tears_down(world: World) -> None:
    marker = f"5{random.randint(10**6, 10**7)}"
    with world.sessions() as sessions, ThreadPoolExecutor() as pool:
        made = sessions.begin().open({}, 60)
        call = pool.submit(sessions.test, made, "sleeps", {"marker": marker})
        waiting = pool.submit(sessions.test, made, "counts", {})
        assert eventually(lambda: bool(running(marker)))
        began = time.monotonic()
        assert sessions.close(made) is None
        assert time.monotonic() - began < PATIENCE_S
        for one in (call, waiting):
            with pytest.raises(Stopped) as caught:
                one.result()
            assert caught.value.rule == "session.closed"
        assert running(marker) == []
        assert world.said() == ["down 0 True"]
        with pytest.raises(UsageError):
            sessions.close(made)


def test_once_it_is_closed_no_other_case_begins(world: World) -> None:
    with world.sessions() as sessions, ThreadPoolExecutor() as pool:
        made = sessions.begin().open({}, 60)
        call = pool.submit(sessions.test, made, "line", {})
        assert eventually(lambda: len(world.said()) == 2)
        assert sessions.close(made) is None
        with pytest.raises(Stopped):
            call.result()
    assert world.said() == ["begun", "begun", "down 0 True"]


def test_closing_does_not_wait_for_a_test_that_notices_nothing(world: World) -> None:
    with world.sessions() as sessions, ThreadPoolExecutor() as pool:
        made = sessions.begin().open({}, 60)
        call = pool.submit(sessions.test, made, "dozes", {})
        time.sleep(0.5)
        began = time.monotonic()
        assert sessions.close(made) is None
        assert time.monotonic() - began < PATIENCE_S
        with pytest.raises(Stopped):
            call.result()
        assert world.said() == ["down 0 True"]


def test_a_teardown_that_fails_is_told_and_the_session_is_gone(world: World) -> None:
    with world.sessions() as sessions:
        made = sessions.begin().open({"leave": "fail"}, 60)
        assert sessions.close(made) == "it stays up"
        assert len(world.left()) == 1
        assert workers(world.home) == []


def test_a_setup_and_a_teardown_that_hang_are_told_and_the_sessions_are_gone(world: World) -> None:
    with world.sessions() as sessions, ThreadPoolExecutor() as pool:
        made = sessions.begin().open({"leave": "hang"}, 60)
        slow = pool.submit(sessions.begin().open, {"hang": True}, 60)
        assert sessions.close(made) == "it took more than 1 seconds"
        with pytest.raises(EnvironmentFault) as caught:
            slow.result()
        assert caught.value.message == "the setup failed: it took more than 1 seconds"
        assert sessions.count() == 0
        assert len(world.left()) == 1
        assert workers(world.home) == []


def test_calls_of_one_session_come_one_after_the_other(world: World) -> None:
    with world.sessions(waiting=4) as sessions, ThreadPoolExecutor() as pool:
        made = sessions.begin().open({}, 60)
        calls = [pool.submit(sessions.test, made, "counts", {}) for _ in range(4)]
        logs = sorted(str(call.result().cases[0].log) for call in calls)
        assert logs == [f"number {n}\n" for n in range(1, 5)]
        calls = [pool.submit(sessions.test, made, "dozes", {"seconds": 1.0}) for _ in range(4)]
        assert eventually(lambda: all(call.running() for call in calls))
        time.sleep(0.2)
        with pytest.raises(UsageError) as caught:
            sessions.test(made, "counts", {})
        assert caught.value.rule == "session.waiting"
        sessions.close(made)


def test_sessions_side_by_side_do_not_meet(tmp_path: Path) -> None:
    submit(tmp_path / "work")
    number = scaled(full=8, default=3)
    with Sessions(
        catalogue.find_environment("kv_store"),
        support=probe_sandboxes(),
        home=tmp_path / "home",
        environ=os.environ,
        jobs=1,
    ) as sessions:

        def whole(_: int) -> tuple[int, int]:
            opening = sessions.begin()
            with tarfile.open(opening.upload, "w:gz") as archive:
                archive.add(tmp_path / "work", ".")
            made = opening.open({}, 60)
            result = sessions.test(made, "protocol", {})
            sessions.close(made)
            return result.passed, result.failed

        with ThreadPoolExecutor(number) as pool:
            found = set(pool.map(whole, range(number)))
    assert len(found) == 1
    assert next(iter(found))[1] == 0
    assert list((tmp_path / "home").iterdir()) == []


def test_tests_without_a_session_leave_none(world: World) -> None:
    with world.sessions() as sessions:
        result, trouble = upload(sessions.begin(), a="").once("counts", {"leave": "fail"})
        assert (result.solved, trouble) == (True, "it stays up")
        with pytest.raises(UsageError):
            sessions.begin().once("nothing", {})
        with pytest.raises(EnvironmentFault):
            sessions.begin().once("dies", {})
        assert sessions.count() == 0
        assert len(world.left()) == 1


def test_the_end_of_the_server_tears_down_and_stops_what_is_being_set_up(world: World) -> None:
    sessions = world.sessions()
    outcome: list[CoilClawError] = []

    def open_slowly() -> None:
        try:
            sessions.begin().open({"hang": True}, 60)
        except CoilClawError as problem:
            outcome.append(problem)

    with sessions:
        for _ in range(3):
            sessions.begin().open({}, 60)
        slow = threading.Thread(target=open_slowly)
        slow.start()
        assert eventually(lambda: len(workers(world.home)) == 4)
        began = time.monotonic()
    assert time.monotonic() - began < PATIENCE_S
    slow.join()
    assert [problem.rule for problem in outcome] == ["gateway.stopping"]
    assert world.said() == ["down 0 True"] * 3
    assert world.left() == []
    with pytest.raises(Stopped):
        sessions.begin()


def _server(world: World, opened: Path) -> int:
    """Hold sessions in a process of their own until it is killed."""
    pid = os.fork()
    if pid == 0:
        try:
            with world.sessions() as sessions:
                for _ in range(2):
                    sessions.begin().open({}, 60)
                made = sessions.begin().open({}, 60)
                opened.write_text("yes\n")
                sessions.test(made, "dozes", {})
        finally:
            os._exit(0)
    return pid


def test_after_the_server_was_killed_everything_ends_and_the_next_one_tidies_up(
    world: World, tmp_path: Path
) -> None:
    for number in range(scaled(full=5, default=1)):
        opened = tmp_path / f"opened-{number}"
        pid = _server(world, opened)
        assert eventually(opened.exists)
        assert len(workers(world.home)) == 3
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        assert eventually(lambda: workers(world.home) == [])
    assert world.left()
    # Their process knew that nobody listens, and tidied up what it had set up.
    assert set(world.said()) == {"down 0 True"}
    with world.sessions() as sessions:
        assert len(world.left()) == 1
        sessions.begin().open({}, 60)
    assert world.left() == []


def test_what_belongs_to_a_server_that_runs_is_left_alone(world: World) -> None:
    with world.sessions() as first:
        made = first.begin().open({}, 60)
        with world.sessions() as second:
            other = second.begin().open({}, 60)
            assert second.test(other, "counts", {}).solved
        assert first.test(made, "counts", {}).solved


FRAGILE = """
from pathlib import Path
from coilclaw.environments.authoring import case, run, suite, test

@suite("made").cases
def made(where: str = "/"):
    Path(where).stat()
    yield case("one", one)

def one() -> None:
    pass

@test
def shows(line: str = "true") -> None:
    print(run(line).stdout)
"""


def fragile(folder: Path, home: Path, **more: object) -> Sessions:
    write_environment(folder / "fragile", FRAGILE)
    place = catalogue.find_environment(str(folder / "fragile"))
    return Sessions(place, support=probe_sandboxes(), home=home, environ=os.environ, **more)  # type: ignore[arg-type]  # as named


def test_parameters_that_grow_on_their_way_are_refused_and_hang_nothing(world: World) -> None:
    long = {"wanted": "\x7f" * 200_000}
    with world.sessions(call_s=5.0) as sessions:
        with pytest.raises(UsageError) as caught:
            sessions.begin().open(long, 60)
        assert caught.value.rule == "session.parameter"
        made = sessions.begin().open({}, 60)
        with pytest.raises(UsageError) as caught:
            sessions.test(made, "greets", long)
        assert caught.value.rule == "session.parameter"
        assert not sessions.test(made, "greets", {"wanted": "\x7f" * 100_000}).solved
        assert sessions.test(made, "greets", {}).solved


def test_an_environment_that_fails_at_a_call_fails_at_that_one_only(tmp_path: Path) -> None:
    with fragile(tmp_path, tmp_path / "home") as sessions:
        made = sessions.begin().open({}, 60)
        for wrong in ("/nothing", "a\0b"):
            for act in (
                lambda params: sessions.begin().open(params, 60),
                lambda params: sessions.test(made, "made", params),
            ):
                with pytest.raises(EnvironmentFault) as caught:
                    act({"where": wrong})
                assert caught.value.rule == "session.environment"
                assert "Traceback" not in caught.value.message
        assert sessions.test(made, "made", {}).solved
        assert sessions.count() == 1


def test_programs_read_nothing_of_other_sessions_wherever_those_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A tool on the PATH can be read with all that is around it, as /opt and /etc can.
    tool = tmp_path / "tool"
    (tool / "bin").mkdir(parents=True)
    (tool / "token").write_text("the token")
    (tool / "manual").write_text("the manual")
    monkeypatch.setenv("PATH", f"{tool / 'bin'}:{os.environ['PATH']}")
    with fragile(tmp_path, tool / "home", hidden=(tool / "token",)) as sessions:
        upload(sessions.begin(), theirs="the work of others").open({}, 60)
        made = upload(sessions.begin(), ours="own work").open({}, 60)
        line = f"cat {tool}/manual {tool}/token {tool}/home/*/*/tree/*; ls -R {tool}"
        (case,) = sessions.test(made, "shows", {"line": line}).cases
        assert case.log is not None
        assert case.log.startswith("the manualown work"), "its neighbours can be read"
        assert "the work of others" not in case.log
        assert "the token" not in case.log
        assert "theirs" not in case.log


def test_a_process_that_dies_unasked_takes_no_place_and_is_told_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coilclaw.traces.environments.sessions._LOOK_S", 0.1)
    with world.sessions(sessions=2) as sessions:
        asked, closed = (sessions.begin().open({}, 60) for _ in range(2))
        for pid in workers(world.home):
            os.kill(pid, signal.SIGKILL)
        assert eventually(lambda: sessions.count() == 0 and len(world.left()) == 1)
        alive = sessions.begin().open({}, 60)
        with pytest.raises(EnvironmentFault) as caught:
            sessions.test(asked, "counts", {})
        assert caught.value.rule == "session.lost"
        assert "signal 9" in str(sessions.close(closed))
        for gone in (asked, closed):
            with pytest.raises(UsageError):
                sessions.test(gone, "counts", {})
        time.sleep(0.3)
        assert sessions.test(alive, "counts", {}).solved


def test_no_session_lives_longer_than_a_day_and_then_it_is_torn_down(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coilclaw.traces.environments.sessions.MAX_IDLE_S", 1)
    with world.sessions() as sessions:
        sessions.begin().open({}, 60)
        assert eventually(lambda: sessions.count() == 0 and world.said() == ["down 0 True"])


def test_a_call_that_comes_as_its_session_closes_is_not_lost(world: World) -> None:
    with world.sessions() as sessions, ThreadPoolExecutor() as pool:
        made = sessions.begin().open({}, 60)
        process = sessions._sessions[made].process
        within, closing = process._limit_time, list[Future[str | None]]()

        def close_first(seconds: float) -> AbstractContextManager[None]:
            if not closing:
                closing.append(pool.submit(sessions.close, made))
                assert eventually(lambda: process._closing)
                time.sleep(0.1)
            return within(seconds)

        process._limit_time = close_first  # type: ignore[method-assign,assignment]  # to come just then
        with pytest.raises(Stopped) as caught:
            sessions.test(made, "counts", {})
        assert caught.value.rule == "session.closed"
        assert closing[0].result() is None
        assert world.said() == ["down 0 True"]


def test_what_a_process_still_holds_is_not_swept(tmp_path: Path) -> None:
    boot = Owner.here().boot[:8]
    server = tmp_path / f"{os.getpid()}-1-{boot}"  # of a process that had our number
    elsewhere = tmp_path / f"{os.getpid()}-2-{boot}"
    for session in (server / "s1", server / "s2", elsewhere / "s1"):
        (session / "work").mkdir(parents=True)
    tearing_down, in_a_container = hold(server / "s1" / "work"), hold(elsewhere)
    assert tearing_down is not None
    assert in_a_container is not None
    place = ServerPlace(tmp_path)
    place.make()
    assert os.listdir(server) == ["s1"]
    assert (elsewhere / "s1").exists()
    os.close(tearing_down)
    os.close(in_a_container)
    place.sweep()
    place.remove()
    assert os.listdir(tmp_path) == []


def test_what_cannot_be_swept_hinders_nobody(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def resist(_: Path) -> None:
        raise EnvironmentFault("cannot remove it", rule="worktree.remove")

    monkeypatch.setattr("coilclaw.traces.environments.session_process.sweep_remainders", resist)
    monkeypatch.setattr("coilclaw.traces.environments.sessions._SWEEP_S", 0.05)
    with world.sessions() as sessions:
        time.sleep(0.2)
        sessions.begin().open({}, 1)
        assert eventually(lambda: sessions.count() == 0), "somebody still looks at the time"
