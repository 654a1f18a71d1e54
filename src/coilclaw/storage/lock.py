"""``FileLock``: one holder at a time, among the threads and processes of this machine."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Self

from coilclaw.errors import EnvironmentFault, LockTimeout
from coilclaw.storage.descriptor import close_unshared, lock, open_unshared, this_process, unlock

if TYPE_CHECKING:
    from pathlib import Path


class FileLock:
    """A lock on a file that exists only to be locked; whoever holds it alone may delete it.

    One object may be used by many threads: each holds the lock by itself. A forked child holds
    nothing, whatever its parent held. Several holders may share the lock if all ask for that.
    """

    def __init__(self, path: Path, *, shared: bool = False, timeout_s: float = 60.0) -> None:
        self.path = path.absolute()  # the process may change its directory
        self.shared = shared
        self.timeout_s = timeout_s
        self._held: dict[tuple[object, int], int] = {}

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    @property
    def held(self) -> bool:
        """Whether the calling thread of this process holds the lock."""
        return _caller() in self._held

    def acquire(self) -> None:
        """Wait for the lock; raise ``LockTimeout`` when it is not free in time."""
        caller = _caller()
        if caller in self._held:
            raise EnvironmentFault(f"this thread holds {self.path} already", rule="lock.nested")
        while (descriptor := self._lock(os.O_CREAT)) is None:
            pass
        self._held[caller] = descriptor

    def is_free(self) -> bool:
        """Whether it could be acquired at this moment; a file that is not there is not made."""
        try:
            descriptor = self._lock(0)
        except LockTimeout:
            return False
        except FileNotFoundError:
            return True
        if descriptor is not None:
            unlock(descriptor)
            close_unshared(descriptor)
        return True

    def _lock(self, flags: int) -> int | None:
        """Lock the file; ``None`` if it was deleted meanwhile, and others will find another."""
        try:
            descriptor = open_unshared(self.path, os.O_RDONLY | flags)
        except OSError as problem:
            if isinstance(problem, FileNotFoundError) and not flags:
                raise
            raise EnvironmentFault(
                f"cannot open the lock file {self.path}: {problem.strerror}", rule="lock.open"
            ) from problem
        try:
            lock(descriptor, self.path, shared=self.shared, timeout_s=self.timeout_s)
            if os.path.samestat(os.fstat(descriptor), os.stat(self.path)):
                return descriptor
        except FileNotFoundError:
            pass
        except BaseException:
            close_unshared(descriptor)
            raise
        close_unshared(descriptor)
        return None

    def release(self) -> None:
        """Let go; a lock that the calling thread of this process does not hold stays as it is."""
        descriptor = self._held.pop(_caller(), None)
        if descriptor is not None:
            unlock(descriptor)
            close_unshared(descriptor)


def _caller() -> tuple[object, int]:
    return this_process(), threading.get_ident()
