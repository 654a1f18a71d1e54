"""A question of the model to the person at the terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final, TextIO

from coilclaw.channels.keyboard import PASTED, Keyboard
from coilclaw.channels.rows import rows
from coilclaw.channels.screen import Screen

if TYPE_CHECKING:
    from collections.abc import Mapping

SHOWN_QUESTION: Final = 4000
"""Characters of a question that are shown."""
SHOWN_LINES: Final = 40
"""Lines of a question that are shown."""
_PASTE_ENDS: Final = "\x1b[201~"


class TerminalAsker:
    """Asks at the terminal; without one there is no answer."""

    __slots__ = ("_keyboard", "_screen")

    def __init__(
        self,
        environ: Mapping[str, str],
        *,
        source: TextIO | None = None,
        out: TextIO | None = None,
        assume_terminal: bool = False,
    ) -> None:
        self._keyboard = Keyboard(
            sys.stdin if source is None else source, assume_terminal=assume_terminal
        )
        self._screen = Screen.of(sys.stderr if out is None else out, environ)

    def __call__(self, question: str) -> str | None:
        """Return what the person answers; ``None`` when there is nobody, or no answer."""
        if not self._keyboard.attended:
            return None
        sys.stdout.flush()
        width = self._screen.size[0]
        self._screen.write("\nThe model asks:\n")
        shown = "\n".join(question[:SHOWN_QUESTION].split("\n")[:SHOWN_LINES])
        for line in shown.split("\n"):
            for row in rows(line, width, ascii_only=self._screen.ascii_only):
                self._screen.write(row + "\n")
        if len(question) > len(shown):
            self._screen.write(f"… {len(question) - len(shown)} more characters\n")
        prompt = self._screen.styled("Your answer, which the model is given:", "bold") + " "
        answer = self._keyboard.answer(self._screen, prompt)
        if answer is None:
            self._screen.write("\n")
            return None
        return answer.replace(PASTED, "").replace(_PASTE_ENDS, "")
