"""Children that do not want to end, and what they leave behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import pytest

from coilclaw.workspace.process import command, supervision
from coilclaw.workspace.process.launch import ProcessResult
from coilclaw.workspace.process.supervision import DRAIN_S, TERMINATE_GRACE_S
from tests.support.children import PATIENCE_S, PYTHON, alive, given_time, marker, running, zombies


@pytest.fixture
def mark() -> str:
    return marker()


def sh(text: str, tmp_path: Path, **kwargs: Any) -> ProcessResult:
    return command.run(
        ["sh", "-c", text], cwd=tmp_path, timeout_s=kwargs.pop("timeout_s", PATIENCE_S), **kwargs
    )


def python(text: str, tmp_path: Path, **kwargs: Any) -> ProcessResult:
    timeout_s = kwargs.pop("timeout_s", PATIENCE_S)
    return command.run([*PYTHON, text], cwd=tmp_path, timeout_s=timeout_s, **kwargs)


def test_a_child_that_ignores_sigterm_is_killed(tmp_path: Path, mark: str) -> None:
    def attempt(timeout_s: float) -> ProcessResult:
        text = f"trap '' TERM; echo up; sleep {mark}; sleep {mark}"
        result = sh(text, tmp_path, timeout_s=timeout_s)
        assert result.duration_s >= timeout_s
        return result

    result = given_time(0.3, attempt, lambda result: result.stdout.data)
    assert (result.outcome, result.exit_code, result.signal) == ("timed_out", None, 9)
    assert result.stdout.text() == "up\n"
    assert result.duration_s >= 0.3 + TERMINATE_GRACE_S
    assert (result.unkillable, running(mark), zombies()) == ((), [], [])


def test_a_child_that_ends_on_sigterm_may_say_goodbye(
    tmp_path: Path, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervision, "TERMINATE_GRACE_S", PATIENCE_S)
    text = f"trap 'head -c 300000 /dev/zero; exit 9' TERM; sleep {mark} & echo up; wait"
    result = given_time(
        0.5,
        lambda timeout_s: sh(text, tmp_path, timeout_s=timeout_s, limit_bytes=1 << 20),
        lambda result: result.stdout.data,
    )
    assert (result.outcome, result.exit_code, result.signal) == ("timed_out", 9, None)
    assert result.stdout.total == 300_003
    assert not result.ok
    assert running(mark) == []


def test_sigterm_comes_once(tmp_path: Path, mark: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"trap 'echo asked' TERM; echo up; while :; do sleep {mark}; done"

    def attempt(seconds: float) -> ProcessResult:
        monkeypatch.setattr(supervision, "TERMINATE_GRACE_S", seconds)
        return sh(text, tmp_path, timeout_s=seconds)

    result = given_time(0.5, attempt, lambda result: b"asked" in result.stdout.data)
    assert result.stdout.text() == "up\nasked\n"
    assert running(mark) == []


def test_the_whole_group_ends_on_time_out(tmp_path: Path, mark: str) -> None:
    result = sh(f"sleep {mark} & (sleep {mark} & sleep {mark}) & wait", tmp_path, timeout_s=0.3)
    assert (result.outcome, result.leftovers, result.unkillable) == ("timed_out", (), ())
    assert running(mark) == []


def test_a_background_job_left_by_a_shell_is_killed_and_reported(tmp_path: Path, mark: str) -> None:
    result = sh(f"sleep {mark} >/dev/null 2>&1 & echo $!", tmp_path)
    assert (result.outcome, result.exit_code) == ("exited", 0)
    assert result.leftovers == (int(result.stdout.text()),)
    assert result.ok
    assert running(mark) == []


def test_a_background_job_that_ends_by_itself_is_not_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the reader at the end of a pipe does, a moment after the shell."""
    monkeypatch.setattr(supervision, "LINGER_S", PATIENCE_S)
    result = sh("(sleep 0.02; echo late) & echo early", tmp_path)
    assert (result.stdout.text(), result.leftovers) == ("early\nlate\n", ())


def test_a_background_job_that_ignores_sigterm_is_killed_too(tmp_path: Path, mark: str) -> None:
    result = sh(f"(trap '' TERM; sleep {mark}; sleep {mark}) & exit 5", tmp_path)
    assert (result.outcome, result.exit_code) == ("exited", 5)
    assert len(result.leftovers) == 2
    assert running(mark) == []


def test_a_pipe_held_open_after_the_parent_died_holds_up_nobody(tmp_path: Path, mark: str) -> None:
    began = time.monotonic()
    result = sh(f"sleep {mark} & exit 0", tmp_path, timeout_s=10 * PATIENCE_S)
    assert time.monotonic() - began < PATIENCE_S
    assert (len(result.leftovers), result.held_open) == (1, False)
    assert running(mark) == []


