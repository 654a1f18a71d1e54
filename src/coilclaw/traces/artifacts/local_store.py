"""``LocalStore``: artifacts as files below a directory, durable before ``put`` returns.

Bytes are hashed as they pass, and come from one moment of their file."""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import time
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import (
    EnvironmentFault,
    FileLock,
    explain_os_errors,
    sync_data,
    sync_directory,
    write_all,
)
from coilclaw.traces.artifacts import store
from coilclaw.traces.artifacts.store import MAX_OBJECT_BYTES, UNREADABLE, UNSTEADY, too_large

if TYPE_CHECKING:
    import mmap
    from collections.abc import Callable, Iterator

CHUNK_BYTES: Final = 2**20

MAX_MEMORY_BYTES: Final = 8 * 2**20
"""Largest file that is read into memory; a larger one is copied to disk and mapped."""

MAX_READINGS: Final = 5
"""How often a file that changes while it is read is read again."""


@dataclass(frozen=True, slots=True)
class Digest:
    """What the bytes of an artifact are recognised by."""

    size: int
    sha256: str
    md5: str
    """What most servers give as the tag of an object; it tells accidents, not attacks."""


@dataclass(frozen=True, slots=True)
class Content:
    """Bytes that stay as they are while they are sent."""

    buffer: bytes | mmap.mmap
    digest: Digest


class Hasher:
    """Takes the bytes one piece after the other."""

    def __init__(self) -> None:
        self.size = 0
        self._sha256 = hashlib.sha256()
        self._md5 = hashlib.md5(usedforsecurity=False)

    def take(self, piece: bytes) -> None:
        self.size += len(piece)
        self._sha256.update(piece)
        self._md5.update(piece)

    def digest(self) -> Digest:
        return Digest(self.size, self._sha256.hexdigest(), self._md5.hexdigest())


def digest_of(data: bytes) -> Digest:
    hasher = Hasher()
    hasher.take(data)
    return hasher.digest()


@contextmanager
def steady(source: bytes | Path) -> Iterator[Content]:
    """Hold the bytes of a source still for as long as they are needed, with little memory."""
    if isinstance(source, bytes):
        yield Content(source, digest_of(source))
        return
    with mapped_errors(source):
        size = source.stat().st_size
    if size <= MAX_MEMORY_BYTES:
        pieces: list[bytes] = []
        digest = copy_file(source, pieces.append, pieces.clear, limit=MAX_OBJECT_BYTES)
        yield Content(b"".join(pieces), digest)
        return
    import mmap
    import tempfile

    # A file without a name, beside the source where possible: /tmp may be memory.
    beside = source.parent if os.access(source.parent, os.W_OK) else None
    with mapped_errors(source), tempfile.TemporaryFile(dir=beside) as file:
        digest = copy_file(
            source, file.write, lambda: file.truncate(file.seek(0)), limit=MAX_OBJECT_BYTES
        )
        file.flush()
        if digest.size == 0:
            yield Content(b"", digest)
            return
        # A private copy: reading a mapped file that was cut short would kill this process.
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            yield Content(mapped, digest)


def copy_file(
    source: Path, sink: Callable[[bytes], object], restart: Callable[[], object], *, limit: int
) -> Digest:
    """Pass a file's bytes on; one that changes meanwhile is read again from the start."""
    for _ in range(MAX_READINGS):
        restart()
        with mapped_errors(source), source.open("rb", buffering=0) as file:
            before = os.fstat(file.fileno())
            if not stat.S_ISREG(before.st_mode):
                raise EnvironmentFault(f"{source} is not a regular file", rule=UNREADABLE)
            hasher = Hasher()
            while piece := file.read(CHUNK_BYTES):
                hasher.take(piece)
                if hasher.size > limit:
                    raise too_large(str(source), limit)
                sink(piece)
            after = os.fstat(file.fileno())
        same = (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)
        if same and hasher.size == after.st_size:
            return hasher.digest()
    raise EnvironmentFault(f"{source} changes all the time while it is read", rule=UNSTEADY)


def digest_file(path: Path) -> Digest | None:
    """Return what a file holds, or ``None`` where there is none."""
    hasher = Hasher()
    with mapped_errors(path):
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except (FileNotFoundError, NotADirectoryError):
            return None
        with open(descriptor, "rb", buffering=0) as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise EnvironmentFault(f"{path} is not a regular file", rule=UNREADABLE)
            while piece := file.read(CHUNK_BYTES):
                hasher.take(piece)
    return hasher.digest()


def mapped_errors(path: Path) -> AbstractContextManager[None]:
    """Turn what the operating system says about a file into one of our errors."""
    return explain_os_errors(f"read or write {path}", rule=UNREADABLE)


OWN: Final = ".coilclaw"
"""The private directory below the root; no key begins with a dot."""

STALE_S: Final = 60.0
"""Age from which a staged file without a holder was left behind by a killed writer."""

