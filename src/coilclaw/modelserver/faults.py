"""Faults as changes to an answer's bytes, and as the way they are sent."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from coilclaw.modelserver.script import Malformed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from coilclaw.modelserver.exchange import Exchange, Payload
    from coilclaw.modelserver.script import Fault, Place, Slow

SLOW_PIECES: Final = 16
"""The pieces of a body that is not streamed, where a wait stands before each."""
FILLER: Final = b"x" * 2**16

_TICKS_PER_SECOND: Final = 10
# Stands in the text until it is rendered: a code point that Unicode keeps free of characters.
_MARK: Final = "\ufdd0"
_MARK_FORMS: Final = re.compile(re.escape(_MARK.encode()) + rb"|\\ufdd0")
_PAGE: Final = b"<!doctype html><html><body><h1>502 Bad Gateway</h1></body></html>\n"
_WRONG: Final = b'{"unexpected":{"shape":[1,2,3]}}'


def marked(text: str | None, malformed: Malformed | None) -> str | None:
    """Mark the place in the text where bytes go that no text can hold."""
    if malformed not in {Malformed.UTF8, Malformed.HUGE}:
        return text
    text = text or ""
    middle = len(text) // 2
    return text[:middle] + _MARK + text[middle:]


def spoiled(payload: Payload, fault: Fault) -> Payload:
    """Return the payload as a faulty service sends it: good HTTP around a bad body."""
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
            return replace(payload, pieces=tuple(_filled(pieces, (b"\xff\xfe",))))
        case Malformed.HUGE:
            # A length in the head would give it away before a byte of it is read.
            filler = (FILLER,) * (fault.size // len(FILLER)) + (FILLER[: fault.size % len(FILLER)],)
            return replace(payload, pieces=tuple(_filled(pieces, filler)), streamed=True)


def play(exchange: Exchange, payload: Payload, fault: Fault) -> None:
    """Send an answer in the way its fault says."""
    hang, cut = fault.hang, fault.cut
    silent = hang is not None and hang.place is None
    here = exchange.wait(fault.sleep_s) if fault.sleep_s else True
    if here and not silent:
        exchange.begin(payload)
        pieces: Sequence[bytes] = payload.pieces
        if hang is not None:
            pieces = first_bytes(pieces, place_in(pieces, hang.place))
        elif cut is not None:
            pieces = first_bytes(pieces, place_in(pieces, cut.place))
        here = _send(exchange, paced(pieces, fault.slow, streamed=payload.streamed))
    if here and hang is not None:
        exchange.wait(hang.seconds)
    if here and hang is None and cut is None:
        exchange.end()
    else:
        exchange.abandon(reset=here and cut is not None and cut.reset)


def place_in(pieces: Sequence[bytes], place: Place | None) -> int:
    """Return how many bytes of a body come before a place; no place is the middle."""
    if place is None:
        return sum(map(len, pieces)) // 2
    if place.after_events is not None:
        return sum(map(len, pieces[: place.after_events]))
    return place.after_bytes or 0


def first_bytes(pieces: Sequence[bytes], size: int) -> list[bytes]:
    """Return the pieces up to a number of bytes, the last one perhaps in part."""
    found = []
    for piece in pieces:
        if size <= 0:
            break
        found.append(piece[:size])
        size -= len(piece)
    return found


def paced(
    pieces: Sequence[bytes], slow: Slow | None, *, streamed: bool
) -> Iterator[tuple[float, bytes]]:
    """Yield the pieces, each with the wait before it."""
    if slow is None:
        yield from ((0.0, piece) for piece in pieces)
    elif slow.bytes_per_second is not None:
        size = max(1, slow.bytes_per_second // _TICKS_PER_SECOND)
        for part in _parts(pieces, size):
            yield len(part) / slow.bytes_per_second, part
    else:
        if not streamed:
            pieces = list(_parts(pieces, max(1, sum(map(len, pieces)) // SLOW_PIECES)))
        yield from ((slow.delay_s or 0.0, piece) for piece in pieces)


def _send(exchange: Exchange, pieces: Iterator[tuple[float, bytes]]) -> bool:
    """Send the pieces, and tell whether the client stayed for all of them."""
    for pause_s, piece in pieces:
        if pause_s and not exchange.wait(pause_s):
            return False
        exchange.send(piece)
    return True


def _parts(pieces: Sequence[bytes], size: int) -> Iterator[bytes]:
    for piece in pieces:
        for start in range(0, len(piece), size):
            yield piece[start : start + size]


def _filled(pieces: Sequence[bytes], filling: Sequence[bytes]) -> Iterator[bytes]:
    """Put the filling in place of every mark."""
    for piece in pieces:
        before, *rest = _MARK_FORMS.split(piece)
        yield before
        for after in rest:
            yield from filling
            yield after
