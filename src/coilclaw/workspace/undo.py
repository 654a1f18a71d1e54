"""Taking changes back, which is a change of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coilclaw.changes.plan import FileChange, Plan
from coilclaw.domain.files import FileState, Obstacle, RegularFile
from coilclaw.errors import PathRefused, UndoRefused, UsageError
from coilclaw.workspace import directories, recovery
from coilclaw.workspace.changelog import Changelog, Entry
from coilclaw.workspace.writer import Extent, Purpose, Writer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coilclaw.domain.treepath import TreePath
    from coilclaw.workspace.changefile import Change
    from coilclaw.workspace.resolve import Root
    from coilclaw.workspace.state import TreeState


def undo(root: Root, state: TreeState, change_id: str | None, *, force: bool = False) -> Change:
    """Take back a change, or the last one that stands; refuse when its files changed since."""
    recovery.repair(root, state)
    changelog = Changelog(state)
    entry = changelog.last() if change_id is None else changelog.find(change_id)
    if entry.undone_by and not force:
        raise UndoRefused(
            f"change {entry.id} was taken back already, by {entry.undone_by}",
            rule="undo.done",
            hint=f"'coilclaw undo {entry.undone_by}' brings it back",
        )
    return _take_back(root, state, (entry,), force=force)


def undo_group(
    root: Root, state: TreeState, change_id: str | None, *, force: bool = False
) -> Change:
    """Take back everything that was changed together with a change, at once."""
    recovery.repair(root, state)
    changelog = Changelog(state)
    entry = changelog.last() if change_id is None else changelog.find(change_id)
    if not entry.group:
        raise UsageError(
            f"change {entry.id} is part of no run", rule="undo.group", hint="undo it by itself"
        )
    entries = changelog.group(entry.group)
    if not entries:
        raise UndoRefused(
            f"everything that run {entry.group} changed was taken back already", rule="undo.done"
        )
    return _take_back(root, state, entries, force=force)


def _take_back(root: Root, state: TreeState, entries: tuple[Entry, ...], *, force: bool) -> Change:
    changelog = Changelog(state)
    changes = [changelog.load(entry) for entry in entries]
    done, modes = _combined(changelog, changes)
    extent = _extent(changes, modes)
    plan = _plan(root, done, entries, extent, force=force)
    if plan.empty and extent.empty:
        raise UndoRefused(
            f"the tree is as it was before {_named(entries)}; there is nothing to take back",
            rule="undo.nothing",
        )
    purpose = Purpose("undo", entries[-1].group, tuple(entry.id for entry in entries))
    return Writer(root, state).apply(plan, purpose, extent)


def _extent(changes: list[Change], modes: Mapping[TreePath, int]) -> Extent:
    """Directories that were made may go, and those that went come back, with their bits."""
    made = frozenset(parts for change in changes for parts in change.directories)
    gone = {parts: mode for change in changes for parts, mode in change.emptied}
    return Extent(
        removable=made,
        modes=modes,
        make={parts: mode for parts, mode in gone.items() if parts not in made},
        remove=tuple(sorted(made - gone.keys())),
    )


def _combined(changelog: Changelog, changes: list[Change]) -> tuple[Plan, dict[TreePath, int]]:
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
    plan = Plan(tuple(FileChange(path, first[path], last[path]) for path in sorted(first)))
    return plan, modes


def _plan(
    root: Root,
    done: Plan,
    entries: tuple[Entry, ...],
    extent: Extent,
    *,
    force: bool,
) -> Plan:
    changes: list[FileChange] = []
    in_the_way: list[str] = []
    back = done.inverted()
    vacated = directories.vacated(back).union(extent.remove)
    files = frozenset(item.path.parts for item in back.changes if item.before is not None)
    for item in back.changes:
        if item.before is None and directories.below(item.path, files):
            changes.append(item)
            continue
        try:
            found = root.read(item.path, limit=_bound(item.before))
        except PathRefused:
            found = Obstacle("directory")
        if found == Obstacle("directory") and item.path.parts in vacated:
            found = None
        if isinstance(found, Obstacle):
            in_the_way.append(f"{item.path} (no file any more)")
        elif found == item.before:
            changes.append(item)
        elif force:
            changes.append(FileChange(item.path, found, item.after))
        else:
            in_the_way.append(str(item.path))
    if in_the_way:
        raise UndoRefused(
            f"{_named(entries)} cannot be taken back: changed since: {', '.join(in_the_way)}",
            rule="undo.changed",
            paths=tuple(in_the_way),
            hint=None if force else "look at them; '--force' overwrites files with what they were",
        )
    return Plan(tuple(i for i in changes if i.before != i.after or i.path in extent.modes))


def _named(entries: tuple[Entry, ...]) -> str:
    if len(entries) == 1:
        return f"change {entries[0].id}"
    return f"the {len(entries)} changes of run {entries[-1].group}"


def _bound(state: FileState) -> int:
    """Read far enough to see a difference, and whole files when they are to be kept."""
    size = len(state.content) if isinstance(state, RegularFile) else 0
    return max(size, 256 * 2**20)
