"""Repairing an interrupted change: the tree becomes wholly as before or wholly as after it."""

from __future__ import annotations

import errno
import json
import logging
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from coilclaw.domain.files import Obstacle
from coilclaw.errors import EnvironmentFault, PathRefused, PlanRefused
from coilclaw.storage.atomic import sync_directory
from coilclaw.workspace import changefile
from coilclaw.workspace.changelog import ID, Changelog
from coilclaw.workspace.directories import below, make
from coilclaw.workspace.placement import Placement

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from coilclaw.workspace.changefile import Change, StoredFile, StoredState
    from coilclaw.workspace.resolve import Root
    from coilclaw.workspace.state import TreeState

_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Recovery:
    """What became of an interrupted change."""

    change_id: str
    outcome: Literal["finished", "rolled back", "forgotten"]
    kept: tuple[str, ...]
    """Files somebody else changed after the interruption; they were left as they are."""


def repair(root: Root, state: TreeState) -> Recovery | None:
    """Finish or take back an interrupted change before anything else looks at the tree."""
    if not state.pending.exists():
        return None
    with state.lock():
        return recover(root, state)


def recover(root: Root, state: TreeState) -> Recovery | None:
    """Finish or take back an interrupted change; the caller holds the tree's lock."""
    marker = _marker(state)
    if marker is None:
        return None
    change_id, phase, tree = marker
    changelog = Changelog(state)
    folder = changelog.folder(change_id)
    info = os.fstat(root.fd)
    if tree != [info.st_dev, info.st_ino]:
        # Another directory stands where the change was made; it has nothing to do with it.
        if not changelog.holds(change_id):
            _remove_folder(folder)
        _clear(state)
        outcome = Recovery(change_id, "forgotten", ())
    elif phase == "staging":
        abandon(root, state, change_id)
        outcome = Recovery(change_id, "rolled back", ())
    elif phase != "committed":
        raise _damaged(state)
    else:
        change = changefile.read(folder)
        kept: tuple[str, ...] = ()
        if not changelog.holds(change_id):
            kept = _carry(root, folder, change, forward=True)
            changelog.append(change)
        outcome = Recovery(change_id, "finished", kept)
        _clear(state)
    _report(outcome)
    return outcome


def abandon(root: Root, state: TreeState, change_id: str) -> None:
    """Forget a change that has not touched the tree but for what it staged."""
    folder = Changelog(state).folder(change_id)
    placement = Placement(root, change_id)
    if (folder / "change.json").exists():
        change = changefile.read(folder)
        placement.discard({placement.existing(item.path) for item in change.files})
        placement.sync()
    _remove_folder(folder)
    sync_directory(state.changes)
    _clear(state)


def roll_back(root: Root, state: TreeState, change: Change) -> Recovery:
    """Take back a change that failed half-way; the caller holds the tree's lock."""
    changelog = Changelog(state)
    kept = _carry(root, changelog.folder(change.id), change, forward=False)
    if not kept:
        _remove_folder(changelog.folder(change.id))
    _clear(state)
    return Recovery(change.id, "rolled back", kept)


def _marker(state: TreeState) -> tuple[str, str, object] | None:
    try:
        record = json.loads(state.pending.read_bytes())
        change_id, phase, tree = str(record["id"]), str(record["phase"]), record["tree"]
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as problem:
        raise _damaged(state) from problem
    if not ID.fullmatch(change_id):
        raise _damaged(state)
    return change_id, phase, tree


def _damaged(state: TreeState) -> EnvironmentFault:
    return EnvironmentFault(
        f"{state.pending} is damaged, so an interrupted change cannot be repaired",
        rule="recovery.marker",
        hint=f"look at {state.changes}, repair the tree by hand and remove the file",
    )


def _clear(state: TreeState) -> None:
    state.pending.unlink(missing_ok=True)
    sync_directory(state.directory)


