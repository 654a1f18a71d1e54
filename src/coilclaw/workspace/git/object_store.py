"""``ObjectStore``: a bare git repository of ours that holds snapshots and runs nothing."""

from __future__ import annotations

import json
import os
import secrets
from typing import TYPE_CHECKING, Final, TypeAlias, Unpack

from coilclaw.kernel import (
    EntryType,
    EnvironmentFault,
    FileLock,
    GitFailed,
    explain_os_errors,
    write_atomic,
)
from coilclaw.workspace.git.client import Git
from coilclaw.workspace.git.object_format import TYPES, object_id

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from pathlib import Path

    from coilclaw.workspace.git.client import GitOptions
    from coilclaw.workspace.git.object_format import Spool

MAX_LIST_BYTES: Final = 2**20
MAX_PACKS: Final = 50
"""With more packs than this the small ones are joined, so that looking things up stays quick."""
TIMEOUT_S: Final = 3600.0


class Packs:
    """Everything here but ``generation`` and ``any`` needs the lock of the store."""

    def __init__(self, git: Git, list_path: Path) -> None:
        self._git = git
        self._list = list_path
        self._directory = git.git_dir / "objects" / "pack"

    def any(self) -> bool:
        return next(self._directory.glob("*.pack"), None) is not None

    def generation(self) -> str | None:
        """Return the id of the list if every pack in it is there, else ``None``."""
        try:
            with self._list.open("rb") as file:
                listed = json.loads(file.read(MAX_LIST_BYTES))
            for name, size in listed["packs"].items():
                pack = self._directory / name
                pack.with_suffix(".idx").stat()
                if pack.stat().st_size != size:
                    return None
            return str(listed["id"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None  # no list, or no list of ours: nothing is known about the store

    def renew(self) -> str:
        """Start a new list from what is there and sound; the rest is moved out of git's sight."""
        for index in self._directory.glob("*.idx"):
            try:
                self._git.run("verify-pack", str(index), timeout_s=TIMEOUT_S)
            except GitFailed as problem:
                if problem.rule != GitFailed.rule:
                    raise
                for path in self._directory.glob(f"{index.stem}.*"):
                    path.rename(path.with_name(f"{path.name}.damaged"))
        return self.write(secrets.token_hex(16))

    def write(self, generation: str) -> str:
        """List the packs that are there, under an id that is returned."""
        packs = {
            pack.name: pack.stat().st_size
            for pack in sorted(self._directory.glob("*.pack"))
            if pack.with_suffix(".idx").exists()
        }
        document = json.dumps({"id": generation, "packs": packs}, sort_keys=True)
        write_atomic(self._list, document.encode("ascii"), mode=0o600, sync=False)
        return generation

    def join(self) -> None:
        """Make few packs of many; a pack is only ever joined with smaller ones."""
        if sum(1 for _ in self._directory.glob("*.pack")) > MAX_PACKS:
            self._git.run("repack", "-d", "-q", "--geometric=2", "--window=0", timeout_s=TIMEOUT_S)

    def sweep(self) -> None:
        """Remove what a git process that was killed left half written."""
        for pattern in ("tmp_*", ".tmp-*"):
            for path in self._directory.glob(pattern):
                path.unlink(missing_ok=True)


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
        what = f"create the snapshot store {self.git.git_dir}"
        with explain_os_errors(what, rule="snapshot.store"):
            self.own.mkdir(mode=0o700, exist_ok=True)
            self._refs.mkdir(mode=0o700, exist_ok=True)

    def add(self, spool: Spool, generation: str) -> None:
        """Store those objects of a spool that are not stored yet, as one pack."""
        wanted = self.missing(spool.ids)
        if not wanted:
            return
        self.packs.sweep()
        # git checks each object as it comes in, and refuses what a SHA-1 collision is made of.
        pack = _Pieces(spool.pack(wanted))
        self.git.run("index-pack", "--stdin", stdin=pack, timeout_s=TIMEOUT_S)
        self.packs.join()
        self.packs.write(generation)

    def missing(self, ids: Collection[bytes]) -> Collection[bytes]:
        """Return those of the objects that are not stored."""
        if not ids or not self.packs.any():
            return ids
        rows = check_objects(self.git, (name.hex() for name in ids))
        return [name for name, row in zip(ids, rows, strict=True) if row.endswith(b" missing")]

    def keep(self, snapshot: str) -> None:
        """Name a snapshot, so that git holds on to all of it."""
        write_atomic(self._refs / snapshot, f"{snapshot}\n".encode("ascii"))

    def has_snapshot(self, snapshot: str) -> bool:
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
        for row in self.git.list_names("ls-tree", "-r", "-z", "--full-tree", tree):
            facts, _, path = row.partition("\t")
            mode, _, name = facts.split(" ")
            yield path, TYPES[mode.encode("ascii")], name

    def blobs(self, ids: Collection[str], limit_bytes: int) -> Iterator[tuple[str, bytes]]:
        """Fetch contents, each checked against its id; ``limit_bytes`` bounds their sum."""
        sizes = {}
        for row in check_objects(self.git, ids):
            name, kind, size = row.split(b" ") if row.count(b" ") == 2 else (row, b"", b"0")
            if kind != b"blob":
                raise self._damaged_error(row.split(b" ")[0].decode("ascii"))
            sizes[name.decode("ascii")] = int(size)
        if sum(sizes.values()) > limit_bytes:
            raise EnvironmentFault(
                f"the files asked for hold {sum(sizes.values())} bytes, more than {limit_bytes}",
                rule="snapshot.read_bytes",
                hint="ask for fewer at a time",
            )
        for batch in _batches(sizes):
            for wanted, data in read_objects(self.git, batch):
                if object_id(b"blob", data).hex() != wanted:
                    raise self._damaged_error(wanted)
                yield wanted, data

    def _damaged_error(self, name: str) -> EnvironmentFault:
        what = f"object {name} is missing from or damaged in {self.git.git_dir}"
        return EnvironmentFault(what, rule="snapshot.damaged")


class _Pieces:
    """An iterator of bytes as a file to read from, a piece at a time."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces

    def read(self, _size: int = -1, /) -> bytes:
        return next(self._pieces, b"")


def check_objects(git: Git, ids: Iterable[str]) -> list[bytes]:
    """Return for each id a row with its name, kind and size, or its name and ``missing``."""
    request = "".join(f"{name}\n" for name in ids).encode("ascii")
    limit = 2 * (len(request) * 3 + 1000)
    return git.run("cat-file", "--batch-check", stdin=request, limit_bytes=limit).splitlines()


def read_objects(
    git: Git, sizes: Mapping[str, int], **options: Unpack[GitOptions]
) -> Iterator[tuple[str, bytes]]:
    """Yield the content of each object, whose size is known; nothing is checked."""
    request = "".join(f"{name}\n" for name in sizes).encode("ascii")
    room = sum(sizes.values()) + 100 * len(sizes)
    options |= {"stdin": request, "limit_bytes": 2 * room}
    answer = git.run("cat-file", "--batch", **options)
    at = 0
    for name, size in sizes.items():
        at = answer.index(b"\n", at) + 1
        yield name, answer[at : at + size]
        at += size + 1


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
