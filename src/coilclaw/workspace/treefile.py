"""The git objects a snapshot is made of: blobs, trees and one commit without time or parent.

The tree is the one git itself would write for the same files. What git's trees cannot say (empty
directories, FIFOs, nested repositories, the state of the tree's own ``.git``) stands in the
commit's message, so that the id of the commit covers the whole picture and nothing else.
"""

from __future__ import annotations

import json
import os
import stat
from dataclasses import dataclass, field
from hashlib import sha1
from typing import TYPE_CHECKING, Final

from coilclaw.domain.treediff import EntryType
from coilclaw.errors import EnvironmentFault

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MAX_COMMIT_BYTES: Final = 2**30
"""Enough for as many special entries as a scan takes in, with names as long as they can be."""

EMPTY_TREE: Final = sha1(b"tree 0\0", usedforsecurity=False).digest()

MODE_FILE: Final = b"100644"
MODE_EXECUTABLE: Final = b"100755"
MODE_LINK: Final = b"120000"
MODE_TREE: Final = b"40000"

TYPES: Final = {
    b"100644": EntryType.FILE,
    b"100755": EntryType.EXECUTABLE,
    b"120000": EntryType.SYMLINK,
}
"""What the modes mean that git's listings give; a snapshot's tree holds no others."""

_IDENTITY: Final = b"CoilClaw <snapshot@coilclaw.invalid> 0 +0000"
_TITLE: Final = b"CoilClaw snapshot, format 1"


@dataclass(frozen=True, slots=True)
class Opaque:
    """Something of which only a digest is kept."""

    kind: str
    """``repository``, ``fifo``, ``socket`` or ``device``."""
    digest: str


@dataclass(frozen=True, slots=True)
class Manifest:
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
        return MODE_LINK
    return MODE_EXECUTABLE if mode & stat.S_IXUSR else MODE_FILE


def encode_tree(leaves: Iterable[tuple[str, int, bytes]], subtrees: Mapping[str, bytes]) -> bytes:
    """Return the bytes of a tree object; a leaf is its name, its ``st_mode`` and its blob."""
    rows = []
    for name, mode, blob in leaves:
        raw = os.fsencode(name)
        rows.append((raw, b"%s %s\0%s" % (git_mode(mode), raw, blob)))
    for name, tree in subtrees.items():
        raw = os.fsencode(name)
        # git sorts a directory as if its name ended in a slash.
        rows.append((raw + b"/", b"%s %s\0%s" % (MODE_TREE, raw, tree)))
    rows.sort()
    return b"".join(row for _, row in rows)


def encode_commit(tree: bytes, manifest: Manifest) -> bytes:
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
    lines = (
        b"tree " + tree.hex().encode("ascii"),
        b"author " + _IDENTITY,
        b"committer " + _IDENTITY,
        b"",
        _TITLE,
        b"",
        message,
        b"",
    )
    return b"\n".join(lines)


def decode_commit(data: bytes, name: str) -> tuple[str, Manifest]:
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
    manifest = Manifest(empty, opaque, document["git"], modes, excluded)
    return first[5:].decode("ascii"), manifest


def _portable(path: str) -> str:
    """The same text for the same bytes, whatever this machine's file names are encoded in."""
    return os.fsencode(path).decode("utf-8", "surrogateescape")


def _native(path: str) -> str:
    return os.fsdecode(path.encode("utf-8", "surrogateescape"))
