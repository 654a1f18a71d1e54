"""Answers that a person types, and nobody else: not a pipe, not what was typed before the question.

A terminal is read below Python's buffers, so that nothing waits in them from before.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, TextIO

from coilclaw.errors import EnvironmentFault

if TYPE_CHECKING:
    from collections.abc import Callable

    from coilclaw.channels.screen import Screen

MAX_ANSWER: Final = 4096
"""Bytes of one answer; a terminal hands out no longer lines either."""

_PASTE_ON: Final = "\x1b[?2004h"
_PASTE_OFF: Final = "\x1b[?2004l"
PASTED: Final = "\x1b[200~"
"""What stands before pasted text, once a terminal was asked to say so."""


class Keyboard:
    """Where answers come from."""

    __slots__ = ("_source", "_trusted", "terminal")

    def __init__(self, source: TextIO, *, assume_terminal: bool = False) -> None:
        self._source = source
        self.terminal = not source.closed and source.isatty()
        self._trusted = assume_terminal

    @property
    def attended(self) -> bool:
        """Whether a person sits there, or somebody says so who must know."""
        return self.terminal or self._trusted

    def answer(
        self, screen: Screen, prompt: str, *, also: Callable[[str], None] | None = None
    ) -> str | None:
        """Ask, and return the line that was typed after the question; ``None`` is the end.

        ``also`` is given the question, to show it in a second place.
        """
        marks_paste = self.terminal and screen.smart
        self._forget()
        if also:
            also(prompt)
        screen.write(prompt + (_PASTE_ON if marks_paste else ""))
        try:
            typed = self._typed() if self.terminal else self._read()
            if typed is not None and PASTED in typed:
                self._forget()  # the lines that were pasted with it
            return typed
        finally:
            if marks_paste:
                screen.write(_PASTE_OFF)

    def _forget(self) -> None:
        """Drop what was typed or pasted before anybody could have read the question."""
        if not self.terminal:
            return
        import termios

        try:
            termios.tcflush(self._source.fileno(), termios.TCIFLUSH)
        except termios.error as problem:
            raise EnvironmentFault(
                f"the terminal cannot be cleared of earlier input: {problem}",
                rule="terminal.flush",
            ) from problem

    def _typed(self) -> str | None:
        data = b""
        while len(data) < MAX_ANSWER:
            try:
                more = os.read(self._source.fileno(), MAX_ANSWER - len(data))
            except OSError:
                return None  # the terminal has gone away
            if not more:
                return None
            data += more
            if more.endswith((b"\n", b"\r")):
                break
        return data.decode("utf-8", "replace").rstrip("\r\n")

    def _read(self) -> str | None:
        line = self._source.readline(MAX_ANSWER)
        return line.rstrip("\r\n") if line.endswith("\n") else None
