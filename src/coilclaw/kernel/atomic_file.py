"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import stat
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from coilclaw.kernel.errors import EnvironmentFault, explain_os_errors

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import BinaryIO

MAX_PRIVATE_BYTES: Final = 64 * 2**10
"""Largest file that ``create_private`` makes or reads back."""

_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW


def write_atomic(path: Path, data: bytes, *, mode: int = 0o644, sync: bool = True) -> None:
    """Put a file in place in one move; readers see the old content or the new.

    The umask applies to ``mode``, as it does for any new file. A symbolic link at ``path`` is
    replaced, not followed.
    """
    with (
        explain_os_errors(f"write {path}", rule="file.io"),
        _temporary(path, data, mode=mode, sync=sync) as temporary,
    ):
        os.replace(temporary, path)
        if sync:
            sync_directory(path.parent)


def create_private(path: Path, data: bytes) -> bytes:
    """Create a file that only its owner may read, unless it exists; return what it holds.

    Any number of processes may race: all of them get the content of the one that won.
    """
    if len(data) > MAX_PRIVATE_BYTES:
        raise EnvironmentFault(
            f"{path} would be larger than {MAX_PRIVATE_BYTES} bytes", rule="file.large"
        )
    existing = read_private(path)
    if existing is not None:
        return existing
    with (
        explain_os_errors(f"write {path}", rule="file.io"),
        _temporary(path, data, mode=0o600, sync=True) as temporary,
    ):
        try:
            # Unlike a rename, a link refuses to replace, and the file it shows is complete.
            os.link(temporary, path, follow_symlinks=False)
        except FileExistsError:
            existing = read_private(path)
        sync_directory(path.parent)
    return data if existing is None else existing


def read_private(path: Path) -> bytes | None:
    """Return what a small private file holds; ``None`` if it does not exist."""
    with explain_os_errors(f"read {path}", rule="file.io"):
        file = open_regular(path, rule="file.io")
        if file is None:
            return None
        with file:
            data = file.read(MAX_PRIVATE_BYTES + 1)
    if len(data) > MAX_PRIVATE_BYTES:
        raise EnvironmentFault(
            f"{path} is larger than {MAX_PRIVATE_BYTES} bytes", rule="file.large"
        )
    return data


def open_regular(path: Path, *, rule: str) -> BinaryIO | None:
    """Open a regular file for reading, following no link; ``None`` if it does not exist."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise EnvironmentFault(f"{path} is not a regular file", rule=rule)
    return open(descriptor, "rb")


def sync_directory(path: Path) -> None:
    """Make the names in a directory as durable as the files behind them."""
    with explain_os_errors(f"sync {path}", rule="file.io"):
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def sync_data(descriptor: int) -> None:
    """Make the bytes of a file, and the length needed to read them, durable."""
    if sys.platform == "darwin":
        import fcntl

        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)  # fsync alone stops at the drive's cache there
    else:
        os.fdatasync(descriptor)


def write_all(descriptor: int, data: bytes) -> None:
    """Write every byte; a file system that is full takes some of them and says so at the next."""
    written = os.write(descriptor, data)
    while written < len(data):
        written += os.write(descriptor, memoryview(data)[written:])


@contextmanager
def _temporary(path: Path, data: bytes, *, mode: int, sync: bool) -> Iterator[Path]:
    temporary = path.parent / f".coilclaw-{os.urandom(8).hex()}.tmp"
    descriptor = os.open(temporary, _NEW, mode)
    try:
        try:
            if mode == 0o600:
                os.fchmod(descriptor, mode)  # private means private, and readable by us
            write_all(descriptor, data)
            if sync:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        yield temporary
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary)


def anchor_path(path: Path) -> Path:
    """Return where the anchor of a journal is."""
    return path.with_name(f"{path.name}.anchor")
