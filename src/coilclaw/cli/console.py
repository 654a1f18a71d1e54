"""Printing: colour for people, plain text for pipes, JSON for machines."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TextIO

from coilclaw.domain.visible_text import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ("Console", "visible")

_STYLES: Final = {
    "red": "\x1b[31m",
    "green": "\x1b[32m",
    "yellow": "\x1b[33m",
    "cyan": "\x1b[36m",
    "bold": "\x1b[1m",
    "dim": "\x1b[2m",
}
_RESET: Final = "\x1b[0m"


@dataclass(frozen=True, slots=True)
class Console:
    """Where a command prints, and how."""

    out: TextIO
    err: TextIO
    colour_out: bool
    colour_err: bool
    as_json: bool = False
    as_lines: bool = False
    """Whether each JSON value stands on one line, because several follow each other."""

    @classmethod
    def of(
        cls,
        out: TextIO,
        err: TextIO,
        environ: Mapping[str, str],
        *,
        as_json: bool = False,
        as_lines: bool = False,
    ) -> Console:
        """Use colour only on a terminal that wants it."""
        wanted = "NO_COLOR" not in environ and environ.get("TERM", "") not in {"", "dumb"}
        colour = wanted and out.isatty() and not as_json
        return cls(out, err, colour, wanted and err.isatty(), as_json, as_lines)

    def print(self, text: str = "", style: str | None = None) -> None:
        """Print one line; on a terminal nothing in it can move the cursor."""
        if self.out.isatty():
            text = visible(text)
        if style and self.colour_out:
            text = f"{_STYLES[style]}{text}{_RESET}"
        self.out.write(_writable(text, self.out) + "\n")

    def note(self, text: str, style: str | None = None) -> None:
        """Print one line for people beside the output."""
        text = visible(text)
        if style and self.colour_err:
            text = f"{_STYLES[style]}{text}{_RESET}"
        self.err.write(_writable(text, self.err) + "\n")

    def error(self, message: str, *, rule: str, hint: str | None = None) -> None:
        """Say what went wrong in one sentence, by which rule, and what to do."""
        self.out.flush()
        first, *more = message.splitlines() or [""]
        self.note(f"coilclaw: {first} [{rule}]", "red")
        for line in more:
            self.note(f"  {line.strip()}", "red")
        if hint:
            self.note(f"  hint: {hint}")

    def lines(self, lines: Iterable[str]) -> None:
        """Say more about what went wrong, line by line."""
        for line in lines:
            self.note(f"  {line}")

    def warn(self, message: str) -> None:
        self.note(f"coilclaw: warning: {message}", "yellow")

    def data(self, value: object) -> None:
        """Print JSON, in ASCII so that any bytes of a name survive."""
        self.out.write(json.dumps(value, indent=None if self.as_lines else 2) + "\n")

    def diff(self, lines: Iterable[str]) -> None:
        """Print a unified diff."""
        for line in lines:
            self.print(line, _diff_style(line))


def _diff_style(line: str) -> str | None:
    if line.startswith(
        ("diff --git ", "--- ", "+++ ", "new file", "deleted file", "old mode", "new mode")
    ):
        return "bold"
    if line.startswith("@@"):
        return "cyan"
    return {"+": "green", "-": "red", "\\": "dim"}.get(line[:1])


def _writable(text: str, stream: TextIO) -> str:
    """Names that are not UTF-8 carry surrogates; print them as escapes instead of failing."""
    encoding = stream.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)
