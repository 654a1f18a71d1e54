"""What of a text is searched: folded text, its tokens, the terms of a query.

A record matches a query if its folded text contains every term. Folding is Unicode case folding
(``Straße`` and ``STRASSE`` are one), then NFC (a letter and its accent are one, however they were
typed); accents count. Terms are what white space separates in the folded query; every other
character is itself, in queries and in texts alike.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from coilclaw.memory.rows import clean

MAX_WORD: Final = 128
"""Characters of the longest word that is indexed; hexadecimal SHA-512 just fits."""

# Scripts that put no space between words: every character is a token, as punctuation is.
_UNSPACED: Final = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u312f\u31a0-\u4dbf\u4e00-\ua4cf"
    "\uf900-\ufaff\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
_TOKEN: Final = re.compile(rf"[^\W{_UNSPACED}]+|\S")

# The index drops what of ASCII is not of a word, and so that goes by other names in it. A text that
# holds those names itself is found too often there, and its text is looked at anyway.
_INDEXED: Final = {
    chr(code): chr(0xE000 + code)
    for code in range(0x80)
    if not chr(code).isalnum() and chr(code) != "_"
}


def fold(text: str) -> str:
    """Return the form in which texts and queries are compared."""
    folded = text.casefold()
    return folded if folded.isascii() else unicodedata.normalize("NFC", folded)


def terms(query: str) -> tuple[str, ...]:
    """Return the distinct terms of a query, folded."""
    return tuple(dict.fromkeys(fold(clean(query)).split()))


def tokens(folded: str) -> list[str]:
    """Split a folded text into words and single other characters; white space separates only."""
    return _TOKEN.findall(folded)


def is_word(token: str) -> bool:
    """Tell a word, of which a query may name a part, from a character that is a token itself."""
    return _TOKEN.fullmatch(f"{token}0") is not None  # it would go on with another letter or digit


def indexed(sequence: list[str]) -> str:
    """Return tokens as the full-text index reads them."""
    name = _INDEXED.get
    return " ".join([name(token, token) for token in sequence])
