"""Git objects that we write ourselves, one file each: blobs, trees and the commits of checkpoints.

They go into a bare repository of ours. Nothing is run for it, so a checkpoint whose changed files
are known costs next to nothing.
"""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass
from hashlib import sha1
from typing import TYPE_CHECKING, Final, TypeAlias

from coilclaw.errors import EnvironmentFault
from coilclaw.storage.atomic import write_atomic

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

TREE: Final = b"40000"
IDENTITY: Final = b"CoilClaw trajectory <trajectory@coilclaw.invalid>"
"""Who authors checkpoints; the agent's own identity is not touched."""
_ID_BYTES: Final = 20
_LEVEL: Final = 1

Entries: TypeAlias = dict[bytes, tuple[bytes, bytes]]
"""What a tree holds: name to mode and binary id."""


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


def encode_tree(entries: Mapping[bytes, tuple[bytes, bytes]]) -> bytes:
    """Return the bytes of a tree object; git sorts a directory as if a slash followed its name."""
    rows = sorted(
        (name + b"/" if mode == TREE else name, b"%s %s\0%s" % (mode, name, object_id))
        for name, (mode, object_id) in entries.items()
    )
    return b"".join(row for _, row in rows)


def encode_commit(tree: str, parents: tuple[str, ...], message: str, seconds: int) -> bytes:
    """Return the bytes of a commit that depends on nothing but what is given here."""
    who = b"%s %d +0000" % (IDENTITY, seconds)
    lines = [f"tree {tree}".encode("ascii")]
    lines += [f"parent {parent}".encode("ascii") for parent in parents]
    lines += [b"author " + who, b"committer " + who, b"", message.encode("utf-8"), b""]
    return b"\n".join(lines)


@dataclass(frozen=True, slots=True)
class LooseObjects:
    """The objects directory of a repository of ours."""

    directory: Path

    def put(self, kind: bytes, data: bytes) -> str:
        """Store an object, if it is not there in a file of its own, and return its id.

        It survives a kill. That it survives a power cut as well is up to the bundle, which is
        synced once for all objects of a checkpoint.
        """
        whole = b"%s %d\0%s" % (kind, len(data), data)
        name = sha1(whole, usedforsecurity=False).hexdigest()
        folder = self.directory / name[:2]
        path = folder / name[2:]
        if path.exists():
            return name
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
        except OSError as problem:
            raise EnvironmentFault(
                f"cannot create {folder}: {problem.strerror}", rule="checkpoint.store"
            ) from problem
        write_atomic(path, zlib.compress(whole, _LEVEL), mode=0o444, sync=False)
        return name
