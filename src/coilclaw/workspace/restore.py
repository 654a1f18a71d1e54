"""Putting a tree back to a snapshot, through the writer: all or nothing, and undoable."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.changes.plan import FileChange, Plan
from coilclaw.domain.files import RegularFile
from coilclaw.domain.treediff import EntryType, TreeDiff
from coilclaw.domain.treepath import TreePath
from coilclaw.workspace.writer import Extent, Purpose, Writer

if TYPE_CHECKING:
    from coilclaw.domain.treediff import TreeChange
    from coilclaw.workspace.changefile import Change
    from coilclaw.workspace.resolve import Root
    from coilclaw.workspace.snapshot import SnapshotStore
    from coilclaw.workspace.state import TreeState


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


def restore(
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
    left_out = tuple(sorted({*exclude, *store.excluded(target)}))
    now = store.take(root.path, exclude=left_out).id
    difference = store.diff(now, target)
    if only is not None:
        chosen = tuple(change for change in difference if not only.isdisjoint(change.paths))
        difference = TreeDiff(chosen, difference.git_changes)
    plan = _plan(store, now, target, difference)
    left = tuple(change.path for change in difference if _opaque(change))
    extent = _extent(store, now, target, plan, difference)
    if dry_run or (plan.empty and extent.empty):
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
    come, gone = _directories(difference)
    return Extent(modes=modes, make=dict.fromkeys(come), remove=tuple(gone))


def _plan(store: SnapshotStore, now: str, target: str, difference: TreeDiff) -> Plan:
    """Each side counts by itself: a file may make room for a directory, and the reverse."""
    old = store.read(now, [c.old_path or c.path for c in difference if c.old_type in _FILES])
    new = store.read(target, [c.path for c in difference if c.new_type in _FILES])
    paths = sorted({*old, *new})
    return Plan(tuple(FileChange(_path(path), old.get(path), new.get(path)) for path in paths))


def _opaque(change: TreeChange) -> bool:
    return EntryType.OPAQUE in {change.old_type, change.new_type}


def _directories(difference: TreeDiff) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    come, gone = [], []
    for change in difference:
        parts = tuple(change.path.split("/"))
        if change.new_type is EntryType.DIRECTORY:
            come.append(parts)
        if change.old_type is EntryType.DIRECTORY:
            gone.append(parts)
    return come, gone


def _path(text: str) -> TreePath:
    """A name from a snapshot may be anything the file system took, so no lexical rule applies."""
    return TreePath(tuple(os.fsdecode(os.fsencode(text)).split("/")))
