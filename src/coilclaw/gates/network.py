"""The network gate: whether work that needs the network may have it.

``network.policy`` a word that is no policy · ``network.denied`` it is needed and denied ·
``network.approval`` it is needed on request, and nobody approved
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coilclaw.domain.treepath import shown
from coilclaw.gates.result import GateResult, Violation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coilclaw.domain.messages import Json


def judge(policy: str, *, needed_by: Sequence[str], approved: bool) -> GateResult:
    """Judge a policy against what needs the network; ``approved`` is for this run and task only."""
    found = []
    needed = ", ".join(shown(item) for item in needed_by[:10])
    if policy not in {"deny", "on-request", "allow"}:
        found.append(Violation("network.policy", f"{shown(policy)} is no network policy"))
    elif needed_by and policy == "deny":
        found.append(Violation("network.denied", f"{needed} would need the network"))
    elif needed_by and policy == "on-request" and not approved:
        found.append(Violation("network.approval", f"nobody approved the network for {needed}"))
    facts: dict[str, Json] = {"policy": policy, "needed": bool(needed_by), "approved": approved}
    return GateResult("network_gate", tuple(found), facts)
