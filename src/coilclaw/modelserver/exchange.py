"""Sending one answer over a connection, and waiting while the client is still there."""

from __future__ import annotations

import socket
import struct
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from time import monotonic
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import threading

    from coilclaw.modelserver.wire import Limits

LINGER_S: Final = 2.0
LINGER_BYTES: Final = 16 * 2**20
LONGEST_WAIT_S: Final = 86_400.0
_NOISE_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Payload:
    """An answer as bytes; one that is ``streamed`` has a piece for every event."""

    status: int
    pieces: tuple[bytes, ...]
    media_type: str = "application/json"
    streamed: bool = False
    headers: tuple[tuple[str, str], ...] = ()


class Exchange:
    """The answer to one request on a connection."""

    __slots__ = ("_chunked", "_limits", "_socket", "_stopping", "_with_body", "reusable")

    def __init__(
        self,
        connection: socket.socket,
        limits: Limits,
        stopping: threading.Event,
        *,
        reusable: bool,
        modern: bool = True,
        with_body: bool = True,
    ) -> None:
        self._socket, self._limits, self._stopping = connection, limits, stopping
        self._chunked, self._with_body = modern, with_body
        self.reusable = reusable
        """Whether the connection can take another request afterwards."""

    def begin(self, payload: Payload) -> None:
        """Send the status and the headers."""
        headers = {"content-type": payload.media_type}
        if payload.streamed:
            headers["cache-control"] = "no-cache"
        headers |= {name.lower(): value for name, value in payload.headers}
        if not payload.streamed:
            self._chunked = False
            headers["content-length"] = str(sum(map(len, payload.pieces)))
        elif self._chunked:
            headers["transfer-encoding"] = "chunked"
        else:
            self.reusable = False
        headers["connection"] = "keep-alive" if self.reusable else "close"
        lines = [f"HTTP/1.1 {payload.status} {_phrase(payload.status)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self._write("\r\n".join([*lines, "", ""]).encode("latin-1", "replace"))

    def send(self, piece: bytes) -> None:
        """Send a part of the body."""
        if piece and self._with_body:
            self._write(b"%x\r\n%b\r\n" % (len(piece), piece) if self._chunked else piece)

    def end(self) -> None:
        """Say that the body is complete."""
        if self._chunked and self._with_body:
            self._write(b"0\r\n\r\n")

    def abandon(self, *, reset: bool = False) -> None:
        """Leave the answer as it is; the connection is closed by whoever owns it."""
        self.reusable = False
        if reset:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def wait(self, seconds: float | None) -> bool:
        """Wait, and tell whether the client is still there and the server goes on."""
        end = monotonic() + (LONGEST_WAIT_S if seconds is None else seconds)
        while not self._stopping.is_set():
            left = end - monotonic()
            if left <= 0:
                return True
            try:
                self._socket.settimeout(left)
                if not self._socket.recv(1, socket.MSG_PEEK):
                    return False
            except TimeoutError:
                return True
            except OSError:
                return False
            # The client talks on, and peeking again would return at once.
            self._stopping.wait(min(left, _NOISE_S))
        return False

    def linger(self) -> None:
        """Let the client read a refusal before the connection goes, though it may still send.

        Closing with unread bytes resets the connection, and the answer would be lost.
        """
        end, left = monotonic() + LINGER_S, LINGER_BYTES
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
            while left > 0 and (seconds := end - monotonic()) > 0:
                self._socket.settimeout(seconds)
                data = self._socket.recv(2**16)
                if not data:
                    break
                left -= len(data)

    def _write(self, data: bytes) -> None:
        self._socket.settimeout(self._limits.write_s)
        self._socket.sendall(data)


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Scripted"
