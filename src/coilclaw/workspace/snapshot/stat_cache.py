"""The stat cache: which blob a file was when its size, times, inode and mode were these.

A file whose times are too close to the moment of the scan may change again without its times
moving on, so its key is kept as one that never matches. The cache saves time and decides nothing:
a file that is missing, damaged, of another version or of another object store is an empty cache.

Layout, integers little-endian: the magic line, the SHA-256 of all that follows, a JSON header,
the directories, and last the files of which only a digest is kept. Header, each directory and the
digests are preceded by their length.
"""

from __future__ import annotations

import json
import os
import struct
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Final, TypeAlias

from coilclaw.kernel import write_atomic

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

MAX_CACHE_BYTES: Final = 2**30
MARGIN_NS: Final = 3 * 10**9
"""A file touched later than this before the scan began is read again next time.

It covers file systems whose clock ticks every 2 s, the coarsest in use, and the kernel's own ticks.
"""

Key: TypeAlias = tuple[int, int, int, int, int, int]
"""Size, mtime and ctime in nanoseconds, inode, device, ``st_mode``."""

Leaf: TypeAlias = tuple[Key, bytes]
"""The key a file had and the id or digest its content has."""

_MAGIC: Final = b"coilclaw stat cache 1\n"
_LENGTH: Final = struct.Struct("<I")
_SIZES: Final = struct.Struct("<IIII")
_KEY: Final = struct.Struct("<qqqQQI")
_ID_BYTES: Final = 20
_DIGEST_BYTES: Final = 32
_NO_TREE: Final = bytes(_ID_BYTES)
_TIME_LIMIT: Final = 2**63


def key_of(status: os.stat_result) -> Key:
    """Return what must stay the same for a file to count as unchanged."""
    times = (status.st_mtime_ns, status.st_ctime_ns)
    return (status.st_size, *times, status.st_ino, status.st_dev, status.st_mode)


def lasting(key: Key, settled_ns: int) -> Key:
    """Return the key to remember; one that never matches if the file is not older than that."""
    _, mtime, ctime, _, _, mode = key
    if -_TIME_LIMIT < mtime < settled_ns and -_TIME_LIMIT < ctime < settled_ns:
        return key
    return (-1, 0, 0, 0, 0, mode)


@dataclass(frozen=True, slots=True)
class Directory:
    """What one directory held: its files and links, the trees below it, and its own tree."""

    files: Mapping[str, Leaf]
    subtrees: Mapping[str, bytes]
    tree: bytes | None
    """``None`` where a tree has nothing to say: no file here or below."""

    def encode(self, path: str) -> bytes:
        where = os.fsencode(path)
        names = b"\0".join(map(os.fsencode, (*self.files, *self.subtrees)))
        return b"".join(
            (
                _SIZES.pack(len(where), len(names), len(self.files), len(self.subtrees)),
                where,
                names,
                *(_KEY.pack(*key) for key, _ in self.files.values()),
                *(blob for _, blob in self.files.values()),
                *self.subtrees.values(),
                self.tree or _NO_TREE,
            )
        )


class Remembered:
    """A directory as it was the last time; blobs are decoded only when asked for."""

    __slots__ = ("_blobs", "_positions", "keys", "subtrees", "tree")

    def __init__(self, data: bytes) -> None:
        path_size, name_size, files, trees = _SIZES.unpack_from(data)
        at = _SIZES.size + path_size
        names = os.fsdecode(data[at : at + name_size]).split("\0")
        at += name_size
        keys = _KEY.iter_unpack(data[at : at + files * _KEY.size])
        self.keys: dict[str, Key] = dict(zip(names, keys, strict=False))  # the trees' names follow
        at += files * _KEY.size
        self._blobs = data[at : at + files * _ID_BYTES]
        self._positions: dict[str, int] | None = None
        ids = _slices(data, at + files * _ID_BYTES, trees + 1, _ID_BYTES)
        self.subtrees = dict(zip(names[files : files + trees], ids[:-1], strict=True))
        self.tree = None if ids[-1] == _NO_TREE else ids[-1]

    def blob(self, name: str) -> bytes | None:
        """Return the blob that a name was, which is stored; ``None`` if it was not there."""
        if self._positions is None:
            self._positions = {name: place for place, name in enumerate(self.keys)}
        place = self._positions.get(name)
        return None if place is None else self._blobs[place * _ID_BYTES : (place + 1) * _ID_BYTES]


@dataclass(slots=True)
class StatCache:
    """What the last scan of one root found; directories stay encoded until they are asked for."""

    generation: str = ""
    """The object store that holds every blob and tree named here."""
    snapshot: str = ""
    directories: dict[str, bytes] = field(default_factory=dict)
    digests: dict[str, Leaf] = field(default_factory=dict)

    def directory(self, path: str) -> Remembered | None:
        encoded = self.directories.get(path)
        return None if encoded is None else Remembered(encoded)


def encode(cache: StatCache) -> bytes:
    """Return the cache as it is stored."""
    header = {"generation": cache.generation, "snapshot": cache.snapshot}
    digests = [_prefix_length(b"\0".join(map(os.fsencode, cache.digests)))]
    digests += [_KEY.pack(*key) for key, _ in cache.digests.values()]
    digests += [digest for _, digest in cache.digests.values()]
    blocks = [
        json.dumps(header, sort_keys=True).encode("ascii"),
        b"".join(_prefix_length(block) for block in cache.directories.values()),
        b"".join(digests),
    ]
    body = b"".join(map(_prefix_length, blocks))
    return b"".join((_MAGIC, sha256(body).digest(), body))


def decode(data: bytes) -> StatCache:
    """Read a stored cache; anything that is not exactly that is an empty one."""
    start = len(_MAGIC) + _DIGEST_BYTES
    body = data[start:]
    if not data.startswith(_MAGIC) or sha256(body).digest() != data[len(_MAGIC) : start]:
        return StatCache()
    header, block, digests = _blocks(body)
    directories = {}
    for encoded in _blocks(block):
        path_size = _LENGTH.unpack_from(encoded)[0]
        directories[os.fsdecode(encoded[_SIZES.size : _SIZES.size + path_size])] = encoded
    size = _LENGTH.unpack_from(digests)[0]
    names = os.fsdecode(digests[_LENGTH.size : _LENGTH.size + size]).split("\0") if size else []
    at = _LENGTH.size + size
    keys = _KEY.iter_unpack(digests[at : at + len(names) * _KEY.size])
    values = _slices(digests, at + len(names) * _KEY.size, len(names), _DIGEST_BYTES)
    known = dict(zip(names, zip(keys, values, strict=True), strict=True))
    return StatCache(directories=directories, digests=known, **json.loads(header))


def load(path: Path) -> StatCache:
    """Read the cache of a root, or an empty one."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_CACHE_BYTES + 1)
    except OSError:
        return StatCache()  # a cache that cannot be read is not a cache
    return decode(data) if len(data) <= MAX_CACHE_BYTES else StatCache()


def save(path: Path, cache: StatCache) -> None:
    """Store the cache of a root; it need not survive a power cut, only never be half there."""
    data = encode(cache)
    if len(data) <= MAX_CACHE_BYTES:
        write_atomic(path, data, mode=0o600, sync=False)


def _prefix_length(block: bytes) -> bytes:
    return _LENGTH.pack(len(block)) + block


def _blocks(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        size = _LENGTH.unpack_from(data, at)[0]
        at += _LENGTH.size
        yield data[at : at + size]
        at += size


def _slices(data: bytes, at: int, count: int, size: int) -> list[bytes]:
    return [data[place : place + size] for place in range(at, at + count * size, size)]
