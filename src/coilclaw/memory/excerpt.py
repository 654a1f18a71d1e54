"""The place in a text where a term was found."""

from __future__ import annotations

from typing import Final

from coilclaw.memory.tokens import fold

WIDTH: Final = 160
"""Characters of an excerpt, at most."""

_LEAD: Final = 48
_GAP: Final = "…"


def excerpt(text: str, term: str) -> str:
    """Return the surroundings of a folded term on one line, with ``…`` where text was left out."""
    folded = fold(text)
    place = folded.find(term)
    if place > 0 and len(folded) != len(text):
        place = _original_place(text, place)
    start = max(0, place - _LEAD)
    # White space shrinks below, so that a longer piece may be needed to fill the width.
    piece = " ".join(text[start : start + 4 * WIDTH].split())
    before = _GAP if text[:start].strip() else ""
    room = WIDTH - len(before) - len(_GAP)
    whole = len(piece) <= room and not text[start + 4 * WIDTH :].strip()
    return before + (piece if whole else piece[:room] + _GAP)


def _original_place(text: str, place: int) -> int:
    """Return where the folded text's ``place`` is in the text itself, whose length differs."""
    low, high = 0, len(text)
    while low < high:
        middle = (low + high) // 2
        if len(fold(text[:middle])) < place:
            low = middle + 1
        else:
            high = middle
    return low
