"""Values of a log record as plain, redacted and bounded JSON.

Everything becomes text before it is redacted, and is cut only afterwards: half a secret would not
be recognised.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from coilclaw.domain.messages import Json

MAX_TEXT: Final = 8192
"""Characters of one string in a log record."""
MAX_ITEMS: Final = 100
"""Entries of one list or object in a log record."""
MAX_DEPTH: Final = 6
MAX_INTEGER: Final = 2**53 - 1


@dataclass(frozen=True, slots=True)
class Plainer:
    """Turns anything into JSON without secrets; never fails."""

    redact: Callable[[str], str]

    def text(self, value: object) -> str:
        """Return a value as redacted text."""
        clean = self.redact(_text(value))
        if len(clean) > MAX_TEXT:
            return f"{clean[:MAX_TEXT]}… {len(clean) - MAX_TEXT} more characters"
        return clean

    def value(self, value: object, depth: int = MAX_DEPTH) -> Json:
        """Return a value as JSON, every string and key of it redacted."""
        if value is None or isinstance(value, bool):
            return value
        if type(value) is int or type(value) is float:
            return self._number(value)
        if isinstance(value, Mapping) and depth:
            return self._object(value, depth - 1)
        if isinstance(value, list | tuple | AbstractSet) and depth:
            return self._array(value, depth - 1)
        return self.text(value)

    def _number(self, value: int | float) -> Json:  # noqa: PYI041 - both are meant
        text = _text(value)
        clean = self.redact(text)
        exact = abs(value) <= MAX_INTEGER if isinstance(value, int) else math.isfinite(value)
        return value if exact and clean == text else clean

    def _object(self, value: Mapping[object, object], depth: int) -> Json:
        cleaned: dict[str, Json] = {}
        for number, (key, item) in enumerate(value.items()):
            if number == MAX_ITEMS:
                cleaned["…"] = f"{len(value) - MAX_ITEMS} more"
                break
            name = base = self.text(key)
            count = 1
            while name in cleaned:
                count += 1
                name = f"{base} ({count})"
            cleaned[name] = self.value(item, depth)
        return cleaned

    def _array(self, value: Iterable[object], depth: int) -> Json:
        items = list(value)
        cleaned = [self.value(item, depth) for item in items[:MAX_ITEMS]]
        return [*cleaned, f"… {len(items) - MAX_ITEMS} more"] if items[MAX_ITEMS:] else cleaned


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("utf-8", "backslashreplace")
    try:
        return str(value)
    except Exception as problem:  # noqa: BLE001 - a value that cannot be told is no reason to stop
        return f"[{type(value).__name__} that cannot be shown: {type(problem).__name__}]"
