"""``Locks``: which task may change which paths, for all runs of a repository at once.

Two paths conflict if one is the other or lies below it, in the eyes of the least discerning file
system. A lock is never given up because of its age: it is free once the process that took it is
gone and its run will not go on.
"""

from __future__ import annotations

import json
import os
import re
import time
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Final, Self

from coilclaw.domain.treepath import TreePath, fold, shown
from coilclaw.errors import EnvironmentFault, PathRefused, UsageError
from coilclaw.storage.atomic import create_private, read_private
from coilclaw.storage.lock import FileLock
from coilclaw.workspace.owner import Owner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from coilclaw.domain.messages import Json

MAX_PATHS: Final = 10_000
"""Most paths that one task may lock."""

_FORM: Final = 1
_FILE: Final = re.compile(r"[0-9a-f]{64}\.lock")


@dataclass(frozen=True, slots=True)
class Lock:
    """One path that a task holds."""

    path: str
    run_id: str
    task_id: str
    owner: Owner
    ts: str
    token: str
    """Names the acquisition; only who knows it may release it."""

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(fold(part) for part in _parts(self.path))


@dataclass(frozen=True, slots=True)
class Held:
    """Everything that was asked for."""

    run_id: str
    task_id: str
    paths: tuple[str, ...]
    token: str
    reclaimed: tuple[Lock, ...] = ()
    """What was in the way, left by a process that is gone, and was taken away."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """A path that was asked for and a lock that is in its way."""

    path: str
    lock: Lock
    running: bool
    """Whether the process that holds it runs; otherwise its run waits to be resumed."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Nothing was locked, because of these."""

    conflicts: tuple[Conflict, ...]

    @property
    def reason(self) -> str:
        first = self.conflicts[0]
        state = "" if first.running else ", which waits to be resumed"
        others = len(self.conflicts) - 1
        more = f", and {others} more" if others else ""
        return (
            f"{shown(first.path)} is locked as {shown(first.lock.path)} by task "
            f"{shown(first.lock.task_id)} of run {first.lock.run_id}{state}{more}"
        )


