"""Tool calls as models send them: arguments may be broken, ids missing or double."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from coilclaw.domain.messages import ToolCall

if TYPE_CHECKING:
    from coilclaw.domain.messages import Json


def tool_call(name: object, arguments: Json, call_id: object) -> ToolCall:
    """Make a call of whatever came; what cannot be used is said in ``problem``."""
    named = name if isinstance(name, str) and name else "unnamed"
    identity = call_id if isinstance(call_id, str) else ""
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments) if arguments.strip() else {}
        except (ValueError, RecursionError) as problem:
            return ToolCall(identity, named, {}, f"the arguments are no JSON: {problem}")
    if not isinstance(arguments, dict):
        return ToolCall(identity, named, {}, "the arguments are no JSON object")
    return ToolCall(identity, named, arguments)


def numbered(calls: list[ToolCall]) -> tuple[ToolCall, ...]:
    """Give every call an id of its own; one that the model gave and that is unique stays."""
    seen: set[str] = set()
    out: list[ToolCall] = []
    for index, call in enumerate(calls, start=1):
        identity = call.id
        number = index
        while not identity or identity in seen:
            identity = f"call-{number}"
            number += 1
        seen.add(identity)
        out.append(ToolCall(identity, call.name, call.arguments, call.problem))
    return tuple(out)
