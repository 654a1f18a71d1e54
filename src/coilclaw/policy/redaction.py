"""Secrets taken out of whatever is logged, shown or sent.

A secret is found plain, turned round, cut in two, broken over lines, with any of its characters
escaped (JSON, C, octal, percent, HTML), in base64 of either alphabet and any alignment, and in
hexadecimal with or without separators. What stands in its place shows its last two characters.
"""

from __future__ import annotations

import sys
from array import array
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from coilclaw.policy.secret_forms import (
    MIN_PIECE,
    TO_URL,
    Fold,
    Folding,
    Form,
    TextRuns,
    Unescaper,
    View,
    escape_patterns,
    forms_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from coilclaw.kernel import Json, Secret


MARGIN: Final = 96
"""Bytes around a sighting that are looked at: seven escapes of the longest notation and more."""

_WORD: Final = array("I").itemsize
_WINDOW: Final = 1 << 13
_OVERLAP: Final = 512
"""What two windows share: eight characters of a secret, with all that stands between them."""
_ALNUM: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_LOWER: Final = bytes(range(256)).lower()


class SecretScanner:
    """Proposes the parts of a text in which a form may stand."""

    __slots__ = ("_escapes", "_numbers", "_other", "_other_digits", "_pieces", "_shorts", "_words")

    def __init__(self, forms: Sequence[Form], alphabet: frozenset[int]) -> None:
        long = [form for form in forms if not form.whole]
        base64 = [form for form in long if form.fold is Fold.BASE64]
        url = [replace(form, text=form.text.translate(TO_URL)) for form in base64]
        plain = [form for form in long if form.fold is Fold.EXACT]
        self._pieces = TextRuns([*plain, *base64, *url])
        self._words = frozenset(
            int.from_bytes(form.text[at : at + _WORD], sys.byteorder)
            for form in self._pieces.forms
            for at in range(len(form.text) - _WORD + 1)
        )
        self._other = bytes({*range(256)} - {*_ALNUM, *b"+/-_", *alphabet})
        ascii_only = max(alphabet, default=0) < 0x80
        digits = b"0123456789" if ascii_only else b"0123456789abcdefABCDEF"
        self._other_digits = bytes({*range(256)} - {*digits})
        self._numbers = TextRuns(
            replace(
                form,
                text=form.text.translate(_LOWER, self._other_digits),
                least=form.least - MIN_PIECE if ascii_only else form.least,
                distinct=1,
            )
            for form in long
            if form.fold is Fold.HEX
        )
        self._shorts = _spell(form for form in forms if form.whole)
        self._escapes = escape_patterns(alphabet)

    def find_parts(self, data: bytes) -> list[tuple[int, int]]:
        """Return the parts to look at, in order and apart from each other."""
        sightings = [*self._find_pieces(data), *self._find_shorts(data)]
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

    def _find_pieces(self, data: bytes) -> Iterator[tuple[int, int]]:
        """Yield the windows with runs of plain, turned, base64 and hexadecimal forms."""
        for begin in range(0, len(data), _WINDOW):
            end = begin + _WINDOW + _OVERLAP
            squeezed = data[begin:end].translate(None, self._other)
            words = array("I", squeezed[: len(squeezed) // _WORD * _WORD])
            digits = squeezed.translate(_LOWER, self._other_digits)
            known = not self._words.isdisjoint(words) and any(self._pieces.find(squeezed))
            if known or any(self._numbers.find(digits)):
                yield begin, min(end, len(data))

    def _find_shorts(self, data: bytes) -> Iterator[tuple[int, int]]:
        for text in self._shorts:
            at = data.find(text)
            while at >= 0:
                yield at, at + len(text)
                at = data.find(text, at + len(text))


def _spell(forms: Iterable[Form]) -> tuple[bytes, ...]:
    """Return how short forms are written; they are searched as they stand."""
    texts: set[bytes] = set()
    for form in forms:
        texts |= {form.text}
        if form.fold is Fold.BASE64:
            texts.add(form.text.translate(TO_URL))
        elif form.fold is Fold.HEX:
            texts.add(form.text.upper())
    return tuple(sorted(texts))


MAX_LAYERS: Final = 3
"""Layers of escapes that are taken off: JSON within JSON within JSON."""

MAX_DEPTH: Final = 200
SHOWN: Final = 2
"""Characters of a secret that are shown, at its end."""

_TAIL: Final = 512
_MARKS: Final = ("[redacted]", "[…]", "***", "")
_SHOWABLE: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


class SecretRedactor:
    """Takes some secrets out of texts; empty and blank ones are ignored."""

    __slots__ = ("_marks", "_runs", "_scanner", "_unescaper")

    def __init__(self, secrets: Iterable[Secret]) -> None:
        known = dict.fromkeys(secret.reveal() for secret in secrets)
        texts = [text.encode("utf-8", "surrogatepass") for text in known if text.strip()]
        forms = [form for number, text in enumerate(texts) for form in forms_of(text, number)]
        alphabet = frozenset(byte for text in texts for byte in text)
        self._unescaper = Unescaper(alphabet)
        self._scanner = SecretScanner(forms, alphabet)
        self._runs = [
            (Folding(fold, alphabet), TextRuns(form for form in forms if form.fold is fold))
            for fold in Fold
        ]
        self._marks = [self._marks_of(text) for text in texts]

    def redact(self, text: str) -> str:
        """Return the text without secrets; the same object when there is none in it."""
        data = text.encode("utf-8", "surrogatepass")
        clean = self.redact_bytes(data)
        return text if clean is data else clean.decode("utf-8", "surrogatepass")

    def redact_bytes(self, data: bytes) -> bytes:
        """Return the bytes, of whatever encoding, without secrets."""
        if not self._marks or not data:
            return data
        parts = self._scanner.find_parts(data)
        while found := self._leaks(data, parts):
            # A mark and what stands beside it may look like an odd secret again. A mark alone
            # never does, so that every pass takes something away.
            data, parts = self._replace_leaks(data, found)
        return data

    def redact_json(self, value: Json) -> Json:
        """Return a JSON value without secrets in its strings, keys and numbers."""
        return self._json(value, MAX_DEPTH)

    def stream(self) -> RedactingStream:
        """Return a redactor for bytes that come in pieces."""
        return RedactingStream(self)

    def _json(self, value: Json, depth: int) -> Json:
        if isinstance(value, str):
            return self.redact(value)
        if isinstance(value, bool) or value is None:
            return value
        if isinstance(value, int | float):
            text = str(value)
            clean = self.redact(text)
            return value if clean is text else clean
        if depth == 0:
            return "[nested too deeply]"
        if isinstance(value, list):
            return [self._json(item, depth - 1) for item in value]
        cleaned: dict[str, Json] = {}
        for key, item in value.items():
            name = base = self.redact(key)
            count = 1
            while name in cleaned:
                count += 1
                name = f"{base} ({count})"
            cleaned[name] = self._json(item, depth - 1)
        return cleaned

    def _leaks(self, data: bytes, parts: list[tuple[int, int]]) -> list[tuple[int, int, Form]]:
        """Return begin, end and form of everything to be replaced, in order and disjoint."""
        found: list[tuple[int, int, Form]] = []
        done = 0
        for low, high in parts:
            if high > done:
                part, done = self._look(data, low, high)
                found += part
        # Where leaks overlap, the one that begins first, or else is longest, names the secret.
        found.sort(key=lambda leak: (leak[0], -leak[1]))
        merged: list[tuple[int, int, Form]] = []
        for begin, end, form in found:
            if merged and begin < merged[-1][1]:
                before, after, first = merged[-1]
                merged[-1] = (before, max(after, end), first)
            else:
                merged.append((begin, end, form))
        return merged

    def _look(self, data: bytes, low: int, high: int) -> tuple[list[tuple[int, int, Form]], int]:
        """Look for leaks in a part; when there is one, ever farther out while it gets longer."""
        first, last = low, high
        while True:
            found = [
                _whole_characters(data, *leak) for leak in self._find_leaks_within(data, low, high)
            ]
            # Others, farther out, have parts of their own.
            these = [leak for leak in found if leak[0] < last and leak[1] > first]
            begin = min((leak[0] for leak in these), default=first)
            end = max((leak[1] for leak in these), default=last)
            if (begin, end) == (first, last):
                return found, high
            first, last = begin, end
            low, high = max(0, low - _TAIL), min(len(data), high + _TAIL)

    def _find_leaks_within(
        self, data: bytes, low: int, high: int
    ) -> Iterator[tuple[int, int, Form]]:
        for view in self._layers(View.of(data, low, high)):
            for folding, runs in self._runs:
                found = list(runs.find(folding.apply(view.data)))
                if found:
                    places = folding.places(view.data)
                    for begin, end, form in found:
                        yield view.starts[places[begin]], view.ends[places[end - 1]], form

    def _layers(self, view: View) -> Iterator[View]:
        yield view
        for _ in range(MAX_LAYERS):
            inner = self._unescaper.decode(view)
            if inner is None:
                return
            view = inner
            yield view

    def _replace_leaks(
        self, data: bytes, leaks: list[tuple[int, int, Form]]
    ) -> tuple[bytes, list[tuple[int, int]]]:
        """Return the data with marks, and the parts around them."""
        out: list[bytes] = []
        parts: list[tuple[int, int]] = []
        at = size = 0
        for begin, end, form in leaks:
            plain, bare = self._marks[form.secret]
            mark = plain if form.plain else bare
            out += (data[at:begin], mark)
            size += begin - at + len(mark)
            parts.append((max(0, size - len(mark) - MARGIN), size + MARGIN))
            at = end
        out.append(data[at:])
        return b"".join(out), parts

    def _marks_of(self, secret: bytes) -> tuple[bytes, bytes]:
        """Return what stands in place of a plain and of an encoded secret; neither is a leak."""
        tail = secret[-SHOWN:].decode("ascii", "replace")
        shows = len(secret) >= MIN_PIECE and all(char in _SHOWABLE for char in tail)
        safe = [
            mark
            for mark in (text.encode() for text in _MARKS)
            if not any(self._find_leaks_within(mark, 0, len(mark)))
        ]
        shown = f"[redacted …{tail}]".encode()
        if shows and not any(self._find_leaks_within(shown, 0, len(shown))):
            return shown, safe[0]
        return safe[0], safe[0]

    def find_settled_end(self, data: bytes) -> int:
        """Return up to where nothing that follows the data can change what a leak is."""
        view: View | None = View.of(data, max(0, len(data) - _TAIL), len(data))
        settled = len(data)
        for _ in range(MAX_LAYERS + 1):
            if view is None:
                break
            whole, view = view, view.drop_unfinished()
            if len(view.data) < len(whole.data):
                settled = min(settled, whole.starts[len(view.data)])
            for folding, runs in self._runs:
                folded = folding.apply(view.data)
                begin = runs.open_end(folded)
                if begin < len(folded):
                    settled = min(settled, view.starts[folding.places(view.data)[begin]])
            view = self._unescaper.decode(view)
        for begin, end, _ in self._leaks(data, self._scanner.find_parts(data)):
            if begin < settled < end:
                settled = begin
        return settled


class RedactingStream:
    """Redacts bytes as they come, holding back only what may be the beginning of a secret."""

    __slots__ = ("_held", "_redactor")

    def __init__(self, redactor: SecretRedactor) -> None:
        self._redactor = redactor
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """Take more bytes, and return those that are settled."""
        self._held += data
        settled = self._redactor.find_settled_end(self._held)
        out, self._held = self._held[:settled], self._held[settled:]
        return self._redactor.redact_bytes(out)

    def finish(self) -> bytes:
        """Return what was held back; nothing follows."""
        out, self._held = self._held, b""
        return self._redactor.redact_bytes(out)


def _whole_characters(data: bytes, begin: int, end: int, form: Form) -> tuple[int, int, Form]:
    """Widen a leak that begins or ends within a character of UTF-8."""
    while begin > 0 and data[begin] & 0xC0 == 0x80:
        begin -= 1
    while end < len(data) and data[end] & 0xC0 == 0x80:
        end += 1
    return begin, end, form
