"""Removing what runs left lying about: never anything that a run needs to go on or to be merged."""

from __future__ import annotations

import os
import re
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from coilclaw.errors import LockTimeout
from coilclaw.orchestrator import applying, layout
from coilclaw.orchestrator.bundle import discard, sealed_manifest
from coilclaw.orchestrator.places import checked
from coilclaw.orchestrator.setup_retention import (
    find_setups,
    is_needed,
    lock_setup,
    measure_setup,
)
from coilclaw.storage.lock import FileLock
from coilclaw.workspace import merging
from coilclaw.workspace.removal import remove_tree

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from coilclaw.domain.messages import Json
    from coilclaw.orchestrator.equipment import Equipment

What: TypeAlias = Literal["worktree", "home", "active", "owner", "lock", "refs", "bundle", "setup"]
OWNERS: Final = "owners"
_SUFFIX: Final = ".lock"
_WRITTEN: Final = (
    *(layout.TRACE_ID, layout.GIT_BASELINE, layout.WORKTREE_REF, layout.META, layout.GIVEN),
    *(layout.EVENTS, layout.ANCHOR),
)
"""What is written before the first event, which comes with its anchor."""
_BEFORE: Final = re.compile(
    "|".join(map(re.escape, _WRITTEN)) + r"|(?:[a-z]+/)?\.coilclaw-[0-9a-f]+\.tmp"
)


