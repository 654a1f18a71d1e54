"""``FileLock``: one holder at a time, among the threads and processes of this machine.

A lock lives as long as any copy of its descriptor, and fork copies them all: a parent that is
killed would leave its lock to a child that knows nothing of it. So the child closes them.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Final, Self

from coilclaw.kernel.errors import EnvironmentFault, LockTimeout, explain_os_errors

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import BinaryIO

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
def _make_unshared() -> _Unshared:
    # Fork is a matter of the whole process, so there is one of these, made at the first use.
    return _Unshared()


def this_process() -> object:
    """Return what stands for this process; unlike a process id it is never used again."""
    return _make_unshared().process


def open_unshared(path: str | Path, flags: int) -> int:
    """Open a file that stays with this process: not inherited by programs, nor by forks."""
    unshared = _make_unshared()
    with unshared.guard:
        descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        unshared.open.add(descriptor)
    return descriptor


def close_unshared(descriptor: int) -> None:
    """Unlock and close what this process opened. A forked child has nothing to close."""
    unshared = _make_unshared()
    with unshared.guard:
        if descriptor in unshared.open:
            unshared.open.remove(descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # at once, even where a copy of it lives on
            os.close(descriptor)


def lock_file(
    descriptor: int, path: Path, *, shared: bool = False, timeout_s: float = 60.0
) -> None:
    """Wait for the lock on an open file; raise ``LockTimeout`` when it is not free in time."""
    operation = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB
    deadline, pause = time.monotonic() + timeout_s, FIRST_PAUSE_S
    while True:
        try:
            return fcntl.flock(descriptor, operation)
        except BlockingIOError:
            left = deadline - time.monotonic()
        except OSError as problem:
            raise EnvironmentFault(
                f"cannot lock {path}: {problem.strerror}", rule="lock.open"
            ) from problem
        if left <= 0:
            raise LockTimeout(
                f"{path} was not free within {timeout_s:g} s{_name_holders(descriptor)}",
                hint="wait for that process to finish, or end it",
            )
        time.sleep(min(pause, left))
        pause = min(2 * pause, LONGEST_PAUSE_S)


def _name_holders(descriptor: int) -> str:
    """Say which processes hold a lock, as far as this kernel tells."""
    status = os.fstat(descriptor)
    place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    try:
        with open("/proc/locks", encoding="ascii", errors="replace") as table:
            rows = [row.split() for row in table.read(MAX_LOCK_TABLE_BYTES).splitlines()]
    except OSError:
        return ""  # no such table here: who holds the lock stays unknown
    holders = {row[4] for row in rows if len(row) > 5 and row[1] == "FLOCK" and row[5] == place}
    return f": it is held by process {', '.join(sorted(holders))}" if holders else ""


class FileLock:
    """A lock on a file that exists only to be locked; its only holder may delete the file.

    One object may be used by many threads: each holds the lock by itself. A forked child holds
    nothing, whatever its parent held. Several holders may share the lock if all ask for that.
    """

    def __init__(self, path: Path, *, shared: bool = False, timeout_s: float = 60.0) -> None:
        self.path = path.absolute()  # the process may change its directory
        self.shared = shared
        self.timeout_s = timeout_s
        self._held: dict[tuple[object, int], int] = {}

    def __exit__(self, *_: object) -> None:
        self.release()

    @property
    def held(self) -> bool:
        """Whether the calling thread of this process holds the lock."""
        return (this_process(), threading.get_ident()) in self._held

    def acquire(self) -> Self:
        """Wait for the lock; raise ``LockTimeout`` when it is not free in time."""
        caller = (this_process(), threading.get_ident())
        if caller in self._held:
            raise EnvironmentFault(f"this thread holds {self.path} already", rule="lock.nested")
        while (descriptor := self._lock(os.O_CREAT)) is None:
            pass
        self._held[caller] = descriptor
        return self

    __enter__ = acquire

    def is_free(self) -> bool:
        """Whether it could be acquired at this moment; a file that is not there is not made."""
        try:
            descriptor = self._lock(0)
        except (LockTimeout, FileNotFoundError) as problem:
            return isinstance(problem, FileNotFoundError)
        if descriptor is not None:
            close_unshared(descriptor)
        return True

    def _lock(self, flags: int) -> int | None:
        """Open and lock the file; return ``None`` if the path no longer names the locked file."""
        try:
            descriptor = open_unshared(self.path, os.O_RDONLY | flags)
        except OSError as problem:
            if isinstance(problem, FileNotFoundError) and not flags:
                raise
            raise EnvironmentFault(
                f"cannot open the lock file {self.path}: {problem.strerror}", rule="lock.open"
            ) from problem
        kept = False
        try:
            lock_file(descriptor, self.path, shared=self.shared, timeout_s=self.timeout_s)
            kept = _is_at(descriptor, self.path)
        finally:
            if not kept:
                close_unshared(descriptor)
        return descriptor if kept else None

    def release(self) -> None:
        """Let go; a lock that the calling thread of this process does not hold stays as it is."""
        descriptor = self._held.pop((this_process(), threading.get_ident()), None)
        if descriptor is not None:
            close_unshared(descriptor)


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether an open file is the one that others find at a path."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


@contextmanager
def hold_guard(path: Path, *, timeout_s: float) -> Iterator[BinaryIO]:
    """Hold the guard at a path; yield an empty file to give to children as their input.

    The holder may remove it.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        with explain_os_errors(f"open {path}", rule="lock.open"):
            flags = os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            file = open(os.open(path, flags, 0o600), "rb")  # noqa: SIM115 - it is yielded
        with file:
            lock_file(file.fileno(), path, timeout_s=max(0.0, deadline - time.monotonic()))
            # Others will find another file, if its holder removed this one.
            if _is_at(file.fileno(), path):
                yield file
                return
