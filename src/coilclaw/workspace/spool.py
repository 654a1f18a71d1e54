"""``Spool``: the new objects of one snapshot, compressed, on their way into one git pack."""

from __future__ import annotations

import os
import struct
import zlib
from hashlib import sha1
from tempfile import SpooledTemporaryFile
from typing import TYPE_CHECKING, Final, Self

from coilclaw.errors import EnvironmentFault
from coilclaw.workspace.treefile import object_id

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

MAX_IN_MEMORY: Final = 32 * 2**20
"""A spool that outgrows this many bytes moves to a file without a name."""

CHUNK_BYTES: Final = 2**20
"""Larger files are read, hashed and compressed in pieces of this size."""

_LEVEL: Final = 1
_TYPES: Final = {b"commit": 1, b"tree": 2, b"blob": 3}


class Spool:
    """Takes contents in, gives a pack out. Use it as a context manager."""

    def __init__(self, directory: Path) -> None:
        self._file = SpooledTemporaryFile(max_size=MAX_IN_MEMORY, dir=str(directory))  # noqa: SIM115 - closed in __exit__
        self._directory = directory
        self._places: dict[bytes, tuple[int, int]] = {}
        self._end = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    @property
    def ids(self) -> Collection[bytes]:
        """The objects taken in so far."""
        return self._places.keys()

    def put(self, kind: bytes, data: bytes, *, known: bytes | None = None) -> bytes:
        """Take an object in and return its id; ``known`` is an id that is stored already."""
        name = object_id(kind, data)
        if name != known and name not in self._places:
            start = self._end
            self._append(_entry_header(kind, len(data)) + zlib.compress(data, _LEVEL))
            self._note(name, start)
        return name

    def put_file(self, descriptor: int, size: int, *, known: bytes | None = None) -> bytes | None:
        """Take in an open file as a blob; ``None`` if it does not hold exactly ``size`` bytes."""
        if size > CHUNK_BYTES:
            return self._put_pieces(descriptor, size, known)
        data = os.read(descriptor, size + 1)
        while len(data) < size:
            more = os.read(descriptor, size + 1 - len(data))
            if not more:
                break
            data += more
        return self.put(b"blob", data, known=known) if len(data) == size else None

    def pack(self, wanted: Collection[bytes]) -> Iterator[bytes]:
        """Yield a git pack of the wanted objects, piece by piece."""
        places = sorted(self._places[name] for name in wanted)
        digest = sha1(usedforsecurity=False)
        for piece in self._pieces(places):
            digest.update(piece)
            yield piece
        yield digest.digest()

    def _put_pieces(self, descriptor: int, size: int, known: bytes | None) -> bytes | None:
        start = self._end
        digest = sha1(b"blob %d\0" % size, usedforsecurity=False)
        deflate = zlib.compressobj(_LEVEL)
        self._append(_entry_header(b"blob", size))
        left = size
        while data := os.read(descriptor, min(CHUNK_BYTES, left + 1)):
            left -= len(data)
            if left < 0:
                break
            digest.update(data)
            self._append(deflate.compress(data))
        self._append(deflate.flush())
        name = digest.digest() if left == 0 else None
        if name is None or name == known or name in self._places:
            self._file.seek(start)
            self._file.truncate()
            self._end = start
        else:
            self._note(name, start)
        return name

    def _append(self, data: bytes) -> None:
        try:
            self._file.write(data)
        except OSError as problem:
            # Said here, lest it be taken for a fault of the file that is being read.
            raise EnvironmentFault(
                f"cannot keep what is new in {self._directory}: {problem.strerror}",
                rule="snapshot.spool",
            ) from problem
        self._end += len(data)

    def _note(self, name: bytes, start: int) -> None:
        self._places[name] = (start, self._end - start)

    def _pieces(self, places: list[tuple[int, int]]) -> Iterator[bytes]:
        yield b"PACK" + struct.pack(">II", 2, len(places))
        for start, size in _runs(places):
            self._file.seek(start)
            left = size
            while left:
                piece = self._file.read(min(CHUNK_BYTES, left))
                left -= len(piece)
                yield piece
        self._file.seek(self._end)


def _runs(places: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Join neighbours, so that few large pieces are read instead of many small ones."""
    if not places:
        return
    start, size = places[0]
    for place, length in places[1:]:
        if place == start + size:
            size += length
        else:
            yield start, size
            start, size = place, length
    yield start, size


def _entry_header(kind: bytes, size: int) -> bytes:
    """A pack entry's type and size: 4 bits of size with the type, then 7 at a time."""
    byte = _TYPES[kind] << 4 | size & 0x0F
    size >>= 4
    out = bytearray()
    while size:
        out.append(byte | 0x80)
        byte = size & 0x7F
        size >>= 7
    out.append(byte)
    return bytes(out)
