"""Garbage collection: removes what runs left, never what a run needs to resume or to be merged."""

from __future__ import annotations

import os
import re
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from coilclaw.kernel import FileLock, LockTimeout
from coilclaw.runs.engine import merge_stage
from coilclaw.runs.engine.run_start import is_worked_on, locate_owner
from coilclaw.runs.engine.worktree_setup import KEY, RECORD, RUNS, lock_setup
from coilclaw.runs.evidence import layout
from coilclaw.runs.evidence.bundle import discard_bundle, sealed_manifest
from coilclaw.runs.evidence.event_index import get_part
from coilclaw.workspace import is_remainder, remove_tree
from coilclaw.workspace import merge as merging

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from coilclaw.runs.engine.run import RunDependencies
    from coilclaw.runs.evidence.layout import RunPlaces

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
class CollectionOptions:
    """Which ended runs are meant; what dead processes left is removed in any case."""

    older_than_days: float = 0.0
    keep: int = 0
    """So many of the newest ended runs are left alone, and of the set-ups used last."""
    bundles: bool = False
    """Whether the evidence goes too."""
    pending: bool = False
    """Whether that holds for accepted work that was not merged."""
    dry_run: bool = False


def _is_needed(place: Path, places: RunPlaces) -> bool:
    """Whether a run that used a set-up is worked on, or can be resumed."""
    return any(
        is_worked_on(places.runtime, run_id)
        or (places.bundle(run_id).is_dir() and sealed_manifest(places.bundle(run_id)) is None)
        for run_id in layout.list_names(place / RUNS)
    )


def collect_garbage(equipment: RunDependencies, wishes: CollectionOptions) -> tuple[Removed, ...]:
    """Remove what no run needs; return what was removed, in order."""
    return tuple(_Collection(equipment, wishes).remove_all())


