"""``Builds``: submissions as private copies, made from snapshots, and kept when they are built."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import (
    EntryType,
    EnvironmentFault,
    FileLock,
    LockTimeout,
    RegularFile,
    Symlink,
    UsageError,
    explain_os_errors,
    write_atomic,
)
from coilclaw.workspace import SnapshotStore, process_exists, remove_tree, sweep_remainders

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from coilclaw.kernel import FileState, Json
    from coilclaw.workspace import Snapshot

MAX_BUILDS: Final = 8
"""Builds that are kept for the next time."""
_TREE: Final = "tree"
_BUILT: Final = "built.json"
_CHUNK: Final = 1000


@dataclass(frozen=True, slots=True)
class KeptBuild:
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
        """Keep a picture of what is submitted; history is not included."""
        if not submission.is_dir():
            message = f"{submission} is not a directory to judge"
            raise UsageError(message, rule="environment.submission")
        return self._snapshots.take(submission)

    @contextmanager
    def prepare_build(
        self, snapshot: Snapshot, version: str, params: Mapping[str, Json], timeout_s: float
    ) -> Iterator[KeptBuild]:
        """Yield the files of a snapshot in a directory, already built if they were before.

        While it is being built, no other caller has it; once it is, several may.
        """
        # Name what a build depends on; two commits of the same files are one submission.
        # Parameters may be fractions, which no record holds.
        asked = json.dumps({"params": dict(params), "version": version}, sort_keys=True)
        whole = hashlib.sha256(asked.encode())
        whole.update(snapshot.tree.encode())
        for path, kind, _ in self._snapshots.files(snapshot.id):
            if kind is EntryType.DIRECTORY:
                whole.update(os.fsencode(path) + b"\0")
        for path, mode in sorted(self._snapshots.modes(snapshot.id).items()):
            whole.update(b"%o %s\0" % (mode, os.fsencode(path)))
        key = whole.hexdigest()[:40]
        self._make_places()
        lock_path = self._locks / f"{key}.lock"
        directory = self._builds / key
        with FileLock(lock_path, shared=True, timeout_s=timeout_s):
            found = _find_build(directory)
            if found is not None:
                yield found
                return
        with FileLock(lock_path, timeout_s=timeout_s):
            build = _find_build(directory) or KeptBuild(directory, built=False)
            if not build.built:
                remove_tree(directory)
                self._copy(snapshot.id, build.tree)
            try:
                yield build
            finally:
                if not (directory / _BUILT).exists():
                    remove_tree(directory)
        self._evict()

    def scratch(self) -> AbstractContextManager[Path]:
        """Make a directory for the cases of one call, which is gone afterwards."""
        self._make_places()
        sweep_remainders(self._builds)
        return scratch_directory(self._scratch, rule="environment.home")

    def _make_places(self) -> None:
        for place in (self._builds, self._locks, self._scratch):
            with explain_os_errors(f"make {place}", rule="environment.home"):
                place.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _copy(self, snapshot: str, tree: Path) -> None:
        modes = self._snapshots.modes(snapshot)
        tree.mkdir(mode=0o700, parents=True)
        files: list[str] = []
        for path, kind, _ in self._snapshots.files(snapshot):
            if kind is EntryType.DIRECTORY:
                os.makedirs(os.path.join(os.fsencode(tree), os.fsencode(path)), exist_ok=True)
            elif kind is not EntryType.OPAQUE:
                files.append(path)
        for start in range(0, len(files), _CHUNK):
            states = self._snapshots.read(snapshot, files[start : start + _CHUNK])
            for path, state in states.items():
                _write(os.path.join(os.fsencode(tree), os.fsencode(path)), state, modes.get(path))

    def _evict(self) -> None:
        """Remove the builds that were not used for the longest time, but for those in use."""
        found = [
            (_last_used(entry), entry.name) for entry in self._builds.iterdir() if entry.is_dir()
        ]
        for used, name in sorted(found, reverse=True)[MAX_BUILDS:]:
            with suppress(LockTimeout), FileLock(self._locks / f"{name}.lock", timeout_s=0.0):
                # Another process may have used it meanwhile.
                if _last_used(self._builds / name) <= used:
                    remove_tree(self._builds / name)


@contextmanager
def scratch_directory(top: Path, *, rule: str) -> Iterator[Path]:
    """Yield a new directory below ``top`` and remove it afterwards.

    Directories of dead processes are removed first; ``rule`` is for a ``top`` that is unusable.
    """
    with explain_os_errors(f"use {top}", rule=rule):
        top.mkdir(mode=0o700, parents=True, exist_ok=True)
        sweep_remainders(top)
        for entry in list(top.iterdir()):
            pid = entry.name.partition("-")[0]
            if pid.isdigit() and not process_exists(int(pid)):
                remove_tree(entry)
        place = top / f"{os.getpid()}-{os.urandom(8).hex()}"
        place.mkdir(mode=0o700)
    try:
        yield place
    finally:
        remove_tree(place)


def _find_build(directory: Path) -> KeptBuild | None:
    try:
        value = json.loads((directory / _BUILT).read_bytes())
    except (FileNotFoundError, ValueError):  # cut off when the machine went down: built again
        return None
    if value.get("error") is not None:
        return None
    with suppress(OSError):
        os.utime(directory / _BUILT)
    return KeptBuild(directory, built=True)


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
