"""Tool calls as models send them: arguments may be broken, ids missing or double."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import ToolCall
from coilclaw.models.json_value import clean, flaw, loads

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coilclaw.kernel import ChatRequest, Json

MAX_CALLS: Final = 64
"""Of one answer; the model is told of the rest."""
MAX_NAME_CHARS: Final = 64
UNNAMED: Final = "unnamed"

_IDENTITY: Final = re.compile(r"[!-~]{1,64}")
_FOREIGN: Final = re.compile(r"[^A-Za-z0-9_-]")


def tool_call(name: object, arguments: Json, call_id: object, signature: object = None) -> ToolCall:
    """Make a call of whatever came; what cannot be used is said in ``problem``."""
    identity = call_id if isinstance(call_id, str) and _IDENTITY.fullmatch(call_id) else ""
    named = clean(name) if isinstance(name, str) else ""
    kept = signature if isinstance(signature, str) and signature else None
    usable, problem = _read(arguments)
    if not named:
        usable, problem = {}, "the call names no tool"
    elif len(named) > MAX_NAME_CHARS:
        usable, problem = {}, f"the name of the tool is longer than {MAX_NAME_CHARS} characters"
    return ToolCall(identity, named[:MAX_NAME_CHARS] or UNNAMED, usable, problem, kept)


def number_calls(calls: Sequence[ToolCall], request: ChatRequest) -> tuple[ToolCall, ...]:
    """Give every call an id that its conversation has not seen; one that is new stays.

    Calls beyond the bound are left out, and the last one that is kept says so.
    """
    taken = {call.id for message in request.messages for call in message.tool_calls}
    out: list[ToolCall] = []
    for index, call in enumerate(calls[: MAX_CALLS + 1], start=1):
        identity, count = call.id or f"call-{index}", 1
        while identity in taken:
            count += 1
            identity = f"{call.id}-{count}" if call.id else f"call-{index + count - 1}"
        taken.add(identity)
        out.append(replace(call, id=identity))
    if len(out) > MAX_CALLS:
        left_out = len(calls) - MAX_CALLS
        problem = (
            f"an answer may ask for {MAX_CALLS} tool calls at most: this call and those after it, "
            f"{left_out} in all, were not made"
        )
        out[-1] = replace(out[-1], arguments={}, problem=problem)
    return tuple(out)


def wire_name(name: str) -> str:
    """Return a tool's name as every API takes it; a model may have made up another one."""
    return _FOREIGN.sub("_", name)[:MAX_NAME_CHARS] or UNNAMED


def _read(arguments: Json) -> tuple[dict[str, Json], str | None]:
    value: Json = {} if arguments is None else arguments
    if isinstance(value, str):
        try:
            value = loads(value) if value.strip() else {}
        except ValueError as problem:
            return {}, f"the arguments are not valid JSON: {clean(str(problem))}"
        except RecursionError:
            return {}, "the arguments are nested too deeply"
    if not isinstance(value, dict):
        return {}, "the arguments are not a JSON object"
    found = flaw(value)
    return ({}, f"the arguments {found}") if found else (value, None)
