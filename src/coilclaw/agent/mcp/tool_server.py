"""CoilClaw's tools as an MCP server: every call is passed to a callable, which is the guard."""

from __future__ import annotations

import itertools
import secrets
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from coilclaw.kernel import (
    CoilClawError,
    Consults,
    External,
    Fetches,
    Reads,
    Runs,
    ToolCall,
    ToolResult,
    ToolSpec,
    Writes,
    digest_bytes,
    valid_text,
)
from coilclaw.workspace import Cancellation

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    import anyio
    from mcp.server.context import ServerRequestContext
    from mcp.server.lowlevel import Server
    from mcp.types import (
        CallToolRequestParams,
        CallToolResult,
        ListToolsResult,
        PaginatedRequestParams,
    )

    from coilclaw.agent.tools.contract import Tool
    from coilclaw.kernel import Json

_VALUES: Final[Mapping[str, Json]] = {
    "integer": 1,
    "number": 1,
    "boolean": True,
    "array": ["x"],
    "object": {},
}


def offered_tool(tool: Tool) -> OfferedTool:
    """Return the description of a tool; if its effects are unknown, the hints assume the worst."""
    spec = ToolSpec(tool.name, tool.description, tool.parameters_schema)
    properties = tool.parameters_schema.get("properties")
    known = properties if isinstance(properties, dict) else {}
    try:
        effects = tool.effects({name: _stand_in(schema) for name, schema in known.items()})
    except CoilClawError:
        effects = ()
    if not effects:
        return OfferedTool(spec)
    return OfferedTool(
        spec,
        read_only=all(isinstance(one, Reads | Consults | Fetches) for one in effects),
        destructive=any(isinstance(one, Writes | Runs | External) for one in effects),
        open_world=any(isinstance(one, Fetches | Runs | External) for one in effects),
    )


def _stand_in(schema: Json) -> Json:
    kind = schema.get("type") if isinstance(schema, dict) else None
    return _VALUES.get(kind, "x") if isinstance(kind, str) else "x"


Call: TypeAlias = "Callable[[ToolCall, str, Cancellation], ToolResult]"
"""Takes one call of a conversation through the guard; cancelling ends its processes."""
Progress: TypeAlias = "Callable[[float, float | None, str | None], Awaitable[None]]"
Offered: TypeAlias = "Callable[[], Sequence[OfferedTool]]"
"""Returns the active tools."""


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool as clients see it, with hints about its effects."""

    spec: ToolSpec
    read_only: bool = False
    destructive: bool = True
    open_world: bool = True


PROGRESS_EVERY_S: Final = 1.0
CALLS_AT_ONCE: Final = 16
RECEIPT_KEY: Final = "coilclaw/receipt"
SESSION_HEADER: Final = "mcp-session-id"
REQUEST: Final[ContextVar[Mapping[str, object]]] = ContextVar("mcp request")
"""The scope of the HTTP request of a call, for the callable that makes the call."""
INSTRUCTIONS: Final = (
    "Every call is judged by a policy before it runs, and leaves a receipt. A call that is denied "
    "names the rule. A call that needs a person's approval waits for it."
)


def new_conversation() -> str:
    """Return an id for the calls of one client in the receipts."""
    return f"mcp-{secrets.token_hex(8)}"


def server(call: Call, tools: Offered, *, conversation: str | None = None) -> Server[Any]:
    """Create the server; by default each HTTP session, or call, has its own conversation."""
    import anyio
    from mcp.server.lowlevel import Server
    from mcp.types import ListToolsResult, Tool, ToolAnnotations

    from coilclaw import __version__

    places = anyio.CapacityLimiter(CALLS_AT_ONCE)

    async def list_tools(
        _context: ServerRequestContext[Any], _params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        return ListToolsResult(
            tools=[
                Tool(
                    name=tool.spec.name,
                    description=tool.spec.description,
                    input_schema=dict(tool.spec.parameters_schema),
                    annotations=ToolAnnotations(
                        read_only_hint=tool.read_only,
                        destructive_hint=tool.destructive,
                        open_world_hint=tool.open_world,
                    ),
                )
                for tool in tools()
            ]
        )

    async def call_tool(
        context: ServerRequestContext[Any], params: CallToolRequestParams
    ) -> CallToolResult:
        where = conversation or _conversation(context)
        REQUEST.set(getattr(context.request, "scope", {}))
        wanted = ToolCall(str(context.request_id), params.name, params.arguments or {})
        asked = context.meta is not None and context.meta.get("progress_token") is not None
        tell = context.session.report_progress if asked else None
        return _render(await _perform(call, wanted, where, places, tell))

    return Server(
        "coilclaw",
        version=__version__,
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


async def _perform(
    call: Call,
    wanted: ToolCall,
    conversation: str,
    places: anyio.CapacityLimiter,
    tell: Progress | None = None,
) -> ToolResult:
    """Make a call in a thread; if the client cancels it, end it and wait for its end.

    Its receipt is written in any case. ``tell`` reports progress to a client that wants it.
    """
    import anyio
    from anyio import to_thread

    cancel = Cancellation()

    async def watch() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            cancel.cancel("the client cancelled the call")

    async def tell_progress(tell: Progress) -> None:
        for seconds in itertools.count():
            await tell(seconds * PROGRESS_EVERY_S, None, "the call is judged, waits or runs")
            await anyio.sleep(PROGRESS_EVERY_S)

    async with places, anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        if tell is not None:
            tasks.start_soon(tell_progress, tell)
        with anyio.CancelScope(shield=True):
            result = await to_thread.run_sync(_call_guard, call, wanted, conversation, cancel)
        tasks.cancel_scope.cancel()
    return result


def _call_guard(
    call: Call, wanted: ToolCall, conversation: str, cancel: Cancellation
) -> ToolResult:
    try:
        return call(wanted, conversation, cancel)
    except CoilClawError as problem:
        return ToolResult(False, "", f"{problem.message} [{problem.rule}]", {"rule": problem.rule})
    except KeyboardInterrupt:  # the guard raises it for a call that was stopped
        return ToolResult(False, "", "the call was stopped [stopped]", {"rule": "stopped"})


def _render(result: ToolResult) -> CallToolResult:
    from mcp.types import CallToolResult, TextContent

    texts = [result.output] if result.output or result.success else []
    if result.error is not None:
        texts.append(result.error)
    meta = None if result.receipt_id is None else {RECEIPT_KEY: result.receipt_id}
    return CallToolResult(
        content=[TextContent(text=valid_text(text)) for text in texts],
        is_error=not result.success,
        _meta=meta,
    )


def _conversation(context: ServerRequestContext[Any]) -> str:
    """Return the conversation of a session; its id is hashed, because it grants access."""
    headers = getattr(context.request, "headers", None)
    session = None if headers is None else headers.get(SESSION_HEADER)
    return f"mcp-{digest_bytes(session.encode())[:16]}" if session else new_conversation()
