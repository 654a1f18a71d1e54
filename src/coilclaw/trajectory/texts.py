"""Texts as a record can hold them: valid Unicode, without secrets, and within a bound."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_SUMMARY: Final = 240
_BLANKS: Final = re.compile(r"\s+")
_GROWTH: Final = 6
"""The most bytes that one character takes in JSON."""


def valid(text: str) -> str:
    """Return text that has a form in UTF-8; half a surrogate pair becomes a mark."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode("utf-8")
    return text


def bounded(text: str, limit: int) -> str:
    """Return text of at most so many bytes in JSON; what is cut out of the middle is told."""
    text = valid(text)
    if len(text) * _GROWTH <= limit or _size(text) <= limit:
        return text
    # Twice as long as what fits, at most: halved until it does.
    keep = min(len(text), limit)
    while True:
        half = keep // 2
        told = f"\n… {len(text) - 2 * half} characters left out …\n"
        cut = text[:half] + told + (text[-half:] if half else "")
        if _size(cut) <= limit or not half:
            return cut
        keep = half


def within(texts: Iterable[str], limit: int) -> list[str]:
    """The first texts that take at most so many bytes in JSON, all together."""
    found: list[str] = []
    for text in texts:
        limit -= _size(text) + 1
        if limit < 0:
            break
        found.append(text)
    return found


def summary(text: str) -> str:
    """The beginning of a text in one line."""
    line = _BLANKS.sub(" ", valid(text[: 8 * MAX_SUMMARY])).strip()
    return line if len(line) <= MAX_SUMMARY else f"{line[: MAX_SUMMARY - 1]}…"


def _size(text: str) -> int:
    import json

    return len(json.dumps(text, ensure_ascii=False).encode("utf-8"))
