"""What outlives whoever started it is ended; what somebody waits for is left alone."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from coilclaw.workspace.process import environment, owner, process_table
from tests.support.children import PATIENCE_S


def _sleeper(tag: str) -> subprocess.Popen[bytes]:
    env = environment.add_tag({"PATH": environment.DEFAULT_PATH}, tag)
    return subprocess.Popen(["sleep", "600"], env=env, start_new_session=True)


def _tag_of_the_dead() -> str:
    """A tag given by a process that has ended."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.write(write, environment.new_tag().encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    with os.fdopen(read, "rb") as file:
        return file.read().decode()


def _wait_for_tag(sleeper: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + PATIENCE_S
    while process_table.environ(sleeper.pid) is None and time.monotonic() < until:
        time.sleep(0.01)


def test_an_orphan_is_ended_and_what_is_waited_for_is_not() -> None:
    orphan, ours, other = (
        _sleeper(_tag_of_the_dead()),
        _sleeper(environment.new_tag()),
        subprocess.Popen(["sleep", "600"], start_new_session=True),
    )
    try:
        _wait_for_tag(orphan)
        # Somebody else of us may be sweeping at the same time: gone is gone.
        owner.sweep_orphans()
        assert orphan.wait(PATIENCE_S) == -signal.SIGKILL
        assert ours.poll() is None
        assert other.poll() is None
    finally:
        for process in (orphan, ours, other):
            process.kill()
            process.wait()


def test_a_number_that_was_given_out_again_is_another_process() -> None:
    namespace, pid, started, random = environment.new_tag().split(".")
    orphan = _sleeper(f"{namespace}.{pid}.{int(started) + 1}.{random}")
    try:
        _wait_for_tag(orphan)
        owner.sweep_orphans()
        assert orphan.wait(PATIENCE_S) == -signal.SIGKILL
    finally:
        orphan.kill()
        orphan.wait()


@pytest.mark.parametrize("tag", ["1.1.1.aa", "nonsense", "", "1.2.3", f"{'9' * 20}.1.x.y"])
def test_tags_of_other_namespaces_and_forms_say_nothing(tag: str) -> None:
    assert environment.owner_of(f"A=1\0COILCLAW_PROCESS={tag}\0B=2".encode()) is None


def test_the_innermost_owner_counts() -> None:
    mine = environment.new_tag()
    found = environment.owner_of(f"COILCLAW_PROCESS=0.1.1.aa:{mine}".encode())
    own = process_table.member(os.getpid())
    assert own is not None
    assert found == (os.getpid(), own.started)
    assert Path("/proc/self").exists()
