"""``LocalStore``: artifacts as files below a directory, durable before ``put`` returns."""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw.artifacts import keys
from coilclaw.artifacts.content import (
    Digest,
    copy_file,
    digest_file,
    digest_of,
    mapped_errors,
)
from coilclaw.artifacts.store import (
    MAX_GET_BYTES,
    MAX_LISTED,
    MAX_OBJECT_BYTES,
    Entry,
    Version,
    conflict,
    damaged,
    missing,
    too_large,
    too_many,
)
from coilclaw.storage.atomic import sync_data, sync_directory, write_all
from coilclaw.storage.lock import FileLock

if TYPE_CHECKING:
    from collections.abc import Iterator

OWN: Final = ".coilclaw"
"""The directory of ours below the root; no key begins with a dot."""

STALE_S: Final = 60.0
"""Age from which a staged file that nobody holds was left behind by a killed writer."""

_NEW: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW


class LocalStore:
    """Any number of processes may use one directory.

    The version of an artifact is the hash of its bytes, so it also holds for a copy of the
    directory, and what somebody edits by hand is noticed.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self._staging = self.root / OWN / "staging"
        self._locks = self.root / OWN / "locks"

    def put(self, key: str, source: bytes | Path, *, previous: Version | None) -> Version:
        target = self.root / keys.check(key)
        _make_directory(self._staging)
        _make_directory(self._locks)
        _make_directory(target.parent)
        self._sweep()
        with self._staged(source) as (staged, digest), FileLock(self._lock(key)):
            current = digest_file(target)
            if current == digest:
                return _version(digest)
            if (None if current is None else _version(current)) != previous:
                raise conflict(self.uri(key))
            with mapped_errors(target):
                os.replace(staged, target)
            sync_directory(target.parent)
        return _version(digest)

    def head(self, key: str) -> Version | None:
        digest = digest_file(self.root / keys.check(key))
        return None if digest is None else _version(digest)

    def exists(self, key: str) -> bool:
        path = self.root / keys.check(key)
        return path.is_file() and not path.is_symlink()

    def get(self, key: str, *, limit: int = MAX_GET_BYTES) -> bytes:
        path = self._present(key)
        pieces: list[bytes] = []
        copy_file(path, pieces.append, pieces.clear, limit=limit)
        return b"".join(pieces)

    def download(self, key: str, path: Path) -> Version:
        return _version(copy(self._present(key), path))

    def list(self, prefix: str = "") -> tuple[Entry, ...]:
        top = self.root / keys.check_prefix(prefix)
        found: list[Entry] = []
        with mapped_errors(top):
            for directory, names, files in os.walk(top):
                names[:] = [name for name in names if not name.startswith(".")]
                for name in files:
                    path = Path(directory, name)
                    key = path.relative_to(self.root).as_posix()
                    if keys.safe(key) and path.is_file() and not path.is_symlink():
                        found.append(Entry(key, path.stat().st_size))
                if len(found) > MAX_LISTED:
                    raise too_many(str(top))
        return tuple(sorted(found))

    def uri(self, key: str) -> str:
        return str(self.root / keys.check(key))

    def _present(self, key: str) -> Path:
        if not self.exists(key):
            raise missing(self.uri(key))
        return self.root / key

    def _lock(self, key: str) -> Path:
        # Few lock files for any number of keys: keys that share one wait for each other.
        return self._locks / hashlib.sha256(key.encode()).hexdigest()[:2]

    @contextmanager
    def _staged(self, source: bytes | Path) -> Iterator[tuple[Path, Digest]]:
        """Write the bytes to a file of our own, synced and read back."""
        staged = self._staging / f"{os.getpid()}-{os.urandom(8).hex()}"
        with mapped_errors(staged):
            descriptor = os.open(staged, _NEW, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)  # until the end says: not left behind
                digest = _fill(descriptor, source)
                sync_data(descriptor)
                if digest_file(staged) != digest:
                    raise damaged(str(staged))
                yield staged, digest
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(staged)
                os.close(descriptor)

    def _sweep(self) -> None:
        """Delete what killed writers left behind."""
        oldest = time.time() - STALE_S
        with mapped_errors(self._staging):
            for path in list(self._staging.iterdir()):
                with suppress(FileNotFoundError):
                    if path.lstat().st_mtime < oldest and _abandoned(path):
                        path.unlink()


def copy(source: Path, path: Path) -> Digest:
    """Copy a file to one that is there whole or not at all."""
    with downloading(path) as descriptor:
        return _pour(source, descriptor)


@contextmanager
def downloading(path: Path) -> Iterator[int]:
    """Give a descriptor to fill; the file takes its place when that went well."""
    temporary = path.parent / f".coilclaw-{os.urandom(8).hex()}.tmp"
    with mapped_errors(path):
        descriptor = os.open(temporary, _NEW, 0o600)
        try:
            try:
                yield descriptor
                sync_data(descriptor)
            finally:
                os.close(descriptor)
            os.replace(temporary, path)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(temporary)


def _version(digest: Digest) -> Version:
    return Version(f"sha256:{digest.sha256}", digest.size)


def _fill(descriptor: int, source: bytes | Path) -> Digest:
    if isinstance(source, bytes):
        if len(source) > MAX_OBJECT_BYTES:
            raise too_large("an artifact", MAX_OBJECT_BYTES)
        write_all(descriptor, source)
        return digest_of(source)
    return _pour(source, descriptor)


def _pour(source: Path, descriptor: int) -> Digest:
    return copy_file(
        source,
        lambda piece: write_all(descriptor, piece),
        lambda: _rewind(descriptor),
        limit=MAX_OBJECT_BYTES,
    )


def _rewind(descriptor: int) -> None:
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.ftruncate(descriptor, 0)


def _make_directory(path: Path) -> None:
    """Make a directory with its parents, each durable in the one above it."""
    if path.is_dir():
        return
    if path.parent != path:
        _make_directory(path.parent)
    with mapped_errors(path):
        path.mkdir(mode=0o700, exist_ok=True)
    sync_directory(path.parent)


def _abandoned(path: Path) -> bool:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True
