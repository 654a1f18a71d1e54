"""The git objects a snapshot is made of: blobs, trees and one commit without time or parent.

The tree is the one git itself would write for the same files. What git's trees cannot say (empty
directories, FIFOs, nested repositories, the state of the tree's own ``.git``) stands in the
commit's message, so that the id of the commit covers the whole picture and nothing else.
"""

from __future__ import annotations

import json
import os
import stat
import struct
import zlib
from dataclasses import dataclass, field
from hashlib import sha1
from tempfile import SpooledTemporaryFile
from typing import TYPE_CHECKING, Final, Self, TypeAlias

from coilclaw.kernel import EntryType, EnvironmentFault, explain_os_errors, write_atomic

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

MAX_COMMIT_BYTES: Final = 2**30
"""Enough for as many special entries as a scan takes in, with names as long as they can be."""

EMPTY_TREE: Final = sha1(b"tree 0\0", usedforsecurity=False).digest()

TREE: Final = b"40000"
"""The mode of a tree in a tree."""

Entries: TypeAlias = dict[bytes, tuple[bytes, bytes]]
"""What a tree holds: name to mode and binary id."""

TYPES: Final = {
    b"100644": EntryType.FILE,
    b"100755": EntryType.EXECUTABLE,
    b"120000": EntryType.SYMLINK,
}
"""What the modes mean that git's listings give; a snapshot's tree holds no others."""

_ID_BYTES: Final = 20
_LEVEL: Final = 1
_IDENTITY: Final = b"CoilClaw <snapshot@coilclaw.invalid>"
_TITLE: Final = b"CoilClaw snapshot, format 1"


@dataclass(frozen=True, slots=True)
class Opaque:
    """Something of which only a digest is kept."""

    kind: str
    """``repository``, ``fifo``, ``socket`` or ``device``."""
    digest: str


@dataclass(frozen=True, slots=True)
class SnapshotManifest:
    """What a snapshot holds besides its tree."""

    empty: tuple[str, ...] = ()
    """Directories with nothing in them, sorted."""
    opaque: Mapping[str, Opaque] = field(default_factory=dict)
    git: Mapping[str, str] = field(default_factory=dict)
    """Digest of each part of the tree's own ``.git`` that is there."""
    modes: Mapping[str, int] = field(default_factory=dict)
    """Permission bits of the files whose bits git's two modes do not say."""
    excluded: tuple[str, ...] = ()
    """What the one who took it left out."""


USUAL_MODES: Final = frozenset({0o644, 0o664, 0o755, 0o775})
"""Permission bits that git's two modes stand for, with a umask of 022 or 002."""


def object_id(kind: bytes, data: bytes) -> bytes:
    """Return the id git gives to an object of this kind with this content."""
    digest = sha1(b"%s %d\0" % (kind, len(data)), usedforsecurity=False)
    digest.update(data)
    return digest.digest()


def git_mode(mode: int) -> bytes:
    """Return how a tree writes the mode of a regular file or a link."""
    if stat.S_ISLNK(mode):
        return b"120000"
    return b"100755" if mode & stat.S_IXUSR else b"100644"


def encode_tree(entries: Mapping[bytes, tuple[bytes, bytes]]) -> bytes:
    """Return the bytes of a tree object; git sorts a directory as if a slash followed its name."""
    rows = sorted(
        (name + b"/" if mode == TREE else name, b"%s %s\0%s" % (mode, name, object_name))
        for name, (mode, object_name) in entries.items()
    )
    return b"".join(row for _, row in rows)


def parse_tree(data: bytes) -> Entries:
    """Read a tree object."""
    entries: Entries = {}
    at = 0
    while at < len(data):
        blank = data.index(b" ", at)
        end = data.index(b"\0", blank)
        entries[data[blank + 1 : end]] = (data[at:blank], data[end + 1 : end + 1 + _ID_BYTES])
        at = end + 1 + _ID_BYTES
    return entries


def make_commit(
    tree: str, parents: tuple[str, ...], message: bytes, identity: bytes, seconds: int
) -> bytes:
    """Return the bytes of a commit that depends on nothing but what is given here."""
    who = b"%s %d +0000" % (identity, seconds)
    lines = [f"tree {tree}".encode("ascii")]
    lines += [f"parent {parent}".encode("ascii") for parent in parents]
    return b"\n".join([*lines, b"author " + who, b"committer " + who, b"", message, b""])


