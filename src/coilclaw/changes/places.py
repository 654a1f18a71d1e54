"""``Places``: offsets in a text and the lines they stand on."""

from __future__ import annotations

import re
from typing import Final

_SPACE: Final = re.compile(r"[ \t\r\n]*")


class Places:
    """A text with its lines; asking in order costs one pass over it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.end = len(text)
        self.first = self.skip_space(0)
        """Where the first thing that is not blank stands."""
        self._known = (0, 1)

    def after(self, place: int) -> int:
        """Return where the line after the one at an offset begins."""
        end = self.text.find("\n", place)
        return self.end if end < 0 else end + 1

    def line_start(self, place: int, floor: int = 0) -> int:
        """Return where the line at an offset begins, but not before another offset."""
        return max(self.text.rfind("\n", floor, place) + 1, floor)

    def skip_space(self, place: int) -> int:
        """Return where the next thing that is not blank stands."""
        match = _SPACE.match(self.text, place)
        assert match is not None
        return match.end()

    def line(self, place: int) -> int:
        """Return the number of the line at an offset, from 1."""
        known, line = self._known
        if place >= known:
            line += self.text.count("\n", known, place)
        else:
            line -= self.text.count("\n", place, known)
        self._known = (place, line)
        return line
