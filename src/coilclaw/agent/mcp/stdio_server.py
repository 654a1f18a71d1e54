"""Serve MCP over standard input and output, which then carry nothing else."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Final

from coilclaw.agent.mcp import message_stream
from coilclaw.kernel import signal_scope

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from coilclaw.agent.mcp.tool_server import Call, Offered

SAFE_WRITE: Final = 4096
"""Bytes that a writable pipe accepts at once."""
HALTED: Final = "the server is being stopped"


@contextmanager
def divert_output() -> Iterator[tuple[int, int]]:
    """Yield the original input and output, and reserve them for the block.

    Within it, ``print`` writes to standard error, and children read nothing.
    """
    with ExitStack() as stack:
        source, sink = os.dup(0), os.dup(1)
        stack.callback(_restore, source, 0)
        stack.callback(_restore, sink, 1)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.dup2(2, 1)
        yield source, sink


def _restore(saved: int, number: int) -> None:
    os.dup2(saved, number)
    os.close(saved)


def serve_stdio(
    call: Call, tools: Offered, source: int, sink: int, halt: Callable[[str], None] = lambda _: None
) -> None:
    """Serve one client until it closes its end or a signal stops the server.

    Running calls are then ended and their receipts written. A signal calls ``halt``.
    """
    asyncio.run(_serve(call, tools, source, sink, halt))


async def _serve(
    call: Call, tools: Offered, source: int, sink: int, halt: Callable[[str], None]
) -> None:
    import anyio

    from coilclaw.agent.mcp import tool_server

    made = tool_server.server(call, tools, conversation=tool_server.new_conversation())
    scope = anyio.CancelScope()
    pipe = message_stream.Pipe(lambda: _receive(source), lambda data: _transmit(sink, data))
    loop = asyncio.get_running_loop()

    def stop() -> None:
        halt(HALTED)
        scope.cancel()

    def note_signal(_: signal.Signals) -> None:
        loop.call_soon_threadsafe(stop)

    # Running calls end in order, so that each gets its receipt.
    with signal_scope(note_signal, signal.SIGINT, signal.SIGTERM), scope:
        async with message_stream.streams(pipe) as (incoming, outgoing):
            await made.run(incoming, outgoing, made.create_initialization_options())


async def _receive(source: int) -> bytes:
    import anyio

    with suppress(PermissionError):  # a file, which is always ready
        await anyio.wait_readable(source)
    return os.read(source, message_stream.CHUNK)


async def _transmit(sink: int, data: bytes) -> None:
    import anyio

    rest = memoryview(data)
    while rest:
        with suppress(PermissionError):
            await anyio.wait_writable(sink)
        rest = rest[os.write(sink, rest[:SAFE_WRITE]) :]
