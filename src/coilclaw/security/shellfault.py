"""Why a command line is not understood, as the exception that ends its reading."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from coilclaw.security.shellscript import NotUnderstood

MAX_EXCERPT: Final = 60

FaultRule: TypeAlias = Literal["shell.syntax", "shell.construct", "shell.bound", "shell.text"]


class Unreadable(Exception):
    """Reading ends here; it never leaves ``shellgrammar.read``."""

    def __init__(self, rule: FaultRule, reason: str, excerpt: str = "") -> None:
        super().__init__(reason)
        self.fault = NotUnderstood(reason, excerpt, rule)


def excerpt(text: str, start: int) -> str:
    """Return the rest of the line from a place on, cut to a readable length."""
    line = text[start : start + MAX_EXCERPT + 1].partition("\n")[0]
    return line if len(line) <= MAX_EXCERPT else line[:MAX_EXCERPT] + "…"
