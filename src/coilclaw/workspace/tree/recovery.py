"""Open a tree; an interrupted change is repaired first, wholly as before or wholly as after it."""

from __future__ import annotations

import errno
import json
import logging
import os
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from coilclaw.kernel import (
    EnvironmentFault,
    FileLock,
    Obstacle,
    PathRefused,
    PlanRefused,
    sync_directory,
)
from coilclaw.workspace.tree.changelog import CHANGE_ID, Changelog, read_change, read_content
from coilclaw.workspace.tree.placement import Placement, lies_below, list_parents
from coilclaw.workspace.tree.root import Root
from coilclaw.workspace.tree.state import TreeState

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from coilclaw.workspace.tree.changelog import Change, StoredFile, StoredState
    from coilclaw.workspace.tree.placement import Parts

_LOG: Final = logging.getLogger(__name__)
_OCCUPIED: Final = frozenset((errno.EISDIR, errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR))
"""What the kernel says where a process put a directory meanwhile, and things into it."""


@dataclass(frozen=True, slots=True)
class Tree:
    """A tree that is open, repaired, and ready to be worked on."""

    root: Root
    state: TreeState
    changelog: Changelog
    repaired: Recovery | None


@contextmanager
def open_tree(path: Path, home: Path) -> Iterator[Tree]:
    """Open a tree and first finish or take back a change that was interrupted in it."""
    with Root(path) as root:
        state = TreeState.of(home, root.path)
        repaired = repair_tree(root, state)
        yield Tree(root, state, Changelog(state), repaired)


@dataclass(frozen=True, slots=True)
class Recovery:
    """What became of an interrupted change."""

    change_id: str
    outcome: Literal["finished", "rolled back", "forgotten"]
    kept: tuple[str, ...]
    """Files another process changed after the interruption; they were left as they are."""


def repair_tree(root: Root, state: TreeState) -> Recovery | None:
    """Finish or take back an interrupted change before anything else looks at the tree."""
    if not state.pending.exists():
        return None
    with FileLock(state.lock):
        return recover(root, state)


def recover(root: Root, state: TreeState) -> Recovery | None:
    """Finish or take back an interrupted change; the caller holds the tree's lock."""
    marker = _marker(state)
    if marker is None:
        return None
    change_id, phase, tree = marker
    changelog = Changelog(state)
    folder = state.changes / change_id
    info = os.fstat(root.fd)
    if tree != [info.st_dev, info.st_ino]:
        # Another directory stands where the change was made; it has nothing to do with it.
        if not changelog.holds(change_id):
            _remove_folder(folder)
        unmark(state)
        outcome = Recovery(change_id, "forgotten", ())
    elif phase == "staging":
        abandon(root, state, change_id)
        outcome = Recovery(change_id, "rolled back", ())
    elif phase != "committed":
        raise _damaged_error(state)
    else:
        change = read_change(folder)
        kept: tuple[str, ...] = ()
        if not changelog.holds(change_id):
            kept = _carry(root, folder, change, forward=True)
            changelog.append(change)
        outcome = Recovery(change_id, "finished", kept)
        unmark(state)
    said: str = outcome.outcome
    if said == "forgotten":
        said += ", for another directory stands in its place"
    _LOG.warning("interrupted change %s: %s", change_id, said)
    for path in outcome.kept:
        _LOG.warning("%s was changed by another process since; it was left as it is", path)
    return outcome


def abandon(root: Root, state: TreeState, change_id: str) -> None:
    """Discard a change that has only staged files so far, and remove them."""
    folder = state.changes / change_id
    placement = Placement(root, change_id)
    if (folder / "change.json").exists():
        change = read_change(folder)
        placement.discard({placement.existing(item.path.parents) for item in change.files})
        placement.sync()
    _remove_folder(folder)
    sync_directory(state.changes)
    unmark(state)


def roll_back(root: Root, state: TreeState, change: Change) -> Recovery:
    """Take back a change that failed half-way; the caller holds the tree's lock."""
    folder = state.changes / change.id
    kept = _carry(root, folder, change, forward=False)
    if not kept:
        _remove_folder(folder)
    unmark(state)
    return Recovery(change.id, "rolled back", kept)


