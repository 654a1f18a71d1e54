"""The forms a secret can take in a text, and the runs of them that stand in one.

A secret is known by its pieces: a run of at least ``MIN_PIECE`` bytes of it counts, wherever in
the secret it comes from, so that a key cut in two is found as well as a whole one.
"""

from __future__ import annotations

import re
from base64 import b64encode
from dataclasses import dataclass, field
from enum import Enum
from html.entities import html5
from itertools import compress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


MAX_JOINT_SPACES: Final = 80

_NAMED: Final = {
    name.rstrip(";").encode(): char.encode()
    for name, char in html5.items()
    if len(char) == 1 and char.isascii()
}
_LETTERS: Final = {
    bytes([letter]): bytes([byte])
    for letter, byte in zip(b"abefnrtv", b"\a\b\x1b\f\n\r\t\v", strict=True)
}
_HEX: Final = rb"[0-9a-fA-F]"
_TOKENS: Final = (
    rb"\\u(?P<pair>[dD][89abAB]%h{2}\\u[dD][c-fC-F]%h{2})",
    rb"[\\%]u(?P<code4>%h{4})",
    rb"\\u\{(?P<braced>%h{1,6})\}",
    rb"\\U(?P<code8>%h{8})",
    rb"\\x\{?(?P<byte>%h{2})\}?",
    rb"\\(?P<octal>[0-3]?[0-7]{1,2})",
    rb"\\(?P<letter>[abefnrtv])",
    rb"\\(?P<itself>[^A-Za-z0-9\r\n])",
    rb"%(?P<percent>%h{2})",
    rb"&#(?P<decimal>[0-9]{1,8});?",
    rb"&#[xX](?P<hexadecimal>%h{1,7});?",
    rb"&(?P<name>[A-Za-z]{2,8});",
)
# What stands between two halves of one string, and the bytes that a secret must not use itself
# for the joint to be taken off.
_JOINTS: Final = (
    (rb"\\\r?\n", b"\r\n"),
    (rb"=\r?\n", b"=\r\n"),
    (rb"\x1b\[[0-9;]{0,16}[A-Za-z]", b"\x1b"),
    (rb"\xe2\x80[\x8b-\x8d]|\xe2\x81\xa0|\xef\xbb\xbf|\xc2\xad", b"\xe2\xef\xc2"),
    (
        rb"[\"'`]\s{0,%d}(?:[+.,&]\s{0,%d})?[\"'`]" % (MAX_JOINT_SPACES, MAX_JOINT_SPACES),
        b"\"'`+.,& ",
    ),
)
_UNFINISHED: Final = re.compile(
    rb"(?:\\+(?:[uUx]\{?[0-9a-fA-F]{0,8}\}?|[0-7]{1,2}|\r)?(?:\\|\\u[0-9a-fA-F]{0,3})?"
    rb"|%u?[0-9a-fA-F]{0,3}|&(?:#[xX]?[0-9a-fA-F]{0,8}|[A-Za-z]{0,8})|=\r?|\x1b(?:\[[0-9;]{0,16})?"
    rb"|[\"'`]\s{0,80}(?:[+.,&]\s{0,80})?|\xe2[\x80\x81]?|\xef\xbb?|\xc2)\Z"
)


@dataclass(frozen=True, slots=True)
class View:
    """Bytes, and for each of them where in the text it begins and ends."""

    data: bytes
    starts: Sequence[int]
    ends: Sequence[int]

    @classmethod
    def of(cls, text: bytes, low: int, high: int) -> View:
        """Return a part of the text as it stands."""
        return cls(text[low:high], range(low, high), range(low + 1, high + 1))

    def drop_unfinished(self) -> View:
        """Return the view without an escape or joint at its end that may still go on."""
        unfinished = _UNFINISHED.search(self.data, max(0, len(self.data) - 2 * MAX_JOINT_SPACES))
        if unfinished is None:
            return self
        end = unfinished.start()
        return View(self.data[:end], self.starts[:end], self.ends[:end])


