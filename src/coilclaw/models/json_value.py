"""JSON as models send it: read without guessing, and looked through before it is used."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from typing import TYPE_CHECKING, Final, NoReturn

from coilclaw.kernel import MAX_INTEGER

if TYPE_CHECKING:
    from coilclaw.kernel import Json
else:
    Json = object

MAX_DEPTH: Final = 64
SHOWN_CHARS: Final = 60

_UNUSABLE: Final = re.compile("[\x00\ud800-\udfff]")
_HALF: Final = re.compile("[\ud800-\udfff]")


class Doubled(dict[str, Json]):
    """An object that has one of its keys twice; the last value is the one that is kept."""

    __slots__ = ("key",)

    def __init__(self, pairs: list[tuple[str, Json]], key: str) -> None:
        super().__init__(pairs)
        self.key = key


def loads(text: str | bytes) -> Json:
    """Read a value; ``ValueError`` or ``RecursionError`` says that it is none."""
    value: Json = json.loads(text, object_pairs_hook=_object, parse_constant=_no_constant)
    return value


def flaw(value: Json) -> str | None:
    """Say what makes a value unfit to be acted on, if anything does."""
    waiting: list[tuple[Json, int]] = [(value, 1)]
    while waiting:
        item, depth = waiting.pop()
        if isinstance(item, dict | list) and depth > MAX_DEPTH:
            return f"are nested more than {MAX_DEPTH} levels deep"
        if isinstance(item, Doubled):
            return f"have the key {quote_shortened(item.key)} twice in one object"
        if isinstance(item, dict):
            for key, inner in item.items():
                if not _is_unicode(key):
                    return "hold a key that is not valid Unicode"
                waiting.append((inner, depth + 1))
        elif isinstance(item, list):
            waiting += [(inner, depth + 1) for inner in item]
        elif found := _scalar_flaw(item):
            return found
    return None


def clean(text: str) -> str:
    """Return text that can be stored and sent: no NUL, no half of a surrogate pair."""
    return text if text.isascii() and "\0" not in text else _UNUSABLE.sub("\ufffd", text)


def unicode(text: str) -> str:
    """Return text that has an encoding, NUL included."""
    return text if text.isascii() else _HALF.sub("\ufffd", text)


def quote_shortened(text: str) -> str:
    """Quote some text of a model in a message."""
    cut = text[:SHOWN_CHARS]
    return ascii(cut) if len(text) <= SHOWN_CHARS else f"{cut!a}…"


def _scalar_flaw(value: Json) -> str | None:
    if isinstance(value, str):
        return None if _is_unicode(value) else "hold text that is not valid Unicode"
    if isinstance(value, float) and not math.isfinite(value):
        return "hold a number that is too large"
    if isinstance(value, int) and not -MAX_INTEGER <= value <= MAX_INTEGER:
        return "hold an integer beyond ±(2^53−1)"
    return None


def _is_unicode(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    counted = Counter(key for key, _ in pairs)
    return Doubled(pairs, next(key for key, count in counted.items() if count > 1))


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not valid JSON")
