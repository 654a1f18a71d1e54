"""``Session``: one session with an MCP server, in a thread with the SDK's event loop."""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import logging
import threading
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from coilclaw.agent.mcp import message_stream
from coilclaw.agent.mcp.definitions import MAX_TOOLS, ToolListing, collect_definitions, plain_text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Mapping

    import anyio
    from mcp import Client
    from mcp.client._transport import TransportStreams
    from mcp.types import CallToolResult, ContentBlock

    from coilclaw.agent.mcp.server_process import Launched
    from coilclaw.agent.mcp.settings import McpServer
    from coilclaw.kernel import Json

_log = logging.getLogger(__name__)

MAX_PAGES: Final = 64
MAX_BLOCKS: Final = 1000
"""Parts of one answer."""
_SHORT: Final = 200
MAX_NAME: Final = 100
MAX_REASON: Final = 300
GRACE_S: Final = 0.5
"""Time that a program gets to end by itself."""
LONGEST_S: Final = 2 * 3600.0
"""Longer than any call: the caller has its own limit and ends the session."""
CLOSE_BOUND_S: Final = 10.0
"""Time limit for the end of a session; ending a process takes less."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CallAnswer:
    """The result of one call; ``failed`` is the server's own report."""

    text: str
    failed: bool


class WantsInput(Exception):
    """The server requests input from the user or the model, which is not allowed."""