@dataclass(frozen=True, slots=True)
class _Collection:
    equipment: RunDependencies
    wishes: CollectionOptions

    def remove_all(self) -> Iterator[Removed]:
        worktrees = self.equipment.worktrees
        for path in worktrees.leftovers() if self.wishes.dry_run else worktrees.sweep():
            yield Removed("worktree", path.relative_to(worktrees.directory).parts[0], str(path))
        oldest = self.equipment.clock() - timedelta(days=self.wishes.older_than_days)
        chosen = self._choose_ended(oldest)
        for run_id in sorted(self._list_known()):
            owner = locate_owner(self.equipment.places.runtime, run_id)
            there = owner.exists()
            with self._claim(run_id) as mine:
                if mine and self._judge_state(run_id) != "open":
                    if there:
                        yield Removed("owner", run_id, str(owner))
                    yield from self._remove_run(run_id, chosen)
        yield from self._remove_setups(oldest)

    def _remove_run(self, run_id: str, chosen: dict[str, str]) -> Iterator[Removed]:
        """Remove what is of no use of a run that is not open and not worked on."""
        yield from self._remove_leftovers(run_id)
        state, dry = self._judge_state(run_id), self.wishes.dry_run
        gone = state in {"missing", "empty"}
        if not gone and run_id not in chosen:
            return
        merge = "" if gone else chosen[run_id]
        pending = merge == "pending" and not self.wishes.pending
        discarded = state == "empty" or (self.wishes.bundles and not gone and not pending)
        if discarded or merge != "pending":
            kept = merging.list_kept(self.equipment.repository, run_id)
            if kept and not dry:
                merging.delete_refs(self.equipment.repository, run_id)
            for name in kept:
                yield Removed("refs", run_id, f"{merging.REFS}/{run_id}/{name}")
        if discarded:
            bundle = self.equipment.places.bundle(run_id)
            yield Removed("bundle", run_id, str(bundle))
            if not dry:
                discard_bundle(bundle)

    def _judge_state(self, run_id: str) -> Literal["missing", "empty", "open", "ended"]:
        directory = self.equipment.places.bundle(run_id)
        if not directory.is_dir():
            return "missing"
        if sealed_manifest(directory) is not None:
            return "ended"
        events = directory / layout.EVENTS
        begun = events.exists() and events.stat().st_size
        # Killed before its first event: nothing can ever go on from there. Where more was left,
        # the events were taken away, and the rest is evidence.
        return "empty" if not begun and _is_beginning(directory) else "open"

    def _list_known(self) -> set[str]:
        """Return every run that has left anything at all."""
        places, locks = self.equipment.places, self.equipment.locks
        git = self.equipment.repository.git
        listing = git.run("for-each-ref", "--format=%(refname)", merging.REFS + "/")
        refs = listing.decode("utf-8", "replace").splitlines()
        owners = (
            name for name in layout.list_names(places.runtime / OWNERS) if name.endswith(_SUFFIX)
        )
        names = {
            *layout.list_names(places.runs),
            *layout.list_names(places.homes),
            *layout.list_names(places.runtime / "active"),
            *(name.removesuffix(_SUFFIX) for name in owners),
            *(lock.run_id for lock in locks.list_locks()),
            *(ticket.run_id for ticket in locks.list_queue()),
            *(ref.removeprefix(merging.REFS + "/").partition("/")[0] for ref in refs),
        }
        return {name for name in names if layout.is_run_id(name)}

    def _choose_ended(self, oldest: datetime) -> dict[str, str]:
        """Return the ended runs that are meant, newest first, and what became of their work."""
        found: list[tuple[str, str, str]] = []
        for name in filter(layout.is_run_id, layout.list_names(self.equipment.places.runs)):
            directory = self.equipment.places.bundle(name)
            manifest = sealed_manifest(directory)
            if manifest is None:
                continue
            merge, commit = (get_part(manifest, "merge", key) for key in ("status", "commit"))
            # That it was merged later counts only if git knows of it.
            if merge == "pending" and any(
                merge_stage.list_landed(self.equipment.repository, directory, str(commit))
            ):
                merge = "merged"
            found.append((str(manifest.get("created_at")), name, str(merge or "")))
        found.sort(reverse=True)
        chosen = {}
        for created, name, merge in found[self.wishes.keep :]:
            with suppress(ValueError):  # without a valid time, it counts as old
                if datetime.fromisoformat(created) > oldest:
                    continue
            chosen[name] = merge
        return chosen

    def _remove_setups(self, oldest: datetime) -> Iterator[Removed]:
        """Remove the set-ups that are meant and no run needs, and what is left of others."""
        places, never = self.equipment.places, datetime.min.replace(tzinfo=UTC)
        found: list[tuple[datetime, Path]] = []
        for name in layout.list_names(places.setups):
            place, used_at = places.setups / name, never
            if KEY.fullmatch(name):
                with suppress(FileNotFoundError, NotADirectoryError):
                    used_at = datetime.fromtimestamp(os.lstat(place / RECORD).st_mtime, UTC)
            elif not is_remainder(name):
                continue
            found.append((used_at, place))
        found.sort(key=lambda one: one[0], reverse=True)
        for number, (used_at, place) in enumerate(found):
            if used_at != never and (number < self.wishes.keep or used_at > oldest):
                continue
            with ExitStack() as stack:
                # What is left of one that was being removed has no lock.
                if KEY.fullmatch(place.name):
                    try:
                        stack.enter_context(lock_setup(places.setups, place.name, timeout_s=0))
                    except LockTimeout:
                        continue  # it is being made, or a run is about to use it
                    if _is_needed(place, places):
                        continue
                size = sum(
                    os.lstat(os.path.join(parent, name)).st_size
                    for parent, _, names in os.walk(place)
                    for name in names
                )
                yield Removed("setup", "", str(place), size)
                if not self.wishes.dry_run:
                    remove_tree(place)

    def _remove_leftovers(self, run_id: str) -> Iterator[Removed]:
        """Remove what is of no use once a run has ended."""
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
        held = [lock for lock in locks.list_locks(run_id) if not lock.owner.runs()]
        for lock in held if dry else locks.reclaim(run_id) if held else ():
            yield Removed("lock", run_id, lock.path)
        if run_id in {ticket.run_id for ticket in locks.list_queue()}:
            yield Removed("lock", run_id, "its place in the queue")
            if not dry:
                locks.leave(run_id)

    @contextmanager
    def _claim(self, run_id: str) -> Iterator[bool]:
        """Claim a run while it is looked at; yield whether no process works on it now."""
        place = locate_owner(self.equipment.places.runtime, run_id)
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
            open_run = self._judge_state(run_id) == "open"
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
