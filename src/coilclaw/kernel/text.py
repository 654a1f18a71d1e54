"""Text of a model, a tool or a file that can be nothing but text: on a terminal and in HTML."""

from __future__ import annotations

import html
import unicodedata
from typing import Final


def valid_text(text: str) -> str:
    r"""Return the text with every lone surrogate written as its escape, such as ``\udc80``."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def escape_hidden(text: str, *, kept: str = "\t") -> str:
    """Make everything visible that could hide, move or reorder text, but for ``kept``."""
    if text.isprintable():
        return text
    return "".join(
        char
        if char in kept or unicodedata.category(char) not in _HIDDEN
        else f"\\x{ord(char):02x}"
        if ord(char) < 0x100
        else f"\\u{ord(char):04x}"
        for char in text
    )


def escape_html(value: object) -> str:
    """Return text for HTML, also inside a quoted attribute; line ends and tabs stay."""
    return html.escape(escape_hidden(str(value), kept="\t\n"), quote=True)
