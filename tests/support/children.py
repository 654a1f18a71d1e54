"""Look at real processes from the outside: who lives, who is ours, what we hold open."""

from __future__ import annotations

import gc
import os
import secrets
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

_T = TypeVar("_T")

PATIENCE_S = 60.0
"""Upper bound of a wait for something that ought to happen soon, on a busy machine too.

No test asserts less of a clock: see tests/architecture/test_test_clocks.py.
"""

# The interpreter itself, not the virtual environment: a checkout may lie below /tmp, which a
# sandbox covers.
PYTHON = [os.path.realpath(sys.executable), "-I", "-S", "-c"]


def marker() -> str:
    """A number of seconds that no other ``sleep`` on this machine was given."""
    return f"{4000 + secrets.randbelow(1000)}.{secrets.randbelow(10**9):09d}"


def state(pid: int) -> str | None:
    """The letter that /proc shows for a process; ``None`` if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return None


def alive(pid: int) -> bool:
    return state(pid) not in {None, "Z", "X"}


def running(mark: str) -> list[int]:
    """The living processes whose command line names ``mark``."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if mark.encode() in line and alive(int(entry.name)):
                found.append(int(entry.name))
    return found


def zombies() -> list[int]:
    """Our own children that nobody waited for."""
    own = str(os.getpid())
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] == "Z" and fields[1] == own:
                found.append(int(entry.name))
    return found


def open_fds() -> set[str]:
    """What our own process holds open, but for the look itself and what others have forgotten."""
    gc.collect()
    return {
        f"{fd}:{os.readlink(f'/proc/self/fd/{fd}')}"
        for fd in os.listdir("/proc/self/fd")
        if os.path.lexists(f"/proc/self/fd/{fd}")
    }


def given_time(
    first_s: float, attempt: Callable[[float], _T], enough: Callable[[_T], object]
) -> _T:
    """Attempt what has to happen before a time limit, which grows until it was long enough."""
    for limit_s in (first_s, 10 * first_s):
        if enough(result := attempt(limit_s)):
            return result
    return attempt(PATIENCE_S)


def when(condition: Callable[[], object], act: Callable[[], object]) -> threading.Thread:
    """Start a thread that acts as soon as a condition holds, and in any case in the end."""

    def wait() -> None:
        until = time.monotonic() + PATIENCE_S
        while not condition() and time.monotonic() < until:
            time.sleep(0.01)
        act()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def wait_for(path: Path) -> str:
    """Wait until a child has written a line to ``path``, and return it."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        if path.exists() and (text := path.read_text()).endswith("\n"):
            return text.strip()
        time.sleep(0.005)
    raise AssertionError(f"nothing was written to {path}")
