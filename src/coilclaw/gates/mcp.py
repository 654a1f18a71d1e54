"""The MCP gate: which tools of MCP servers a task may call. A list that is missing denies all.

``mcp.allowlist`` there is none, or it is malformed · ``mcp.unknown`` a tool that it does not name ·
``mcp.denied`` one that it denies · ``mcp.unbound`` a tool of a server that the contract does not
start
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coilclaw.domain.treepath import shown
from coilclaw.gates.named import malformed
from coilclaw.gates.result import GateResult, Violation

if TYPE_CHECKING:
    from collections.abc import Sequence


def judge(
    tools: Sequence[str],
    *,
    servers: Sequence[str],
    allow: Sequence[str] | None,
    deny: Sequence[str] | None,
) -> GateResult:
    """Judge what a contract asks for: ``mcp_tools``, and the servers of ``mcp_tool_set``."""
    found: list[Violation] = []
    for key, names in (("mcp_tools", tools), ("mcp_tool_set", servers)):
        found += malformed("mcp.names", key, names)
    if allow is None or deny is None:
        found.append(Violation("mcp.allowlist", "there is no allowlist of MCP tools"))
    else:
        for key, names in (("allow", allow), ("deny", deny)):
            found += malformed("mcp.allowlist", key, names)
    for name in dict.fromkeys((*tools, *servers)):
        if name not in (allow or ()):
            found.append(Violation("mcp.unknown", f"{shown(name)} is not in the allowlist", name))
        if name in (deny or ()):
            found.append(Violation("mcp.denied", f"{shown(name)} is denied", name))
    for name in dict.fromkeys(tools):
        if name not in servers:
            message = f"{shown(name)} is not among the servers that the contract starts"
            found.append(Violation("mcp.unbound", message, name))
    return GateResult("mcp_gate", tuple(found), {"tools": [*tools], "servers": [*servers]})
