"""``Builds``: submissions as private copies, made from snapshots, and kept when they are built."""

from __future__ import annotations

import hashlib
import json
import os
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.domain.files import RegularFile, Symlink
from coilclaw.domain.treediff import EntryType
from coilclaw.errors import EnvironmentFault, LockTimeout, UsageError
from coilclaw.storage.atomic import write_atomic
from coilclaw.storage.lock import FileLock
from coilclaw.workspace.owner import exists
from coilclaw.workspace.removal import remove_tree, sweep_remainders
from coilclaw.workspace.snapshot import SnapshotStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from coilclaw.domain.files import FileState
    from coilclaw.domain.messages import Json
    from coilclaw.workspace.snapshot import Snapshot

MAX_BUILDS: Final = 8
"""Builds that are kept for the next time."""
_TREE: Final = "tree"
_BUILT: Final = "built.json"
_CHUNK: Final = 1000


@dataclass(frozen=True, slots=True)
class Build:
    """A submission in a directory of its own."""

    directory: Path
    built: bool

    @property
    def tree(self) -> Path:
        return self.directory / _TREE

    def keep(self) -> None:
        """Remember that it was built; what failed may be built another time."""
        write_atomic(self.directory / _BUILT, json.dumps({"error": None}).encode(), sync=False)


class Builds:
    """The builds of one judge; any number of threads and processes may share them."""

    def __init__(self, home: Path) -> None:
        self._snapshots = SnapshotStore(home / "snapshots")
        self._builds = home / "builds"
        self._locks = home / "locks"
        self._scratch = home / "scratch"

    def take(self, submission: Path) -> Snapshot:
        """Keep a picture of what is submitted; history is no part of it."""
        if not submission.is_dir():
            raise UsageError(
                f"{submission} is no directory to judge", rule="environment.submission"
            )
        return self._snapshots.take(submission)

    @contextmanager
    def prepared(
        self, snapshot: Snapshot, version: str, params: Mapping[str, Json], timeout_s: float
    ) -> Iterator[Build]:
        """Have a picture's files in a directory, built already if they were before.

        While it is being built, nobody else has it; once it is, several may.
        """
        key = self._key(snapshot, version, params)
        self._make_places()
        lock_path = self._locks / f"{key}.lock"
        directory = self._builds / key
        with FileLock(lock_path, shared=True, timeout_s=timeout_s):
            found = _found(directory)
            if found is not None:
                yield found
                return
        with FileLock(lock_path, timeout_s=timeout_s):
            build = _found(directory) or Build(directory, built=False)
            if not build.built:
                remove_tree(directory)
                self._copy(snapshot.id, build.tree)
            try:
                yield build
            finally:
                if not (directory / _BUILT).exists():
                    remove_tree(directory)
        self._evict()

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """A directory for the cases of one call, which is gone afterwards."""
        self._make_places()
        self._sweep()
        place = self._scratch / f"{os.getpid()}-{os.urandom(8).hex()}"
        place.mkdir(mode=0o700)
        try:
            yield place
        finally:
            remove_tree(place)

    def _key(self, snapshot: Snapshot, version: str, params: Mapping[str, Json]) -> str:
        """Name what a build depends on; two commits of the same files are one submission."""
        # Parameters may be fractions, which no record holds.
        asked = json.dumps({"params": dict(params), "version": version}, sort_keys=True)
        whole = hashlib.sha256(asked.encode())
        whole.update(snapshot.tree.encode())
        for path, kind, _ in self._snapshots.files(snapshot.id):
            if kind is EntryType.DIRECTORY:
                whole.update(os.fsencode(path) + b"\0")
        for path, mode in sorted(self._snapshots.modes(snapshot.id).items()):
            whole.update(b"%o %s\0" % (mode, os.fsencode(path)))
        return whole.hexdigest()[:40]

    def _make_places(self) -> None:
        try:
            for place in (self._builds, self._locks, self._scratch):
                place.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as problem:
            raise EnvironmentFault(
                f"cannot make {problem.filename}: {problem.strerror}", rule="environment.home"
            ) from problem

    def _copy(self, snapshot: str, tree: Path) -> None:
        modes = self._snapshots.modes(snapshot)
        tree.mkdir(mode=0o700, parents=True)
        files: list[str] = []
        for path, kind, _ in self._snapshots.files(snapshot):
            if kind is EntryType.DIRECTORY:
                os.makedirs(os.path.join(os.fsencode(tree), _bytes(path)), exist_ok=True)
            elif kind is not EntryType.OPAQUE:
                files.append(path)
        for start in range(0, len(files), _CHUNK):
            states = self._snapshots.read(snapshot, files[start : start + _CHUNK])
            for path, state in states.items():
                _write(os.path.join(os.fsencode(tree), _bytes(path)), state, modes.get(path))

    def _evict(self) -> None:
        """Remove the builds that were not used for the longest time, but for those in use."""
        found = [
            (_last_used(entry), entry.name) for entry in self._builds.iterdir() if entry.is_dir()
        ]
        for used, name in sorted(found, reverse=True)[MAX_BUILDS:]:
            with suppress(LockTimeout), FileLock(self._locks / f"{name}.lock", timeout_s=0.0):
                # Somebody may have used it while we were looking.
                if _last_used(self._builds / name) <= used:
                    remove_tree(self._builds / name)

    def _sweep(self) -> None:
        """Remove what processes that were killed left behind."""
        sweep_remainders(self._scratch)
        sweep_remainders(self._builds)
        for entry in list(self._scratch.iterdir()):
            pid = entry.name.partition("-")[0]
            if pid.isdigit() and not exists(int(pid)):
                remove_tree(entry)


def _found(directory: Path) -> Build | None:
    try:
        value = json.loads((directory / _BUILT).read_bytes())
    except FileNotFoundError:
        return None
    except ValueError:
        return None  # cut off when the machine went down: it is built again
    if value.get("error") is not None:
        return None
    now = time.time()
    with suppress(OSError):
        os.utime(directory / _BUILT, (now, now))
    return Build(directory, built=True)


def _last_used(directory: Path) -> float:
    """When a build was last used; one that was never finished, never."""
    try:
        return os.stat(directory / _BUILT).st_mtime
    except FileNotFoundError:
        return 0.0


def _write(path: bytes, state: FileState, mode: int | None) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    match state:
        case RegularFile(content, executable=executable):
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(path, flags, 0o600), "wb") as file:
                file.write(content)
                # The owner may always build with it.
                os.fchmod(file.fileno(), (mode or (0o755 if executable else 0o644)) & 0o777 | 0o600)
        case Symlink(target):
            os.symlink(target, path)
        case None:
            raise EnvironmentFault("a snapshot lost a file", rule="environment.snapshot")


def _bytes(path: str) -> bytes:
    return os.fsencode(path)
