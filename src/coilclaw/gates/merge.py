"""The merge gate: what comes into the target branch is the accepted work, and it is green there.

``merge.conflict`` · ``merge.out_of_scope`` a name that no task may change · ``merge.protected`` ·
``merge.tests`` the tests are not green on the merged tree
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coilclaw.domain.treepath import shown
from coilclaw.gates import guarded
from coilclaw.gates.result import GateResult, Violation
from coilclaw.gates.scope import Places, legible

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from coilclaw.domain.messages import Json

MAX_LISTED: Final = 500


def judge(
    *,
    names: Collection[str],
    allowed_paths: Sequence[str],
    tests_passed: bool,
    conflicts: Sequence[str],
) -> GateResult:
    """Judge a merge: ``names`` are all paths in which the merged tree differs from the target."""
    found = [
        Violation("merge.conflict", f"{shown(path)} is in conflict", legible(path))
        for path in conflicts[:MAX_LISTED]
    ]
    allowed = Places.of(allowed_paths)
    for path in sorted(names):
        if not allowed.cover(path):
            message = f"{shown(path)} would change, and no task may change it"
            found.append(Violation("merge.out_of_scope", message, legible(path)))
        reason = guarded.never(path)
        if reason is not None:
            message = f"{shown(path)} may not change: it {reason}"
            found.append(Violation("merge.protected", message, legible(path)))
    if not tests_passed:
        found.append(Violation("merge.tests", "the tests are not green on the merged tree"))
    listed = [legible(path) for path in sorted(names)[:MAX_LISTED]]
    facts: dict[str, Json] = {"names": len(names), "paths": [*listed], "tests_passed": tests_passed}
    return GateResult("merge_gate", tuple(found[:MAX_LISTED]), facts)


def refused(rule: str, reason: str) -> GateResult:
    """A merge that did not come so far as to be judged."""
    return GateResult("merge_gate", (Violation(rule, reason),))
