"""The model's answer on a screen: in pieces as they come, or whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coilclaw.channels.visible import SafeText

if TYPE_CHECKING:
    from collections.abc import Callable

    from coilclaw.channels.screen import Screen


class AnswerWriter:
    """Writes one answer; on a terminal the text has no power over it, elsewhere it is exact."""

    __slots__ = ("_drafted", "_mid_line", "_safe", "_screen")

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._safe = SafeText()
        self._drafted = ""
        self._mid_line = False

    @property
    def draft(self) -> Callable[[str], None] | None:
        """What takes the pieces; ``None`` where only the whole answer is wanted."""
        return self._draft if self._screen.terminal else None

    def _draft(self, piece: str) -> None:
        self._drafted += piece
        self._show(self._safe.feed(piece))

    def finish(self, text: str) -> None:
        """Show what of the answer has not been seen yet, and end its line."""
        if not self._screen.terminal:
            self._screen.write(text if text.endswith("\n") else text + "\n")
            return
        if not self._drafted.rstrip().endswith(text.rstrip()):
            self.leave()
            self._draft(text)
        self.leave()

    def leave(self) -> None:
        """End the line that was begun, whatever comes next."""
        self._show(self._safe.finish())
        if self._mid_line:
            self._show("\n")

    def _show(self, text: str) -> None:
        if text:
            self._screen.write(text)
            self._mid_line = not text.endswith("\n")