def put_object(git_dir: Path, kind: bytes, data: bytes) -> str:
    """Store an object of a repository of ours in a file of its own, and return its id.

    It survives a kill, and not necessarily a power cut: nothing is synced.
    """
    name = object_id(kind, data).hex()
    path = git_dir / "objects" / name[:2] / name[2:]
    if not path.exists():
        with explain_os_errors(f"create {path.parent}", rule="checkpoint.store"):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        whole = b"%s %d\0%s" % (kind, len(data), data)
        write_atomic(path, zlib.compress(whole, _LEVEL), mode=0o444, sync=False)
    return name


def encode_commit(tree: bytes, manifest: SnapshotManifest) -> bytes:
    """Return the bytes of a commit that depends on nothing but what it stands for."""
    document: dict[str, object] = {
        "empty": [_portable(path) for path in manifest.empty],
        "git": dict(manifest.git),
        "opaque": {
            _portable(path): [entry.kind, entry.digest] for path, entry in manifest.opaque.items()
        },
    }
    if manifest.modes:
        document["modes"] = {_portable(path): mode for path, mode in manifest.modes.items()}
    if manifest.excluded:
        document["excluded"] = [_portable(path) for path in manifest.excluded]
    message = json.dumps(document, sort_keys=True, separators=(",", ":")).encode("ascii")
    return make_commit(tree.hex(), (), b"%s\n\n%s" % (_TITLE, message), _IDENTITY, 0)


def decode_commit(data: bytes, name: str) -> tuple[str, SnapshotManifest]:
    """Return the tree and the manifest of a commit that ``encode_commit`` wrote."""
    head, _, rest = data.partition(b"\n\n")
    title, _, message = rest.partition(b"\n\n")
    first = head.split(b"\n", 1)[0]
    if title != _TITLE or not first.startswith(b"tree "):
        raise EnvironmentFault(
            f"object {name} is not a snapshot of this format", rule="snapshot.format"
        )
    document = json.loads(message)
    opaque = {_native(path): Opaque(*entry) for path, entry in document["opaque"].items()}
    empty = tuple(_native(path) for path in document["empty"])
    modes = {_native(path): mode for path, mode in document.get("modes", {}).items()}
    excluded = tuple(_native(path) for path in document.get("excluded", ()))
    manifest = SnapshotManifest(empty, opaque, document["git"], modes, excluded)
    return first[5:].decode("ascii"), manifest


def _portable(path: str) -> str:
    """The same text for the same bytes, whatever this machine's file names are encoded in."""
    return os.fsencode(path).decode("utf-8", "surrogateescape")


def _native(path: str) -> str:
    return os.fsdecode(path.encode("utf-8", "surrogateescape"))


MAX_IN_MEMORY: Final = 32 * 2**20
"""A spool that outgrows this many bytes moves to a file without a name."""

CHUNK_BYTES: Final = 2**20
"""Larger files are read, hashed and compressed in pieces of this size."""

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
            self._places[name] = (start, self._end - start)
        return name

    def put_file(self, descriptor: int, size: int, *, known: bytes | None = None) -> bytes | None:
        """Take in an open file as a blob; ``None`` if it does not hold exactly ``size`` bytes."""
        if size > CHUNK_BYTES:
            return self._put_pieces(descriptor, size, known)
        data = b""
        while more := os.read(descriptor, size + 1 - len(data)):
            data += more
        return self.put(b"blob", data, known=known) if len(data) == size else None

    def pack(self, wanted: Collection[bytes]) -> Iterator[bytes]:
        """Yield a git pack of the wanted objects, piece by piece."""
        places = sorted(self._places[name] for name in wanted)
        digest = sha1(usedforsecurity=False)
        for piece in self._read_pieces(places):
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
            self._places[name] = (start, self._end - start)
        return name

    def _append(self, data: bytes) -> None:
        # Said here, lest it be taken for a fault of the file that is being read.
        with explain_os_errors(f"keep what is new in {self._directory}", rule="snapshot.spool"):
            self._file.write(data)
        self._end += len(data)

    def _read_pieces(self, places: list[tuple[int, int]]) -> Iterator[bytes]:
        yield b"PACK" + struct.pack(">II", 2, len(places))
        runs: list[list[int]] = []
        for start, size in places:
            # Neighbours are joined, so that few large pieces are read instead of many small ones.
            if runs and runs[-1][1] == start:
                runs[-1][1] += size
            else:
                runs.append([start, start + size])
        for start, end in runs:
            self._file.seek(start)
            for at in range(start, end, CHUNK_BYTES):
                yield self._file.read(min(CHUNK_BYTES, end - at))
        self._file.seek(self._end)


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
