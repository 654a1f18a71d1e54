"""Messages as lines, for clients and servers: turn a pipe into the streams of the SDK."""

from __future__ import annotations

import re
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from mcp.client._transport import TransportStreams
    from mcp.shared.message import SessionMessage
    from mcp.types import JSONRPCMessage

MAX_MESSAGE_BYTES: Final = 8 * 2**20
MAX_UNASKED: Final = 10_000
"""Messages that may arrive in a row without an outgoing one in between."""
MAX_LEVELS: Final = 100
"""Nesting depth of a message; the library that reads it fails at 200."""
CUT: Final = b'"(nested too deeply)"'
CHUNK: Final = 64 * 2**10
RAW_TOOLS: Final = "coilclaw/tools"
"""The key in the metadata of a listing with the tools as the server sent them."""

_PART: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]')


@dataclass(frozen=True, slots=True)
class Pipe:
    """The two directions of a connection; ``receive`` returns empty bytes at its end."""

    receive: Callable[[], Awaitable[bytes]]
    transmit: Callable[[bytes], Awaitable[None]]
    ended: Callable[[str], None] = lambda _: None
    """Called with the reason when nothing more can be received, before the streams close."""


class _Flood(Exception):
    """The peer sent more than the bounds allow."""


class _Lines:
    """Splits incoming bytes into lines, with a bound for each line and for their number."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._unasked = 0

    def note_question(self) -> None:
        self._unasked = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        *lines, rest = chunk.split(b"\n")
        if lines:
            lines[0] = bytes(self._rest) + lines[0]
            self._rest = bytearray(rest)
        else:
            self._rest += rest
        self._unasked += len(lines)
        if max(len(self._rest), *map(len, lines), 0) > MAX_MESSAGE_BYTES:
            raise _Flood(f"a message is larger than {MAX_MESSAGE_BYTES} bytes")
        if self._unasked > MAX_UNASKED:
            raise _Flood(f"it sent more than {MAX_UNASKED} unsolicited messages")
        return [line for line in lines if line.strip()]


@asynccontextmanager
async def streams(pipe: Pipe) -> AsyncIterator[TransportStreams]:
    """Yield the two streams of a connection; reading and writing stop after the block."""
    import anyio
    from mcp.shared.message import SessionMessage

    received, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, to_send = anyio.create_memory_object_stream[SessionMessage](0)
    lines = _Lines()

    async def read() -> None:
        why = "it ended"
        async with received:
            try:
                while chunk := await pipe.receive():
                    for line in lines.feed(chunk):
                        await received.send(_message(line))
            except _Flood as problem:
                why = str(problem)
            except (OSError, ValueError) as problem:
                why = f"it cannot be read ({type(problem).__name__})"
            except (anyio.ClosedResourceError, anyio.BrokenResourceError):
                why = "its messages are no longer read"
            pipe.ended(why)

    async def write() -> None:
        async with to_send:
            try:
                async for message in to_send:
                    lines.note_question()
                    text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                    await pipe.transmit(text.encode("utf-8") + b"\n")
            except (OSError, ValueError):
                # Callers that wait for an answer must learn that none will come.
                pipe.ended("it does not listen")
                await received.aclose()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        tasks.start_soon(write)
        try:
            yield incoming, outgoing
        finally:
            incoming.close()
            outgoing.close()
            tasks.cancel_scope.cancel()


def set_tools_aside(message: JSONRPCMessage) -> JSONRPCMessage:
    """Move the tools of a listing to its metadata, so that the SDK does not validate them.

    The SDK would reject the whole listing for one invalid definition.
    """
    from mcp.types import JSONRPCResponse

    if isinstance(message, JSONRPCResponse) and isinstance(message.result.get("tools"), list):
        meta = message.result.get("_meta")
        kept = meta if isinstance(meta, dict) else {}
        raw = {**kept, RAW_TOOLS: message.result["tools"]}
        message.result = {**message.result, "tools": [], "_meta": raw}
    return message


def _message(line: bytes) -> SessionMessage | Exception:
    from mcp.shared.message import SessionMessage
    from mcp.types import jsonrpc_message_adapter

    for text in (line, cut_levels(line)):
        try:
            message = jsonrpc_message_adapter.validate_json(text, by_name=False)
            return SessionMessage(set_tools_aside(message))
        except ValueError:
            continue  # a message that is nested too deeply may be readable after a cut
    # Its content is untrusted and is not repeated in logs.
    return ValueError("a line is not a message of the protocol")


def cut_levels(line: bytes, most: int = MAX_LEVELS) -> bytes:
    """Return a message with everything below a level replaced by a notice.

    It is not parsed, because that would take a stack frame per level.
    """
    kept: list[bytes] = []
    level, at = 0, 0
    for found in _PART.finditer(line):
        if found[0] in (b"[", b"{"):
            level += 1
            if level == most + 1:
                kept += (line[at : found.start()], CUT)
        elif found[0] in (b"]", b"}"):
            level -= 1
            if level == most:
                at = found.end()
    if level <= most:
        kept.append(line[at:])
    return b"".join(kept)
