"""``ObjectStore``: a bare git repository of ours that holds snapshots and runs nothing."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING, Final, TypeAlias

from coilclaw.domain.treediff import EntryType
from coilclaw.errors import EnvironmentFault
from coilclaw.storage.atomic import write_atomic
from coilclaw.storage.lock import FileLock
from coilclaw.workspace.git import Git
from coilclaw.workspace.packs import Packs
from coilclaw.workspace.treefile import TYPES, object_id

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from pathlib import Path

    from coilclaw.workspace.spool import Spool

PACK_TIMEOUT_S: Final = 3600.0
MAX_TREE_BYTES: Final = 2**30
"""Longest listing of a tree that is read."""
BATCH_BYTES: Final = 32 * 2**20
"""Contents are fetched in batches of about this size."""

Listed: TypeAlias = tuple[str, EntryType, str]
"""Path, type and object id."""


class ObjectStore:
    """Everything that writes must hold ``lock``; reading needs no lock."""

    def __init__(self, directory: Path) -> None:
        self.git = Git(directory)
        self.own = directory / "coilclaw"
        """What is ours and not git's."""
        self.lock = FileLock(self.own / "lock")
        self.packs = Packs(self.git, self.own / "packs.json")
        self._refs = directory / "refs" / "snapshots"

    def create(self) -> None:
        """Make the store unless it is there."""
        if self._refs.is_dir():
            return
        self.git.create()
        try:
            self.own.mkdir(mode=0o700, exist_ok=True)
            self._refs.mkdir(mode=0o700, exist_ok=True)
        except OSError as problem:
            raise EnvironmentFault(
                f"cannot create the snapshot store {self.git.git_dir}: {problem.strerror}",
                rule="snapshot.store",
            ) from problem

    def add(self, spool: Spool, generation: str) -> None:
        """Store those objects of a spool that are not stored yet, as one pack."""
        wanted = self.missing(spool.ids)
        if not wanted:
            return
        self.packs.sweep()
        # git checks each object as it comes in, and refuses what a SHA-1 collision is made of.
        pack = io.BufferedReader(_Pieces(spool.pack(wanted)), buffer_size=2**16)
        self.git.run("index-pack", "--stdin", stdin=pack, timeout_s=PACK_TIMEOUT_S)
        self.packs.join()
        self.packs.write(generation)

    def missing(self, ids: Collection[bytes]) -> Collection[bytes]:
        """Return those of the objects that are not stored."""
        if not ids or not self.packs.any():
            return ids
        rows = self._check(name.hex() for name in ids)
        return [name for name, row in zip(ids, rows, strict=True) if row.endswith(b" missing")]

    def keep(self, snapshot: str) -> None:
        """Name a snapshot, so that git holds on to all of it."""
        write_atomic(self._refs / snapshot, f"{snapshot}\n".encode("ascii"))

    def kept(self, snapshot: str) -> bool:
        return (self._refs / snapshot).is_file()

    def snapshots(self) -> tuple[str, ...]:
        """Return the ids of all snapshots, the oldest first."""
        try:
            with os.scandir(self._refs) as entries:
                found = [
                    (entry.stat().st_mtime_ns, entry.name)
                    for entry in entries
                    if len(entry.name) == 40 and entry.is_file(follow_symlinks=False)
                ]
        except FileNotFoundError:
            return ()
        return tuple(name for _, name in sorted(found))

    def commit(self, snapshot: str, limit_bytes: int) -> bytes:
        return self.git.run("cat-file", "commit", snapshot, limit_bytes=limit_bytes)

    def leaves(self, tree: str) -> Iterator[Listed]:
        """List the files and links of a tree in git's order."""
        listing = self.git.run(
            "ls-tree", "-r", "-z", "--full-tree", tree, limit_bytes=MAX_TREE_BYTES
        )
        for row in listing.split(b"\0"):
            if row:
                facts, _, path = row.partition(b"\t")
                mode, _, name = facts.split(b" ")
                yield os.fsdecode(path), TYPES[mode], name.decode("ascii")

    def blobs(self, ids: Collection[str], limit_bytes: int) -> Iterator[tuple[str, bytes]]:
        """Fetch contents, each checked against its id; ``limit_bytes`` bounds their sum."""
        sizes = {}
        for row in self._check(ids):
            name, kind, size = row.split(b" ") if row.count(b" ") == 2 else (row, b"", b"0")
            if kind != b"blob":
                raise self._damaged(row.split(b" ")[0].decode("ascii"))
            sizes[name.decode("ascii")] = int(size)
        if sum(sizes.values()) > limit_bytes:
            raise EnvironmentFault(
                f"the files asked for hold {sum(sizes.values())} bytes, more than {limit_bytes}",
                rule="snapshot.read_bytes",
                hint="ask for fewer at a time",
            )
        for batch in _batches(sizes):
            yield from self._fetch(batch)

    def _fetch(self, sizes: dict[str, int]) -> Iterator[tuple[str, bytes]]:
        request = "".join(f"{name}\n" for name in sizes).encode("ascii")
        room = sum(sizes.values()) + 100 * len(sizes)
        answer = self.git.run("cat-file", "--batch", stdin=request, limit_bytes=2 * room)
        at = 0
        for name, size in sizes.items():
            at = answer.index(b"\n", at) + 1
            data = answer[at : at + size]
            if object_id(b"blob", data).hex() != name:
                raise self._damaged(name)
            yield name, data
            at += size + 1

    def _check(self, ids: Iterable[str]) -> list[bytes]:
        request = "".join(f"{name}\n" for name in ids).encode("ascii")
        answer = self.git.run(
            "cat-file", "--batch-check", stdin=request, limit_bytes=2 * (len(request) * 3 + 1000)
        )
        return answer.splitlines()

    def _damaged(self, name: str) -> EnvironmentFault:
        return EnvironmentFault(
            f"object {name} is missing from or damaged in {self.git.git_dir}",
            rule="snapshot.damaged",
        )


class _Pieces(io.RawIOBase):
    """An iterator of bytes as a file to read from."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._rest:
            try:
                self._rest = memoryview(next(self._pieces))
            except StopIteration:
                return 0
        size = min(len(buffer), len(self._rest))
        buffer[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size


def _batches(sizes: dict[str, int]) -> Iterator[dict[str, int]]:
    batch: dict[str, int] = {}
    total = 0
    for name, size in sizes.items():
        if batch and total + size > BATCH_BYTES:
            yield batch
            batch, total = {}, 0
        batch[name] = size
        total += size
    if batch:
        yield batch
