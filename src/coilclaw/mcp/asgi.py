"""Our tools over streamable HTTP: an application to be mounted where somebody else checks access.

Who may ask, from which host and origin, and how often, is for the gateway to say.
"""

from __future__ import annotations

import asyncio
import importlib
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping

    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    from coilclaw.mcp.offering import Call, Offered

    Scope = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
    Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

MAX_BODY_BYTES: Final = 4 * 2**20
MAX_SESSIONS: Final = 64
IDLE_S: Final = 30 * 60.0


class McpApp:
    """An ASGI application for one path; it answers while its ``lifespan`` is open."""

    def __init__(self, call: Call, tools: Offered) -> None:
        self._call = call
        self._tools = tools
        self._sessions: StreamableHTTPSessionManager | None = None

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Serve until this is left; calls that still run are then ended, with their receipts."""
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

        from coilclaw.mcp.offering import server

        sessions = StreamableHTTPSessionManager(
            server(self._call, self._tools),
            max_request_body_size=MAX_BODY_BYTES,
            max_sessions=MAX_SESSIONS,
            session_idle_timeout=IDLE_S,
        )
        async with sessions.run():
            self._sessions = sessions
            try:
                yield
            finally:
                self._sessions = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self._sessions is None:
            raise RuntimeError("the MCP application serves HTTP only, within its lifespan")
        await self._sessions.handle_request(scope, receive, send)


class OnDemand:
    """Opens an application when the first request comes, and keeps it open until the loop ends.

    The SDK takes half a second to load, which a gateway that nobody asks for MCP should not pay.
    """

    def __init__(self, application: McpApp) -> None:
        self._application = application
        self._opening: asyncio.Task[None] | None = None
        self._open: asyncio.Event | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._opening is None or self._open is None:
            self._open = asyncio.Event()
            self._opening = asyncio.create_task(self._keep_open(self._open))
        opened = asyncio.create_task(self._open.wait())
        await asyncio.wait({opened, self._opening}, return_when=asyncio.FIRST_COMPLETED)
        opened.cancel()
        if self._opening.done():
            self._opening.result()
        await self._application(scope, receive, send)

    async def aclose(self) -> None:
        """End what still runs, with its receipts, and serve no more."""
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait({self._opening})

    async def _keep_open(self, opened: asyncio.Event) -> None:
        await asyncio.to_thread(importlib.import_module, "mcp.server.streamable_http_manager")
        async with self._application.lifespan():
            opened.set()
            await asyncio.Event().wait()


def app(call: Call, tools: Offered) -> McpApp:
    """Make the application; enter its ``lifespan`` in that of the application around it."""
    return McpApp(call, tools)
