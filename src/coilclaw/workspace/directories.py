"""Which directories a plan makes, and which it empties."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Container

    from coilclaw.changes.plan import Plan
    from coilclaw.workspace.placement import Placement

Parts: TypeAlias = tuple[str, ...]


def missing(plan: Plan, placement: Placement) -> tuple[Parts, ...]:
    """Return the directories that are not there yet, outermost first."""
    found: set[Parts] = set()
    known: dict[Parts, int] = {}
    for item in plan.changes:
        if item.after is None:
            continue
        parents = item.path.parents
        depth = known.get(parents)
        if depth is None:
            depth = known[parents] = len(placement.existing(item.path))
        found.update(parents[:level] for level in range(depth + 1, len(parents) + 1))
    return tuple(sorted(found))


def emptied(
    plan: Plan, placement: Placement, removable: Container[Parts] | None
) -> tuple[Parts, ...]:
    """Return the directories that lose their last entry, outermost first."""
    needed = {
        item.path.parts[:depth]
        for item in plan.changes
        if item.after is not None
        for depth in range(1, len(item.path.parts))
    }
    going: dict[Parts, set[str]] = {}
    for item in plan.changes:
        if item.after is None and item.path.parents:
            going.setdefault(item.path.parents, set()).add(item.path.name)
    found: set[Parts] = set()
    while going:
        parts = max(going, key=len)
        names = going.pop(parts)
        if parts in needed or (removable is not None and parts not in removable):
            continue
        if placement.names(parts) <= names:
            found.add(parts)
            if len(parts) > 1:
                going.setdefault(parts[:-1], set()).add(parts[-1])
    return tuple(sorted(found))
