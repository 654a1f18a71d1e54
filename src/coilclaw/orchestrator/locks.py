"""``Locks``: which task may change which paths, for all runs of a repository at once.

Two paths conflict if one is the other or lies below it, in the eyes of the least discerning file
system. A lock is never given up because of its age: it is free once the process that took it is
gone and its run will not go on.

A run that waits stands in a queue. No run takes a path that one which came earlier waits for, so
that the first is served first; and since a run takes all of its paths at once and waits with none,
no two wait for each other. A run in the queue waits only for runs that a process works on: it takes
over what a run left that was killed or stopped.
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

from coilclaw.domain.treepath import shown
from coilclaw.errors import EnvironmentFault, PathRefused
from coilclaw.orchestrator.lock_paths import PathIndex, fold_path, normalize_paths
from coilclaw.orchestrator.lock_queue import LockQueue
from coilclaw.storage.atomic import create_private, read_private
from coilclaw.storage.lock import FileLock
from coilclaw.workspace.owner import Owner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from coilclaw.domain.messages import Json
    from coilclaw.orchestrator.lock_queue import Ticket

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
        return fold_path(self.path)


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
    queued: bool = False
    """Whether it is not held yet: its run waits for it too, and came first."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Nothing was locked, because of these."""

    conflicts: tuple[Conflict, ...]
    ticket: Ticket | None = None
    """The place in the queue of the run that asked, if it has one."""
    reclaimed: tuple[Lock, ...] = ()
    """What the run itself had left, and no longer holds: nobody waits while holding a path."""

    @property
    def reason(self) -> str:
        first = self.conflicts[0]
        state = "" if first.running else ", which waits to be resumed"
        others = len(self.conflicts) - 1
        more = f", and {others} more" if others else ""
        how = "waited for" if first.queued else "locked"
        return (
            f"{shown(first.path)} is {how} as {shown(first.lock.path)} by task "
            f"{shown(first.lock.task_id)} of run {first.lock.run_id}{state}{more}"
        )


class Locks:
    """The locks in one directory, one file for each path.

    ``alive`` says whether a run whose process is gone will go on, because it is paused or can be
    resumed: its locks stay. A resumed run takes over its own. ``works`` says whether somebody works
    on a run now; the process that took a lock may outlive the run, as a gateway does.
    """

    def __init__(
        self,
        directory: Path,
        *,
        alive: Callable[[str], bool],
        works: Callable[[str, Owner], bool] = lambda _, owner: owner.runs(),
        owner: Owner | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._directory = directory
        self._alive = alive
        self._works = works
        self._owner = owner
        self._clock = clock
        self._table = FileLock(directory / "table")
        self._queue = LockQueue(directory)

    def acquire(
        self,
        run_id: str,
        task_id: str,
        paths: Sequence[str],
        *,
        owned: bool = False,
        queue: bool = False,
    ) -> Held | Taken:
        """Lock all of the paths, or none.

        Whoever owns the run takes over what the run had locked before. With ``queue`` a run that
        gets nothing keeps its place in the queue, or takes one.
        """
        wanted = normalize_paths(paths)
        with self._locked():
            self._tidy()
            own = self._of(run_id) if owned else ()
            asked = PathIndex(wanted)
            conflicts, stale = self._against(run_id, asked, own=own, queue=queue)
            if not _covered(wanted, own):
                conflicts += self._ahead(run_id, asked)
            for lock in own if conflicts else dict.fromkeys((*own, *stale)):
                self._place(lock.path).unlink(missing_ok=True)
            if conflicts:
                return Taken(conflicts, self._joined(run_id, task_id, wanted, queue=queue), own)
            self._queue.leave(run_id)
            token = os.urandom(16).hex()
            held = Held(run_id, task_id, wanted, token, tuple(dict.fromkeys((*own, *stale))))
            try:
                self._write(held)
            except BaseException:
                self._remove(token)
                raise
        return held

    def leave(self, run_id: str) -> bool:
        """Give up the place of a run in the queue; return whether it had one."""
        if not self._directory.is_dir():
            return False
        with self._locked():
            return self._queue.leave(run_id)

    def queued(self) -> tuple[Ticket, ...]:
        """Return the places in the queue, first come first, also those of runs that stand still."""
        if not self._directory.is_dir():
            return ()
        with self._locked():
            return self._queue.read()

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
        self, run_id: str, asked: PathIndex, *, own: Sequence[Lock], queue: bool
    ) -> tuple[tuple[Conflict, ...], tuple[Lock, ...]]:
        """What stands in the way for good, and what only seems to."""
        mine = {lock.token for lock in own}
        conflicts: list[Conflict] = []
        stale: list[Lock] = []
        for lock in self._all():
            path = asked.find(lock.parts)
            if path is None or lock.token in mine:
                continue
            running = lock.owner.runs()
            if queue and lock.run_id != run_id:
                kept = self._works(lock.run_id, lock.owner)
            else:
                kept = running or (lock.run_id != run_id and self._alive(lock.run_id))
            if kept:
                conflicts.append(Conflict(path, lock, running or queue))
            else:
                stale.append(lock)
        return tuple(conflicts), tuple(stale)

    def _ahead(self, run_id: str, asked: PathIndex) -> tuple[Conflict, ...]:
        """The runs that came earlier, wait now and want what overlaps."""
        found: list[Conflict] = []
        for ticket in self._queue.read():
            if ticket.run_id == run_id:
                break
            if not self._works(ticket.run_id, ticket.owner):
                if not self._alive(ticket.run_id):
                    self._queue.leave(ticket.run_id)
                continue
            for theirs in ticket.paths:
                path = asked.find(fold_path(theirs))
                if path is not None:
                    lock = Lock(
                        theirs, ticket.run_id, ticket.task_id, ticket.owner, ticket.ts, token=""
                    )
                    found.append(Conflict(path, lock, running=True, queued=True))
                    break
        return tuple(found)

    def _joined(
        self, run_id: str, task_id: str, wanted: tuple[str, ...], *, queue: bool
    ) -> Ticket | None:
        if not queue:
            return None
        return self._queue.join(run_id, task_id, wanted, self._owner or Owner.here(), self._now())

    def _of(self, run_id: str) -> tuple[Lock, ...]:
        return tuple(lock for lock in self._all() if lock.run_id == run_id)

    def _write(self, held: Held) -> None:
        owner = self._owner or Owner.here()
        ts = self._now()
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

    def _now(self) -> str:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._clock()))

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


def _covered(wanted: Sequence[str], own: Sequence[Lock]) -> bool:
    """Whether a run that is resumed still has everything that it wants."""
    had = {lock.path for lock in own}
    return had.issuperset(wanted)


def _read(place: Path) -> Lock:
    data = read_private(place)
    try:
        value = json.loads(data or b"")
        owner = Owner.of(value)
        texts = [value[name] for name in ("path", "run_id", "task_id", "ts", "token")]
        if owner is None or value["form"] != _FORM or not all(isinstance(t, str) for t in texts):
            raise ValueError(place)
        path, run_id, task_id, ts, token = texts
        if normalize_paths([path]) != (path,):
            raise ValueError(path)
        return Lock(path, run_id, task_id, owner, ts, token)
    except (ValueError, KeyError, TypeError, PathRefused) as problem:
        # Whoever holds what it stood for must not be taken by surprise.
        raise EnvironmentFault(
            f"{place} is no lock that can be read",
            rule="lock.damaged",
            hint="delete it once no run is going on",
        ) from problem
