"""Serving over standard input and output, which then carry nothing else."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Final

from coilclaw.agent.mcp import message_stream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import anyio

    from coilclaw.agent.mcp.tool_server import Call, Offered

SAFE_WRITE: Final = 4096
"""What a pipe takes at once when it says that it takes something."""
HALTED: Final = "the server is being stopped"


@contextmanager
def divert_output() -> Iterator[tuple[int, int]]:
    """Yield what input and output were; from now on nothing else reads there, or writes there.

    Whoever prints writes to standard error instead, and children read nothing.
    """
    with ExitStack() as stack:
        source, sink = os.dup(0), os.dup(1)
        stack.callback(_back, source, 0)
        stack.callback(_back, sink, 1)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.dup2(2, 1)
        yield source, sink


def _back(saved: int, number: int) -> None:
    os.dup2(saved, number)
    os.close(saved)


def serve_stdio(
    call: Call, tools: Offered, source: int, sink: int, halt: Callable[[str], None] = lambda _: None
) -> None:
    """Serve one client until it closes its end, or until a signal asks us to stop.

    Calls that still run are then ended, and their receipts written. ``halt`` is told of a signal.
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
    with _stopping(scope, halt), scope:
        async with message_stream.streams(pipe) as (incoming, outgoing):
            await made.run(incoming, outgoing, made.create_initialization_options())


@contextmanager
def _stopping(scope: anyio.CancelScope, halt: Callable[[str], None]) -> Iterator[None]:
    """Stop in good order when a signal asks for it: nothing may be left without its receipt."""
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(number) for number in numbers]

    def stop() -> None:
        halt(HALTED)
        scope.cancel()

    for number in numbers:
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            loop.remove_signal_handler(number)
            signal.signal(number, handler)


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