def _marker(state: TreeState) -> tuple[str, str, object] | None:
    try:
        record = json.loads(state.pending.read_bytes())
        change_id, phase, tree = str(record["id"]), str(record["phase"]), record["tree"]
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as problem:
        raise _damaged_error(state) from problem
    if not CHANGE_ID.fullmatch(change_id):
        raise _damaged_error(state)
    return change_id, phase, tree


def _damaged_error(state: TreeState) -> EnvironmentFault:
    return EnvironmentFault(
        f"{state.pending} is damaged, so an interrupted change cannot be repaired",
        rule="recovery.marker",
        hint=f"look at {state.changes}, repair the tree by hand and remove the file",
    )


def unmark(state: TreeState) -> None:
    """Say on disk that nothing is under way."""
    state.pending.unlink(missing_ok=True)
    sync_directory(state.directory)


def _remove_folder(folder: Path) -> None:
    """Forget a change that never touched the tree."""
    (folder / "change.json").unlink(missing_ok=True)
    if folder.exists():
        for leftover in folder.iterdir():
            leftover.unlink()
        folder.rmdir()


def _carry(root: Root, folder: Path, change: Change, *, forward: bool) -> tuple[str, ...]:
    """Bring every path to one side of the change; return what another process changed meanwhile."""
    placement = Placement(root, change.id)
    directories = {placement.existing(item.path.parents) for item in change.files}
    placement.discard(directories)
    moves, kept = _moves(root, change, forward=forward)
    for _, item, goal in sorted(moves, key=lambda move: move[1].path, reverse=True):
        if goal is None:
            placement.remove(item.path)
    gone = [parts for parts, _ in change.emptied] if forward else change.directories
    come = change.directories if forward else [parts for parts, _ in change.emptied]
    modes: dict[Parts, int | None] = {} if forward else dict(change.emptied)
    for parts in sorted(gone, reverse=True):
        placement.remove_directory(parts)
    for index, item, goal in moves:
        if goal is None:
            continue
        state = read_content(folder, goal)
        assert state is not None
        mode = goal.mode if goal.mode is not None else placement.mode(item.path)
        try:
            placement.install(placement.stage(index, item.path, state, mode), modes)
        except OSError as problem:
            if problem.errno not in _OCCUPIED:
                raise
            kept.append(str(item.path))
    if not kept:
        placement.make_directories(come, modes)
    else:
        placement.discard(directories)
    placement.sync()
    return tuple(kept)


def _moves(
    root: Root, change: Change, *, forward: bool
) -> tuple[list[tuple[int, StoredFile, StoredState | None]], list[str]]:
    """Say which paths still have to be brought over, and which another process changed."""
    moves: list[tuple[int, StoredFile, StoredState | None]] = []
    kept: list[str] = []
    replaced = _still_there(root, change)
    for index, item in enumerate(change.files):
        goal, other = (item.after, item.before) if forward else (item.before, item.after)
        found = None if lies_below(item.path, replaced) else _read_state(root, item)
        if _is(goal, found):
            continue
        if _is(other, found):
            moves.append((index, item, goal))
        else:
            kept.append(str(item.path))
    return moves, kept


def _still_there(root: Root, change: Change) -> frozenset[tuple[str, ...]]:
    """Paths of the change where a file or a link stands now; below them stands nothing."""
    nested = list_parents(item.path for item in change.files)
    return frozenset(
        item.path.parts
        for item in change.files
        if item.path.parts in nested and _read_state(root, item) is not None
    )


_ELSE: Final = object()


def _read_state(root: Root, item: StoredFile) -> object:
    """Read a path; anything that is neither side of the change counts as another process's."""
    size = max((side.size for side in (item.before, item.after) if side), default=0)
    try:
        found = root.read(item.path, limit=size + 1)
    except (PlanRefused, PathRefused):
        return _ELSE
    # Where a file is to make room for a directory or the reverse, the directory is no obstacle.
    return None if found == Obstacle("directory") else found


def _is(stored: StoredState | None, found: object) -> bool:
    return found is None if stored is None else stored.matches(found)
