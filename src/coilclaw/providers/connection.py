"""A connection to a server, on which no wait lasts longer than the request may.

Everything but the resolving of names happens in the thread of the caller: an interrupt gets through
at once, and a connection that is kept costs no more than the bytes that are sent.
"""

from __future__ import annotations

import io
import os
import select
import socket
import threading
import weakref
from time import monotonic
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable
    from http.client import HTTPResponse
    from typing import Any, TypeAlias

    from _typeshed import WriteableBuffer

    Address: TypeAlias = tuple[Any, ...]

KEPT_S: Final = 60.0
"""How long a connection may be idle and still be used again."""


class Connection(io.RawIOBase):
    """A connected socket; ``begin`` sets how long the waits that follow may take in all."""

    def __init__(self, connected: socket.socket) -> None:
        super().__init__()
        self._take(connected)
        self._deadline = 0.0
        self._process = os.getpid()
        self._idle_since = 0.0

    def begin(self, deadline: float) -> None:
        """Use the connection until a moment of the monotonic clock."""
        self._deadline = deadline

    def rest(self) -> None:
        """Keep the connection for the next request."""
        self._idle_since = monotonic()

    @property
    def usable(self) -> bool:
        """Whether the connection can be used again: ours, not idle for long, and nothing in it."""
        if self._process != os.getpid() or monotonic() - self._idle_since > KEPT_S:
            return False
        waiting = select.poll()
        waiting.register(self._socket, select.POLLIN)
        # Bytes that nobody asked for, or the end of the stream: both end it.
        return not waiting.poll(0)

    def secure(self, context: ssl.SSLContext, host: str) -> None:
        """Speak TLS from now on."""
        self._socket.settimeout(self._left())
        self._take(context.wrap_socket(self._socket, server_hostname=host))

    def send(self, data: bytes) -> None:
        """Send all of it."""
        self._socket.settimeout(self._left())
        self._socket.sendall(data)

    def response(self, method: str) -> HTTPResponse:
        """Return the answer to what was sent, its head read."""
        from http.client import HTTPResponse

        response = HTTPResponse(self, method=method)  # type: ignore[arg-type]  # calls makefile only
        response.begin()
        return response

    def makefile(self, _mode: str) -> io.BufferedReader:
        """Return what a response is read from."""
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        self._socket.settimeout(self._left())
        return self._socket.recv_into(buffer)

    def close(self) -> None:
        """Do nothing: a response closes its file when it is read, and the connection lives on."""

    def hang_up(self) -> None:
        """End the connection."""
        self._forgotten()

    def _take(self, connected: socket.socket) -> None:
        self._socket = connected
        # Nobody has to close a provider: what is forgotten is hung up.
        self._forgotten = weakref.finalize(self, connected.close)
        self._forgotten.atexit = False

    def _left(self) -> float:
        left = self._deadline - monotonic()
        if left <= 0:
            raise TimeoutError("the time is up")
        return left


def connect(host: str, port: int, deadline: float, connect_s: float) -> Connection:
    """Connect to the first address of a host that answers."""
    until = min(deadline, monotonic() + connect_s)
    addresses = _resolve(host, port, until)
    problem: OSError = OSError(f"{host} has no address")
    for index, (family, address) in enumerate(addresses):
        left = until - monotonic()
        if left <= 0:
            raise TimeoutError("no connection in time")
        reached = socket.socket(family, socket.SOCK_STREAM)
        try:
            # An address that says nothing leaves time for the next.
            reached.settimeout(left / (len(addresses) - index))
            reached.connect(address)
            reached.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as failed:
            reached.close()
            problem = failed
        except BaseException:
            reached.close()
            raise
        else:
            connection = Connection(reached)
            connection.begin(deadline)
            return connection
    raise problem


def _resolve(host: str, port: int, until: float) -> list[tuple[int, Address]]:
    """Find the addresses of a host; a name is asked for in a thread, since nothing bounds that."""

    def ask() -> list[tuple[int, Address]]:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return list(dict.fromkeys((entry[0], entry[4]) for entry in found))

    if host == "localhost" or _is_address(host):
        return ask()
    return _bounded(ask, until)


def _bounded(
    ask: Callable[[], list[tuple[int, Address]]], until: float
) -> list[tuple[int, Address]]:
    outcome: list[list[tuple[int, Address]] | BaseException] = []

    def work() -> None:
        try:
            outcome.append(ask())
        except BaseException as problem:  # noqa: BLE001 - raised again by whoever waits
            outcome.append(problem)

    thread = threading.Thread(target=work, name="resolve", daemon=True)
    thread.start()
    thread.join(max(0.0, until - monotonic()))
    if not outcome:
        raise TimeoutError("the name of the host was not resolved in time")
    result = outcome[0]
    if isinstance(result, BaseException):
        raise result
    return result


def _is_address(host: str) -> bool:
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except (OSError, ValueError):
            continue
        return True
    return False
