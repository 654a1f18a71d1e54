"""Messages as lines, for both ends: what a pipe carries becomes the streams that the SDK reads."""

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
"""Messages that may come in a row without one of ours in between."""
MAX_LEVELS: Final = 100
"""Of a whole message; the library that reads it gives up at 200."""
CUT: Final = b'"(nested too deeply)"'
CHUNK: Final = 64 * 2**10
RAW_TOOLS: Final = "coilclaw/tools"
"""Where the tools of a listing stand as the server sent them."""

_PART: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]')


@dataclass(frozen=True, slots=True)
class Pipe:
    """The two directions of a connection; ``receive`` gives nothing when it has ended."""

    receive: Callable[[], Awaitable[bytes]]
    transmit: Callable[[bytes], Awaitable[None]]
    ended: Callable[[str], None] = lambda _: None
    """Told why nothing more can be received, before anybody notices."""


class _Flood(Exception):
    """More came than anybody asked for."""


class _Lines:
    """Cuts what comes into lines, with a bound for one line and for their number."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._unasked = 0

    def asked(self) -> None:
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
            raise _Flood(f"there were {MAX_UNASKED} messages that nobody asked for")
        return [line for line in lines if line.strip()]


@asynccontextmanager
async def streams(pipe: Pipe) -> AsyncIterator[TransportStreams]:
    """Yield the two streams of a connection, and stop reading and writing at the end."""
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
                why = "nobody listens any more"
            pipe.ended(why)

    async def write() -> None:
        async with to_send:
            try:
                async for message in to_send:
                    lines.asked()
                    text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                    await pipe.transmit(text.encode("utf-8") + b"\n")
            except (OSError, ValueError):
                # Whoever waits for an answer must hear that there will be none.
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
    """Move the tools of a listing to where the SDK does not look at them.

    To it one wrong definition is a wrong answer, and the server were lost with all its tools.
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
            continue  # what is too deep for the library may be readable without its depths
    # What it holds is not repeated: it may be anything, and ends up in a log.
    return ValueError("a line is no message of the protocol")


def cut_levels(line: bytes, most: int = MAX_LEVELS) -> bytes:
    """Return a message with everything below a level replaced by a text that says so.

    It is not parsed, for that would take a level of ours each.
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
