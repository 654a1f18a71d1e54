"""A path has one holder, whatever becomes of it."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from coilclaw.kernel.errors import EnvironmentFault, PathRefused, UsageError
from coilclaw.runs.engine.locks import Conflict, Held, Lock, Locks, PathIndex, Taken
from coilclaw.workspace.process.owner import Owner
from tests.support.scale import scaled

GONE = Owner(pid=2**22 - 1, started=1, boot=Owner.here().boot)


def no_run(run_id: str) -> bool:
    return False


def opened(
    directory: Path, *, alive: Callable[[str], bool] = no_run, owner: Owner | None = None
) -> Locks:
    return Locks(directory / "locks", alive=alive, owner=owner, clock=lambda: 0.0)


def held(locks: Locks, run_id: str, task_id: str, *paths: str) -> Held:
    result = locks.acquire(run_id, task_id, paths)
    assert isinstance(result, Held)
    return result


def taken(locks: Locks, run_id: str, task_id: str, *paths: str) -> Taken:
    before = locks.list_locks()
    result = locks.acquire(run_id, task_id, paths)
    assert isinstance(result, Taken)
    assert locks.list_locks() == before, "all or nothing"
    return result


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("src", "src"),
        ("src", "src/a"),
        ("src/a/b", "src"),
        ("src/", "src/a.py"),
        ("SRC", "src/a"),
        ("src/Straße", "src/STRASSE/x"),
        ("a/./b", "a/b/c"),
        (".", "anything/at/all"),
    ],
)
def test_paths_that_overlap_conflict(tmp_path: Path, first: str, second: str) -> None:
    locks = opened(tmp_path)
    assert PathIndex([first]).find(second) == first
    assert PathIndex([second]).find(first) == second
    held(locks, "run-1", "task-1", first)
    for run_id in ("run-1", "run-2"):
        conflict = taken(locks, run_id, "task-2", "docs", second)
        assert [(item.lock.run_id, item.lock.task_id) for item in conflict.conflicts] == [
            ("run-1", "task-1")
        ]


@pytest.mark.parametrize(
    ("first", "second"), [("src", "srcs"), ("src/a", "src/b"), ("src/a", "src/a.py"), ("a", "b/a")]
)
def test_neighbours_do_not_conflict(tmp_path: Path, first: str, second: str) -> None:
    locks = opened(tmp_path)
    assert PathIndex([first]).find(second) is None
    held(locks, "run-1", "task-1", first)
    held(locks, "run-1", "task-2", second)


@pytest.mark.parametrize("path", ["", "/etc", "../x", "a/../b", "a\\b", "a\nb", ".git/hooks", "~"])
def test_what_is_no_path_of_the_tree_is_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(PathRefused):
        opened(tmp_path).acquire("run-1", "task-1", ["ok", path])
    assert opened(tmp_path).list_locks() == ()


def test_nothing_and_too_much_is_refused(tmp_path: Path) -> None:
    for paths in ([], ["x"] * 10_001):
        with pytest.raises(UsageError) as caught:
            opened(tmp_path).acquire("run-1", "task-1", paths)
        assert caught.value.rule == "lock.paths"


def test_a_conflict_names_the_holder(tmp_path: Path) -> None:
    locks = opened(tmp_path)
    mine = held(locks, "run-1", "task-1", "src/a", "docs")
    result = taken(locks, "run-2", "task-2", "tests", "src")
    lock = Lock("src/a", "run-1", "task-1", Owner.here(), "1970-01-01T00:00:00Z", mine.token)
    assert result == Taken((Conflict("src", lock),))


def test_one_file_for_each_path_says_who_holds_it(tmp_path: Path) -> None:
    locks = opened(tmp_path)
    mine = held(locks, "run-1", "task-1", "src/a/", "docs", "./docs")
    assert mine == Held("run-1", "task-1", ("src/a", "docs"), mine.token)
    files = {path.name: path for path in (tmp_path / "locks").glob("*.lock")}
    assert set(files) == {hashlib.sha256(p.encode()).hexdigest() + ".lock" for p in mine.paths}
    document = json.loads(files[hashlib.sha256(b"docs").hexdigest() + ".lock"].read_bytes())
    assert document == {
        "form": 1,
        "run_id": "run-1",
        "task_id": "task-1",
        "path": "docs",
        **Owner.here().json(),
        "ts": "1970-01-01T00:00:00Z",
        "token": mine.token,
    }


def test_only_the_holder_releases(tmp_path: Path) -> None:
    locks = opened(tmp_path)
    mine = held(locks, "run-1", "task-1", "src", "docs")
    assert locks.release(Held("run-1", "task-1", ("src", "docs"), "0" * 32)) == ()
    assert len(locks.list_locks("run-1")) == 2
    assert locks.release(mine) == ("docs", "src")
    assert locks.release(mine) == ()
    other = held(locks, "run-2", "task-9", "src/deep")
    assert locks.release(mine) == (), "what another one holds by now is not touched"
    assert [lock.token for lock in locks.list_locks()] == [other.token]
    assert locks.list_locks("run-1") == ()


def test_the_lock_of_a_process_that_is_gone_is_reclaimed_and_reported(tmp_path: Path) -> None:
    old = held(opened(tmp_path, owner=GONE), "run-1", "task-1", "src", "docs")
    locks = opened(tmp_path)
    (lock,) = (lock for lock in locks.list_locks() if lock.path == "src")
    mine = held(locks, "run-2", "task-2", "src/a")
    assert mine.reclaimed == (lock,)
    assert lock.token == old.token
    assert [(lock.run_id, lock.path) for lock in locks.list_locks()] == [
        ("run-1", "docs"),
        ("run-2", "src/a"),
    ]


@pytest.mark.parametrize(
    "owner",
    [
        Owner(os.getpid(), Owner.here().started - 1, Owner.here().boot),
        Owner(os.getpid(), Owner.here().started, "another boot"),
    ],
)
def test_a_process_with_the_same_id_is_not_the_holder(tmp_path: Path, owner: Owner) -> None:
    held(opened(tmp_path, owner=owner), "run-1", "task-1", "src")
    assert len(held(opened(tmp_path), "run-2", "task-2", "src").reclaimed) == 1


def test_age_alone_frees_nothing(tmp_path: Path) -> None:
    held(opened(tmp_path), "run-1", "task-1", "src")
    for path in (tmp_path / "locks").iterdir():
        os.utime(path, (1, 1))
    taken(opened(tmp_path), "run-2", "task-2", "src")


def test_a_paused_run_keeps_its_locks_and_takes_them_over_when_it_goes_on(tmp_path: Path) -> None:
    held(opened(tmp_path, owner=GONE), "paused", "task-1", "src")
    locks = opened(tmp_path, alive=lambda run_id: run_id == "paused")
    result = taken(locks, "run-2", "task-2", "src/a")
    assert [item.lock.run_id for item in result.conflicts] == ["paused"]
    resumed = held(locks, "paused", "task-1", "src")
    assert [lock.task_id for lock in resumed.reclaimed] == ["task-1"]
    assert [lock.owner for lock in locks.list_locks()] == [Owner.here()]
    # It runs now, and has one holder again.
    taken(locks, "paused", "task-2", "src")


def test_a_run_s_locks_are_reclaimed_when_it_is_over_unless_it_runs(tmp_path: Path) -> None:
    held(opened(tmp_path, owner=GONE), "run-1", "task-1", "src")
    locks = opened(tmp_path, alive=lambda _: True)
    mine = held(locks, "run-1", "task-2", "docs")
    other = held(locks, "run-2", "task-2", "other")
    assert [lock.path for lock in locks.reclaim("run-1")] == ["src"]
    assert locks.reclaim("run-1") == ()
    assert {lock.token for lock in locks.list_locks()} == {mine.token, other.token}
    # Whoever owns the run gets them all, and nothing of another run.
    assert [lock.path for lock in locks.reclaim("run-1", owned=True)] == ["docs"]
    assert {lock.token for lock in locks.list_locks()} == {other.token}


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"\xff", b'{"form": 2}'])
def test_a_lock_that_cannot_be_read_stops_everybody(tmp_path: Path, data: bytes) -> None:
    locks = opened(tmp_path)
    held(locks, "run-1", "task-1", "src")
    (place,) = (tmp_path / "locks").glob("*.lock")
    place.write_bytes(data)
    with pytest.raises(EnvironmentFault) as caught:
        locks.acquire("run-2", "task-2", ["docs"])
    assert caught.value.rule == "lock.damaged"
    assert str(place) in caught.value.message


def test_reading_makes_nothing(tmp_path: Path) -> None:
    assert opened(tmp_path).list_locks() == ()
    assert list(tmp_path.iterdir()) == []


def test_of_many_threads_one_holds(tmp_path: Path) -> None:
    inside = threading.Lock()
    wins: list[int] = []

    def one(number: int) -> None:
        locks = opened(tmp_path)
        for _ in range(10):
            result = locks.acquire("run", f"task-{number}", [f"x{number}", "src"])
            if isinstance(result, Held):
                assert inside.acquire(blocking=False), "two at once"
                wins.append(number)
                inside.release()
                assert set(locks.release(result)) == {f"x{number}", "src"}

    threads = [threading.Thread(target=one, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wins
    assert opened(tmp_path).list_locks() == ()


def _hold(tmp_path: Path, number: int) -> None:
    """Lock, work and release over and over; two at work at once end with code 99."""
    locks = opened(tmp_path)
    shared = f"src/{'A' if number % 2 else 'a'}"
    with open(tmp_path / "work", "ab") as work:
        while True:
            result = locks.acquire(f"run-{number}", "task", [f"own/{number}", shared, "docs"])
            if isinstance(result, Held):
                try:
                    fcntl.flock(work, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    os._exit(99)
                # Before the release: the next one may be at work at once after it.
                fcntl.flock(work, fcntl.LOCK_UN)
                if set(locks.release(result)) != set(result.paths):
                    os._exit(98)


def test_killed_holders_never_block_for_ever_and_never_are_two(tmp_path: Path) -> None:
    chance = random.Random(11)
    opened(tmp_path).list_locks()
    for _ in range(scaled(full=100, default=20)):
        children = []
        for number in range(3):
            pid = os.fork()
            if pid == 0:
                try:
                    _hold(tmp_path, number)
                finally:
                    os._exit(97)
            children.append(pid)
        for pid in children:
            time.sleep(chance.uniform(0.0, 0.03))
            os.kill(pid, signal.SIGKILL)
        ends = [os.waitpid(pid, 0)[1] for pid in children]
        assert [os.WTERMSIG(end) for end in ends] == [signal.SIGKILL] * 3
        locks = opened(tmp_path)
        mine = held(locks, "next", "task", "src", "docs", "own")
        assert {lock.token for lock in locks.list_locks()} == {mine.token}
        locks.release(mine)
    assert [path.name for path in (tmp_path / "locks").iterdir()] == ["table"]
