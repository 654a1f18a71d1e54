"""Putting a tree back to a snapshot, through the writer: all or nothing, and undoable."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coilclaw.changes.plan import FileChange, Plan
from coilclaw.domain.treediff import EntryType
from coilclaw.domain.treepath import TreePath
from coilclaw.workspace.placement import Placement
from coilclaw.workspace.writer import Purpose, Writer

if TYPE_CHECKING:
    from coilclaw.domain.treediff import TreeChange, TreeDiff
    from coilclaw.workspace.changefile import Change
    from coilclaw.workspace.resolve import Root
    from coilclaw.workspace.snapshot import SnapshotStore
    from coilclaw.workspace.state import TreeState


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
) -> Restored:
    """Make the tree what it was when the snapshot was taken."""
    target = store.resolve(snapshot_id)
    now = store.take(root.path, exclude=exclude).id
    difference = store.diff(now, target)
    plan = _plan(store, now, target, difference)
    left = tuple(change.path for change in difference if _opaque(change))
    if dry_run:
        return Restored(plan, None, left, now)
    come, gone = _directories(difference)
    placement = Placement(root, "directories")
    for parts in sorted(gone, reverse=True):
        placement.remove_directory(parts)
    change = None if plan.empty else Writer(root, state).apply(plan, Purpose("restore"))
    for parts in sorted(come):
        placement.make_directories(TreePath((*parts, "_")))
    placement.sync()
    return Restored(plan, change, left, now)


def _plan(store: SnapshotStore, now: str, target: str, difference: TreeDiff) -> Plan:
    changes = [change for change in difference if not _special(change)]
    old = store.read(now, [path for change in changes if (path := _old(change))])
    new = store.read(target, [path for change in changes if (path := _new(change))])
    paths = sorted({*old, *new})
    return Plan(tuple(FileChange(_path(path), old.get(path), new.get(path)) for path in paths))


def _old(change: TreeChange) -> str | None:
    return None if change.old_type is None else change.old_path or change.path


def _new(change: TreeChange) -> str | None:
    return None if change.new_type is None else change.path


def _special(change: TreeChange) -> bool:
    return _opaque(change) or EntryType.DIRECTORY in {change.old_type, change.new_type}


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
