"""Printing: colour for people, plain text for pipes, JSON for machines."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TextIO

from coilclaw.kernel import escape_hidden

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ("Console", "escape_hidden")

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
    """The streams of a command, with or without colour and JSON."""

    out: TextIO
    err: TextIO
    colour_out: bool
    colour_err: bool
    as_json: bool = False
    as_lines: bool = False
    """Whether each JSON value takes one line, because several follow each other."""

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
        """Print one line; on a terminal, control characters are escaped."""
        if self.out.isatty():
            text = escape_hidden(text)
        _write(self.out, text, style if self.colour_out else None)

    def show(self, text: str, style: str | None = None) -> None:
        """Print one line with hidden characters escaped, even if the output is not a terminal."""
        self.print(escape_hidden(text), style)

    def note(self, text: str, style: str | None = None) -> None:
        """Print one line for the user on standard error."""
        _write(self.err, escape_hidden(text), style if self.colour_err else None)

    def error(self, message: str, *, rule: str, hint: str | None = None) -> None:
        """Print an error: one sentence, its rule, and what to do about it."""
        self.out.flush()
        first, *more = message.splitlines() or [""]
        self.note(f"coilclaw: {first} [{rule}]", "red")
        for line in more:
            self.note(f"  {line.strip()}", "red")
        if hint:
            self.note(f"  hint: {hint}")

    def lines(self, lines: Iterable[str]) -> None:
        """Print the details of an error, line by line."""
        for line in lines:
            self.note(f"  {line}")

    def warn(self, message: str) -> None:
        self.note(f"coilclaw: warning: {message}", "yellow")

    def data(self, value: object) -> None:
        """Print JSON in ASCII, so that names that are not UTF-8 survive."""
        self.out.write(json.dumps(value, indent=None if self.as_lines else 2) + "\n")

    def emit(self, value: object) -> bool:
        """Print a value if JSON was requested; return whether it was."""
        if self.as_json:
            self.data(value)
        return self.as_json

    def table(
        self,
        records: Iterable[object],
        lines: Iterable[tuple[str, str | None]],
        empty: str = "",
    ) -> None:
        """Print the records as JSON if requested, else the lines, or ``empty`` without any."""
        if self.as_json:
            self.data(list(records))
            return
        shown = False
        for text, style in lines:
            self.print(text, style)
            shown = True
        if empty and not shown:
            self.note(empty)

    def write_bytes(self, data: bytes) -> None:
        """Write bytes unchanged, after everything printed so far."""
        self.out.flush()
        self.out.buffer.write(data)
        self.out.buffer.flush()

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


def _write(stream: TextIO, text: str, style: str | None) -> None:
    """Write a line; surrogates, from names that are not UTF-8, become escapes."""
    styled = f"{_STYLES[style]}{text}{_RESET}" if style else text
    encoding = stream.encoding or "utf-8"
    stream.write(styled.encode(encoding, "backslashreplace").decode(encoding) + "\n")
