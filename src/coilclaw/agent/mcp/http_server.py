"""CoilClaw's tools over streamable HTTP, as an application that the gateway mounts.

The gateway decides who may connect, from which host and origin, and how often.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping

    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    from coilclaw.agent.mcp.tool_server import Call, Offered


MAX_SESSIONS: Final = 64
MAX_PER_CLIENT: Final = 16
"""Sessions of one client, which is known by the name of its token."""
IDLE_S: Final = 10 * 60.0
RETRY_AFTER_S: Final = 5


@dataclass(slots=True)
class OpenSession:
    """One session; ``busy`` counts its current requests."""

    client: str
    busy: int = 0
    used: float = 0.0


@dataclass(slots=True)
class SessionTable:
    """All sessions of one server, used by one event loop."""

    most: int = MAX_SESSIONS
    most_per_client: int = MAX_PER_CLIENT
    idle_s: float = IDLE_S
    now: Callable[[], float] = time.monotonic
    _open: dict[str, OpenSession] = field(default_factory=dict)
    _opening: dict[str, int] = field(default_factory=dict)
    """The number of sessions without an id that are being opened, by client."""

    def __len__(self) -> int:
        return len(self._open) + sum(self._opening.values())

    def expire(self) -> list[str]:
        """Remove the sessions that were idle for too long, and return them."""
        late = self.now() - self.idle_s
        gone = [name for name, one in self._open.items() if not one.busy and one.used <= late]
        for name in gone:
            del self._open[name]
        return gone

    def admit(self, client: str) -> tuple[bool, list[str]]:
        """Reserve a place for a new session.

        Return whether one is available, and the idle sessions that have to be ended for it.
        """
        gone: list[str] = []
        if client and self._count(client) >= self.most_per_client:
            gone += self._evict(client)
            if not gone:
                return False, []
        if len(self) >= self.most:
            evicted = self._evict("")
            if not evicted:
                return False, gone
            gone += evicted
        self._opening[client] = self._opening.get(client, 0) + 1
        return True, gone

    def note_session(self, client: str, name: str | None) -> None:
        """Record the session that a request opened, or ``None`` if it opened none."""
        self._opening[client] -= 1
        if not self._opening[client]:
            del self._opening[client]
        if name is not None:
            self._open[name] = OpenSession(client, 0, self.now())

    def is_foreign(self, name: str, client: str) -> bool:
        """Return whether another client opened a session."""
        return name in self._open and self._open[name].client != client

    def begin(self, name: str) -> None:
        """Record the start of a request of a session."""
        if name in self._open:
            self._open[name].busy += 1

    def end(self, name: str, *, closed: bool = False) -> None:
        """Record the end of a request; ``closed`` means that the session ended as well."""
        found = self._open.get(name)
        if found is None:
            return
        if closed:
            del self._open[name]
            return
        found.busy -= 1
        found.used = self.now()

    def _count(self, client: str) -> int:
        opened = sum(one.client == client for one in self._open.values())
        return opened + self._opening.get(client, 0)

    def _evict(self, client: str) -> list[str]:
        """Remove the session that was idle longest, of one client or of all."""
        idle = [
            (one.used, name)
            for name, one in self._open.items()
            if not one.busy and client in {"", one.client}
        ]
        if not idle:
            return []
        _, name = min(idle)
        del self._open[name]
        return [name]


if TYPE_CHECKING:
    Scope = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
    Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_log = logging.getLogger(__name__)
_BAD: Final = 400

MAX_BODY_BYTES: Final = 4 * 2**20
SESSION_HEADER: Final = b"mcp-session-id"
VERSION_HEADER: Final = b"mcp-protocol-version"
CLIENT: Final = "coilclaw.client"
"""The key in the scope of a request with the client's name, which the gateway sets."""


class McpApp:
    """An ASGI application for one path, which serves within its ``lifespan``."""

    def __init__(self, call: Call, tools: Offered, table: SessionTable | None = None) -> None:
        self._call = call
        self._tools = tools
        self._sessions: StreamableHTTPSessionManager | None = None
        self._table = SessionTable() if table is None else table

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Serve for the duration of the block; then end running calls and write their receipts."""
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

        from coilclaw.agent.mcp.tool_server import server

        sessions = StreamableHTTPSessionManager(
            server(self._call, self._tools),
            max_request_body_size=MAX_BODY_BYTES,
            max_sessions=None,  # the table evicts sessions
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
            await _refuse(send, 404, -32600, "Session not found")  # as for an unknown session
            return
        status = [_BAD]
        answer = _noting(send, lambda found, _: status.append(found))
        self._table.begin(session)
        try:
            await sessions.handle_request(scope, receive, answer)
        finally:
            closed = scope["method"] == "DELETE" and status[-1] < _BAD
            self._table.end(session, closed=closed)

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
            # Before the client gets the answer and can send its next request.
            if session is not None and status < _BAD:
                self._table.note_session(client, session)
                self._table.begin(session)
                opened.append(session)

        try:
            await sessions.handle_request(scope, receive, _noting(send, note))
        finally:
            if opened:
                self._table.end(opened[0])
            else:
                self._table.note_session(client, None)


def _noting(send: Send, note: Callable[[int, str | None], None]) -> Send:
    """Return a ``send`` that also reports the status and the session of an answer."""

    async def passing(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            found = dict(message.get("headers", ())).get(SESSION_HEADER)
            note(message["status"], None if found is None else found.decode("latin-1"))
        await send(message)

    return passing


def _opens(scope: Scope, headers: dict[bytes, bytes]) -> bool:
    """Return whether a request without a session may open one; newer clients do not."""
    from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

    version = headers.get(VERSION_HEADER)
    known = version is None or version.decode("latin-1") in HANDSHAKE_PROTOCOL_VERSIONS
    return scope["method"] == "POST" and known


async def _end_session(sessions: StreamableHTTPSessionManager, scope: Scope, session: str) -> None:
    """End a session as its own client would, so that its id becomes invalid."""
    kept = [(name, value) for name, value in scope["headers"] if name in {b"host", b"origin"}]
    asked = {
        **scope,
        "method": "DELETE",
        "headers": [*kept, (SESSION_HEADER, session.encode("latin-1"))],
    }

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(_: MutableMapping[str, Any]) -> None:
        """Ignore the answer."""

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
    """Opens an application at the first request, and keeps it open until the loop ends.

    Loading the SDK takes half a second, which a gateway without MCP clients avoids.
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
        """End running calls, write their receipts, and stop serving."""
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait({self._opening})

    async def _keep_open(self, opened: asyncio.Event) -> None:
        await asyncio.to_thread(importlib.import_module, "mcp.server.streamable_http_manager")
        async with self._application.lifespan():
            opened.set()
            await asyncio.Event().wait()