DAEMON = """
import os, sys, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork():
    os.wait()
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
os.setsid()
null = os.open("/dev/null", os.O_RDWR)
for fd in (0, 1, 2):
    os.dup2(null, fd)
os.execvp("sleep", ["sleep", sys.argv[1]])
"""


def test_a_daemon_that_forks_twice_is_found_by_its_tag(tmp_path: Path, mark: str) -> None:
    result = command.run([*PYTHON, DAEMON, mark], cwd=tmp_path, timeout_s=PATIENCE_S)
    assert (result.outcome, result.exit_code) == ("exited", 0)
    assert len(result.leftovers) == 1
    assert running(mark) == []


def test_a_daemon_is_found_on_time_out(tmp_path: Path, mark: str) -> None:
    text = f"{DAEMON.replace('os._exit(0)', 'import time; time.sleep(1000)', 1)}"
    result = command.run([*PYTHON, text, mark], cwd=tmp_path, timeout_s=1.0)
    assert (result.outcome, result.leftovers, result.unkillable) == ("timed_out", (), ())
    assert running(mark) == []


@pytest.mark.parametrize(
    "text", ["setsid sleep {} & exit 0", "(setsid setsid sleep {} &) & exit 0"]
)
def test_a_session_of_its_own_does_not_help(tmp_path: Path, mark: str, text: str) -> None:
    result = sh(text.format(mark), tmp_path)
    assert (result.exit_code, len(result.leftovers)) == (0, 1)
    assert running(mark) == []


def test_without_its_tag_a_process_is_found_by_what_it_holds(tmp_path: Path, mark: str) -> None:
    result = sh(f"setsid env -i sleep {mark} & exit 0", tmp_path)
    assert (len(result.leftovers), result.held_open) == (1, False)
    assert running(mark) == []


def test_without_its_tag_a_process_is_found_by_its_parent(tmp_path: Path, mark: str) -> None:
    """On time-out its parent still lives, and shows whose child it is."""
    result = sh(f"setsid env -i sleep {mark} >/dev/null 2>&1 & wait", tmp_path, timeout_s=0.3)
    assert (result.outcome, result.unkillable) == ("timed_out", ())
    assert running(mark) == []


def test_a_tag_behind_a_huge_environment_is_found(tmp_path: Path, mark: str) -> None:
    env = {f"A{number}": "x" * 100_000 for number in range(9)}
    result = sh(f"setsid sleep {mark} >/dev/null 2>&1 & exit 0", tmp_path, env=env)
    assert len(result.leftovers) == 1
    assert running(mark) == []


BOMB = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for generation in range(5):
    os.fork()
    if os.getpid() != os.getsid(0):
        os.setsid()
os.write(1, b"%d\\n" % os.getpid())
time.sleep(1000)
"""


def test_a_fork_bomb_is_cleared(tmp_path: Path, mark: str) -> None:
    """32 processes, each in a session of its own, all deaf to SIGTERM."""
    with command.open([*PYTHON, BOMB, mark], cwd=tmp_path, timeout_s=600) as live:
        pids = {int(live.stdout.readline()) for _ in range(32)}
        assert len(pids) == 32
        result = live.close(grace_s=0)
    assert (result.outcome, result.unkillable) == ("cancelled", ())
    assert [pid for pid in pids if alive(pid)] == running(mark) == []


RUNNER = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
end = time.monotonic() + 60
trail = os.open("trail", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
if os.fork() == 0:
    for hop in range(30_000):
        if time.monotonic() > end or os.fork():
            os._exit(0)
        os.setsid()
        os.write(trail, b".")
        if hop == 10:
            os.write(1, b"running\\n")
        time.sleep(0.002)
    os._exit(0)
time.sleep(1000)
"""


def test_a_process_that_keeps_changing_its_id_is_caught(tmp_path: Path) -> None:
    with command.open([*PYTHON, RUNNER], cwd=tmp_path, timeout_s=600) as live:
        assert live.stdout.readline() == b"running\n"
        result = live.close(grace_s=0)
    assert (result.outcome, result.unkillable) == ("cancelled", ())
    length = (tmp_path / "trail").stat().st_size
    time.sleep(0.2)
    assert (tmp_path / "trail").stat().st_size == length > 10


def test_a_stopped_process_is_killed(tmp_path: Path, mark: str) -> None:
    text = f"sleep {mark} & kill -STOP $!; kill -STOP $$"
    result = given_time(
        0.3,
        lambda timeout_s: sh(text, tmp_path, timeout_s=timeout_s),
        lambda result: result.signal == 9,  # one that was not stopped yet ends on SIGTERM
    )
    assert (result.outcome, result.signal, result.unkillable) == ("timed_out", 9, ())
    assert running(mark) == []


