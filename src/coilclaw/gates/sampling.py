"""The sampling gate: an MCP server that asks *us* for completions needs an approval.

``sampling.approval`` it is asked for and nobody approved · ``sampling.names`` the tools are no list
of names
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coilclaw.gates.named import malformed
from coilclaw.gates.result import GateResult, Violation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coilclaw.domain.messages import Json

SAMPLING: Final = frozenset({"sampling", "mcp.sampling", "mcp/sampling", "mcp:sampling"})


def judge(tools: Sequence[str], *, approved: bool) -> GateResult:
    """Judge the tools and servers that a contract allows."""
    found = [*malformed("sampling.names", "mcp_tools", tools)]
    asked = [name for name in tools if str(name).casefold() in SAMPLING]
    if asked and not approved:
        found.append(
            Violation("sampling.approval", "nobody approved that a server asks for completions")
        )
    facts: dict[str, Json] = {"requested": bool(asked), "approved": approved}
    return GateResult("sampling_gate", tuple(found), facts)
