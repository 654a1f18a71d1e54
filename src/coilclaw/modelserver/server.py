"""The server: listens on loopback, one thread a connection, and ends everything when told to."""

from __future__ import annotations

import ipaddress
import logging
import selectors
import socket
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Self

from coilclaw.domain.secret import Secret
from coilclaw.errors import CoilClawError, EnvironmentFault, UsageError
from coilclaw.modelserver.access import is_loopback
from coilclaw.modelserver.exchange import Exchange
from coilclaw.modelserver.faults import play
from coilclaw.modelserver.requestlog import Recorded, RequestLog
from coilclaw.modelserver.routes import likely_dialect
from coilclaw.modelserver.script import DialectName, Script
from coilclaw.modelserver.scriptfile import script_of
from coilclaw.modelserver.service import Service, refusal
from coilclaw.modelserver.wire import Limits, Reader

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from coilclaw.modelserver.service import Played
    from coilclaw.modelserver.wire import Head

KEPT_REQUESTS: Final = 1_000
BACKLOG: Final = 128
JOIN_S: Final = 10.0
RETRY_S: Final = 0.05
MAX_PORT: Final = 65_535


class ModelServer:
    """A scripted model on loopback, running from ``start`` to ``stop`` in threads of its own.

    ``script`` is a ``Script``, or the JSON value of a script file.
    """

    def __init__(
        self,
        script: Script | object,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        key: str | None = None,
        log: Path | None = None,
        kept_requests: int = KEPT_REQUESTS,
        limits: Limits | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._script = script if isinstance(script, Script) else script_of(script)
        self._address = _checked(host, port)
        self._key = Secret(key) if key else self._script.require_key
        self._log = RequestLog(log, kept_requests, self._key, clock)
        self._service = Service(self._script, self._key, self._log, clock)
        self._limits = limits or Limits()
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._connections: dict[socket.socket, threading.Thread] = {}
        self._listener: socket.socket | None = None
        self._waker: socket.socket | None = None
        self._acceptor: threading.Thread | None = None

    @property
    def port(self) -> int:
        """The port it listens on, once it does."""
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
        """Listen, and answer from now on."""
        listener = _listening(*self._address)
        try:
            self._log.open()
        except CoilClawError:
            listener.close()
            raise
        waker, woken = socket.socketpair()
        self._listener, self._waker = listener, waker
        self._acceptor = threading.Thread(
            target=self._accept, args=(listener, woken), name="modelserver", daemon=True
        )
        self._acceptor.start()

    def stop(self) -> None:
        """End every connection, also those that hang, and wait until all is quiet."""
        self._stopping.set()
        if self._waker is not None and self._acceptor is not None:
            self._waker.close()
            self._acceptor.join(JOIN_S)
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

    def _accept(self, listener: socket.socket, woken: socket.socket) -> None:
        with listener, woken, selectors.DefaultSelector() as selector:
            selector.register(listener, selectors.EVENT_READ)
            selector.register(woken, selectors.EVENT_READ)
            while not self._stopping.is_set():
                selector.select()
                if self._stopping.is_set():
                    return
                try:
                    connection, _ = listener.accept()
                except OSError:
                    # The client left again, or too many files are open: soon it may go better.
                    self._stopping.wait(RETRY_S)
                else:
                    self._welcome(connection)

    def _welcome(self, connection: socket.socket) -> None:
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
                    # The machine has no further thread for us.
                    del self._connections[connection]
                    welcome = False
        if not welcome:
            self._turn_away(connection)

    def _turn_away(self, connection: socket.socket) -> None:
        problem = EnvironmentFault(
            f"there are {len(self._connections)} connections already", rule="server.connections"
        )
        with connection, suppress(OSError):
            exchange = Exchange(connection, self._limits, self._stopping, reusable=False)
            _send(exchange, refusal(DialectName.CHAT, problem))

    def _converse(self, connection: socket.socket) -> None:
        try:
            # A client that goes away is nothing to complain about.
            with connection, suppress(OSError):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                reader = Reader(connection, self._limits)
                while not self._stopping.is_set() and self._turn(connection, reader):
                    pass
        finally:
            with self._lock:
                del self._connections[connection]

    def _turn(self, connection: socket.socket, reader: Reader) -> bool:
        """Read one request and answer it; tell whether the connection can take another."""
        try:
            head = reader.head()
        except CoilClawError as problem:
            exchange = Exchange(connection, self._limits, self._stopping, reusable=False)
            _send(exchange, refusal(DialectName.CHAT, problem))
            exchange.linger()
            return False
        if head is None:
            return False
        data: bytes | CoilClawError
        try:
            data = reader.body(head)
        except CoilClawError as problem:
            data = problem
        unread = isinstance(data, CoilClawError)
        exchange = Exchange(
            connection,
            self._limits,
            self._stopping,
            reusable=head.keeps_alive and not unread,
            modern=head.modern,
            with_body=head.method != "HEAD",
        )
        _send(exchange, self._answer(head, data))
        if unread:
            exchange.linger()
        return exchange.reusable

    def _answer(self, head: Head, data: bytes | CoilClawError) -> Played:
        name = likely_dialect(head.target, head.headers)
        try:
            return self._service.answer(head, data)
        except CoilClawError as problem:
            return refusal(name, problem)
        except Exception as problem:  # noqa: BLE001 - the client gets an error, not a dead line
            logging.getLogger(__name__).warning("an answer failed: %r", problem)
            fault = EnvironmentFault("the server failed to answer", rule="server.fault")
            return refusal(name, fault)


def _send(exchange: Exchange, played: Played) -> None:
    play(exchange, played.payload, played.fault)


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as problem:
        listener.close()
        raise EnvironmentFault(
            f"cannot listen on {host} port {port}: {problem.strerror or problem}",
            rule="server.bind",
        ) from problem
    listener.setblocking(False)
    return listener


def _checked(host: str, port: int) -> tuple[str, int]:
    """Return the address to listen on; one that others can reach is a ``UsageError``."""
    if not is_loopback(host):
        raise UsageError(
            f"the host {host!r} is not loopback",
            rule="server.host",
            hint="a scripted model serves this machine only: use 127.0.0.1 or ::1",
        )
    if not 0 <= port <= MAX_PORT:
        raise UsageError(f"there is no port {port}", rule="server.port")
    return ("127.0.0.1" if host.lower() == "localhost" else str(ipaddress.ip_address(host))), port