def test_a_program_with_an_odd_name_is_swept(tmp_path: Path, mark: str) -> None:
    odd = tmp_path / ") R 1 (\n x"
    shutil.copy(shutil.which("sleep") or "/bin/sleep", odd)
    result = command.run(
        ["sh", "-c", 'setsid "$0" "$1" & exit 0', str(odd), mark],
        cwd=tmp_path,
        timeout_s=PATIENCE_S,
    )
    assert len(result.leftovers) == 1
    assert running(mark) == []


HOLDER = """
import os, socket, sys, time
server = socket.socket(socket.AF_UNIX)
server.bind(sys.argv[1])
server.listen()
print("ready", flush=True)
connection, _ = server.accept()
_, fds, _, _ = socket.recv_fds(connection, 1, 4)
os.write(fds[0], b"from the holder")
connection.send(b"!")
time.sleep(1000)
"""
GIVER = """
import socket, sys
client = socket.socket(socket.AF_UNIX)
client.connect(sys.argv[1])
socket.send_fds(client, [b"!"], [1])
client.recv(1)
"""


def test_a_process_of_somebody_else_that_got_the_pipe_is_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = str(tmp_path / "socket")
    with subprocess.Popen([sys.executable, "-c", HOLDER, path], stdout=subprocess.PIPE) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"ready\n"
            began = time.monotonic()
            result = command.run(
                [sys.executable, "-c", GIVER, path], cwd=tmp_path, timeout_s=10 * PATIENCE_S
            )
            assert DRAIN_S <= time.monotonic() - began < PATIENCE_S
            assert (result.outcome, result.leftovers, result.held_open) == ("exited", (), True)
            assert result.stdout.text() == "from the holder"
            assert "holds the output" in caplog.text
            assert alive(holder.pid)
        finally:
            holder.kill()


def test_a_fork_of_our_own_that_holds_the_pipe_is_left_alone(tmp_path: Path) -> None:
    """It may have been made by another thread between the pipe's making and the child's start."""
    with command.open(["cat"], cwd=tmp_path, timeout_s=PATIENCE_S) as live:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons dislike threads
            fork = os.fork()
        if fork == 0:
            time.sleep(1000)
            os._exit(0)
        try:
            live.close()
            assert alive(fork)
        finally:
            os.kill(fork, 9)
            os.waitpid(fork, 0)


UNKILLABLE = """
import sys
from coilclaw.workspace.process import command as process
become_root = [sys.argv[1], "--reuid", "0", "--clear-groups"]
command = ["sh", "-c", "echo $$; exec sleep " + sys.argv[2]]
for timeout_s in (0.5, 5, 60):
    result = process.run([*become_root, *command], cwd="/", timeout_s=timeout_s)
    if result.stdout.data:
        break
print(result.outcome, result.unkillable == (int(result.stdout.text()),), result.ok)
"""


def test_what_cannot_be_killed_is_reported_loudly(mark: str) -> None:
    """A program that became root's is out of an ordinary user's reach."""
    if os.geteuid() != 0:
        pytest.skip("making a program that becomes root takes root")
    shared = Path("/var/tmp") / f"coilclaw-{mark}"
    shared.mkdir(mode=0o755)
    try:
        source = Path(command.__file__).parents[2]
        shutil.copytree(source, shared / "coilclaw", ignore=shutil.ignore_patterns("__pycache__"))
        become_root = shared / "setpriv"
        shutil.copy("/usr/bin/setpriv", become_root)
        become_root.chmod(0o4755)
        user = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
        result = command.run(
            [*user, "/usr/bin/python3", "-c", UNKILLABLE, str(become_root), mark],
            cwd=shared,
            timeout_s=10 * PATIENCE_S,
            env={"PYTHONPATH": str(shared), "PYTHONDONTWRITEBYTECODE": "1"},
        )
        assert result.stdout.text() == "timed_out True False\n", result.stderr.text()
        assert "could not be killed" in result.stderr.text()
        # Root's own sweep reaches what the user's could not.
        assert running(mark) == []
    finally:
        shutil.rmtree(shared)


def test_a_process_that_lives_is_seen(mark: str) -> None:
    """The helper that the other tests trust sees a process that lives."""
    sleeper = subprocess.Popen(["sleep", mark])
    try:
        until = time.monotonic() + PATIENCE_S
        # It has its name only once exec is done.
        while running(mark) != [sleeper.pid]:
            assert time.monotonic() < until
    finally:
        sleeper.kill()
        sleeper.wait()
    assert running(mark) == []
    assert not alive(sleeper.pid)
