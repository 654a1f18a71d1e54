"""``Door``: a socket in the file system that leads to a few named addresses, by CONNECT."""

from __future__ import annotations

import logging
import os
import re
import socket
import threading
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self

MAX_CONNECTIONS: Final = 64
MAX_HEAD_BYTES: Final = 8 * 2**10
CONNECT_S: Final = 30.0
_CHUNK: Final = 1 << 16
_MAX_TOLD: Final = 200
_CONNECT: Final = re.compile(
    rb"CONNECT ([^\s:\[\]]+|\[[0-9a-fA-F:.]+\]):(\d{1,5}) HTTP/1\.[01]\r\n"
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Target:
    """An address that the door leads to; a ``plain`` one is spoken to without TLS."""

    host: str
    port: int
    plain: bool = False


class Door:
    """Listens while the ``with`` block lasts; leaving it cuts every connection."""

    def __init__(self, directory: Path, name: str, targets: tuple[Target, ...]) -> None:
        self._directory = directory
        self._name = name
        self._allowed = {(target.host.lower(), target.port) for target in targets}
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._closed = False
        self._slots = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self._listener = socket.socket(socket.AF_UNIX)

    def __enter__(self) -> Self:
        with ExitStack() as on_failure:
            on_failure.callback(self._listener.close)
            here = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                with suppress(FileNotFoundError):
                    os.unlink(self._name, dir_fd=here)
                # A socket's name is short, and paths are not.
                self._listener.bind(f"/proc/self/fd/{here}/{self._name}")
            finally:
                os.close(here)
            self._listener.listen(MAX_CONNECTIONS)
            on_failure.pop_all()
        threading.Thread(target=self._accept, name="coilclaw-door", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._closed = True
            left = [self._listener, *self._open]
        for each in left:
            # Closing alone would not wake who waits on it.
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if not self._slots.acquire(blocking=False):
                client.close()
                continue
            threading.Thread(
                target=self._serve, args=(client,), name="coilclaw-door-client", daemon=True
            ).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            with client:
                if self._keep(client):
                    self._lead(client)
        except OSError as problem:
            _log.info("a connection to the model ended: %s", problem)
        finally:
            with self._lock:
                self._open.discard(client)
            self._slots.release()

    def _keep(self, end: socket.socket) -> bool:
        """Have a socket cut when the door closes; whether it is still open."""
        with self._lock:
            if not self._closed:
                self._open.add(end)
            return not self._closed

    def _lead(self, client: socket.socket) -> None:
        client.settimeout(CONNECT_S)
        target = _asked(_head(client))
        if target is None or target not in self._allowed:
            what = "something" if target is None else repr("{}:{}".format(*target))[:_MAX_TOLD]
            _log.warning(
                "the agent asked for %s, which is not its model's address, and did not get it",
                what,
                extra={"event": "agent_network_denied", "fields": {"target": what}},
            )
            client.sendall(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n")
            return
        try:
            server = socket.create_connection(target, timeout=CONNECT_S)
        except OSError as problem:
            _log.info("the model could not be reached: %s", problem)
            client.sendall(b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n")
            return
        with server:
            if self._keep(server):
                try:
                    _join(client, server)
                finally:
                    with self._lock:
                        self._open.discard(server)


def _head(client: socket.socket) -> bytes:
    """Read the head of the request and not a byte more: what follows is not ours."""
    head = b""
    while not head.endswith(b"\r\n\r\n") and len(head) < MAX_HEAD_BYTES:
        piece = client.recv(1)
        if not piece:
            break
        head += piece
    return head


def _asked(head: bytes) -> tuple[str, int] | None:
    found = _CONNECT.match(head)
    if found is None or not head.endswith(b"\r\n\r\n"):
        return None
    return found[1].decode("latin-1").strip("[]").lower(), int(found[2])


def _join(client: socket.socket, server: socket.socket) -> None:
    client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    client.settimeout(None)
    server.settimeout(None)
    back = threading.Thread(target=_pump, args=(server, client), daemon=True)
    back.start()
    _pump(client, server)
    back.join()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(_CHUNK):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)
