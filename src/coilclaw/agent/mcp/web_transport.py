"""The connection to an MCP server over HTTP: its headers, and a bound for its answers."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from coilclaw.agent.mcp.message_stream import MAX_MESSAGE_BYTES, set_tools_aside
from coilclaw.agent.mcp.server_process import value_of
from coilclaw.kernel import UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    import httpx2
    from mcp.client._transport import TransportStreams

    from coilclaw.agent.mcp.settings import McpServer

CONNECT_TIMEOUT_S: Final = 15.0
MAX_STREAM_BYTES: Final = 64 * 2**20
"""Bytes of all events of one answer."""


def headers(server: McpServer, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of every request, which alone hold the secrets."""
    found = {name: value_of(server, variable, environ) for name, variable in server.headers.items()}
    if server.token_env is not None:
        found["Authorization"] = f"Bearer {value_of(server, server.token_env, environ)}"
    for name, value in found.items():
        if not value.isascii() or not value.isprintable():
            raise UsageError(
                f"the value of the header {name} of the MCP server {server.name} has invalid "
                "characters",
                rule="mcp.variable",
            )
    return {**found, "Accept-Encoding": "identity"}


@asynccontextmanager
async def streams(server: McpServer, sent: Mapping[str, str]) -> AsyncIterator[TransportStreams]:
    """Yield the two streams of a connection to an address."""
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    timeout = httpx2.Timeout(CONNECT_TIMEOUT_S, read=server.timeout_s)
    async with (
        httpx2.AsyncClient(
            headers=dict(sent),
            timeout=timeout,
            event_hooks={"response": [_bound_answer]},
            trust_env=False,
        ) as client,
        streamable_http_client(
            str(server.url), http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES
        ) as pair,
        _relay_messages(pair) as relayed,
    ):
        yield relayed


@asynccontextmanager
async def _relay_messages(pair: TransportStreams) -> AsyncIterator[TransportStreams]:
    """Relay messages, with the tools of a listing as the server sent them."""
    import anyio
    from mcp.shared.message import SessionMessage

    received, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)

    async def relay() -> None:
        async with received:
            async for message in pair[0]:
                if isinstance(message, SessionMessage):
                    message.message = set_tools_aside(message.message)
                await received.send(message)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(relay)
        try:
            yield incoming, pair[1]
        finally:
            incoming.close()
            tasks.cancel_scope.cancel()


async def _bound_answer(response: httpx2.Response) -> None:
    """Bound the size of an answer; refuse a compressed one, which could expand to any size."""
    import httpx2

    class Counted(httpx2.AsyncByteStream):
        def __init__(self, stream: httpx2.AsyncByteStream, limit: int) -> None:
            self._stream = stream
            self._left = limit

        async def __aiter__(self) -> AsyncIterator[bytes]:
            async for chunk in self._stream:
                self._left -= len(chunk)
                if self._left < 0:
                    raise httpx2.ReadError("the answer is too large")
                yield chunk

        async def aclose(self) -> None:
            await self._stream.aclose()

    if response.headers.get("content-encoding", "identity") != "identity":
        raise httpx2.DecodingError("the answer is compressed", request=response.request)
    events = response.headers.get("content-type", "").startswith("text/event-stream")
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    response.stream = Counted(response.stream, MAX_STREAM_BYTES if events else MAX_MESSAGE_BYTES)
