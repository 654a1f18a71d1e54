"""A stream to print on: what it is, what it can show, and lines that cannot do it harm."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TextIO

from coilclaw.channels.visible import harmless

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_COLUMNS: Final = 80
DEFAULT_LINES: Final = 24

_STYLES: Final = {
    "red": "\x1b[31m",
    "yellow": "\x1b[33m",
    "cyan": "\x1b[36m",
    "bold": "\x1b[1m",
    "dim": "\x1b[2m",
}
_RESET: Final = "\x1b[0m"


@dataclass(frozen=True, slots=True)
class Screen:
    """Where something is shown."""

    stream: TextIO
    terminal: bool
    colour: bool
    smart: bool
    """Whether it is a terminal that knows control sequences."""

    @classmethod
    def of(cls, stream: TextIO, environ: Mapping[str, str]) -> Screen:
        """Use colour only on a terminal that wants it."""
        terminal = stream.isatty()
        smart = terminal and environ.get("TERM", "") not in {"", "dumb"}
        return cls(stream, terminal, smart and "NO_COLOR" not in environ, smart)

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines, as they are now."""
        if self.terminal:
            try:
                columns, lines = os.get_terminal_size(self.stream.fileno())
            except (OSError, ValueError):
                columns, lines = 0, 0
            return columns or DEFAULT_COLUMNS, lines or DEFAULT_LINES
        return DEFAULT_COLUMNS, DEFAULT_LINES

    @property
    def ascii_only(self) -> bool:
        """Whether letters beyond ASCII cannot be shown as they are."""
        name = (self.stream.encoding or "utf-8").lower()
        return name.replace("-", "").replace("_", "") != "utf8"

    def styled(self, text: str, style: str) -> str:
        return f"{_STYLES[style]}{text}{_RESET}" if self.colour else text

    def write(self, text: str, style: str | None = None) -> None:
        """Write text and let it be seen; what the encoding does not have is shown as an escape."""
        encoding = self.stream.encoding or "utf-8"
        text = text.encode(encoding, "backslashreplace").decode(encoding)
        self.stream.write(self.styled(text, style) if style else text)
        self.stream.flush()

    def line(self, text: str = "", style: str | None = None) -> None:
        """Write a line; on a terminal nothing in it has any power."""
        self.write(harmless(text) if self.terminal else text, style)
        self.write("\n")
