"""``DependencyChanges``: what an agent changed of what a set-up made, or the checkout holds.

None of that is tracked, so most of it is mounted, and gone with the mount. What the contract names
of it is laid into the worktree instead: a change of it is work like any other. Every other change
is dropped and listed, with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

from coilclaw.gates.leavings import cache_above, is_named, named_places
from coilclaw.workspace.dependencies import untracked_paths
from coilclaw.workspace.dependency_copies import changed_files, is_beside, lay_dependency

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    from coilclaw.gates.scope import Scope
    from coilclaw.orchestrator.inspection import Inspection
    from coilclaw.orchestrator.ready_worktree import ReadyWorktree
    from coilclaw.workspace.dependencies import Dependency
    from coilclaw.workspace.worktrees import Worktree

MAX_CHANGED: Final = 100_000
"""Files of one dependency that are looked at."""
IGNORED: Final = "the baseline ignores it"
CACHE: Final = "it is a cache"
UNNAMED: Final = "a set-up or the checkout provides it, and allowed_paths does not name it"
REMOVED: Final = "it was removed, and a set-up or the checkout provides it again"
REASONS: Final = (UNNAMED, REMOVED, CACHE, IGNORED)
"""The first two concern what may have been meant as work."""


@dataclass(frozen=True, slots=True)
class DroppedChange:
    """One file that an agent changed, and that is not part of the change."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class DependencyChanges:
    """What to make of the dependencies of one worktree, once an agent has worked in it."""

    left_out: tuple[str, ...] = ()
    """Paths of the worktree that are not part of the change, with all that is below them."""
    dropped: tuple[DroppedChange, ...] = ()
    """What may have been meant as work comes first."""


def lay_named(
    inspection: Inspection, worktree: Worktree, found: Iterable[Dependency], scope: Scope
) -> tuple[Dependency, ...]:
    """Lay the dependencies that a contract names into a worktree; return them.

    What the baseline ignores is never part of a change, and stays where it is.
    """
    named = [one for one in found if is_named(one.path, scope.allowed_paths)]
    ignored = inspection.find_ignored({one.path: one.source.is_dir() for one in named})
    own = inspection.kept_of(worktree.commit)
    return tuple(
        one
        for one in named
        if one.path not in ignored
        and (one.path not in own or one.source.is_dir())
        and lay_dependency(one, worktree.path)
    )


def find_changes(inspection: Inspection, ready: ReadyWorktree, scope: Scope) -> DependencyChanges:
    """Compare the dependencies in which an agent worked with what they were."""
    root, own = ready.directory, inspection.kept_of(ready.mount.worktree.commit)
    dropped: list[DroppedChange] = []
    work, places = set[str](), list[str]()
    for one in ready.laid:
        named = named_places(one.path, scope.allowed_paths)
        changed = _changed(one, root / one.path) if is_beside(one.path, root) else []
        if len(changed) == MAX_CHANGED:
            continue  # the gate judges, and refuses, all of it
        places.append(one.path)
        for path, there in changed:
            if path in own:
                continue
            # What stands in the place of the whole of it is for the gate to judge.
            if there and (path == one.path or named.cover(path)):
                work.add(path)
            else:
                dropped.append(DroppedChange(path, _reason(path, there=there, ignored=False)))
    mounted = [one for one, _ in ready.mount.copies]
    ignored = inspection.find_ignored({one.path: True for one in mounted})
    for one, copy in ready.mount.copies:
        dropped += [
            DroppedChange(path, _reason(path, there=there, ignored=one.path in ignored))
            for path, there in _changed(one, copy)
        ]
    left_out = tuple(_beside(root, own | _with_parents(work), places))
    dropped.sort(key=lambda each: (REASONS.index(each.reason), each.path))
    return DependencyChanges(left_out, tuple(dropped))


def _changed(one: Dependency, copy: Path) -> list[tuple[str, bool]]:
    """The changed files by their paths in the worktree."""
    found = islice(changed_files(one.source, copy), MAX_CHANGED)
    return [(f"{one.path}/{path}" if path else one.path, there) for path, there in found]


def _reason(path: str, *, there: bool, ignored: bool) -> str:
    if ignored:
        return IGNORED
    if not there:
        return REMOVED
    return CACHE if cache_above(path, directory=False) else UNNAMED


def _beside(root: Path, kept: AbstractSet[str], places: list[str]) -> Iterator[str]:
    """What stands at some places of a worktree beside the paths that are kept."""
    for path, _ in untracked_paths(root, kept) if places else ():
        if any(path == place or path.startswith(f"{place}/") for place in places):
            yield path


def _with_parents(paths: AbstractSet[str]) -> AbstractSet[str]:
    found = set[str]()
    for path in paths:
        while path and path not in found:
            found.add(path)
            path = path.rpartition("/")[0]
    return found
