"""The lock gate: nobody may write where somebody else writes at the same time.

``lock.siblings`` two tasks of a run overlap and do not both declare the lock for it ·
``lock.held`` another run holds a path that overlaps · ``lock.undeclared`` a declared lock lies
outside of what its task may change
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from coilclaw.contracts.paths import contains, overlap
from coilclaw.domain.treepath import shown
from coilclaw.gates.result import GateResult, Violation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Claim:
    """What one task wants to write."""

    task_id: str
    allowed_paths: tuple[str, ...]
    locks: tuple[str, ...] = ()
    """Paths that it shares with siblings; only one of them works there at a time."""


def judge(claims: Sequence[Claim], *, held: Mapping[str, str]) -> GateResult:
    """Judge tasks that would run at once; ``held`` maps paths to who holds or waits for them."""
    found = [*_undeclared(claims), *_siblings(claims), *_held(claims, held)]
    paths = sorted({path for claim in claims for path in claim.allowed_paths})
    return GateResult("lock_gate", tuple(found), {"paths": [*paths], "tasks": len(claims)})


def _undeclared(claims: Sequence[Claim]) -> Iterator[Violation]:
    for claim in claims:
        for lock in claim.locks:
            if not any(contains(path, lock) for path in claim.allowed_paths):
                message = f"{claim.task_id} declares a lock on {shown(lock)} and may not write it"
                yield Violation("lock.undeclared", message, lock)


def _siblings(claims: Sequence[Claim]) -> Iterator[Violation]:
    for one, other in combinations(claims, 2):
        for mine in one.allowed_paths:
            for theirs in other.allowed_paths:
                if overlap(mine, theirs) and not _locked(_narrower(mine, theirs), one, other):
                    message = (
                        f"{one.task_id} and {other.task_id} may both write "
                        f"{shown(_narrower(mine, theirs))}, and do not both declare a lock for it"
                    )
                    yield Violation("lock.siblings", message, _narrower(mine, theirs))


def _narrower(one: str, other: str) -> str:
    """Of two paths that overlap, the one inside the other."""
    return max(one, other, key=lambda path: len(path.rstrip("/").split("/")))


def _locked(path: str, one: Claim, other: Claim) -> bool:
    return all(any(contains(lock, path) for lock in claim.locks) for claim in (one, other))


def _held(claims: Sequence[Claim], held: Mapping[str, str]) -> Iterator[Violation]:
    for claim in claims:
        for path in claim.allowed_paths:
            for place, holder in held.items():
                if overlap(path, place):
                    message = f"{shown(path)} overlaps {shown(place)}, which {holder}"
                    yield Violation("lock.held", message, path)
