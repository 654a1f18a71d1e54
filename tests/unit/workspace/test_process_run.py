"""The result of a captured run: outcome, output, input."""

from __future__ import annotations

import io
import os
import resource
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from coilclaw.kernel.errors import ProcessFault, UsageError
from coilclaw.workspace.process import command
from coilclaw.workspace.process.capture import Captured
from coilclaw.workspace.process.confinement import Enforced
from coilclaw.workspace.process.launch import ProcessResult
from tests.support.children import (
    PATIENCE_S,
    PYTHON,
    alive,
    given_time,
    marker,
    open_fds,
    running,
    zombies,
)
from tests.support.scale import scaled


def sh(text: str, tmp_path: Path, **kwargs: Any) -> ProcessResult:
    return command.run(
        ["sh", "-c", text], cwd=tmp_path, timeout_s=kwargs.pop("timeout_s", PATIENCE_S), **kwargs
    )


def test_a_failure_is_a_result(tmp_path: Path) -> None:
    result = sh("echo out; echo err >&2; exit 3", tmp_path)
    assert result == ProcessResult(
        argv=("sh", "-c", "echo out; echo err >&2; exit 3"),
        outcome="exited",
        exit_code=3,
        signal=None,
        stdout=Captured(b"out\n"),
        stderr=Captured(b"err\n"),
        duration_s=result.duration_s,
        enforced=Enforced(),
    )
    assert not result.ok
    assert 0 < result.duration_s < PATIENCE_S


def test_a_success_is_ok(tmp_path: Path) -> None:
    result = sh("exit 0", tmp_path)
    assert (result.outcome, result.exit_code, result.ok) == ("exited", 0, True)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_death_by_signal_is_told_apart(tmp_path: Path, number: int) -> None:
    result = sh(f"kill -{int(number)} $$", tmp_path)
    assert (result.outcome, result.exit_code, result.signal) == ("signalled", None, number)
    assert not result.ok


def test_the_signals_of_the_child_are_not_ours(tmp_path: Path) -> None:
    """Python ignores SIGPIPE; a child that inherited this would never end here."""
    result = sh("yes | head -n1", tmp_path)
    assert (result.stdout.data, result.exit_code) == (b"y\n", 0)


def test_it_has_no_input_unless_given(tmp_path: Path) -> None:
    result = sh("cat; readlink /proc/$$/fd/0", tmp_path)
    assert result.stdout.text() == "/dev/null\n"


def test_bytes_are_fed_however_many(tmp_path: Path) -> None:
    data = os.urandom(1 << 20)
    result = command.run(
        ["cat"], cwd=tmp_path, timeout_s=PATIENCE_S, stdin=data, limit_bytes=1 << 21
    )
    assert result.stdout == Captured(data[: 1 << 20])
    assert command.run(["cat"], cwd=tmp_path, timeout_s=PATIENCE_S, stdin=b"").stdout == Captured()


def test_a_file_object_in_memory_is_fed(tmp_path: Path) -> None:
    source = io.BytesIO(b"skipped" + b"x" * 200_000)
    source.seek(7)
    result = command.run(["wc", "-c"], cwd=tmp_path, timeout_s=PATIENCE_S, stdin=source)
    assert result.stdout.text() == "200000\n"


