"""File locks: who is kept out, for how long, and what a fork inherits."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from coilclaw.kernel import file_lock as storage_lock
from coilclaw.kernel.errors import EnvironmentFault, LockTimeout
from coilclaw.kernel.file_lock import FileLock, this_process
from tests.support.children import PATIENCE_S
from tests.unit.storage.worlds import fork, reap


def _refused(path: Path, *, shared: bool = False) -> bool:
    """Whether another thread is kept from the lock."""
    try:
        with FileLock(path, shared=shared, timeout_s=0.02):
            return False
    except LockTimeout:
        return True


def test_another_process_is_kept_out_and_told_who_holds_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    holder = os.getpid()

    def work() -> None:
        with pytest.raises(LockTimeout) as caught, FileLock(path, timeout_s=0.05):
            pass
        assert caught.value.message == (
            f"{path} was not free within 0.05 s: it is held by process {holder}"
        )

    with FileLock(path):
        assert reap(fork(work)) == 0
    assert not _refused(path)


def test_another_thread_is_kept_out_by_the_same_object(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "lock", timeout_s=0.05)
    failures: list[BaseException] = []

    def work() -> None:
        try:
            lock.acquire()
        except LockTimeout as problem:
            failures.append(problem)

    with lock:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert lock.held
    assert (len(failures), lock.held) == (1, False)


@pytest.mark.parametrize(
    ("first", "second", "refused"),
    [(True, True, False), (True, False, True), (False, True, True), (False, False, True)],
)
def test_sharing_needs_both(tmp_path: Path, first: bool, second: bool, refused: bool) -> None:
    with FileLock(tmp_path / "lock", shared=first):
        assert _refused(tmp_path / "lock", shared=second) is refused


def test_taking_a_held_lock_again_is_refused_at_once(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "lock")
    with lock, pytest.raises(EnvironmentFault, match=r"holds .* already") as caught:
        lock.acquire()
    assert caught.value.rule == "lock.nested"


def test_a_lock_in_a_missing_directory_says_where(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match=f"{tmp_path}/no/lock: No such file"):
        FileLock(tmp_path / "no" / "lock").acquire()


def test_a_lock_file_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to("elsewhere")
    with pytest.raises(EnvironmentFault, match="cannot open the lock file"):
        FileLock(tmp_path / "lock").acquire()


def test_the_file_stays_and_is_private(tmp_path: Path) -> None:
    with FileLock(tmp_path / "lock"):
        pass
    assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o600


def test_a_file_that_its_holder_deleted_is_not_what_a_waiter_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Opened before it was deleted, locked afterwards: whoever comes next finds another file.
    path = tmp_path / "lock"
    lock_file = storage_lock.lock_file
    deleted: list[Path] = []

    def delete_first(*arguments: Any, **more: Any) -> None:
        if not deleted:
            deleted.append(path)
            path.unlink()
        lock_file(*arguments, **more)

    monkeypatch.setattr(storage_lock, "lock_file", delete_first)
    with FileLock(path):
        assert deleted == [path]
        assert _refused(path)


def test_whether_a_lock_is_free_can_be_asked_without_making_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    for shared in (False, True):
        asked = FileLock(path, shared=shared, timeout_s=0)
        assert asked.is_free()
        assert not path.exists()
        with FileLock(path):
            assert not asked.is_free()
        assert asked.is_free()
        assert not _refused(path), "whoever asks holds nothing"
        path.unlink()
    with FileLock(path, shared=True):
        assert FileLock(path, shared=True, timeout_s=0).is_free()


def test_releasing_what_is_not_held_changes_nothing(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "lock")
    lock.release()
    with lock:
        assert _refused(tmp_path / "lock")


def test_a_waiter_gets_the_lock_as_soon_as_it_is_free(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    ready, tell = os.pipe()

    def work() -> None:
        with FileLock(path):
            os.write(tell, b".")
            time.sleep(0.1)
            (tmp_path / "leaving").touch()

    child = fork(work)
    os.read(ready, 1)
    began = time.monotonic()
    with FileLock(path, timeout_s=10 * PATIENCE_S):
        assert (tmp_path / "leaving").exists()
        assert time.monotonic() - began < PATIENCE_S
    assert reap(child) == 0


def test_the_working_directory_may_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lock = FileLock(Path("lock"))
    monkeypatch.chdir("/")
    with lock:
        assert _refused(tmp_path / "lock")


def test_a_forked_child_does_not_hold_what_its_parent_holds(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "lock", timeout_s=0.05)

    def work() -> None:
        assert not lock.held
        with pytest.raises(LockTimeout):
            lock.acquire()
        lock.release()  # as leaving the parent's with-block would do

    with lock:
        assert reap(fork(work)) == 0
        assert lock.held
        assert _refused(lock.path)


def test_a_child_does_not_keep_the_lock_of_a_killed_parent(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "lock")
    ready, tell = os.pipe()
    end, keep = os.pipe()

    def parent() -> None:
        def survivor() -> None:
            os.close(keep)
            os.write(tell, b".")
            os.read(end, 1)

        with lock:
            fork(survivor)
            signal.pause()

    child = fork(parent)
    os.read(ready, 1)
    os.kill(child, signal.SIGKILL)
    assert reap(child) == -signal.SIGKILL
    assert not _refused(lock.path)  # while the survivor still lives
    os.close(keep)


def test_a_process_is_never_taken_for_another(tmp_path: Path) -> None:
    before = this_process()

    def work() -> None:
        assert this_process() is not before
        assert this_process() is this_process()

    assert reap(fork(work)) == 0
    assert this_process() is before


def test_threads_and_processes_take_turns(tmp_path: Path) -> None:
    path, counter = tmp_path / "lock", tmp_path / "counter"
    counter.write_text("0")
    lock = FileLock(path)

    def turns() -> None:
        for _ in range(25):
            with lock:
                counter.write_text(str(int(counter.read_text()) + 1))

    def work() -> None:
        threads = [threading.Thread(target=turns) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert [reap(child) for child in [fork(work) for _ in range(4)]] == [0] * 4
    assert counter.read_text() == str(4 * 3 * 25)