def _remove_folder(folder: Path) -> None:
    """Forget a change that never touched the tree."""
    for name in ("change.json", "contents"):
        (folder / name).unlink(missing_ok=True)
    if folder.exists():
        for leftover in folder.iterdir():
            leftover.unlink()
        folder.rmdir()


def _carry(root: Root, folder: Path, change: Change, *, forward: bool) -> tuple[str, ...]:
    """Bring every path to one side of the change; return what somebody else changed meanwhile."""
    placement = Placement(root, change.id)
    directories = {placement.existing(item.path) for item in change.files}
    placement.discard(directories)
    moves, kept = _moves(root, change, forward=forward)
    for _, item, goal in sorted(moves, key=lambda move: move[1].path, reverse=True):
        if goal is None:
            placement.remove(item.path)
    gone = [parts for parts, _ in change.emptied] if forward else change.directories
    come = change.directories if forward else [parts for parts, _ in change.emptied]
    modes = {} if forward else change.directory_modes
    for parts in sorted(gone, reverse=True):
        placement.remove_directory(parts)
    for index, item, goal in moves:
        if goal is not None and not _place(placement, folder, index, item, goal, modes):
            kept.append(str(item.path))
    if not kept:
        make(placement, {parts: modes.get(parts) for parts in come})
    else:
        placement.discard(directories)
    placement.sync()
    return tuple(kept)


def _moves(
    root: Root, change: Change, *, forward: bool
) -> tuple[list[tuple[int, StoredFile, StoredState | None]], list[str]]:
    """Say which paths still have to be brought over, and which somebody else changed."""
    moves: list[tuple[int, StoredFile, StoredState | None]] = []
    kept: list[str] = []
    replaced = _still_there(root, change)
    for index, item in enumerate(change.files):
        goal, other = (item.after, item.before) if forward else (item.before, item.after)
        found = None if below(item.path, replaced) else _found(root, item)
        if _is(goal, found):
            continue
        if _is(other, found):
            moves.append((index, item, goal))
        else:
            kept.append(str(item.path))
    return moves, kept


def _still_there(root: Root, change: Change) -> frozenset[tuple[str, ...]]:
    """Paths of the change where a file or a link stands now; below them stands nothing."""
    nested = frozenset(
        item.path.parts[:depth] for item in change.files for depth in range(1, len(item.path.parts))
    )
    return frozenset(
        item.path.parts
        for item in change.files
        if item.path.parts in nested and _found(root, item) is not None
    )


def _place(
    placement: Placement,
    folder: Path,
    index: int,
    item: StoredFile,
    goal: StoredState,
    modes: Mapping[tuple[str, ...], int],
) -> bool:
    state = changefile.content(folder, goal)
    assert state is not None
    mode = goal.mode if goal.mode is not None else placement.mode(item.path)
    try:
        placement.install(placement.stage(index, item.path, state, mode), modes)
    except OSError as problem:
        if problem.errno in {errno.EISDIR, errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR}:
            return False  # somebody put a directory there, and things into it
        raise
    return True


_ELSE: Final = object()


def _found(root: Root, item: StoredFile) -> object:
    """Read a path; anything that is neither side of the change counts as somebody else's."""
    size = max((side.size for side in (item.before, item.after) if side), default=0)
    try:
        found = root.read(item.path, limit=size + 1)
    except (PlanRefused, PathRefused):
        return _ELSE
    # Where a file is to make room for a directory or the reverse, the directory is no obstacle.
    return None if found == Obstacle("directory") else found


def _is(stored: StoredState | None, found: object) -> bool:
    return found is None if stored is None else stored.matches(found)


def _report(outcome: Recovery) -> None:
    if outcome.outcome == "forgotten":
        _LOG.warning(
            "interrupted change %s: forgotten, for another directory stands in its place",
            outcome.change_id,
        )
        return
    _LOG.warning("interrupted change %s: %s", outcome.change_id, outcome.outcome)
    for path in outcome.kept:
        _LOG.warning("%s was changed by somebody else since; it was left as it is", path)
