"""Our tools over streamable HTTP: an application to be mounted where somebody else checks access.

Who may ask, from which host and origin, and how often, is for the gateway to say.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from coilclaw.mcp.session_table import RETRY_AFTER_S, SessionTable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping

    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    from coilclaw.mcp.offering import Call, Offered

    Scope = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
    Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_log = logging.getLogger(__name__)
_BAD: Final = 400

MAX_BODY_BYTES: Final = 4 * 2**20
SESSION_HEADER: Final = b"mcp-session-id"
VERSION_HEADER: Final = b"mcp-protocol-version"
CLIENT: Final = "coilclaw.client"
"""Where the scope of a request names the client, as far as the gateway knows it."""


class McpApp:
    """An ASGI application for one path; it answers while its ``lifespan`` is open."""

    def __init__(self, call: Call, tools: Offered, table: SessionTable | None = None) -> None:
        self._call = call
        self._tools = tools
        self._sessions: StreamableHTTPSessionManager | None = None
        self._table = SessionTable() if table is None else table

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Serve until this is left; calls that still run are then ended, with their receipts."""
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

        from coilclaw.mcp.offering import server

        sessions = StreamableHTTPSessionManager(
            server(self._call, self._tools),
            max_request_body_size=MAX_BODY_BYTES,
            max_sessions=None,  # the table says who has to go
            session_idle_timeout=self._table.idle_s,
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
        self._table.expire()
        headers = dict(scope["headers"])
        session = headers.get(SESSION_HEADER, b"").decode("latin-1")
        if session:
            await self._in_session(session, self._sessions, scope, receive, send)
        elif _opens(scope, headers):
            await self._opening(self._sessions, scope, receive, send)
        else:
            await self._sessions.handle_request(scope, receive, send)

    async def _in_session(
        self,
        session: str,
        sessions: StreamableHTTPSessionManager,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        if self._table.is_foreign(session, _client(scope)):
            await _refuse(send, 404, -32600, "Session not found")  # as of one that is not there
            return
        answered = _Answered(send)
        self._table.begin(session)
        try:
            await sessions.handle_request(scope, receive, answered)
        finally:
            ended = scope["method"] == "DELETE" and 0 < answered.status < _BAD
            self._table.end(session, closed=ended)

    async def _opening(
        self, sessions: StreamableHTTPSessionManager, scope: Scope, receive: Receive, send: Send
    ) -> None:
        client = _client(scope)
        room, gone = self._table.admit(client)
        for name in gone:
            await _end_session(sessions, scope, name)
        if not room:
            retry = (b"retry-after", str(RETRY_AFTER_S).encode("ascii"))
            await _refuse(send, 503, -32000, "too many sessions are open and busy", retry)
            return
        opened: list[str] = []

        def note(status: int, session: str | None) -> None:
            # Before the client hears of it, and may come with the next request.
            if session is not None and status < _BAD:
                self._table.opened(client, session)
                self._table.begin(session)
                opened.append(session)

        try:
            await sessions.handle_request(scope, receive, _Answered(send, note))
        finally:
            if opened:
                self._table.end(opened[0])
            else:
                self._table.opened(client, None)


class _Answered:
    """Passes an answer on, and tells its status and the session that it names."""

    def __init__(
        self, send: Send, note: Callable[[int, str | None], None] = lambda _, __: None
    ) -> None:
        self._send = send
        self._note = note
        self.status = 0

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            found = dict(message.get("headers", ())).get(SESSION_HEADER)
            self._note(self.status, None if found is None else found.decode("latin-1"))
        await self._send(message)


def _opens(scope: Scope, headers: dict[bytes, bytes]) -> bool:
    """Whether a request without a session may open one, which newer clients never do."""
    from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

    version = headers.get(VERSION_HEADER)
    known = version is None or version.decode("latin-1") in HANDSHAKE_PROTOCOL_VERSIONS
    return scope["method"] == "POST" and known


async def _end_session(sessions: StreamableHTTPSessionManager, scope: Scope, session: str) -> None:
    """End a session as its own client would, so that its id is unknown from now on."""
    kept = [(name, value) for name, value in scope["headers"] if name in {b"host", b"origin"}]
    asked = {
        **scope,
        "method": "DELETE",
        "headers": [*kept, (SESSION_HEADER, session.encode("latin-1"))],
    }

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(_: MutableMapping[str, Any]) -> None:
        """Nobody waits for this answer."""

    await sessions.handle_request(asked, receive, send)
    _log.info("an idle MCP session was ended", extra={"event": "mcp_session_evicted"})


def _client(scope: Scope) -> str:
    return str(scope.get(CLIENT, ""))


async def _refuse(
    send: Send, status: int, code: int, message: str, *more: tuple[bytes, bytes]
) -> None:
    error = {"code": code, "message": message}
    body = json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode("ascii")
    headers = [(b"content-type", b"application/json"), *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


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


def app(call: Call, tools: Offered, table: SessionTable | None = None) -> McpApp:
    """Make the application; enter its ``lifespan`` in that of the application around it."""
    return McpApp(call, tools, table)