class Locks:
    """The locks in one directory, one file for each path.

    ``alive`` says whether a run whose process is gone will go on, because it is paused or can be
    resumed: its locks stay. A resumed run takes over its own.
    """

    def __init__(
        self,
        directory: Path,
        *,
        alive: Callable[[str], bool],
        owner: Owner | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._directory = directory
        self._alive = alive
        self._owner = owner
        self._clock = clock
        self._table = FileLock(directory / "table")

    def acquire(self, run_id: str, task_id: str, paths: Sequence[str]) -> Held | Taken:
        """Lock all of the paths, or none."""
        wanted = _wanted(paths)
        with self._locked():
            self._tidy()
            conflicts, stale = self._against(run_id, wanted)
            if conflicts:
                return Taken(conflicts)
            for lock in stale:
                self._place(lock.path).unlink(missing_ok=True)
            token = os.urandom(16).hex()
            held = Held(run_id, task_id, wanted, token, stale)
            try:
                self._write(held)
            except BaseException:
                self._remove(token)
                raise
        return held

    def release(self, held: Held) -> tuple[str, ...]:
        """Let go of what was acquired; return the paths that were still held by it."""
        with self._locked():
            return self._remove(held.token)

    def held(self, run_id: str | None = None) -> tuple[Lock, ...]:
        """Return the locks of a run, or all of them, sorted by path."""
        if not self._directory.is_dir():
            return ()
        with self._locked():
            return tuple(lock for lock in self._all() if run_id in {None, lock.run_id})

    def reclaim(self, run_id: str, *, owned: bool = False) -> tuple[Lock, ...]:
        """Take away the locks of a run whose process is gone; return them.

        For a run that is over, and for one that is being resumed and will lock again. Who owns the
        run takes them also from a process that runs: a gateway outlives the runs that it stops.
        """
        with self._locked():
            gone = tuple(
                lock
                for lock in self._all()
                if lock.run_id == run_id and (owned or not lock.owner.runs())
            )
            for lock in gone:
                self._place(lock.path).unlink(missing_ok=True)
            return gone

    def _against(
        self, run_id: str, wanted: tuple[str, ...]
    ) -> tuple[tuple[Conflict, ...], tuple[Lock, ...]]:
        """What stands in the way for good, and what only seems to."""
        asked = {path: tuple(fold(part) for part in _parts(path)) for path in wanted}
        conflicts: list[Conflict] = []
        stale: list[Lock] = []
        for lock in self._all():
            parts = lock.parts
            path = next((path for path, mine in asked.items() if _overlap(mine, parts)), None)
            if path is None:
                continue
            running = lock.owner.runs()
            if running or (lock.run_id != run_id and self._alive(lock.run_id)):
                conflicts.append(Conflict(path, lock, running))
            else:
                stale.append(lock)
        return tuple(conflicts), tuple(stale)

    def _write(self, held: Held) -> None:
        owner = self._owner or Owner.here()
        ts = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._clock()))
        for path in held.paths:
            document: dict[str, Json] = {
                "form": _FORM,
                "run_id": held.run_id,
                "task_id": held.task_id,
                "path": path,
                **owner.json(),
                "ts": ts,
                "token": held.token,
            }
            data = json.dumps(document, ensure_ascii=True, sort_keys=True).encode("ascii") + b"\n"
            if create_private(self._place(path), data) != data:
                raise EnvironmentFault(
                    f"{self._place(path)} appeared while the table of locks was locked",
                    rule="lock.foreign",
                )

    def _remove(self, token: str) -> tuple[str, ...]:
        mine = [lock for lock in self._all() if lock.token == token]
        for lock in mine:
            self._place(lock.path).unlink(missing_ok=True)
        return tuple(lock.path for lock in mine)

    def _all(self) -> list[Lock]:
        names = [name for name in os.listdir(self._directory) if _FILE.fullmatch(name)]
        locks = [_read(self._directory / name) for name in names]
        return sorted(locks, key=lambda lock: lock.path)

    def _tidy(self) -> None:
        """Remove what a process that was killed did not get to put in place."""
        for name in os.listdir(self._directory):
            if name.startswith(".coilclaw-"):
                (self._directory / name).unlink(missing_ok=True)

    def _place(self, path: str) -> Path:
        return self._directory / f"{sha256(path.encode('utf-8')).hexdigest()}.lock"

    @contextmanager
    def _locked(self) -> Iterator[Self]:
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as problem:
            raise EnvironmentFault(
                f"cannot create {self._directory}: {problem.strerror}", rule="lock.open"
            ) from problem
        with self._table:
            yield self


def overlap(first: str, second: str) -> bool:
    """Whether two paths of the tree cannot be changed independently."""
    return _overlap(
        tuple(fold(part) for part in _parts(first)), tuple(fold(part) for part in _parts(second))
    )


def _overlap(first: tuple[str, ...], second: tuple[str, ...]) -> bool:
    depth = min(len(first), len(second))
    return first[:depth] == second[:depth]


def _parts(path: str) -> tuple[str, ...]:
    return TreePath.parse_directory(path)


def _wanted(paths: Sequence[str]) -> tuple[str, ...]:
    """The paths, each spelled in one way only; a plain dot is the whole tree."""
    if not paths or len(paths) > MAX_PATHS:
        raise UsageError(
            f"a task locks between 1 and {MAX_PATHS} paths, not {len(paths)}", rule="lock.paths"
        )
    return tuple(dict.fromkeys("/".join(_parts(path)) or "." for path in paths))


def _read(place: Path) -> Lock:
    data = read_private(place)
    try:
        value = json.loads(data or b"")
        owner = Owner.of(value)
        texts = [value[name] for name in ("path", "run_id", "task_id", "ts", "token")]
        if owner is None or value["form"] != _FORM or not all(isinstance(t, str) for t in texts):
            raise ValueError(place)
        path, run_id, task_id, ts, token = texts
        if _wanted([path]) != (path,):
            raise ValueError(path)
        return Lock(path, run_id, task_id, owner, ts, token)
    except (ValueError, KeyError, TypeError, PathRefused) as problem:
        # Whoever holds what it stood for must not be taken by surprise.
        raise EnvironmentFault(
            f"{place} is no lock that can be read",
            rule="lock.damaged",
            hint="delete it once no run is going on",
        ) from problem
