"""A child that is spoken with while it runs."""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from coilclaw.kernel.errors import UsageError
from coilclaw.workspace.process import command
from coilclaw.workspace.process.cancellation import Cancellation
from coilclaw.workspace.process.capture import Captured
from coilclaw.workspace.process.confinement import Enforced
from coilclaw.workspace.process.launch import ProcessResult
from tests.support.children import (
    PATIENCE_S,
    alive,
    marker,
    open_fds,
    running,
    wait_for,
    zombies,
)

UPPER = 'while read -r line; do echo "<$line>"; echo noise >&2; done; echo end; exit 3'


def test_it_answers_line_by_line_and_ends_with_its_input(tmp_path: Path) -> None:
    before = open_fds()
    with command.open(["sh", "-c", UPPER], cwd=tmp_path, timeout_s=PATIENCE_S) as live:
        assert alive(live.pid)
        for word in (b"one", b"two"):
            assert live.stdin.write(word + b"\n") == 4
            assert live.stdout.readline() == b"<" + word + b">\n"
        live.stdin.close()
        assert live.stdout.read() == b"end\n"
    result = live.result
    assert result is not None
    assert result == ProcessResult(
        argv=("sh", "-c", UPPER),
        outcome="exited",
        exit_code=3,
        signal=None,
        stdout=Captured(),
        stderr=Captured(b"noise\nnoise\n"),
        duration_s=result.duration_s,
        enforced=Enforced(),
    )
    assert (open_fds(), zombies(), alive(live.pid)) == (before, [], False)


def test_leaving_the_block_ends_everything(tmp_path: Path) -> None:
    mark, before = marker(), open_fds()
    text = f"trap '' TERM; setsid sleep {mark} & echo up; sleep {mark}; sleep {mark}"
    with command.open(["sh", "-c", text], cwd=tmp_path, timeout_s=600) as live:
        assert live.stdout.readline() == b"up\n"
        assert len(running(mark)) >= 2
    assert live.result is not None
    assert (live.result.outcome, live.result.signal) == ("cancelled", 9)
    assert (running(mark), zombies(), open_fds()) == ([], [], before)


def test_an_error_in_the_block_ends_everything_and_is_raised(tmp_path: Path) -> None:
    mark, before = marker(), open_fds()
    with (
        pytest.raises(RuntimeError, match="protocol"),
        command.open(["sleep", mark], cwd=tmp_path, timeout_s=600),
    ):
        raise RuntimeError("protocol")
    assert (running(mark), zombies(), open_fds()) == ([], [], before)


def test_the_time_limit_ends_a_read_that_waits(tmp_path: Path) -> None:
    mark = marker()
    with command.open(["sleep", mark], cwd=tmp_path, timeout_s=0.3) as live:
        began = time.monotonic()
        assert live.stdout.read() == b""
        assert time.monotonic() - began < PATIENCE_S
        assert live.wait(PATIENCE_S) == live.result
    assert live.result is not None
    assert (live.result.outcome, live.result.signal) == ("timed_out", 15)
    assert running(mark) == []


def test_a_cancellation_ends_a_read_that_waits(tmp_path: Path) -> None:
    cancel, mark = Cancellation(), marker()
    with (
        ThreadPoolExecutor(1) as pool,
        command.open(["sleep", mark], cwd=tmp_path, timeout_s=600, cancel=cancel) as live,
    ):
        reading = pool.submit(live.stdout.read)
        began = time.monotonic()
        cancel.cancel("enough")
        assert reading.result(PATIENCE_S) == b""
        assert time.monotonic() - began < PATIENCE_S
    assert live.result is not None
    assert live.result.outcome == "cancelled"
    assert running(mark) == []


def test_the_time_limit_ends_a_write_that_waits(tmp_path: Path) -> None:
    with command.open(["sleep", "1000"], cwd=tmp_path, timeout_s=0.3) as live:
        with pytest.raises(BrokenPipeError):
            live.stdin.write(b"x" * (1 << 20))
        assert live.wait(PATIENCE_S) is not None


