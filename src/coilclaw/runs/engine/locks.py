"""``Locks``: which task may change which paths, for all runs of a repository at once.

Two paths conflict if one is the other or lies below it, in the eyes of the least discerning file
system. A lock is never given up because of its age: it is free once the process that took it is
gone and its run will not be resumed.

A run that waits stands in a queue. No run takes a path that one which came earlier waits for, so
that the first is served first; and since a run takes all of its paths at once and waits with none,
no two wait for each other. A run in the queue waits only for runs that a process works on: it takes
over what a run left that was killed or stopped. A place in the queue is kept while no process works
on its run, so that a run that is resumed stands where it stood; it holds up no other run meanwhile.
"""

from __future__ import annotations

import json
import os
import re
import time
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from coilclaw.kernel import (
    EnvironmentFault,
    FileLock,
    PathRefused,
    TreePath,
    UsageError,
    create_private,
    explain_os_errors,
    fold_name,
    read_private,
    write_atomic,
)
from coilclaw.workspace import Owner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from coilclaw.kernel import Json

MAX_PATHS: Final = 10_000
"""The largest number of paths that one task may lock."""
_FORM: Final = 1
_LOCK: Final = re.compile(r"[0-9a-f]{64}\.lock")
_TICKET: Final = re.compile(r"[0-9a-f]{64}\.wait")


def fold_path(path: str) -> tuple[str, ...]:
    """Return the segments of a path, folded; those of the whole tree are none."""
    return tuple(fold_name(part) for part in TreePath.parse_directory(path))


class PathIndex:
    """Paths to be compared with many others, at a cost that does not grow with their number."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._exact: dict[tuple[str, ...], str] = {}
        self._above: dict[tuple[str, ...], str] = {}
        for path in paths:
            parts = fold_path(path)
            self._exact.setdefault(parts, path)
            for depth in range(len(parts)):
                self._above.setdefault(parts[:depth], path)

    def find(self, path: str) -> str | None:
        """Return a path of the index that is the given one, lies below it or above it."""
        parts = fold_path(path)
        for depth in range(len(parts) + 1):
            if parts[:depth] in self._exact:
                return self._exact[parts[:depth]]
        return self._above.get(parts)


def normalize_paths(paths: Sequence[str]) -> tuple[str, ...]:
    """Spell each path in one way only; a plain dot is the whole tree."""
    if not paths or len(paths) > MAX_PATHS:
        raise UsageError(
            f"a task locks between 1 and {MAX_PATHS} paths, not {len(paths)}", rule="lock.paths"
        )
    spelled = ("/".join(TreePath.parse_directory(path)) or "." for path in paths)
    return tuple(dict.fromkeys(spelled))


@dataclass(frozen=True, slots=True)
class Ticket:
    """The place of one run in the queue; lower numbers come first."""

    number: int
    run_id: str
    task_id: str
    paths: tuple[str, ...]
    owner: Owner
    ts: str
    """When the run began to wait."""


@dataclass(frozen=True, slots=True)
class Lock:
    """One path that a task holds."""

    path: str
    run_id: str
    task_id: str
    owner: Owner
    ts: str
    token: str
    """Names the acquisition; releasing it takes this token."""


@dataclass(frozen=True, slots=True)
class Held:
    """Locks on everything that was asked for."""

    run_id: str
    task_id: str
    paths: tuple[str, ...]
    token: str
    reclaimed: tuple[Lock, ...] = ()
    """Locks of processes that are gone, which were removed."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """A path that was asked for and a lock that is in its way."""

    path: str
    lock: Lock
    queued: bool = False
    """Whether it is not held yet: its run waits for it too, and came first."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Nothing was locked, because of these conflicts."""

    conflicts: tuple[Conflict, ...]
    ticket: Ticket | None = None
    """The place in the queue of the run that asked, if it has one."""
    reclaimed: tuple[Lock, ...] = ()
    """Earlier locks of the run itself, which it gave up: no run waits while it holds a path."""


