"""Which directories a plan makes, and which it empties."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from coilclaw.domain.treepath import TreePath

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

    from coilclaw.changes.plan import Plan
    from coilclaw.workspace.placement import Placement

Parts: TypeAlias = tuple[str, ...]


def vacated(plan: Plan) -> frozenset[Parts]:
    """Return the directories that a plan takes files out of, which may make room for a file."""
    return frozenset(
        item.path.parts[:depth]
        for item in plan.changes
        if item.after is None
        for depth in range(1, len(item.path.parts))
    )


def below(path: TreePath, others: Container[Parts]) -> bool:
    """Whether a path lies below one of others, which are files or links for the same change."""
    return any(path.parts[:depth] in others for depth in range(1, len(path.parts)))


def made(plan: Plan, placement: Placement, besides: Iterable[Parts]) -> tuple[Parts, ...]:
    """Return the directories that are not there yet, outermost first."""
    found: set[Parts] = set()
    known: dict[Parts, int] = {}
    wanted = [item.path.parents for item in plan.changes if item.after is not None]
    for parts in (*wanted, *besides):
        depth = known.get(parts)
        if depth is None:
            depth = known[parts] = len(placement.existing(_inside(parts)))
        found.update(parts[:level] for level in range(depth + 1, len(parts) + 1))
    return tuple(sorted(found))


def make(placement: Placement, wanted: Mapping[Parts, int | None]) -> None:
    """Make directories, outermost first, with their bits where known."""
    modes = {parts: mode for parts, mode in wanted.items() if mode is not None}
    for parts in sorted(wanted):
        placement.make_directories(_inside(parts), modes)


def emptied(
    plan: Plan,
    placement: Placement,
    removable: Container[Parts] | None,
    besides: Iterable[Parts],
) -> tuple[tuple[Parts, int], ...]:
    """Return the directories that lose their last entry, outermost first, with their bits."""
    needed = {
        item.path.parts[:depth]
        for item in plan.changes
        if item.after is not None
        for depth in range(1, len(item.path.parts))
    }
    going: dict[Parts, set[str]] = {parts: set() for parts in besides}
    for item in plan.changes:
        if item.after is None and item.path.parents:
            going.setdefault(item.path.parents, set()).add(item.path.name)
    allowed = frozenset(besides)
    found: dict[Parts, int] = {}
    while going:
        parts = max(going, key=len)
        names = going.pop(parts)
        if parts in needed:
            continue
        if removable is not None and parts not in removable and parts not in allowed:
            continue
        inside = placement.names(parts)
        if inside is not None and inside <= names:
            found[parts] = placement.directory_mode(parts)
            if len(parts) > 1:
                going.setdefault(parts[:-1], set()).add(parts[-1])
    return tuple(sorted(found.items()))


def _inside(parts: Parts) -> TreePath:
    """A path whose directories are these; its last name is never used."""
    return TreePath((*parts, "_"))
