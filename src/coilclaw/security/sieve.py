"""Which parts of a text may hold a secret: quick, never missing one, sometimes wrong.

Bytes that no form of a secret uses are deleted first, so that a form broken by line ends or
separators is in one piece again. Any run of eight bytes then holds four that lie on a multiple of
four: it is enough to look each such word up in the set of all words of all forms, which costs the
same for one secret as for ten. Of hexadecimal forms only the decimal digits are kept, of which
every ASCII character has one at least, and of which a text has few.
"""

from __future__ import annotations

import sys
from array import array
from dataclasses import replace
from itertools import compress
from typing import TYPE_CHECKING, Final

from coilclaw.security.escapes import sightings
from coilclaw.security.forms import MIN_PIECE, Fold, Form, Grams

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

MARGIN: Final = 96
"""Bytes around a sighting that are looked at: seven escapes of the longest notation and more."""

_BLOCK_WORDS: Final = 512
_CHUNK: Final = 1 << 16
_ALNUM: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_DECIMAL: Final = frozenset(b"0123456789")
_HEXADECIMAL: Final = _DECIMAL | frozenset(b"abcdefABCDEF")
_LOWER: Final = bytes(range(256)).lower()
_TO_URL: Final = bytes.maketrans(b"+/", b"-_")


class Squeeze:
    """Deletes the bytes outside an alphabet, and tells where those that are left have stood."""

    __slots__ = ("_delete", "_keep", "_map")

    def __init__(self, alphabet: Iterable[int], mapping: bytes | None = None) -> None:
        kept = frozenset(alphabet)
        self._delete = bytes(byte for byte in range(256) if byte not in kept)
        self._keep = bytes(byte in kept for byte in range(256))
        self._map = mapping

    def apply(self, data: bytes) -> bytes:
        """Return what is left of the data."""
        return data.translate(self._map, self._delete)

    def origins(self, data: bytes, indexes: Sequence[int]) -> list[int]:
        """Return where in the data the bytes of the given indexes, in rising order, have stood."""
        found: list[int] = []
        before = 0
        for low in range(0, len(data), _CHUNK):
            if len(found) == len(indexes):
                break
            chunk = data[low : low + _CHUNK]
            count = len(chunk.translate(None, self._delete))
            places: list[int] | None = None
            while len(found) < len(indexes) and indexes[len(found)] < before + count:
                if places is None:
                    places = list(compress(range(len(chunk)), chunk.translate(self._keep)))
                found.append(low + places[indexes[len(found)] - before])
            before += count
        return found


class Words:
    """Finds runs of squeezed forms by their words of four or eight bytes."""

    __slots__ = ("_code", "_grams", "_shifts", "_size", "_words")

    def __init__(self, forms: Iterable[Form], code: str, shifts: int) -> None:
        self._code = code
        self._size = array(code).itemsize
        # A run that is sure to hold an aligned word needs one look, another one per alignment.
        self._shifts = shifts
        self._grams = Grams(forms, self._size)
        self._words = frozenset(int.from_bytes(gram, sys.byteorder) for gram in self._grams)

    def ends(self, data: bytes) -> list[int]:
        """Return the first and the last index of every run, in rising order."""
        found: set[int] = set()
        for shift in range(self._shifts if self._words else 0):
            for at in self._hits(data, shift):
                for begin, end, _ in self._grams.runs(data, at):
                    found |= {begin, end - 1}
        return sorted(found)

    def _hits(self, data: bytes, shift: int) -> Iterator[int]:
        size = self._size
        values = array(self._code)
        values.frombytes(data[shift : shift + (len(data) - shift) // size * size])
        for first in range(0, len(values), _BLOCK_WORDS):
            block = values[first : first + _BLOCK_WORDS]
            if not self._words.isdisjoint(block):
                for index, word in enumerate(block, first):
                    if word in self._words:
                        yield shift + index * size


class Sieve:
    """Proposes the parts of a text in which a form may stand."""

    __slots__ = ("_digits", "_escapes", "_numbers", "_shorts", "_text", "_words")

    def __init__(self, forms: Sequence[Form], alphabet: frozenset[int]) -> None:
        long = [form for form in forms if not form.whole]
        pieces = [form for form in long if form.fold is Fold.EXACT]
        for form in long:
            if form.fold is Fold.BASE64:
                pieces += (form, replace(form, text=form.text.translate(_TO_URL)))
        self._text = Squeeze(frozenset(_ALNUM + b"+/-_") | alphabet)
        self._words = Words(pieces, "I", 1)
        ascii_only = max(alphabet, default=0) < 0x80
        self._digits = Squeeze(_DECIMAL if ascii_only else _HEXADECIMAL, _LOWER)
        numbers = (
            replace(
                form,
                text=self._digits.apply(form.text),
                least=form.least - MIN_PIECE if ascii_only else form.least,
            )
            for form in long
            if form.fold is Fold.HEX
        )
        self._numbers = Words(numbers, "Q", 8 if ascii_only else 1)
        self._shorts = _spellings(form for form in forms if form.whole)
        self._escapes = sightings(alphabet)

    def parts(self, data: bytes) -> list[tuple[int, int]]:
        """Return the parts to look at, in order and apart from each other."""
        sightings = [*self._pieces(data), *self._short(data)]
        for pattern in self._escapes:
            sightings += [match.span() for match in pattern.finditer(data)]
        sightings.sort()
        parts: list[tuple[int, int]] = []
        for begin, end in sightings:
            low, high = max(0, begin - MARGIN), min(len(data), end + MARGIN)
            if parts and low <= parts[-1][1]:
                parts[-1] = (parts[-1][0], max(high, parts[-1][1]))
            else:
                parts.append((low, high))
        return parts

    def _pieces(self, data: bytes) -> Iterator[tuple[int, int]]:
        """Yield where runs of plain, turned, base64 and hexadecimal forms begin and end."""
        squeezed = self._text.apply(data)
        places = self._text.origins(data, self._words.ends(squeezed))
        places += self._digits.origins(data, self._numbers.ends(self._digits.apply(squeezed)))
        yield from ((place, place + 1) for place in places)

    def _short(self, data: bytes) -> Iterator[tuple[int, int]]:
        for text in self._shorts:
            at = data.find(text)
            while at >= 0:
                yield at, at + len(text)
                at = data.find(text, at + len(text))


def _spellings(forms: Iterable[Form]) -> tuple[bytes, ...]:
    """Return how short forms are written; they are searched as they stand."""
    texts: set[bytes] = set()
    for form in forms:
        texts.add(form.text)
        if form.fold is Fold.BASE64:
            texts.add(form.text.translate(_TO_URL))
        elif form.fold is Fold.HEX:
            texts.add(form.text.upper())
    return tuple(sorted(texts))