@dataclass(frozen=True, slots=True)
class Removed:
    """One thing that was removed, or would be."""

    what: What
    run_id: str
    """Empty where it belongs to no single run."""
    name: str
    size_bytes: int | None = None
    """Where it was measured."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """Which ended runs are meant; what dead processes left is removed in any case."""

    older_than_days: float = 0.0
    keep: int = 0
    """So many of the newest ended runs are left alone, and of the set-ups used last."""
    bundles: bool = False
    """Whether the evidence goes too."""
    pending: bool = False
    """Whether that holds for accepted work that nobody merged."""
    dry_run: bool = False


def collect(equipment: Equipment, wishes: Wishes) -> tuple[Removed, ...]:
    """Remove; return what went, in order."""
    return tuple(_Collection(equipment, wishes).go())


@dataclass(frozen=True, slots=True)
class _Collection:
    equipment: Equipment
    wishes: Wishes

    def go(self) -> Iterator[Removed]:
        yield from self._worktrees()
        chosen = self._chosen()
        for run_id in sorted(self._known()):
            owner = self._owner(run_id)
            there = owner.exists()
            with self._claimed(run_id) as mine:
                if not mine:
                    continue
                if there and self._state(run_id) != "open":
                    yield Removed("owner", run_id, str(owner))
                yield from self._of(run_id, chosen)
        yield from self._setups()

    def _of(self, run_id: str, chosen: dict[str, str]) -> Iterator[Removed]:
        """What goes of one run, which nobody works on."""
        state = self._state(run_id)
        if state == "open":
            return
        yield from self._leftovers(run_id)
        gone = state in {"missing", "empty"}
        if not gone and run_id not in chosen:
            return
        merge = "" if gone else chosen[run_id]
        pending = merge == "pending" and not self.wishes.pending
        discarded = state == "empty" or (self.wishes.bundles and not gone and not pending)
        if gone or discarded or merge != "pending":
            yield from self._refs(run_id)
        if discarded:
            yield Removed("bundle", run_id, str(self.equipment.places.bundle(run_id)))
            if not self.wishes.dry_run:
                discard(self.equipment.places.bundle(run_id))

    def _state(self, run_id: str) -> Literal["missing", "empty", "open", "ended"]:
        directory = self.equipment.places.bundle(run_id)
        if not directory.is_dir():
            return "missing"
        if sealed_manifest(directory) is not None:
            return "ended"
        events = directory / layout.EVENTS
        if events.exists() and events.stat().st_size:
            return "open"
        # Killed before its first event: nothing can ever go on from there. Where more was left,
        # somebody took the events away, and the rest is evidence.
        return "empty" if _is_beginning(directory) else "open"

    def _merge(self, directory: Path, manifest: dict[str, Json]) -> str:
        """What became of the work; that it was merged later counts only if git knows of it."""
        merge = manifest.get("merge")
        if not isinstance(merge, dict) or merge.get("status") != "pending":
            return str(merge.get("status")) if isinstance(merge, dict) else ""
        candidate = str(merge.get("commit"))
        return (
            "merged"
            if any(applying.landed(self.equipment.repository, directory, candidate))
            else "pending"
        )

    def _known(self) -> set[str]:
        """Every run that has left anything at all."""
        places, names = self.equipment.places, set[str]()
        for folder in (places.runs, places.homes, places.runtime / "active"):
            names.update(_names(folder))
        names.update(
            name.removesuffix(_SUFFIX)
            for name in _names(places.runtime / OWNERS)
            if name.endswith(_SUFFIX)
        )
        names.update(lock.run_id for lock in self.equipment.locks.held())
        names.update(ticket.run_id for ticket in self.equipment.locks.queued())
        git = self.equipment.repository.git
        listing = git.run("for-each-ref", "--format=%(refname)", merging.REFS + "/")
        for ref in listing.decode("utf-8", "replace").splitlines():
            names.add(ref.removeprefix(merging.REFS + "/").partition("/")[0])
        return {name for name in names if _is_id(name)}

    def _chosen(self) -> dict[str, str]:
        """The ended runs that are meant, newest last, and what became of their work."""
        found: list[tuple[str, str, str]] = []
        for name in _names(self.equipment.places.runs):
            if not _is_id(name):
                continue
            directory = self.equipment.places.bundle(name)
            manifest = sealed_manifest(directory)
            if manifest is not None:
                merge = self._merge(directory, manifest)
                found.append((str(manifest.get("created_at")), name, merge))
        found.sort(reverse=True)
        oldest = self.equipment.clock() - timedelta(days=self.wishes.older_than_days)
        return {
            name: merge
            for created, name, merge in found[self.wishes.keep :]
            if _moment(created, oldest) <= oldest
        }

    def _worktrees(self) -> Iterator[Removed]:
        worktrees = self.equipment.worktrees
        gone = worktrees.leftovers() if self.wishes.dry_run else worktrees.sweep()
        for path in gone:
            below = path.relative_to(worktrees.directory).parts
            yield Removed("worktree", below[0], str(path))

    def _setups(self) -> Iterator[Removed]:
        """The set-ups that are meant and no run needs, and what is left of others."""
        places = self.equipment.places
        found = find_setups(places.setups)
        oldest = self.equipment.clock() - timedelta(days=self.wishes.older_than_days)
        for number, one in enumerate(found):
            if one.used_at and (number < self.wishes.keep or one.used_at > oldest):
                continue
            with ExitStack() as stack:
                if one.locked:
                    try:
                        stack.enter_context(lock_setup(places.setups, one.place.name, timeout_s=0))
                    except LockTimeout:
                        continue  # it is being made, or a run is about to use it
                    if is_needed(one.place, places):
                        continue
                yield Removed("setup", "", str(one.place), measure_setup(one.place))
                if not self.wishes.dry_run:
                    remove_tree(one.place)

    def _leftovers(self, run_id: str) -> Iterator[Removed]:
        """What is of no use once a run has ended."""
        places, dry = self.equipment.places, self.wishes.dry_run
        whats: dict[What, Path] = {
            "home": places.homes / run_id,
            "active": places.active(run_id).parent,
        }
        for what, place in whats.items():
            if os.path.lexists(place):
                yield Removed(what, run_id, str(place))
                if not dry:
                    remove_tree(place)
        locks = self.equipment.locks
        held = [lock for lock in locks.held(run_id) if not lock.owner.runs()]
        for lock in held if dry else locks.reclaim(run_id) if held else ():
            yield Removed("lock", run_id, lock.path)
        if run_id in {ticket.run_id for ticket in locks.queued()}:
            yield Removed("lock", run_id, "its place in the queue")
            if not dry:
                locks.leave(run_id)

    def _owner(self, run_id: str) -> Path:
        return self.equipment.places.runtime / OWNERS / f"{run_id}{_SUFFIX}"

    def _refs(self, run_id: str) -> Iterator[Removed]:
        repository = self.equipment.repository
        kept = merging.kept(repository, run_id)
        if kept and not self.wishes.dry_run:
            merging.delete_refs(repository, run_id)
        for name in kept:
            yield Removed("refs", run_id, f"{merging.REFS}/{run_id}/{name}")

    @contextmanager
    def _claimed(self, run_id: str) -> Iterator[bool]:
        """Keep others from a run while it is looked at; whether nobody works on it now."""
        place = self._owner(run_id)
        there = place.exists()
        if not place.parent.is_dir():
            yield True
            return
        lock = FileLock(place, timeout_s=0.0)
        try:
            lock.acquire()
        except LockTimeout:
            yield False
            return
        try:
            yield True
        finally:
            open_run = self._state(run_id) == "open"
            if not there or not (open_run or self.wishes.dry_run):
                place.unlink(missing_ok=True)
            lock.release()


def _is_beginning(directory: Path) -> bool:
    """Whether a directory holds nothing but what a run has before its first event."""
    for place, folders, files in os.walk(directory):
        below = os.path.relpath(place, directory)
        names = [os.path.normpath(os.path.join(below, name)) for name in files]
        if not all(_BEFORE.fullmatch(name) for name in names):
            return False
        if folders and (below != "." or not set(folders) <= set(layout.FOLDERS)):
            return False
        if any(os.path.islink(os.path.join(place, name)) for name in (*folders, *files)):
            return False
    return True


def _moment(created: str, otherwise: datetime) -> datetime:
    try:
        return datetime.fromisoformat(created)
    except ValueError:
        return otherwise


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _is_id(name: str) -> bool:
    from coilclaw.errors import UsageError

    try:
        checked(name)
    except UsageError:
        return False
    return True