def test_closing_from_another_thread_ends_a_read_that_waits(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        live = command.open(["sh", "-c", "echo up; sleep 1000"], cwd=tmp_path, timeout_s=600)
        assert live.stdout.readline() == b"up\n"
        reading = pool.submit(live.stdout.read1)
        assert live.close(grace_s=0).outcome == "cancelled"
        assert reading.result(PATIENCE_S) == b""


def test_the_end_of_the_child_is_the_end_of_its_output_whoever_holds_it(tmp_path: Path) -> None:
    mark = marker()
    text = f"setsid sleep {mark} & echo last"
    with command.open(["sh", "-c", text], cwd=tmp_path, timeout_s=600) as live:
        assert live.stdout.read() == b"last\n"
        result = live.wait(PATIENCE_S)
        assert result is not None
        assert (result.outcome, result.exit_code, len(result.leftovers)) == ("exited", 0, 1)
        assert running(mark) == []


def test_what_was_written_before_the_end_is_read_after_it(tmp_path: Path) -> None:
    with command.open(["echo", "kept"], cwd=tmp_path, timeout_s=PATIENCE_S) as live:
        assert live.wait(PATIENCE_S) is not None
        assert live.stdout.read() == b"kept\n"


def test_writing_to_a_child_that_is_gone_is_told(tmp_path: Path) -> None:
    with command.open(["true"], cwd=tmp_path, timeout_s=PATIENCE_S) as live:
        assert live.wait(PATIENCE_S) is not None
        with pytest.raises(BrokenPipeError):
            live.stdin.write(b"x")


def test_a_wait_is_bounded(tmp_path: Path) -> None:
    with command.open(["cat"], cwd=tmp_path, timeout_s=600) as live:
        assert live.wait(0.05) is None
        assert live.result is None


def test_noise_is_bounded_and_never_stalls_the_child(tmp_path: Path) -> None:
    text = "head -c 3000000 /dev/zero >&2; echo done"
    with command.open(
        ["sh", "-c", text], cwd=tmp_path, timeout_s=PATIENCE_S, limit_bytes=10
    ) as live:
        assert live.stdout.readline() == b"done\n"
    assert live.result is not None
    assert live.result.stderr == Captured(bytes(5), bytes(5), 2_999_990)


def test_large_messages_go_both_ways(tmp_path: Path) -> None:
    data = os.urandom(1 << 20)
    with (
        ThreadPoolExecutor(1) as pool,
        command.open(["cat"], cwd=tmp_path, timeout_s=PATIENCE_S) as live,
    ):
        writing = pool.submit(live.stdin.write, data)
        assert live.stdout.read(len(data)) == data
        assert writing.result(PATIENCE_S) == len(data)


def test_a_grace_gives_the_child_time_to_end_by_itself(tmp_path: Path) -> None:
    text = "cat >/dev/null; echo tidy > tidied; exit 6"
    live = command.open(["sh", "-c", text], cwd=tmp_path, timeout_s=600)
    with pytest.raises(UsageError):
        live.close(grace_s=-1)
    result = live.close(grace_s=PATIENCE_S)
    assert (result.outcome, result.exit_code) == ("exited", 6)
    assert wait_for(tmp_path / "tidied") == "tidy"
    assert live.close() == result
    with pytest.raises(ValueError, match="closed"):
        live.stdin.write(b"x")


def test_it_outlives_the_thread_that_opened_it(tmp_path: Path) -> None:
    opened: list[command.LiveProcess] = []

    def opening() -> None:
        opened.append(command.open(["cat"], cwd=tmp_path, timeout_s=600))

    thread = threading.Thread(target=opening)
    thread.start()
    thread.join()
    with opened[0] as live:
        live.stdin.write(b"x\n")
        assert live.stdout.readline() == b"x\n"


def test_one_that_nobody_closed_is_ended(tmp_path: Path) -> None:
    mark, before = marker(), open_fds()
    live = command.open(["sleep", mark], cwd=tmp_path, timeout_s=600)
    assert alive(live.pid)
    del live
    gc.collect()
    assert (running(mark), zombies(), open_fds()) == ([], [], before)


FORGETFUL = """
import sys
from coilclaw.workspace.process import command as process
live = process.open(["sh", "-c", "echo $$; exec sleep " + sys.argv[1]], cwd="/", timeout_s=600)
print(live.stdout.readline().decode(), end="")
"""


def test_a_program_that_forgets_one_ends_it_when_it_exits(tmp_path: Path) -> None:
    mark = marker()
    source = str(Path(command.__file__).parents[3])
    result = command.run(
        [sys.executable, "-c", FORGETFUL, mark],
        cwd=tmp_path,
        timeout_s=PATIENCE_S,
        env={"PYTHONPATH": source},
    )
    assert (result.exit_code, result.leftovers, result.stderr.text()) == (0, (), "")
    assert running(mark) == []
