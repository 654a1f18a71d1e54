"""Taking changes back, which is a change of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.changes import PathChange, Plan
from coilclaw.kernel import (
    EntryType,
    FileState,
    Obstacle,
    PathRefused,
    RegularFile,
    TreeDiff,
    TreePath,
    UndoRefused,
    UsageError,
)
from coilclaw.workspace.tree import recovery
from coilclaw.workspace.tree.changelog import ChangeEntry, Changelog
from coilclaw.workspace.tree.placement import lies_below, list_parents
from coilclaw.workspace.tree.writer import Extent, Purpose, Writer

if TYPE_CHECKING:
    from coilclaw.workspace.snapshot.store import SnapshotStore
    from coilclaw.workspace.tree.changelog import Change
    from coilclaw.workspace.tree.placement import Parts
    from coilclaw.workspace.tree.root import Root
    from coilclaw.workspace.tree.state import TreeState


RESTORE: Final = Purpose("restore")
_FILES: Final = frozenset({EntryType.FILE, EntryType.EXECUTABLE, EntryType.SYMLINK})


@dataclass(frozen=True, slots=True)
class Restored:
    """What was put back, and what could not be: of opaque entries only a digest is kept."""

    plan: Plan
    change: Change | None
    left: tuple[str, ...]
    before: str
    """The snapshot of the tree as it was, taken first."""


def restore_snapshot(
    root: Root,
    state: TreeState,
    store: SnapshotStore,
    snapshot_id: str,
    *,
    dry_run: bool = False,
    exclude: tuple[str, ...] = (),
    only: frozenset[str] | None = None,
    purpose: Purpose = RESTORE,
) -> Restored:
    """Make the tree what it was when the snapshot was taken; with ``only``, just those paths."""
    target = store.resolve(snapshot_id)
    left_out = tuple(sorted({*exclude, *store.list_excluded(target)}))
    now = store.take(root.path, exclude=left_out).id
    difference = store.diff(now, target)
    if only is not None:
        chosen = tuple(change for change in difference if not only.isdisjoint(change.paths))
        difference = TreeDiff(chosen, difference.git_changes)
    # Each side counts by itself: a file may make room for a directory, and the reverse.
    old = store.read(now, [c.old_path or c.path for c in difference if c.old_type in _FILES])
    new = store.read(target, [c.path for c in difference if c.new_type in _FILES])
    # A name from a snapshot may be anything the file system took, so no lexical rule applies.
    paths = {path: TreePath(tuple(path.split("/"))) for path in sorted({*old, *new})}
    plan = Plan(tuple(PathChange(p, old.get(path), new.get(path)) for path, p in paths.items()))
    left = tuple(c.path for c in difference if EntryType.OPAQUE in {c.old_type, c.new_type})
    extent = _extent(store, now, target, plan, difference)
    if dry_run or (not plan.changes and extent.empty):
        return Restored(plan, None, left, now)
    change = Writer(root, state).apply(plan, purpose, extent)
    return Restored(plan, change, left, now)


def _extent(
    store: SnapshotStore, now: str, target: str, plan: Plan, difference: TreeDiff
) -> Extent:
    """Permission bits come back too, and directories that hold nothing."""
    wanted, found = store.modes(target), store.modes(now)
    modes: dict[TreePath, int] = {}
    for item in plan.changes:
        name = str(item.path)
        if isinstance(item.after, RegularFile) and (name in wanted or name in found):
            modes[item.path] = wanted.get(name, 0o755 if item.after.executable else 0o644)
    come = [c.path for c in difference if c.new_type is EntryType.DIRECTORY]
    gone = [c.path for c in difference if c.old_type is EntryType.DIRECTORY]
    make: dict[Parts, int | None] = {tuple(path.split("/")): None for path in come}
    return Extent(modes=modes, make=make, remove=tuple(tuple(path.split("/")) for path in gone))


_MAX_KEPT_BYTES: Final = 256 * 2**20
"""A file that is to be kept is read whole, up to this."""


def undo_change(
    root: Root, state: TreeState, change_id: str | None, *, force: bool = False
) -> Change:
    """Take back a change, or the last one that stands; refuse when its files changed since."""
    changelog, entry = _find(root, state, change_id)
    if entry.undone_by and not force:
        raise UndoRefused(
            f"change {entry.id} was taken back already, by {entry.undone_by}",
            rule="undo.done",
            hint=f"'coilclaw undo {entry.undone_by}' brings it back",
        )
    return _take_back(root, state, changelog, (entry,), force=force)


def undo_group(
    root: Root, state: TreeState, change_id: str | None, *, force: bool = False
) -> Change:
    """Take back everything that was changed together with a change, at once."""
    changelog, entry = _find(root, state, change_id)
    if not entry.group:
        raise UsageError(
            f"change {entry.id} is part of no run", rule="undo.group", hint="undo it by itself"
        )
    entries = changelog.group(entry.group)
    if not entries:
        raise UndoRefused(
            f"everything that run {entry.group} changed was taken back already", rule="undo.done"
        )
    return _take_back(root, state, changelog, entries, force=force)


def _find(root: Root, state: TreeState, change_id: str | None) -> tuple[Changelog, ChangeEntry]:
    recovery.repair_tree(root, state)
    changelog = Changelog(state)
    return changelog, changelog.last() if change_id is None else changelog.find(change_id)


def _take_back(
    root: Root,
    state: TreeState,
    changelog: Changelog,
    entries: tuple[ChangeEntry, ...],
    *,
    force: bool,
) -> Change:
    changes = [changelog.load(entry) for entry in entries]
    done, modes = _combine(changelog, changes)
    # Directories that were made may go, and those that went come back, with their bits.
    made = frozenset(parts for change in changes for parts in change.directories)
    gone = {parts: mode for change in changes for parts, mode in change.emptied}
    extent = Extent(
        removable=made,
        modes=modes,
        make={parts: mode for parts, mode in gone.items() if parts not in made},
        remove=tuple(sorted(made - gone.keys())),
    )
    plan = _plan(root, done, entries, extent, force=force)
    if not plan.changes and extent.empty:
        raise UndoRefused(
            f"the tree is as it was before {_name_changes(entries)}; there is nothing to take back",
            rule="undo.nothing",
        )
    purpose = Purpose("undo", entries[-1].group, tuple(entry.id for entry in entries))
    return Writer(root, state).apply(plan, purpose, extent)


def _combine(changelog: Changelog, changes: list[Change]) -> tuple[Plan, dict[TreePath, int]]:
    """Join changes that follow each other into one plan: first before, last after."""
    first: dict[TreePath, FileState] = {}
    last: dict[TreePath, FileState] = {}
    modes: dict[TreePath, int] = {}
    for change in changes:
        for stored in change.files:
            if stored.path not in first and stored.before and stored.before.mode is not None:
                modes[stored.path] = stored.before.mode
        for item in changelog.plan(change).changes:
            first.setdefault(item.path, item.before)
            last[item.path] = item.after
    plan = Plan(tuple(PathChange(path, first[path], last[path]) for path in sorted(first)))
    return plan, modes


def _plan(
    root: Root, done: Plan, entries: tuple[ChangeEntry, ...], extent: Extent, *, force: bool
) -> Plan:
    changes: list[PathChange] = []
    in_the_way: list[str] = []
    back = done.invert()
    vacated = list_parents(item.path for item in back.changes if item.after is None)
    vacated |= frozenset(extent.remove)
    files = frozenset(item.path.parts for item in back.changes if item.before is not None)
    for item in back.changes:
        if item.before is None and lies_below(item.path, files):
            changes.append(item)
            continue
        try:
            size = len(item.before.content) if isinstance(item.before, RegularFile) else 0
            found = root.read(item.path, limit=max(size, _MAX_KEPT_BYTES))
        except PathRefused:
            found = Obstacle("directory")
        if found == Obstacle("directory") and item.path.parts in vacated:
            found = None
        if isinstance(found, Obstacle):
            in_the_way.append(f"{item.path} (no file any more)")
        elif found == item.before:
            changes.append(item)
        elif force:
            changes.append(PathChange(item.path, found, item.after))
        else:
            in_the_way.append(str(item.path))
    if in_the_way:
        changed = ", ".join(in_the_way)
        raise UndoRefused(
            f"{_name_changes(entries)} cannot be taken back: changed since: {changed}",
            rule="undo.changed",
            paths=tuple(in_the_way),
            hint=None if force else "look at them; '--force' overwrites files with what they were",
        )
    return Plan(tuple(i for i in changes if i.before != i.after or i.path in extent.modes))


def _name_changes(entries: tuple[ChangeEntry, ...]) -> str:
    if len(entries) == 1:
        return f"change {entries[0].id}"
    return f"the {len(entries)} changes of run {entries[-1].group}"
