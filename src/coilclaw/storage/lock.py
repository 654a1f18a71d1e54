"""``FileLock``: one holder at a time, among the threads and processes of this machine."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Final, Self

from coilclaw.errors import EnvironmentFault, LockTimeout

if TYPE_CHECKING:
    from pathlib import Path

FIRST_PAUSE_S: Final = 50e-6
LONGEST_PAUSE_S: Final = 2e-3
_OPEN: Final = os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
MAX_LOCK_TABLE_BYTES: Final = 2**20


class FileLock:
    """A lock on a file that exists only to be locked and is never deleted.

    One object may be used by many threads: each holds the lock by itself. A forked child holds
    nothing, whatever its parent held. Several holders may share the lock if all ask for that.
    """

    def __init__(self, path: Path, *, shared: bool = False, timeout_s: float = 60.0) -> None:
        self.path = path.absolute()  # the process may change its directory
        self.timeout_s = timeout_s
        self._name = os.fspath(self.path)
        self._operation = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB
        self._descriptors = _descriptors()
        self._held: dict[tuple[object, int], int] = {}

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    @property
    def held(self) -> bool:
        """Whether the calling thread of this process holds the lock."""
        return (self._descriptors.process, threading.get_ident()) in self._held

    def acquire(self) -> None:
        """Wait for the lock; raise ``LockTimeout`` when it is not free in time."""
        holder = (self._descriptors.process, threading.get_ident())
        if holder in self._held:
            raise EnvironmentFault(f"this thread holds {self.path} already", rule="lock.nested")
        try:
            descriptor = self._descriptors.open(self._name)
        except OSError as problem:
            raise EnvironmentFault(
                f"cannot open the lock file {self.path}: {problem.strerror}", rule="lock.open"
            ) from problem
        try:
            fcntl.flock(descriptor, self._operation)
        except BlockingIOError:
            self._wait(descriptor)
        except OSError as problem:
            self._descriptors.close(descriptor)
            raise EnvironmentFault(
                f"cannot lock {self.path}: {problem.strerror}", rule="lock.open"
            ) from problem
        self._held[holder] = descriptor

    def release(self) -> None:
        """Let go; a lock that the calling thread of this process does not hold stays as it is."""
        holder = (self._descriptors.process, threading.get_ident())
        descriptor = self._held.pop(holder, None)
        if descriptor is not None:
            # Unlocking comes first: it frees the lock even where a copy of the descriptor lives on.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            self._descriptors.close(descriptor)

    def _wait(self, descriptor: int) -> None:
        deadline = time.monotonic() + self.timeout_s
        pause = FIRST_PAUSE_S
        try:
            while True:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise LockTimeout(
                        f"{self.path} was not free within {self.timeout_s:g} s"
                        f"{_holders(descriptor)}",
                        hint="wait for that process to finish, or end it",
                    )
                time.sleep(min(pause, left))
                pause = min(2 * pause, LONGEST_PAUSE_S)
                with suppress(BlockingIOError):
                    fcntl.flock(descriptor, self._operation)
                    return
        except BaseException:
            self._descriptors.close(descriptor)
            raise


def this_process() -> object:
    """Return what stands for this process; unlike a process id it is never used again."""
    return _descriptors().process


class _Descriptors:
    """The open lock files of this process.

    A lock lives as long as any copy of its descriptor, and fork copies them all: a parent that is
    killed would leave its lock to a child that knows nothing of it. So the child closes them.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._open: set[int] = set()
        self.process = object()
        os.register_at_fork(
            before=self._guard.acquire,
            after_in_parent=self._guard.release,
            after_in_child=self._forget,
        )

    def open(self, path: str) -> int:
        with self._guard:
            descriptor = os.open(path, _OPEN, 0o600)
            self._open.add(descriptor)
        return descriptor

    def close(self, descriptor: int) -> None:
        with self._guard:
            self._open.discard(descriptor)
            os.close(descriptor)

    def _forget(self) -> None:
        for descriptor in self._open:
            os.close(descriptor)
        self._open.clear()
        self.process = object()
        self._guard.release()


@cache
def _descriptors() -> _Descriptors:
    # Fork is a matter of the whole process, so there is one of these, made at the first lock.
    return _Descriptors()


def _holders(descriptor: int) -> str:
    """Say who holds a lock file, as far as this kernel tells."""
    status = os.fstat(descriptor)
    place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    try:
        with open("/proc/locks", encoding="ascii", errors="replace") as table:
            rows = [row.split() for row in table.read(MAX_LOCK_TABLE_BYTES).splitlines()]
    except OSError:
        return ""  # no such table here: who holds the lock stays unknown
    holders = sorted(
        {row[4] for row in rows if len(row) > 5 and row[1] == "FLOCK" and row[5] == place}
    )
    if not holders:
        return ""
    return f": it is held by process {', '.join(holders)}"
