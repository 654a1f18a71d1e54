"""Text of strangers: what hides, moves or turns text round is taken out, and there is a bound."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from coilclaw.domain.messages import Json

MAX_DESCRIPTION: Final = 1024
MAX_REMARK: Final = 300
"""Of a description inside a schema."""

_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
# Characters of other categories that show nothing, or change the one before them.
_BLANK: Final = (
    (0x034F, 0x034F),
    (0x115F, 0x1160),
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    (0x2800, 0x2800),
    (0x3164, 0x3164),
    (0xFE00, 0xFE0F),
    (0xFFA0, 0xFFA0),
    (0xE0000, 0xE0FFF),
)
_REMARKS: Final = ("description", "title")
_DATA: Final = frozenset({"enum", "const", "default", "examples"})
MAX_DEPTH: Final = 64


def plain(text: str, limit: int = MAX_DESCRIPTION) -> str:
    """Return a text on one line, without what nobody would see, of at most ``limit`` characters."""
    words = "".join(" " if hides(char) else char for char in text[: 8 * limit]).split()
    joined = " ".join(words)
    return joined if len(joined) <= limit else f"{joined[: limit - 1]}…"


def hides(char: str) -> bool:
    """Whether a character shows nothing, or has power over others."""
    if char.isascii():
        return not " " <= char <= "~"
    point = ord(char)
    return unicodedata.category(char) in _HIDDEN or any(
        low <= point <= high for low, high in _BLANK
    )


def hidden(text: str) -> int:
    """How many characters nobody would see; ends of lines and tabs do not count."""
    return sum(hides(char) for char in text if char not in "\n\r\t")


def schema(value: Json, depth: int = MAX_DEPTH) -> Json:
    """Return a schema that says the same, with its remarks made plain."""
    if depth == 0:
        return value
    if isinstance(value, list):
        return [schema(item, depth - 1) for item in value]
    if not isinstance(value, dict):
        return value
    told: dict[str, Json] = {}
    for key, item in value.items():
        if key in _DATA:
            told[key] = item
        elif key in _REMARKS and isinstance(item, str):
            told[key] = plain(item, MAX_REMARK)
        elif key != "$comment" or not isinstance(item, str):
            told[key] = schema(item, depth - 1)
    return told
