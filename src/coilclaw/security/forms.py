"""The forms a secret can take in a text, and the runs of them that stand in one.

A secret is known by its pieces: a run of at least ``MIN_PIECE`` bytes of it counts, wherever in
the secret it comes from, so that a key cut in two is found as well as a whole one.
"""

from __future__ import annotations

import re
from base64 import b64encode
from dataclasses import dataclass, field
from enum import Enum
from itertools import compress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

MIN_PIECE: Final = 8
"""A run of this many bytes of a secret is a leak; a shorter secret is one only as a whole."""

MIN_JOINED: Final = 16
"""The same, when the run is broken by spaces, line ends or quotes."""

MIN_DISTINCT: Final = 4
"""A run of fewer different bytes (``00000000``) tells nothing, unless it is the whole secret."""

MIN_ENCODED: Final = 4
"""A secret of fewer bytes is not looked for in base64 and hexadecimal: everything would match."""

MIN_BEYOND: Final = 4
"""A run that begins with what many secrets begin with goes on at least this far behind it."""

MIN_BODY: Final = 16
_PREFIX: Final = re.compile(rb"(?:[a-z]{2,8}[0-9]{0,2}[-_]){1,3}")

_BASE64: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_"
_TO_STANDARD: Final = bytes.maketrans(b"-_", b"+/")
_HEXADECIMAL: Final = b"0123456789abcdefABCDEF"
_LOWER: Final = bytes(range(256)).lower()
_IDENTITY: Final = bytes(range(256))
_BREAKS_HEX: Final = b"ghijklmnopqrstvwyzGHIJKLMNOPQRSTVWYZ"
_BREAK: Final = ord("|")
_GAPS: Final = b" \t\r\n\v\f\0\"'`+,\\"


class Fold(Enum):
    """How a text is folded before a form is looked for in it."""

    EXACT = "as it stands"
    JOINED = "without spaces, quotes and signs of concatenation"
    BASE64 = "the digits of base64, of either alphabet, without what wraps them"
    HEX = "the hexadecimal digits, without what separates them"


@dataclass(frozen=True, slots=True)
class Form:
    """One form of one secret; ``least`` bytes of it make a leak."""

    text: bytes = field(repr=False)
    fold: Fold
    least: int
    secret: int
    """Which secret it is a form of."""
    plain: bool
    """Whether the secret can be read in it without turning or decoding it."""
    whole: bool = False
    """Whether nothing less than all of it counts, because a part would say nothing."""
    public: int = 0
    """How many bytes at its beginning are no secret."""


def forms_of(secret: bytes, number: int) -> list[Form]:
    """Return every form of a secret that is looked for."""
    if len(secret) < MIN_PIECE or len(set(secret)) < MIN_DISTINCT:
        return _whole_forms(secret, number)
    turned = secret[::-1]
    joined = min(len(secret), MIN_JOINED)
    public = public_prefix(secret)
    forms = [
        Form(secret, Fold.EXACT, MIN_PIECE, number, plain=True, public=public),
        Form(secret, Fold.JOINED, joined, number, plain=True, public=public),
        Form(turned, Fold.EXACT, MIN_PIECE, number, plain=False),
        Form(turned, Fold.JOINED, joined, number, plain=False),
    ]
    for shift in range(3):
        # A run of n bytes fixes at least (8n - 4) / 6 digits, wherever it begins.
        least = (8 * MIN_PIECE - 4) // 6
        forms.append(Form(_base64(secret, shift), Fold.BASE64, least, number, plain=False))
    for width in (2, 3, 4):
        text = _hexadecimal(secret, width)
        forms.append(Form(text, Fold.HEX, width * MIN_PIECE, number, plain=False))
    return forms


def public_prefix(secret: bytes) -> int:
    """Return the length of a prefix such as ``sk-ant-api03-``, which source code may mention."""
    prefix = _PREFIX.match(secret)
    return prefix.end() if prefix and len(secret) - prefix.end() >= MIN_BODY else 0


def _whole_forms(secret: bytes, number: int) -> list[Form]:
    """Return the forms of a secret that is too short, or too much the same, to have pieces."""
    forms = [Form(secret, Fold.EXACT, len(secret), number, plain=True, whole=True)]
    if len(secret) >= MIN_ENCODED:
        texts = [(_base64(secret, shift), Fold.BASE64) for shift in range(3)]
        texts.append((_hexadecimal(secret, 2), Fold.HEX))
        forms += [Form(text, fold, len(text), number, False, True) for text, fold in texts]
    return forms


def _hexadecimal(secret: bytes, width: int) -> bytes:
    return b"".join(b"%0*x" % (width, byte) for byte in secret)


