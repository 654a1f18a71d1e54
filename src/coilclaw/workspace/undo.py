"""Taking changes back, which is a change of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coilclaw.changes.plan import FileChange, Plan
from coilclaw.domain.files import FileState, Obstacle, RegularFile
from coilclaw.errors import PathRefused, UndoRefused, UsageError
from coilclaw.workspace import recovery
from coilclaw.workspace.changelog import Changelog, Entry
from coilclaw.workspace.writer import Purpose, Writer

if TYPE_CHECKING:
    from coilclaw.domain.treepath import TreePath
    from coilclaw.workspace.changefile import Change
    from coilclaw.workspace.resolve import Root
    from coilclaw.workspace.state import TreeState


def undo(root: Root, state: TreeState, change_id: str | None, *, force: bool = False) -> Change:
    """Take back a change, or the last one that stands; refuse when its files changed since."""
    recovery.repair(root, state)
    changelog = Changelog(state)
    entry = changelog.find(change_id) if change_id else changelog.last()
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
    entry = changelog.find(change_id) if change_id else changelog.last()
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
    plan = _plan(root, _combined(changelog, entries), entries, force=force)
    if plan.empty:
        raise UndoRefused(
            f"the tree is as it was before {_named(entries)}; there is nothing to take back",
            rule="undo.nothing",
        )
    purpose = Purpose("undo", entries[-1].group, tuple(entry.id for entry in entries))
    made = frozenset(parts for entry in entries for parts in changelog.load(entry.id).directories)
    return Writer(root, state).apply(plan, purpose, removable=made)


def _combined(changelog: Changelog, entries: tuple[Entry, ...]) -> Plan:
    """Join changes that follow each other into one plan: first before, last after."""
    first: dict[TreePath, FileState] = {}
    last: dict[TreePath, FileState] = {}
    for entry in entries:
        for item in changelog.plan(changelog.load(entry.id)).changes:
            first.setdefault(item.path, item.before)
            last[item.path] = item.after
    return Plan(tuple(FileChange(path, first[path], last[path]) for path in sorted(first)))


def _plan(root: Root, done: Plan, entries: tuple[Entry, ...], *, force: bool) -> Plan:
    changes: list[FileChange] = []
    in_the_way: list[str] = []
    for item in done.inverted().changes:
        try:
            found = root.read(item.path, limit=_bound(item.before))
        except PathRefused:
            found = Obstacle("directory")
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
            hint="look at these files; '--force' overwrites them with what they were before",
        )
    return Plan(tuple(item for item in changes if item.before != item.after))


def _named(entries: tuple[Entry, ...]) -> str:
    if len(entries) == 1:
        return f"change {entries[0].id}"
    return f"the {len(entries)} changes of run {entries[-1].group}"


def _bound(state: FileState) -> int:
    """Read far enough to see a difference, and whole files when they are to be kept."""
    size = len(state.content) if isinstance(state, RegularFile) else 0
    return max(size, 256 * 2**20)