@dataclass(frozen=True, slots=True)
class Locks:
    """The locks in one directory, one file for each path, and one for each run that waits.

    ``alive`` says whether a run whose process is gone will be resumed: its locks stay. A resumed
    run takes over its own. ``works`` says whether a process works on a run now; the process that
    took a lock may outlive the run, as a gateway does.
    """

    directory: Path
    _: KW_ONLY
    alive: Callable[[str], bool]
    works: Callable[[str, Owner], bool] = lambda _, owner: owner.runs()
    owner: Owner | None = None
    clock: Callable[[], float] = time.time

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

        The owner of the run takes over what the run had locked before. With ``queue`` a run that
        gets nothing keeps its place in the queue, or takes one.
        """
        wanted = normalize_paths(paths)
        with self._lock_table():
            for name in os.listdir(self.directory):
                # A process that was killed did not get to put it in place.
                if name.startswith(".coilclaw-"):
                    (self.directory / name).unlink(missing_ok=True)
            own = tuple(lock for lock in self._read_locks() if owned and lock.run_id == run_id)
            asked = PathIndex(wanted)
            conflicts, stale = self._compare(run_id, asked, own, queue=queue)
            # A run that is resumed and still has everything that it wants waits for no other.
            if not {lock.path for lock in own}.issuperset(wanted):
                conflicts += self._find_ahead(run_id, asked)
            gone = own if conflicts else tuple(dict.fromkeys((*own, *stale)))
            self._remove(gone)
            if conflicts:
                ticket = self._join(run_id, task_id, wanted) if queue else None
                return Taken(tuple(conflicts), ticket, own)
            self._ticket_place(run_id).unlink(missing_ok=True)
            held = Held(run_id, task_id, wanted, os.urandom(16).hex(), gone)
            try:
                self._write(held)
            except BaseException:
                self._remove(lock for lock in self._read_locks() if lock.token == held.token)
                raise
        return held

    def leave(self, run_id: str) -> bool:
        """Give up the place of a run in the queue; return whether it had one."""
        place = self._ticket_place(run_id)
        if not self.directory.is_dir():
            return False
        with self._lock_table():
            had = place.exists()
            place.unlink(missing_ok=True)
            return had

    def list_queue(self) -> tuple[Ticket, ...]:
        """Return the places in the queue, first come first, also those of runs that stand still."""
        if not self.directory.is_dir():
            return ()
        with self._lock_table():
            return tuple(self._read_tickets())

    def release(self, held: Held) -> tuple[str, ...]:
        """Release what was acquired; return the paths that were still held."""
        with self._lock_table():
            mine = [lock for lock in self._read_locks() if lock.token == held.token]
            self._remove(mine)
        return tuple(lock.path for lock in mine)

    def list_locks(self, run_id: str | None = None) -> tuple[Lock, ...]:
        """Return the locks of a run, or all of them, sorted by path."""
        if not self.directory.is_dir():
            return ()
        with self._lock_table():
            return tuple(lock for lock in self._read_locks() if run_id in {None, lock.run_id})

    def reclaim(self, run_id: str, *, owned: bool = False) -> tuple[Lock, ...]:
        """Remove the locks of a run whose process is gone; return them.

        For a run that is over, and for one that is being resumed and will lock again. The owner of
        the run takes them also from a process that runs: a gateway outlives the runs it stops.
        """
        with self._lock_table():
            own = [lock for lock in self._read_locks() if lock.run_id == run_id]
            gone = tuple(lock for lock in own if owned or not lock.owner.runs())
            self._remove(gone)
            return gone

    def _compare(
        self, run_id: str, asked: PathIndex, own: Sequence[Lock], *, queue: bool
    ) -> tuple[list[Conflict], list[Lock]]:
        """Return the conflicts, and the locks that are stale."""
        mine = {lock.token for lock in own}
        conflicts: list[Conflict] = []
        stale: list[Lock] = []
        for lock in self._read_locks():
            path = asked.find(lock.path)
            if path is None or lock.token in mine:
                continue
            if queue and lock.run_id != run_id:
                kept = self.works(lock.run_id, lock.owner)
            else:
                kept = lock.owner.runs() or (lock.run_id != run_id and self.alive(lock.run_id))
            if kept:
                conflicts.append(Conflict(path, lock))
            else:
                stale.append(lock)
        return conflicts, stale

    def _find_ahead(self, run_id: str, asked: PathIndex) -> Iterator[Conflict]:
        """Yield the runs that wait since earlier and want overlapping paths."""
        for ticket in self._read_tickets():
            if ticket.run_id == run_id:
                break
            if not self.works(ticket.run_id, ticket.owner):
                if not self.alive(ticket.run_id):
                    self._ticket_place(ticket.run_id).unlink(missing_ok=True)
                continue
            for theirs in ticket.paths:
                path = asked.find(theirs)
                if path is not None:
                    about = (ticket.run_id, ticket.task_id, ticket.owner, ticket.ts)
                    yield Conflict(path, Lock(theirs, *about, token=""), queued=True)
                    break

    def _join(self, run_id: str, task_id: str, paths: tuple[str, ...]) -> Ticket:
        """Return the place of a run: the one that it has, else a new one behind all others."""
        tickets = self._read_tickets()
        own = next((ticket for ticket in tickets if ticket.run_id == run_id), None)
        number = own.number if own else max((ticket.number for ticket in tickets), default=0) + 1
        owner, ts = self.owner or Owner.here(), own.ts if own else self._now()
        ticket = Ticket(number, run_id, task_id, paths, owner, ts)
        if ticket != own:
            data = _encode(ticket, number=number, paths=list(paths))
            write_atomic(self._ticket_place(run_id), data, mode=0o600)
        return ticket

    def _write(self, held: Held) -> None:
        owner, ts = self.owner or Owner.here(), self._now()
        for path in held.paths:
            lock = Lock(path, held.run_id, held.task_id, owner, ts, held.token)
            data = _encode(lock, path=path, token=held.token)
            if create_private(self._lock_place(path), data) != data:
                raise EnvironmentFault(
                    f"{self._lock_place(path)} appeared while the table of locks was locked",
                    rule="lock.foreign",
                )

    def _now(self) -> str:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.clock()))

    def _remove(self, locks: Iterable[Lock]) -> None:
        for lock in locks:
            self._lock_place(lock.path).unlink(missing_ok=True)

    def _read_locks(self) -> list[Lock]:
        texts = ("path", "run_id", "task_id", "ts", "token")
        locks = [
            Lock(owner=owner, **{name: value[name] for name in texts})
            for value, owner in self._read(_LOCK, *texts)
        ]
        return sorted(locks, key=lambda lock: lock.path)

    def _read_tickets(self) -> list[Ticket]:
        texts = ("run_id", "task_id", "ts")
        tickets = []
        for value, owner in self._read(_TICKET, *texts):
            about = {name: value[name] for name in texts}
            paths = tuple(value["paths"])
            tickets.append(Ticket(number=value["number"], paths=paths, owner=owner, **about))
        return sorted(tickets, key=lambda ticket: ticket.number)

    def _read(
        self, pattern: re.Pattern[str], *texts: str
    ) -> Iterator[tuple[dict[str, Any], Owner]]:
        """Yield the records of one kind; raise for one that cannot be read."""
        for name in os.listdir(self.directory):
            if not pattern.fullmatch(name):
                continue
            place = self.directory / name
            try:
                # A ticket may name more paths than a small private file holds.
                data = place.read_bytes() if pattern is _TICKET else read_private(place)
                value = json.loads(data or b"")
                owner, number = Owner.of(value), value.get("number", 0)
                paths = value["paths"] if pattern is _TICKET else [value["path"]]
                plain = all(isinstance(text, str) for text in (*(value[k] for k in texts), *paths))
                if owner is None or value["form"] != _FORM or type(number) is not int or not plain:
                    raise ValueError(place)
                if normalize_paths(paths) != tuple(paths):
                    raise ValueError(place)
            except (
                *(OSError, ValueError, KeyError, TypeError, AttributeError),
                *(PathRefused, UsageError),
            ) as problem:
                raise EnvironmentFault(
                    f"{place} is not a lock, or a place in the queue for one, that can be read",
                    rule="lock.damaged",
                    hint="delete it once no run is going on",
                ) from problem
            yield value, owner

    def _lock_place(self, path: str) -> Path:
        return self.directory / f"{sha256(path.encode('utf-8')).hexdigest()}.lock"

    def _ticket_place(self, run_id: str) -> Path:
        return self.directory / f"{sha256(run_id.encode('utf-8')).hexdigest()}.wait"

    @contextmanager
    def _lock_table(self) -> Iterator[None]:
        with explain_os_errors(f"create {self.directory}", rule="lock.open"):
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with FileLock(self.directory / "table"):
            yield


def _encode(record: Lock | Ticket, **more: Json) -> bytes:
    document: dict[str, Json] = {
        "form": _FORM,
        "run_id": record.run_id,
        "task_id": record.task_id,
        **record.owner.json(),
        "ts": record.ts,
        **more,
    }
    return json.dumps(document, ensure_ascii=True, sort_keys=True).encode("ascii") + b"\n"
