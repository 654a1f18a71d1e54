"""The integrated gate: every tool that a run needs has to be one that is connected.

``integrated.registry`` there is no registry, or it is malformed · ``integrated.missing`` a tool is
not in it
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coilclaw.domain.treepath import shown
from coilclaw.gates.named import malformed
from coilclaw.gates.result import GateResult, Violation

if TYPE_CHECKING:
    from collections.abc import Sequence


def judge(required: Sequence[str], *, integrated: Sequence[str] | None) -> GateResult:
    """Judge what a run needs: its runner and whatever else it was promised."""
    found = [*malformed("integrated.names", "required", required)]
    if integrated is None:
        found.append(Violation("integrated.registry", "there is no registry of tools"))
    else:
        found += malformed("integrated.registry", "integrated", integrated)
    found += [
        Violation("integrated.missing", f"{shown(name)} is not integrated", name)
        for name in dict.fromkeys(required)
        if name not in (integrated or ())
    ]
    return GateResult("integrated_gate", tuple(found), {"required": [*required]})