class Unescaper:
    """Takes escapes off; joints made of bytes that a secret uses itself are left alone."""

    __slots__ = ("_pattern",)

    def __init__(self, alphabet: frozenset[int]) -> None:
        tokens = [token.replace(b"%h", _HEX) for token in _TOKENS]
        joints = [joint for joint, uses in _JOINTS if alphabet.isdisjoint(uses)]
        self._pattern = re.compile(b"|".join(joints + tokens))

    def decode(self, view: View) -> View | None:
        """Take one layer of escapes off; None when there is none."""
        data, out, starts, ends = view.data, bytearray(), list[int](), list[int]()
        at = 0
        for token in self._pattern.finditer(data):
            begin, end = token.span()
            decoded = _decode_token(token)
            if decoded is None:
                continue
            out += data[at:begin]
            starts.extend(view.starts[at:begin])
            ends.extend(view.ends[at:begin])
            out += decoded
            starts.extend([view.starts[begin]] * len(decoded))
            ends.extend([view.ends[end - 1]] * len(decoded))
            at = end
        if at == 0:
            return None
        out += data[at:]
        starts.extend(view.starts[at:])
        ends.extend(view.ends[at:])
        return View(bytes(out), starts, ends)


def escape_patterns(alphabet: frozenset[int]) -> tuple[re.Pattern[bytes], ...]:
    """Return patterns, each quick to search, that find the escapes of a byte of the alphabet."""
    ascii_only = all(byte < 0x80 for byte in alphabet)
    high = rb"[2-7]" if ascii_only and all(byte >= 0x20 for byte in alphabet) else rb"[0-9a-fA-F]"
    code = rb"u(?:00%s|\{0*%s)|U000000%s" % (high, high, high) if ascii_only else rb"[uU]"
    marks = bytes(byte for byte in alphabet if not chr(byte).isalnum() or byte >= 0x80)
    letters = [letter for letter, byte in _LETTERS.items() if byte[0] in alphabet]
    single = [re.escape(bytes([mark])) for mark in marks] + letters
    names = [name for name, byte in _NAMED.items() if byte[0] in alphabet]
    backslash = [code, rb"x\{?" + high, rb"[0-3]?[0-7]{2}", *single]
    return (
        re.compile(rb"\\(?:" + b"|".join(backslash) + b")"),
        re.compile(rb"%%(?:%s|u)" % high),
        re.compile(rb"&(?:amp;)*(?:#" + b"".join(b"|" + name for name in names) + b")"),
    )


def _decode_token(token: re.Match[bytes]) -> bytes | None:
    """Return what a token stands for; None when it stands for nothing but itself."""
    kind = token.lastgroup
    if kind is None:
        return b""
    body = token[kind]
    match kind:
        case "itself":
            return body
        case "letter":
            return _LETTERS[body]
        case "name":
            return _NAMED.get(body)
        case "byte" | "percent":
            return bytes([int(body, 16)])
        case "octal":
            return bytes([int(body, 8)])
        case "decimal":
            return _utf8(int(body))
        case "pair":
            lead, trail = int(body[:4], 16), int(body[6:], 16)
            return _utf8(0x10000 + ((lead - 0xD800) << 10) + (trail - 0xDC00))
        case _:
            return _utf8(int(body, 16))


def _utf8(code: int) -> bytes | None:
    return chr(code).encode("utf-8", "surrogatepass") if code <= 0x10FFFF else None


MIN_PIECE: Final = 8
"""A run of this many bytes of a secret is a leak; a shorter secret is one only as a whole."""

MIN_JOINED: Final = 16
"""The same, when the run is broken by spaces, line ends or quotes."""

MIN_DISTINCT: Final = 4
"""A run of fewer different bytes (``00000000``) tells nothing, unless it is the whole secret."""

MIN_DISTINCT_DIGITS: Final = 2
"""The same for digits: four different bytes (``22 23 32 33``) may use no more than two of them."""