_READ: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_NEW: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW


class LocalStore:
    """Any number of processes may use one directory.

    The version of an artifact is the hash of its bytes, so it also holds for a copy of the
    directory, and what is edited by hand is noticed.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self._staging = self.root / OWN / "staging"
        self._locks = self.root / OWN / "locks"

    def put(
        self, key: str, source: bytes | Path, *, previous: store.ArtifactVersion | None
    ) -> store.ArtifactVersion:
        target = self.root / store.check_key(key)
        _make_directory(self._staging)
        _make_directory(self._locks)
        _make_directory(target.parent)
        # Delete what killed writers left behind.
        oldest = time.time() - STALE_S
        with mapped_errors(self._staging):
            for path in list(self._staging.iterdir()):
                with suppress(FileNotFoundError, BlockingIOError):  # a writer still holds it
                    if path.lstat().st_mtime < oldest:
                        descriptor = os.open(path, _READ)
                        try:
                            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        finally:
                            os.close(descriptor)
                        path.unlink()
        with self._stage(source) as (staged, digest), FileLock(self._lock(key)):
            current = digest_file(target)
            if current == digest:
                return _version(digest)
            if (None if current is None else _version(current)) != previous:
                raise store.conflict(self.uri(key))
            with mapped_errors(target):
                os.replace(staged, target)
            sync_directory(target.parent)
        return _version(digest)

    def head(self, key: str) -> store.ArtifactVersion | None:
        digest = digest_file(self.root / store.check_key(key))
        return None if digest is None else _version(digest)

    def exists(self, key: str) -> bool:
        path = self.root / store.check_key(key)
        return path.is_file() and not path.is_symlink()

    def get(self, key: str, *, limit: int = store.MAX_GET_BYTES) -> bytes:
        path = self._require_path(key)
        pieces: list[bytes] = []
        copy_file(path, pieces.append, pieces.clear, limit=limit)
        return b"".join(pieces)

    def download(self, key: str, path: Path) -> store.ArtifactVersion:
        return _version(copy(self._require_path(key), path))

    def list(self, prefix: str = "") -> tuple[store.ArtifactEntry, ...]:
        top = self.root / store.check_key_prefix(prefix)
        found: list[store.ArtifactEntry] = []
        with mapped_errors(top):
            for directory, names, files in os.walk(top):
                names[:] = [name for name in names if not name.startswith(".")]
                for name in files:
                    path = Path(directory, name)
                    key = path.relative_to(self.root).as_posix()
                    if store.is_safe_key(key) and path.is_file() and not path.is_symlink():
                        found.append(store.ArtifactEntry(key, path.stat().st_size))
                if len(found) > store.MAX_LISTED:
                    raise store.too_many(str(top))
        return tuple(sorted(found))

    def uri(self, key: str) -> str:
        return str(self.root / store.check_key(key))

    def _require_path(self, key: str) -> Path:
        if not self.exists(key):
            raise store.missing(self.uri(key))
        return self.root / key

    def _lock(self, key: str) -> Path:
        # Few lock files for any number of keys: keys that share one wait for each other.
        return self._locks / hashlib.sha256(key.encode()).hexdigest()[:2]

    @contextmanager
    def _stage(self, source: bytes | Path) -> Iterator[tuple[Path, Digest]]:
        """Write the bytes to a file of our own, synced and read back."""
        staged = self._staging / f"{os.getpid()}-{os.urandom(8).hex()}"
        with mapped_errors(staged):
            descriptor = os.open(staged, _NEW, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)  # until the end says: not left behind
                if isinstance(source, bytes):
                    if len(source) > store.MAX_OBJECT_BYTES:
                        raise store.too_large("an artifact", store.MAX_OBJECT_BYTES)
                    write_all(descriptor, source)
                    digest = digest_of(source)
                else:
                    digest = _pour(source, descriptor)
                sync_data(descriptor)
                if digest_file(staged) != digest:
                    raise store.damaged_error(str(staged))
                yield staged, digest
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(staged)
                os.close(descriptor)


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


def _version(digest: Digest) -> store.ArtifactVersion:
    return store.ArtifactVersion(f"sha256:{digest.sha256}", digest.size)


def _pour(source: Path, descriptor: int) -> Digest:
    """Copy a file to a descriptor, from its beginning as often as the file changes meanwhile."""

    def restart() -> None:
        os.lseek(descriptor, 0, os.SEEK_SET)
        os.ftruncate(descriptor, 0)

    return copy_file(
        source, lambda piece: write_all(descriptor, piece), restart, limit=store.MAX_OBJECT_BYTES
    )


def _make_directory(path: Path) -> None:
    """Make a directory with its parents, each durable in the one above it."""
    if path.is_dir():
        return
    if path.parent != path:
        _make_directory(path.parent)
    with mapped_errors(path):
        path.mkdir(mode=0o700, exist_ok=True)
    sync_directory(path.parent)
