"""Open files that can be locked, and that a forked child does not share.

A lock lives as long as any copy of its descriptor, and fork copies them all: a parent that is
killed would leave its lock to a child that knows nothing of it. So the child closes them.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Final

from coilclaw.errors import EnvironmentFault, LockTimeout

if TYPE_CHECKING:
    from pathlib import Path

FIRST_PAUSE_S: Final = 50e-6
LONGEST_PAUSE_S: Final = 2e-3
MAX_LOCK_TABLE_BYTES: Final = 2**20


class _Unshared:
    """The descriptors that belong to this process alone."""

    def __init__(self) -> None:
        # Reentrant: the garbage collector may close a forgotten file while we open another one.
        self.guard = threading.RLock()
        self.open: set[int] = set()
        self.process = object()
        os.register_at_fork(
            before=self.guard.acquire,
            after_in_parent=self.guard.release,
            after_in_child=self._forget,
        )

    def _forget(self) -> None:
        while self.open:
            os.close(self.open.pop())
        self.process = object()
        self.guard.release()


@cache
def _unshared() -> _Unshared:
    # Fork is a matter of the whole process, so there is one of these, made at the first use.
    return _Unshared()


def this_process() -> object:
    """Return what stands for this process; unlike a process id it is never used again."""
    return _unshared().process


def open_unshared(path: str | Path, flags: int, mode: int = 0o600) -> int:
    """Open a file that stays with this process: not inherited by programs, nor by forks."""
    unshared = _unshared()
    with unshared.guard:
        descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
        unshared.open.add(descriptor)
    return descriptor


def close_unshared(descriptor: int) -> None:
    """Close what this process opened. A forked child has nothing to close."""
    unshared = _unshared()
    with unshared.guard:
        if descriptor in unshared.open:
            unshared.open.remove(descriptor)
            os.close(descriptor)


def lock(descriptor: int, path: Path, *, shared: bool = False, timeout_s: float = 60.0) -> None:
    """Wait for the lock on an open file; raise ``LockTimeout`` when it is not free in time."""
    operation = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB
    try:
        fcntl.flock(descriptor, operation)
    except BlockingIOError:
        _wait(descriptor, operation, path, timeout_s)
    except OSError as problem:
        raise EnvironmentFault(
            f"cannot lock {path}: {problem.strerror}", rule="lock.open"
        ) from problem


def unlock(descriptor: int) -> None:
    """Let go at once, even where a copy of the descriptor lives on."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)


def _wait(descriptor: int, operation: int, path: Path, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    pause = FIRST_PAUSE_S
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            raise LockTimeout(
                f"{path} was not free within {timeout_s:g} s{_holders(descriptor)}",
                hint="wait for that process to finish, or end it",
            )
        time.sleep(min(pause, left))
        pause = min(2 * pause, LONGEST_PAUSE_S)
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, operation)
            return


def _holders(descriptor: int) -> str:
    """Say who holds a lock, as far as this kernel tells."""
    status = os.fstat(descriptor)
    place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    try:
        with open("/proc/locks", encoding="ascii", errors="replace") as table:
            rows = [row.split() for row in table.read(MAX_LOCK_TABLE_BYTES).splitlines()]
    except OSError:
        return ""  # no such table here: who holds the lock stays unknown
    flocks = [row for row in rows if len(row) > 5 and row[1] == "FLOCK" and row[5] == place]
    holders = sorted({row[4] for row in flocks})
    return f": it is held by process {', '.join(holders)}" if holders else ""