def test_a_real_file_becomes_the_input_from_where_it_stands(tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_bytes(b"first\nsecond\nthird\n")
    with path.open("rb") as file:
        assert file.readline() == b"first\n"
        result = sh("cat; readlink /proc/$$/fd/0", tmp_path, stdin=file)
    assert result.stdout.text() == f"second\nthird\n{path}\n"


def test_input_that_is_not_read_is_no_error(tmp_path: Path) -> None:
    for text in ("exit 0", "exec <&-; sleep 0.05", "head -c1 >/dev/null"):
        result = sh(text, tmp_path, stdin=b"x" * (1 << 20))
        assert (result.outcome, result.exit_code) == ("exited", 0)


def test_input_that_is_never_read_does_not_hold_up_the_time_limit(tmp_path: Path) -> None:
    result = sh("sleep 3000", tmp_path, stdin=b"x" * (1 << 20), timeout_s=0.2)
    assert result.outcome == "timed_out"


@pytest.mark.parametrize("source", ["text", io.StringIO("text")])
def test_text_is_no_input(tmp_path: Path, source: Any) -> None:
    with pytest.raises(UsageError) as caught:
        command.run(["cat"], cwd=tmp_path, timeout_s=PATIENCE_S, stdin=source)
    assert caught.value.rule == "process.stdin"


class BrokenSource(io.RawIOBase):
    """Input that fails in the middle."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0

    def read(self, size: int = -1) -> bytes:
        self.reads += 1
        if self.reads > 1 or size < 0:
            raise RuntimeError("the source broke")
        return b"x"


def test_an_error_of_the_source_ends_the_child_and_is_raised(tmp_path: Path) -> None:
    mark = marker()
    before = open_fds()
    with pytest.raises(RuntimeError, match="the source broke"):
        command.run(
            ["sleep", mark],
            cwd=tmp_path,
            timeout_s=PATIENCE_S,
            stdin=BrokenSource(),
        )
    assert running(mark) == []
    assert open_fds() == before
    assert zombies() == []


def test_an_interrupt_ends_the_child_and_is_raised(tmp_path: Path) -> None:
    if threading.current_thread() is not threading.main_thread():
        pytest.skip("signal handlers run in the main thread, and this is another one")
    mark = marker()

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    old = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with pytest.raises(KeyboardInterrupt):
            sh(f"setsid sleep {mark} & sleep {mark}", tmp_path)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    assert running(mark) == []
    assert zombies() == []


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (10, Captured(b"0123456789")),
        (9, Captured(b"01234", b"6789", 1)),
        (8, Captured(b"0123", b"6789", 2)),
        (1, Captured(b"0", b"", 9)),
        (0, Captured(b"", b"", 10)),
    ],
)
def test_the_bound_is_exact(tmp_path: Path, limit: int, expected: Captured) -> None:
    result = sh("printf 0123456789; printf 0123456789 >&2", tmp_path, limit_bytes=limit)
    assert (result.stdout, result.stderr) == (expected, expected)
    assert result.stdout.total == 10


def test_dropped_bytes_show_in_the_text(tmp_path: Path) -> None:
    result = sh("printf 'abc\\377xxxxx\\376xyz'", tmp_path, limit_bytes=8)
    assert result.stdout.text() == "abc�\n[… 5 bytes dropped …]\n�xyz"
    assert Captured("é".encode()[:1], "é".encode()[1:]).text() == "é"


def test_endless_output_to_both_pipes_costs_no_memory_and_no_time(tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def attempt(timeout_s: float) -> ProcessResult:
        result = sh("yes out & yes err >&2", tmp_path, timeout_s=timeout_s, limit_bytes=1000)
        assert result.outcome == "timed_out"
        assert result.duration_s < timeout_s + PATIENCE_S
        return result

    result = given_time(
        1.0, attempt, lambda result: min(result.stdout.dropped, result.stderr.dropped) > 1 << 20
    )
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert len(result.stdout.data) == len(result.stderr.data) == 1000
    assert result.stdout.head == (b"out\n" * 125)
    assert result.stdout.dropped > 1 << 20
    assert result.stderr.dropped > 1 << 20
    assert grown_kib < 20_000


def test_a_full_pipe_never_stalls_the_child(tmp_path: Path) -> None:
    result = sh("head -c 5000000 /dev/zero; head -c 5000000 /dev/zero >&2", tmp_path, limit_bytes=7)
    assert (result.outcome, result.exit_code) == ("exited", 0)
    assert (result.stdout, result.stderr) == (Captured(bytes(4), bytes(3), 4_999_993),) * 2


def test_output_written_just_before_the_end_is_not_lost(tmp_path: Path) -> None:
    for _ in range(scaled(full=100, default=20)):
        assert sh("head -c 60000 /dev/zero", tmp_path).stdout.total == 60000


def test_the_end_is_noticed_without_process_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(pid: int, flags: int = 0) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", missing)
    assert sh("echo hi; exit 4", tmp_path).exit_code == 4
    mark = marker()
    assert sh(f"setsid sleep {mark} & sleep {mark}", tmp_path, timeout_s=0.2).outcome == "timed_out"
    assert running(mark) == []


LOST = """
import signal, sys
from coilclaw.kernel.errors import ProcessFault
from coilclaw.workspace.process import command as process
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
try:
    print(process.run(["sh", "-c", "exit 7"], cwd="/", timeout_s=60))
except ProcessFault as fault:
    print(fault.rule)
"""


def test_an_end_that_somebody_else_took_is_no_success(tmp_path: Path) -> None:
    source = str(Path(command.__file__).parents[3])
    result = command.run(
        [sys.executable, "-c", LOST], cwd=tmp_path, timeout_s=60, env={"PYTHONPATH": source}
    )
    assert (result.stdout.text(), result.stderr.text()) == ("process.lost\n", "")


def test_want_of_file_descriptors_is_a_fault_and_leaves_nothing(tmp_path: Path) -> None:
    mark = marker()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = open_fds()
    used = {int(entry.partition(":")[0]) for entry in before}
    free = [fd for fd in range(max(used) + 20) if fd not in used]
    seen = set()
    for room in range(12):
        resource.setrlimit(resource.RLIMIT_NOFILE, (free[room], hard))
        try:
            result = sh(f"sleep {mark} & exit 0", tmp_path, cancel=command.Cancellation())
            seen.add(str(result.exit_code))
        except ProcessFault as fault:
            seen.add(fault.rule)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert (running(mark), zombies(), open_fds()) == ([], [], before), room
    assert {"process.start", "0"} <= seen


def test_many_threads_run_at_once(tmp_path: Path) -> None:
    before = open_fds()
    count = scaled(full=160, default=48)

    def one(number: int) -> tuple[bytes, int | None, tuple[int, ...]]:
        result = sh(f"cat; echo {number}; exit {number % 7}", tmp_path, stdin=b"<%d>" % number)
        return result.stdout.data, result.exit_code, result.leftovers

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(one, range(count)))
    assert found == [(b"<%d>%d\n" % (n, n), n % 7, ()) for n in range(count)]
    assert open_fds() == before
    assert zombies() == []


def test_a_sweep_leaves_the_children_of_other_threads_alone(tmp_path: Path) -> None:
    with command.open(["cat"], cwd=tmp_path, timeout_s=PATIENCE_S) as other:
        for _ in range(5):
            sh("setsid sleep 1000 & exit 0", tmp_path)
            assert sh("sleep 1000", tmp_path, timeout_s=0.05).outcome == "timed_out"
        assert alive(other.pid)
        other.stdin.write(b"still there\n")
        assert other.stdout.readline() == b"still there\n"


def test_nothing_is_left_open_by_any_outcome(tmp_path: Path) -> None:
    before = open_fds()
    sh("exit 0", tmp_path)
    sh("cat", tmp_path, stdin=b"x")
    sh("sleep 1000", tmp_path, timeout_s=0.05)
    sh("sleep 1000 & exit 0", tmp_path)
    cancel = command.Cancellation()
    cancel.cancel("before")
    sh("exit 0", tmp_path, cancel=cancel)
    assert open_fds() == before
    assert zombies() == []


def test_the_time_limit_counts_from_the_call(tmp_path: Path) -> None:
    began = time.monotonic()
    result = command.run([*PYTHON, "import time; time.sleep(1000)"], cwd=tmp_path, timeout_s=0.3)
    assert result.outcome == "timed_out"
    assert 0.3 <= result.duration_s <= time.monotonic() - began < PATIENCE_S


def test_output_can_be_watched_as_it_comes(tmp_path: Path) -> None:
    seen: list[bytes] = []
    result = command.run(
        ["sh", "-c", "echo one; echo two >&2; head -c 300000 /dev/zero"],
        cwd=tmp_path,
        timeout_s=PATIENCE_S,
        limit_bytes=100,
        observe=seen.append,
    )
    assert len(b"".join(seen)) == 300_008
    assert b"two\n" in b"".join(seen)
    assert result.stdout.dropped == 300_004 - 100
