"""Serve on loopback, with one thread per connection, until the server is stopped."""

from __future__ import annotations

import ipaddress
import logging
import os
import socket
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Self

from coilclaw.cli.model_server.exchange import ServedExchange, play
from coilclaw.cli.model_server.request_log import Recorded, RequestLog
from coilclaw.cli.model_server.routes import guess_dialect, is_loopback
from coilclaw.cli.model_server.script import DialectName, ModelScript
from coilclaw.cli.model_server.script_file import make_script
from coilclaw.cli.model_server.service import Service, refuse
from coilclaw.cli.model_server.wire import Reader, WireLimits
from coilclaw.kernel import CoilClawError, EnvironmentFault, Secret, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from coilclaw.cli.model_server.exchange import Payload
    from coilclaw.cli.model_server.wire import RequestHead

KEPT_REQUESTS: Final = 1_000
BACKLOG: Final = 128
JOIN_S: Final = 10.0
RETRY_S: Final = 0.05
MAX_PORT: Final = 65_535


class ModelServer:
    """A scripted model on loopback that runs in its own threads from ``start`` to ``stop``.

    ``script`` is a ``ModelScript``, or the JSON value of a script file.
    """

    def __init__(
        self,
        script: ModelScript | object,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        key: str | None = None,
        log: Path | None = None,
        kept_requests: int = KEPT_REQUESTS,
        limits: WireLimits | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._script = script if isinstance(script, ModelScript) else make_script(script)
        self._address = _check_address(host, port)
        self._key = Secret(key) if key else self._script.require_key
        self._log = RequestLog(log, kept_requests, self._key, clock)
        self._service = Service(self._script, self._key, self._log, clock)
        self._limits = limits or WireLimits()
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._connections: dict[socket.socket, threading.Thread] = {}
        self._listener: socket.socket | None = None
        self._acceptor = threading.Thread(target=self._accept, name="modelserver", daemon=True)

    @property
    def port(self) -> int:
        """The port that the started server listens on."""
        assert self._listener is not None, "the server is not started"
        return int(self._listener.getsockname()[1])

    @property
    def url(self) -> str:
        """The address of the server, without a path."""
        host = self._address[0]
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    @property
    def requests(self) -> list[Recorded]:
        """The last requests, oldest first."""
        return self._log.requests

    def start(self) -> None:
        """Listen and answer; raise ``EnvironmentFault`` if the port or the log cannot be opened."""
        host, port = self._address
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
        except OSError as problem:
            raise EnvironmentFault(
                f"cannot listen on {host} port {port}: {os.strerror(problem.errno or 0)}",
                rule="server.bind",
            ) from problem
        try:
            self._log.open()
        except CoilClawError:
            listener.close()
            raise
        self._listener = listener
        self._acceptor.start()

    def stop(self) -> None:
        """End every connection, including those that hang, and wait for all threads."""
        self._stopping.set()
        if self._listener is not None:
            with suppress(OSError):  # Closing alone would not wake the thread that accepts.
                self._listener.shutdown(socket.SHUT_RDWR)
            self._acceptor.join(JOIN_S)
            self._listener.close()
        with self._lock:
            live = dict(self._connections)
            for connection in live:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        for thread in live.values():
            thread.join(JOIN_S)
        self._log.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _accept(self) -> None:
        assert self._listener is not None, "the server is started"
        while not self._stopping.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                # The client left, or too many files are open: try again soon.
                self._stopping.wait(RETRY_S)
                continue
            thread = threading.Thread(
                target=self._converse, args=(connection,), name="modelserver", daemon=True
            )
            with self._lock:
                welcome = len(self._connections) < self._limits.connections
                if welcome:
                    self._connections[connection] = thread
                    try:
                        thread.start()
                    except RuntimeError:
                        # The machine cannot start another thread.
                        del self._connections[connection]
                        welcome = False
            if not welcome:
                self._reject(connection)

    def _reject(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            self._refuse(
                connection,
                EnvironmentFault(
                    f"all {len(self._connections)} connections are in use",
                    rule="server.connections",
                ),
            )

    def _refuse(self, connection: socket.socket, problem: CoilClawError) -> ServedExchange:
        """Send an error for a request that was not read, and whose dialect is therefore unknown."""
        exchange = ServedExchange(connection, self._limits, self._stopping)
        play(exchange, refuse(DialectName.CHAT, problem))
        return exchange

    def _converse(self, connection: socket.socket) -> None:
        try:
            # A client that disconnects is not an error.
            with connection, suppress(OSError):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                reader = Reader(connection, self._limits)
                while not self._stopping.is_set() and self._serve_request(connection, reader):
                    pass
        finally:
            with self._lock:
                del self._connections[connection]

    def _serve_request(self, connection: socket.socket, reader: Reader) -> bool:
        """Read one request and answer it; return whether the connection can take another."""
        try:
            head = reader.read_head()
        except CoilClawError as problem:
            self._refuse(connection, problem).linger()
            return False
        if head is None:
            return False
        data: bytes | CoilClawError
        try:
            data = reader.read_body(head)
        except CoilClawError as problem:
            data = problem
        exchange = ServedExchange(connection, self._limits, self._stopping, head)
        unread = isinstance(data, CoilClawError)
        exchange.reusable = exchange.reusable and not unread
        play(exchange, self._answer(head, data))
        if unread:
            exchange.linger()
        return exchange.reusable

    def _answer(self, head: RequestHead, data: bytes | CoilClawError) -> Payload:
        fault: CoilClawError
        try:
            return self._service.answer(head, data)
        except CoilClawError as problem:
            fault = problem
        except Exception as problem:  # noqa: BLE001 - the client gets an error, not a dropped connection
            logging.getLogger(__name__).warning("an answer failed: %r", problem)
            fault = EnvironmentFault("the server failed to answer", rule="server.fault")
        return refuse(guess_dialect(head.target, head.headers), fault)


def _check_address(host: str, port: int) -> tuple[str, int]:
    """Return the address to listen on; raise ``UsageError`` unless it is loopback."""
    if not is_loopback(host):
        raise UsageError(
            f"the host {host!r} is not loopback",
            rule="server.host",
            hint="a scripted model serves this machine only: use 127.0.0.1 or ::1",
        )
    if not 0 <= port <= MAX_PORT:
        raise UsageError(f"{port} is not a port", rule="server.port")
    return ("127.0.0.1" if host.lower() == "localhost" else str(ipaddress.ip_address(host))), port
