"""``guarded``: hold a place for as long as anything that was started on it may still work there.

A process of ours that is killed leaves the programs that it waited for to themselves. Those that
were given the guard as their input keep it held until they end.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from coilclaw.errors import EnvironmentFault, LockTimeout

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import BinaryIO

PAUSE_S: Final = 0.005


@contextmanager
def guarded(path: Path, *, timeout_s: float) -> Iterator[BinaryIO]:
    """Hold the guard at a path; yield an empty file to give to children as their input.

    Whoever holds it may remove it.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            flags = os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            file = open(os.open(path, flags, 0o600), "rb")  # noqa: SIM115 - it is yielded
        except OSError as problem:
            raise EnvironmentFault(
                f"cannot open {path}: {problem.strerror}", rule="lock.open"
            ) from problem
        with file:
            if _held(file, path):
                yield file
                return
        if time.monotonic() > deadline:
            raise LockTimeout(f"something still works on what {path} guards")
        time.sleep(PAUSE_S)


def _held(file: BinaryIO, path: Path) -> bool:
    """Whether the lock is ours, and on the file that others will find."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except (BlockingIOError, FileNotFoundError):
        return False
