"""Send one answer over a connection, with the faults that the script asks for."""

from __future__ import annotations

import re
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass, field, replace
from http.client import responses as phrases
from time import monotonic
from typing import TYPE_CHECKING, Final

from coilclaw.cli.model_server.dialect import new_id
from coilclaw.cli.model_server.script import Fault, Malformed

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator, Sequence

    from coilclaw.cli.model_server.script import ScriptPlace, Slow
    from coilclaw.cli.model_server.wire import RequestHead, WireLimits

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
    fault: Fault = field(default_factory=Fault)
    path: str | None = None
    """The path of the answer in the script."""


class ServedExchange:
    """The answer to one request on a connection."""

    __slots__ = ("_chunked", "_limits", "_socket", "_stopping", "_with_body", "reusable")

    def __init__(
        self,
        connection: socket.socket,
        limits: WireLimits,
        stopping: threading.Event,
        head: RequestHead | None = None,
    ) -> None:
        self._socket, self._limits, self._stopping = connection, limits, stopping
        self._chunked = head is None or head.modern
        self._with_body = head is None or head.method != "HEAD"
        self.reusable = head is not None and head.keeps_alive
        """Whether the connection can take another request afterwards."""

    def begin(self, payload: Payload) -> None:
        """Send the status and the headers."""
        request_id = new_id("req_")
        headers = {"content-type": payload.media_type}
        # Every answer has an id, under both names that clients know.
        headers |= {"x-request-id": request_id, "request-id": request_id}
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
        lines = [f"HTTP/1.1 {payload.status} {phrases.get(payload.status, 'Scripted')}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self._write("\r\n".join([*lines, "", ""]).encode("latin-1", "replace"))

    def send(self, piece: bytes) -> None:
        """Send a part of the body."""
        if piece and self._with_body:
            self._write(b"%x\r\n%b\r\n" % (len(piece), piece) if self._chunked else piece)

    def end(self) -> None:
        """End the body."""
        if self._chunked and self._with_body:
            self._write(b"0\r\n\r\n")

    def abandon(self, *, reset: bool = False) -> None:
        """Leave the answer incomplete; the owner closes the connection."""
        self.reusable = False
        if reset:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def wait(self, seconds: float | None) -> bool:
        """Wait; return whether the client is still connected and the server is running."""
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
            # The client keeps sending, so peeking again would return at once.
            self._stopping.wait(min(left, _NOISE_S))
        return False

    def linger(self) -> None:
        """Let a client that still sends read the refusal before the connection is closed.

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


SLOW_PIECES: Final = 16
"""Pieces of a slow body that is not streamed, with a wait before each."""
FILLER: Final = b"x" * 2**16

_TICKS_PER_SECOND: Final = 10
# Marks a place in the text until it is rendered: a code point that is never a character.
_MARK: Final = "\ufdd0"
_MARK_FORMS: Final = re.compile(re.escape(_MARK.encode()) + rb"|\\ufdd0")
_PAGE: Final = b"<!doctype html><html><body><h1>502 Bad Gateway</h1></body></html>\n"
_WRONG: Final = b'{"unexpected":{"shape":[1,2,3]}}'


def mark_text(text: str | None, malformed: Malformed | None) -> str | None:
    """Mark the place in the text for bytes that are not valid text."""
    if malformed not in {Malformed.UTF8, Malformed.HUGE}:
        return text
    text = text or ""
    middle = len(text) // 2
    return text[:middle] + _MARK + text[middle:]


def spoil_payload(payload: Payload, fault: Fault) -> Payload:
    """Return the payload as a faulty service sends it: valid HTTP around a malformed body."""
    pieces = payload.pieces
    middle = len(pieces) // 2
    match fault.malformed:
        case None:
            return payload
        case Malformed.JSON:
            broken = pieces[middle].replace(b"{", b"{,", 1)
            return replace(payload, pieces=(*pieces[:middle], broken, *pieces[middle + 1 :]))
        case Malformed.TRUNCATED:
            half = pieces[middle][: len(pieces[middle]) // 2]
            return replace(payload, pieces=(*pieces[:middle], half))
        case Malformed.EMPTY:
            return replace(payload, pieces=())
        case Malformed.NOT_JSON:
            return replace(payload, pieces=(_PAGE,), media_type="text/html", streamed=False)
        case Malformed.WRONG_SHAPE:
            body = b"data: " + _WRONG + b"\n\n" if payload.streamed else _WRONG
            return replace(payload, pieces=(body,))
        case Malformed.UTF8:
            return replace(payload, pieces=tuple(_fill_marks(pieces, (b"\xff\xfe",))))
        case Malformed.HUGE:
            # A length in the head would reveal the size before the body is read.
            filler = (FILLER,) * (fault.size // len(FILLER)) + (FILLER[: fault.size % len(FILLER)],)
            return replace(payload, pieces=tuple(_fill_marks(pieces, filler)), streamed=True)


def play(exchange: ServedExchange, payload: Payload) -> None:
    """Send an answer with its fault."""
    fault, hang, cut = payload.fault, payload.fault.hang, payload.fault.cut
    silent = hang is not None and hang.place is None
    here = exchange.wait(fault.sleep_s) if fault.sleep_s else True
    if here and not silent:
        exchange.begin(payload)
        pieces: Sequence[bytes] = payload.pieces
        if ends := hang or cut:
            pieces = take_bytes(pieces, locate_place(pieces, ends.place))
        for pause_s, piece in pace_pieces(pieces, fault.slow, streamed=payload.streamed):
            here = not pause_s or exchange.wait(pause_s)
            if not here:
                break
            exchange.send(piece)
    if here and hang is not None:
        exchange.wait(hang.seconds)
    if here and hang is None and cut is None:
        exchange.end()
    else:
        exchange.abandon(reset=here and cut is not None and cut.reset)


def locate_place(pieces: Sequence[bytes], place: ScriptPlace | None) -> int:
    """Return how many bytes of a body precede a place; ``None`` is the middle."""
    if place is None:
        return sum(map(len, pieces)) // 2
    if place.after_events is not None:
        return sum(map(len, pieces[: place.after_events]))
    return place.after_bytes or 0


def take_bytes(pieces: Sequence[bytes], size: int) -> list[bytes]:
    """Return the pieces up to a number of bytes; the last one may be cut."""
    found = []
    for piece in pieces:
        if size <= 0:
            break
        found.append(piece[:size])
        size -= len(piece)
    return found


def pace_pieces(
    pieces: Sequence[bytes], slow: Slow | None, *, streamed: bool
) -> Iterator[tuple[float, bytes]]:
    """Yield the pieces, each with the wait before it."""
    if slow is None:
        yield from ((0.0, piece) for piece in pieces)
    elif slow.bytes_per_second is not None:
        size = max(1, slow.bytes_per_second // _TICKS_PER_SECOND)
        for part in _split_pieces(pieces, size):
            yield len(part) / slow.bytes_per_second, part
    else:
        if not streamed:
            pieces = list(_split_pieces(pieces, max(1, sum(map(len, pieces)) // SLOW_PIECES)))
        yield from ((slow.delay_s or 0.0, piece) for piece in pieces)


def _split_pieces(pieces: Sequence[bytes], size: int) -> Iterator[bytes]:
    for piece in pieces:
        for start in range(0, len(piece), size):
            yield piece[start : start + size]


def _fill_marks(pieces: Sequence[bytes], filling: Sequence[bytes]) -> Iterator[bytes]:
    """Yield the pieces with every mark replaced by the filling."""
    for piece in pieces:
        before, *rest = _MARK_FORMS.split(piece)
        yield before
        for after in rest:
            yield from filling
            yield after
