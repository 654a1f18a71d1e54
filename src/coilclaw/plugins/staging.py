"""Directories of plugin files under way: staged, being removed, or the copy that a call runs."""

from __future__ import annotations

import fcntl
import logging
import os
import signal
import stat
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from coilclaw.errors import EnvironmentFault
from coilclaw.storage.atomic import write_all

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from coilclaw.plugins.files import PluginFile

_log = logging.getLogger(__name__)

STAGED: Final = ".staged-"
REMOVED: Final = ".removed-"
RUNNING: Final = ".running-"
SETTLE_S: Final = 5.0
SETTLE_LOOK_S: Final = 0.001

_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def fresh(folder: Path, prefix: str) -> Path:
    """Return a name that nobody has."""
    return folder / f"{prefix}{os.urandom(8).hex()}"


def stage(folder: Path, files: Iterable[PluginFile]) -> Path:
    """Write files into a new directory, durably."""
    staged = fresh(folder, STAGED)
    try:
        os.mkdir(staged, 0o700)
        write(staged, files, sync=True)
    except OSError as problem:
        raise EnvironmentFault(
            f"cannot write {staged}: {problem.strerror}", rule="plugin.write"
        ) from problem
    return staged


def write(folder: Path, files: Iterable[PluginFile], *, sync: bool) -> None:
    """Write files below a directory that nobody else writes to; names were checked before."""
    made = {folder}
    for file in files:
        path = folder / file.path
        for parent in reversed(path.relative_to(folder).parents):
            directory = folder / parent
            if directory not in made:
                os.mkdir(directory, 0o755)
                made.add(directory)
        descriptor = os.open(path, _NEW, 0o600)
        try:
            write_all(descriptor, file.content)
            os.fchmod(descriptor, file.mode & 0o777)
            if sync:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
    for directory in made if sync else ():
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def settle(path: Path) -> None:
    """Wait until nobody has a file open for writing: the kernel runs none that somebody has.

    A process that another thread starts while we write holds our descriptor for a moment. A lease
    is given only where there is no writer; where a file system knows none, nothing is waited for.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    deadline = time.monotonic() + SETTLE_S
    try:
        # Whoever opens it in this instant must not end us by the signal that says so.
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        while time.monotonic() < deadline:
            try:
                fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
                fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
            except BlockingIOError:
                time.sleep(SETTLE_LOOK_S)
            except OSError:
                return
            else:
                return
    finally:
        os.close(descriptor)


@contextmanager
def running(folder: Path) -> Iterator[Path]:
    """Make a directory for one call, which is gone after it; made with the store locked."""
    path = fresh(folder, RUNNING)
    os.mkdir(path, 0o700)
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # Whoever sweeps sees by this that the call still runs; a kill lets go of it.
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield path
    finally:
        discard(path)
        os.close(descriptor)


def sweep(folder: Path) -> None:
    """Take away what killed processes left; the caller has the store for itself."""
    for name in os.listdir(folder):
        path = folder / name
        if name.startswith((STAGED, REMOVED)) or (name.startswith(RUNNING) and _left(path)):
            discard(path)


def discard(path: Path) -> None:
    """Delete a directory, also one whose permissions are in the way; links are not followed."""
    import shutil

    for directory, names, _ in os.walk(path):
        for name in names:
            inner = os.path.join(directory, name)
            if stat.S_ISDIR(os.lstat(inner).st_mode):
                os.chmod(inner, 0o700)
    try:
        shutil.rmtree(path)
    except OSError as problem:
        _log.warning("%s could not be deleted: %s", path, problem.strerror)


def _left(path: Path) -> bool:
    """Whether nobody holds a directory of a call any more."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True
