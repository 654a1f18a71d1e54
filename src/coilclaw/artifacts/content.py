"""The bytes of an artifact on their way: hashed as they pass, and from one moment of the file."""

from __future__ import annotations

import hashlib
import os
import stat
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Final

from coilclaw.artifacts.store import MAX_OBJECT_BYTES, UNREADABLE, UNSTEADY, too_large
from coilclaw.errors import EnvironmentFault

if TYPE_CHECKING:
    import mmap
    from collections.abc import Callable, Iterator
    from pathlib import Path

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
    size = _size(source)
    if size <= MAX_MEMORY_BYTES:
        pieces: list[bytes] = []
        digest = copy_file(source, pieces.append, pieces.clear, limit=MAX_OBJECT_BYTES)
        yield Content(b"".join(pieces), digest)
        return
    with _spool(source) as file:
        digest = copy_file(source, file.write, lambda: _empty(file), limit=MAX_OBJECT_BYTES)
        file.flush()
        if digest.size == 0:
            yield Content(b"", digest)
            return
        import mmap

        # A copy nobody else can cut short: reading a mapped file beyond its end would kill us.
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
        if _state(before) == _state(after) and hasher.size == after.st_size:
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


@contextmanager
def mapped_errors(path: Path) -> Iterator[None]:
    """Turn what the operating system says about a file into one of our errors."""
    try:
        yield
    except OSError as problem:
        raise EnvironmentFault(
            f"cannot read or write {path}: {problem.strerror or problem}", rule=UNREADABLE
        ) from problem


def _size(path: Path) -> int:
    with mapped_errors(path):
        return path.stat().st_size


def _state(status: os.stat_result) -> tuple[int, int]:
    return status.st_size, status.st_mtime_ns


@contextmanager
def _spool(source: Path) -> Iterator[BinaryIO]:
    """A file without a name, beside the source where possible: /tmp may be memory."""
    import tempfile

    beside = source.parent if os.access(source.parent, os.W_OK) else None
    with mapped_errors(source), tempfile.TemporaryFile(dir=beside) as file:
        yield file


def _empty(file: BinaryIO) -> None:
    file.seek(0)
    file.truncate()
