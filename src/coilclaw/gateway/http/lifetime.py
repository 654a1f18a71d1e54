"""From the first connection to the last turn: signals, and an end that loses nothing."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable, Iterator

    from uvicorn import Config
    from uvicorn import Server as _Server
else:
    _Server = object

_log = logging.getLogger(__name__)

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_LOOK_EVERY_S: Final = 0.1
_LAST_ANSWERS_S: Final = 1.0
"""How long answers may take to leave after the turns have ended."""
_LIBRARY: Final = ("uvicorn", "uvicorn.error", "uvicorn.asgi", "uvicorn.access")


def serve(
    config: Config,
    sock: socket.socket,
    *,
    ready: Callable[[], None],
    wind_down: Callable[[], Awaitable[None]],
    halt: Callable[[], None],
) -> None:
    """Serve until a signal; then ``wind_down``, and ``halt`` at a second one."""
    from uvicorn import Server

    kind = type("GatewayServer", (Lifetime, Server), {})
    server: Lifetime = kind(config)
    server.ready, server.wind_down, server.halt = ready, wind_down, halt
    with _library_logs():
        server.run(sockets=[sock])


class Lifetime(_Server):
    """A server that ends turns before connections, and leaves signals as it found them."""

    ready: Callable[[], None]
    wind_down: Callable[[], Awaitable[None]]
    halt: Callable[[], None]

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for listening in self.servers:
            listening.close()
        winding = asyncio.ensure_future(self.wind_down())
        while not winding.done():
            await asyncio.wait({winding}, timeout=_LOOK_EVERY_S)
            if self.force_exit:
                self.halt()
        winding.result()
        self.config.timeout_graceful_shutdown = _LAST_ANSWERS_S  # type: ignore[assignment]  # any number does
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop at a signal, which is a good end: the process does not die of it afterwards."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


@contextmanager
def _library_logs() -> Iterator[None]:
    """Let what the server's library says be logged as ours, which is redacted."""
    logger = logging.getLogger("uvicorn")
    before = {name: logging.getLogger(name).level for name in _LIBRARY}
    handler = _PassOn(logging.WARNING)
    propagate, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)


class _PassOn(logging.Handler):
    """Hands records of a library on to our own logger."""

    def emit(self, record: logging.LogRecord) -> None:
        extra: dict[str, Any] = {"event": "gateway_library"}
        _log.log(record.levelno, "%s", record.getMessage(), exc_info=record.exc_info, extra=extra)
