"""A run is stopped from another thread, at once."""

from __future__ import annotations

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from coilclaw.kernel.errors import Stopped
from coilclaw.workspace.process import command
from coilclaw.workspace.process.cancellation import Cancellation, Waker
from coilclaw.workspace.process.launch import ProcessResult
from tests.support.children import PATIENCE_S, marker, open_fds, running, wait_for, zombies

# The time limits of what is cancelled here are far above our patience: whoever waits for one of
# them does not keep to it.


def test_input_is_waited_for_until_the_cancellation() -> None:
    cancel = Cancellation()
    read_end, write_end = os.pipe()
    try:
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(cancel.wait_for_input, read_end)
            os.write(write_end, b"x")
            assert waiting.result(PATIENCE_S) is True
            os.read(read_end, 1)
            waiting = pool.submit(cancel.wait_for_input, read_end)
            cancel.cancel("enough")
            assert waiting.result(PATIENCE_S) is False
    finally:
        os.close(read_end)
        os.close(write_end)


def test_the_first_reason_stands() -> None:
    cancel = Cancellation()
    assert (cancel.cancelled, cancel.reason) == (False, None)
    cancel.cancel("first")
    cancel.cancel("second")
    assert (cancel.cancelled, cancel.reason) == (True, "first")


def test_a_waiting_run_is_woken_at_once(tmp_path: Path) -> None:
    cancel, mark, before = Cancellation(), marker(), open_fds()

    def run() -> ProcessResult:
        text = f"setsid sleep {mark} & echo $$ > up; sleep {mark}"
        return command.run(["sh", "-c", text], cwd=tmp_path, timeout_s=600, cancel=cancel)

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(run)
        wait_for(tmp_path / "up")
        began = time.monotonic()
        cancel.cancel("enough")
        result = future.result(PATIENCE_S)
        assert time.monotonic() - began < PATIENCE_S
    assert (result.outcome, result.exit_code, result.signal) == ("cancelled", None, 15)
    assert not result.ok
    assert (running(mark), zombies(), open_fds()) == ([], [], before)


def test_one_cancellation_stops_every_run_that_waits_with_it(tmp_path: Path) -> None:
    cancel = Cancellation()

    def run(number: int) -> str:
        text = f"echo $$ > up{number}; exec sleep 1000"
        argv = ["sh", "-c", text]
        return command.run(argv, cwd=tmp_path, timeout_s=600, cancel=cancel).outcome

    with ThreadPoolExecutor(8) as pool:
        futures = [pool.submit(run, number) for number in range(8)]
        for number in range(8):
            wait_for(tmp_path / f"up{number}")
        cancel.cancel("enough")
        assert [future.result(PATIENCE_S) for future in futures] == ["cancelled"] * 8


def test_a_run_cancelled_before_it_starts_does_not_start(tmp_path: Path) -> None:
    cancel = Cancellation()
    cancel.cancel("too late")
    result = command.run(["touch", "started"], cwd=tmp_path, timeout_s=PATIENCE_S, cancel=cancel)
    assert (result.outcome, result.exit_code, result.signal) == ("cancelled", None, None)
    with pytest.raises(Stopped) as caught:
        command.open(["touch", "started"], cwd=tmp_path, timeout_s=PATIENCE_S, cancel=cancel)
    assert caught.value.rule == "process.cancelled"
    assert not (tmp_path / "started").exists()


def test_a_run_that_is_not_cancelled_ends_as_it_does(tmp_path: Path) -> None:
    cancel = Cancellation()
    assert command.run(["true"], cwd=tmp_path, timeout_s=PATIENCE_S, cancel=cancel).ok
    cancel.cancel("nobody waits")
    assert not command.run(["true"], cwd=tmp_path, timeout_s=PATIENCE_S, cancel=cancel).ok


def test_a_signal_handler_may_cancel(tmp_path: Path) -> None:
    if threading.current_thread() is not threading.main_thread():
        pytest.skip("signal handlers run in the main thread, and this is another one")
    cancel = Cancellation()
    old = signal.signal(signal.SIGALRM, lambda _number, _frame: cancel.cancel("alarm"))
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        began = time.monotonic()
        result = command.run(["sleep", "1000"], cwd=tmp_path, timeout_s=600, cancel=cancel)
        assert time.monotonic() - began < PATIENCE_S
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    assert (result.outcome, cancel.reason) == ("cancelled", "alarm")


def test_cancelling_while_runs_come_and_go_breaks_nothing(tmp_path: Path) -> None:
    before = open_fds()
    for _ in range(20):
        cancel = Cancellation()
        thread = threading.Thread(target=cancel.cancel, args=("race",))
        thread.start()
        result = command.run(["true"], cwd=tmp_path, timeout_s=PATIENCE_S, cancel=cancel)
        thread.join()
        assert result.outcome in {"exited", "cancelled"}
    assert open_fds() == before


def test_a_closed_waker_is_not_woken() -> None:
    before = open_fds()
    waker = Waker()
    for _ in range(100_000):
        waker.wake()
    waker.close()
    waker.close()
    waker.wake()
    assert open_fds() == before