def _base64(secret: bytes, shift: int) -> bytes:
    """Return the base64 digits that a secret fixes when ``shift`` bytes stand before it."""
    encoded = b64encode(bytes(shift) + secret)
    return encoded[-(-shift * 8 // 6) : (shift + len(secret)) * 8 // 6]


class Folding:
    """Folds a view; bytes that a secret uses itself are never gaps."""

    __slots__ = ("_delete", "_keep", "_map")

    def __init__(self, fold: Fold, alphabet: frozenset[int]) -> None:
        everything = frozenset(range(256))
        gaps = frozenset(_GAPS)
        deleted, digits, mapping = {
            Fold.EXACT: (frozenset[int](), everything, _IDENTITY),
            Fold.JOINED: (gaps - alphabet, everything, _IDENTITY),
            Fold.BASE64: (gaps - frozenset(_BASE64), frozenset(_BASE64), _TO_STANDARD),
            Fold.HEX: (everything - frozenset(_BREAKS_HEX), frozenset(_HEXADECIMAL), _LOWER),
        }[fold]
        deleted -= digits if fold in {Fold.BASE64, Fold.HEX} else frozenset()
        self._delete = bytes(deleted)
        self._keep = bytes(byte not in deleted for byte in range(256))
        # What is neither a digit nor a gap ends a run.
        self._map = bytes(
            mapped if byte in digits else _BREAK for byte, mapped in enumerate(mapping)
        )

    def apply(self, data: bytes) -> bytes:
        """Return the folded bytes."""
        return data.translate(self._map, self._delete) if self._delete else data

    def places(self, data: bytes) -> Sequence[int]:
        """Return where in the data each byte of the folded one stands."""
        if not self._delete:
            return range(len(data))
        return list(compress(range(len(data)), data.translate(self._keep)))


class Grams:
    """Every run of ``size`` bytes of some forms, with the places it has in them."""

    __slots__ = ("_least", "_places", "size")

    def __init__(self, forms: Iterable[Form], size: int) -> None:
        self.size = size
        self._places: dict[bytes, list[tuple[Form, int]]] = {}
        self._least = 0
        for form in forms:
            self._least = max(self._least, form.least)
            for offset in range(len(form.text) - size + 1):
                gram = form.text[offset : offset + size]
                self._places.setdefault(gram, []).append((form, offset))

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._places)

    def __contains__(self, gram: bytes) -> bool:
        return gram in self._places

    def runs(self, data: bytes, at: int) -> Iterator[tuple[int, int, Form]]:
        """Yield the runs around a place that are long enough, whole or in part."""
        places = self._places.get(data[at : at + self.size])
        if places is None:
            return
        low, high = max(0, at - self._least), min(len(data), at + self.size + self._least)
        if data.count(data[at], low, high) == high - low:
            # Amid one byte repeated; if that belongs to a leak, its border shows it.
            return
        for form, offset in places:
            begin, end = _extended(data, at, form.text, offset)
            beyond = offset + end - at - form.public if form.public else MIN_BEYOND
            if end - begin >= form.least and beyond >= MIN_BEYOND:
                yield begin, end, form


class Runs:
    """Finds the runs of forms of one fold, looking at a few places of the text only."""

    __slots__ = ("_grams", "_least", "_stride", "_whole", "forms")

    def __init__(self, forms: Iterable[Form]) -> None:
        self.forms = tuple(forms)
        self._whole = [form for form in self.forms if form.whole]
        pieces = [form for form in self.forms if not form.whole]
        self._least = min((form.least for form in pieces), default=MIN_PIECE)
        self._grams = Grams(pieces, self._least // 2)
        # Any run holds a gram that begins at a multiple of the stride.
        self._stride = self._least - self._grams.size + 1

    def find(self, data: bytes) -> Iterator[tuple[int, int, Form]]:
        """Yield begin, end and form of every run that is a leak; they may overlap."""
        for form in self._whole:
            at = data.find(form.text)
            while at >= 0:
                yield at, at + len(form.text), form
                at = data.find(form.text, at + len(form.text))
        size, grams = self._grams.size, self._grams
        places = range(0, len(data) - size + 1, self._stride)
        first = next((at for at in places if data[at : at + size] in grams), None)
        if first is not None:
            yield from self._pieces(data, first)

    def _pieces(self, data: bytes, at: int) -> Iterator[tuple[int, int, Form]]:
        while at <= len(data) - self._grams.size:
            after = 0
            for begin, end, form in self._grams.runs(data, at):
                if end - begin == len(form.text) or len(set(data[begin:end])) >= MIN_DISTINCT:
                    yield begin, end, form
                    after = max(after, end)
            # Within a run nothing new begins; the next one ends behind it.
            at = max(at + self._stride, after - self._least + 1)

    def open_end(self, data: bytes) -> int:
        """Return where the longest run begins that the end of the data cuts off."""
        longest = 0
        for form in self.forms:
            length = longest + 1
            while length <= len(data) and data[-length:] in form.text:
                longest = length
                length += 1
        return len(data) - longest


def _extended(data: bytes, at: int, text: bytes, offset: int) -> tuple[int, int]:
    """Return the whole run of equal bytes around ``data[at]`` and ``text[offset]``."""
    begin, back = at, offset
    while begin > 0 and back > 0 and data[begin - 1] == text[back - 1]:
        begin -= 1
        back -= 1
    end, on = at, offset
    while end < len(data) and on < len(text) and data[end] == text[on]:
        end += 1
        on += 1
    return begin, end
