from __future__ import annotations

import os
import signal
from datetime import datetime, timedelta, timezone

import pytest

from coilclaw.kernel.errors import UsageError
from coilclaw.workspace.process.owner import (
    check_conversation_id,
    format_time,
    is_alive,
    new_id,
    this_process,
)


def test_this_process_is_alive_and_a_dead_one_is_not() -> None:
    assert is_alive(this_process())
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write, this_process().encode())
        signal.pause()
    name = os.read(read, 100).decode()
    assert is_alive(name)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert not is_alive(name)
    os.close(read)
    os.close(write)


@pytest.mark.parametrize("text", ["", "x", ":", "-1:0", "999999999:1"])
def test_what_names_no_process_is_not_alive(text: str) -> None:
    assert not is_alive(text)


def test_a_pid_that_another_process_has_by_now_is_not_alive() -> None:
    assert not is_alive(f"{os.getpid()}:1")


def test_ids_are_never_the_same() -> None:
    assert len({new_id("turn") for _ in range(1000)}) == 1000


def test_the_time_is_written_in_utc() -> None:
    moment = datetime(2026, 5, 12, 16, 0, 0, 7, timezone(timedelta(hours=2)))
    assert format_time(moment) == "2026-05-12T14:00:00.000007Z"


@pytest.mark.parametrize("text", ["a", "conv-1", "A.b_c-9", "x" * 128])
def test_names_of_conversations(text: str) -> None:
    assert check_conversation_id(text) == text


@pytest.mark.parametrize("text", ["", ".", "-a", "a/b", "a b", "ä", "a\n", "x" * 129])
def test_names_that_no_conversation_has(text: str) -> None:
    with pytest.raises(UsageError):
        check_conversation_id(text)
