"""What clients of our MCP server are told about a tool: hints, made from its declared effects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coilclaw.domain.effects import Consults, External, Fetches, Reads, Runs, Writes
from coilclaw.domain.messages import ToolSpec
from coilclaw.errors import CoilClawError
from coilclaw.mcp.offering import OfferedTool

if TYPE_CHECKING:
    from coilclaw.domain.effects import Effect
    from coilclaw.domain.messages import Json
    from coilclaw.tools.contract import Tool


def offered_tool(tool: Tool) -> OfferedTool:
    """Describe a tool; where nobody can say what a call touches, the hints say the worst."""
    spec = ToolSpec(tool.name, tool.description, tool.parameters_schema)
    effects = _effects(tool)
    if not effects:
        return OfferedTool(spec)
    return OfferedTool(
        spec,
        read_only=all(isinstance(one, Reads | Consults | Fetches) for one in effects),
        destructive=any(isinstance(one, Writes | Runs | External) for one in effects),
        open_world=any(isinstance(one, Fetches | Runs | External) for one in effects),
    )


def _effects(tool: Tool) -> tuple[Effect, ...]:
    """What a call with all arguments would touch; nothing where that cannot be told."""
    properties = tool.parameters_schema.get("properties")
    known = properties if isinstance(properties, dict) else {}
    try:
        return tool.effects({name: _stand_in(schema) for name, schema in known.items()})
    except CoilClawError:
        return ()


def _stand_in(schema: Json) -> Json:
    kind = schema.get("type") if isinstance(schema, dict) else None
    values: dict[str, Json] = {
        "integer": 1,
        "number": 1,
        "boolean": True,
        "array": ["x"],
        "object": {},
    }
    return values.get(kind, "x") if isinstance(kind, str) else "x"