@dataclass(slots=True)
class Session:
    """A connection from its first message to its end; it cannot be reopened."""

    server: McpServer
    launched: Launched | None
    headers: Mapping[str, str]
    ready: concurrent.futures.Future[None] = field(default_factory=concurrent.futures.Future)
    why_ended: str = ""
    complaint: str = ""
    """The end of the program's standard error, after the program ended."""
    _grace_s: float = GRACE_S
    _stopping: bool = False
    _loop: asyncio.AbstractEventLoop | None = None
    _scope: anyio.CancelScope | None = None
    _client: Client | None = None
    _thread: threading.Thread | None = None
    _warned: list[tuple[str, str]] = field(default_factory=list)

    def start(self) -> None:
        """Start to connect; ``ready`` is set when the connection is open."""
        self._thread = threading.Thread(
            target=self._run, name=f"coilclaw-mcp-{self.server.name}", daemon=True
        )
        self._thread.start()

    @property
    def usable(self) -> bool:
        """Whether the session can still be used."""
        alive = self._thread is not None and self._thread.is_alive()
        return alive and not self._stopping and not self.why_ended

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Run a coroutine in the thread of the session, and return its future."""
        try:
            assert self._loop is not None, "the session is ready before work is submitted"
            return asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:  # the loop has just ended
            work.close()
            failed: concurrent.futures.Future[T] = concurrent.futures.Future()
            failed.set_exception(ConnectionError("the session is over"))
            return failed

    def close(self, *, at_once: bool = False) -> None:
        """End the session, and the program with all of its children."""
        if at_once:
            self._grace_s = 0.0
        # Set before the loop is read: the thread that creates the loop checks it afterwards.
        self._stopping = True
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._cancel)
        if self._thread is not None:
            self._thread.join(CLOSE_BOUND_S)

    def _cancel(self) -> None:
        if self._scope is not None:
            self._scope.cancel()

    def _run(self) -> None:
        # The SDK logs tracebacks and untrusted data; the relevant part is reported elsewhere.
        logging.getLogger("mcp").setLevel(logging.CRITICAL)
        problem: BaseException = ConnectionError("it ended")
        try:
            asyncio.run(self._main())
        except BaseException as raised:  # noqa: BLE001 - passed to the waiting thread
            problem = raised
        finally:
            if self.launched is not None:
                self.complaint = self.launched.close(self._grace_s)
            if not self.ready.done():
                self.ready.set_exception(problem)

    async def _main(self) -> None:
        import anyio
        from mcp import Client
        from mcp.types import Implementation

        from coilclaw import __version__

        self._scope = anyio.CancelScope()
        self._loop = asyncio.get_running_loop()
        if self._stopping:
            return
        with self._scope:
            async with Client(
                self._transport(),
                cache=None,
                read_timeout_seconds=LONGEST_S,
                client_info=Implementation(name="coilclaw", version=__version__),
            ) as client:
                self._client = client
                self.ready.set_result(None)
                await anyio.sleep_forever()

    @asynccontextmanager
    async def _transport(self) -> AsyncIterator[TransportStreams]:
        from anyio import to_thread

        if self.launched is None:
            from coilclaw.agent.mcp import web_transport

            async with web_transport.streams(self.server, self.headers) as pair:
                yield pair
            return
        process = self.launched.process

        # Threads that still wait at the end are released when the process is closed.
        async def receive() -> bytes:
            return await to_thread.run_sync(
                process.stdout.read1, message_stream.CHUNK, abandon_on_cancel=True
            )

        async def transmit(data: bytes) -> None:
            await to_thread.run_sync(process.stdin.write, data, abandon_on_cancel=True)

        async with message_stream.streams(
            message_stream.Pipe(receive, transmit, self._end_session)
        ) as pair:
            yield pair

    def _end_session(self, why: str) -> None:
        self.why_ended = why
        self._cancel()

    async def listing(self) -> ToolListing:
        """Return all tools of the server, with the invalid ones named as refused."""
        from mcp.types import PaginatedRequestParams

        assert self._client is not None, "it is ready"
        found: list[Json] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            page = await self._client.session.list_tools(
                params=PaginatedRequestParams(cursor=cursor) if cursor else None
            )
            found += (page.meta or {}).get(message_stream.RAW_TOOLS, [])
            cursor = page.next_cursor
            if not cursor or len(found) > MAX_TOOLS:
                break
        listing = collect_definitions(found[:MAX_TOOLS])
        self._warn_of_refused(listing)
        return listing

    def _warn_of_refused(self, listing: ToolListing) -> None:
        """Log each refused tool once."""
        new = [one for one in listing.refused if one not in self._warned]
        self._warned += new
        for name, reason in new:
            _log.warning(
                "the tool %s of the MCP server %s is left out: %s",
                plain_text(name, MAX_NAME),
                self.server.name,
                plain_text(reason, MAX_REASON),
                extra={"event": "mcp_tool_refused", "fields": {"server": self.server.name}},
            )

    async def call(self, tool: str, args: Mapping[str, Json]) -> CallAnswer:
        """Call a tool, without the SDK's validation of the result.

        The SDK would apply the server's own schema, whose patterns could block this process
        without a time limit.
        """
        from mcp.types import (
            CallToolRequest,
            CallToolRequestParams,
            CallToolResult,
            InputRequiredResult,
        )
        from pydantic import TypeAdapter

        assert self._client is not None, "it is ready"
        kinds: TypeAdapter[CallToolResult | InputRequiredResult] = TypeAdapter(
            CallToolResult | InputRequiredResult
        )
        result = await self._client.session.send_request(
            CallToolRequest(params=CallToolRequestParams(name=tool, arguments=dict(args))), kinds
        )
        if isinstance(result, InputRequiredResult):
            raise WantsInput
        return _read_answer(result)


def _read_answer(result: CallToolResult) -> CallAnswer:
    """Return the parts of a result as one text."""
    parts = [_describe_block(block) for block in result.content[:MAX_BLOCKS]]
    if len(result.content) > MAX_BLOCKS:
        parts.append(f"[{len(result.content) - MAX_BLOCKS} more parts are left out]")
    if not parts and result.structured_content is not None:
        parts.append(json.dumps(result.structured_content, ensure_ascii=False))
    return CallAnswer("\n".join(parts), result.is_error)


def _describe_block(block: ContentBlock) -> str:
    match block.type:
        case "text":
            return block.text
        case "image" | "audio":
            kind = plain_text(block.mime_type, _SHORT)
            return f"[{block.type}, {kind}, {len(block.data)} characters of base64: not shown]"
        case "resource_link":
            return (
                f"[link to {plain_text(block.name, _SHORT)}: {plain_text(str(block.uri), _SHORT)}]"
            )
        case "resource":
            where = plain_text(str(block.resource.uri), _SHORT)
            text = getattr(block.resource, "text", None)
            if isinstance(text, str):
                return f"[resource {where}]\n{text}"
            return f"[resource {where}: not text, not shown]"