MIN_ENCODED: Final = 4
"""A secret of fewer bytes is not looked for in base64 and hexadecimal: everything would match."""

MIN_BEYOND: Final = 4
"""A run that begins with what many secrets begin with goes on at least this far behind it."""

MIN_BODY: Final = 16
_PREFIX: Final = re.compile(rb"(?:[a-z]{2,8}[0-9]{0,2}[-_]){1,3}")

_BASE64: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_"
TO_URL: Final = bytes.maketrans(b"+/", b"-_")
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
    """How many bytes at its beginning are public."""
    distinct: int = MIN_DISTINCT
    """How many different bytes of it make a leak."""


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
        forms.append(_digit_form(_base64(secret, shift), Fold.BASE64, least, number))
    for width in (2, 3, 4):
        text = _hexadecimal(secret, width)
        forms.append(_digit_form(text, Fold.HEX, width * MIN_PIECE, number))
    return forms


def _digit_form(text: bytes, fold: Fold, least: int, number: int) -> Form:
    return Form(text, fold, least, number, plain=False, distinct=MIN_DISTINCT_DIGITS)


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


class TextRuns:
    """Finds the runs of forms of one fold, looking at a few places of the text only."""

    __slots__ = ("_least", "_longest", "_places", "_size", "_stride", "_whole", "forms")

    def __init__(self, forms: Iterable[Form]) -> None:
        self.forms = tuple(forms)
        self._whole = [form for form in self.forms if form.whole]
        pieces = [form for form in self.forms if not form.whole]
        self._least = min((form.least for form in pieces), default=MIN_PIECE)
        self._longest = max((form.least for form in pieces), default=0)
        self._size = self._least // 2
        # Any run holds a gram of this size that begins at a multiple of the stride.
        self._stride = self._least - self._size + 1
        self._places: dict[bytes, list[tuple[Form, int]]] = {}
        for form in pieces:
            for offset in range(len(form.text) - self._size + 1):
                gram = form.text[offset : offset + self._size]
                self._places.setdefault(gram, []).append((form, offset))

    def find(self, data: bytes) -> Iterator[tuple[int, int, Form]]:
        """Yield begin, end and form of every run that is a leak; they may overlap."""
        for form in self._whole:
            at = data.find(form.text)
            while at >= 0:
                yield at, at + len(form.text), form
                at = data.find(form.text, at + len(form.text))
        size, known, last = self._size, self._places, len(data) - self._size
        places = range(0, last + 1, self._stride)
        at = next((at for at in places if data[at : at + size] in known), last + 1)
        while at <= last:
            after = 0
            for begin, end, form in self._runs_at(data, at):
                if end - begin == len(form.text) or len(set(data[begin:end])) >= form.distinct:
                    yield begin, end, form
                    after = max(after, end)
            # Within a run nothing new begins; the next one ends behind it.
            at = max(at + self._stride, after - self._least + 1)

    def _runs_at(self, data: bytes, at: int) -> Iterator[tuple[int, int, Form]]:
        """Yield the runs around a place that are long enough, whole or in part."""
        places = self._places.get(data[at : at + self._size])
        if places is None:
            return
        low, high = max(0, at - self._longest), min(len(data), at + self._size + self._longest)
        if data.count(data[at], low, high) == high - low:
            # Amid one byte repeated; if that belongs to a leak, its border shows it.
            return
        for form, offset in places:
            begin, end = _extend_run(data, at, form.text, offset)
            beyond = offset + end - at - form.public if form.public else MIN_BEYOND
            if end - begin >= form.least and beyond >= MIN_BEYOND:
                yield begin, end, form

    def open_end(self, data: bytes) -> int:
        """Return where the longest run begins that the end of the data cuts off."""
        longest = 0
        for form in self.forms:
            length = longest + 1
            while length <= len(data) and data[-length:] in form.text:
                longest = length
                length += 1
        return len(data) - longest


def _extend_run(data: bytes, at: int, text: bytes, offset: int) -> tuple[int, int]:
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
