"""Input lines: edited at a terminal, with history and completion, or read from a pipe."""

from __future__ import annotations

import json
import logging
import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, Protocol, TextIO

from coilclaw.kernel import EnvironmentFault, UsageError, explain_os_errors, write_atomic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


MAX_ENTRIES: Final = 1000
MAX_ENTRY: Final = 4096
"""Characters of the longest line that is stored."""
MAX_BYTES: Final = 2**20
"""Size at which the file is reduced to its last entries."""

_FLAGS: Final = os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class LineHistory:
    """The lines of earlier sessions and of this one."""

    __slots__ = ("_last", "_path")

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last = ""

    def load(self) -> list[str]:
        """Return the last entries, oldest first, without unreadable ones."""
        data = b""
        doing = f"read the history {self._path}"
        with explain_os_errors(doing, rule="history.io"), suppress(FileNotFoundError):
            descriptor = os.open(self._path, os.O_RDONLY | _FLAGS & ~os.O_CREAT)
            with open(descriptor, "rb") as file:
                file.seek(max(0, os.fstat(descriptor).st_size - 2 * MAX_BYTES))
                data = file.read(2 * MAX_BYTES)
        lines = data.splitlines()
        entries = [entry for line in lines[-MAX_ENTRIES:] if (entry := _decode_entry(line))]
        if len(data) > MAX_BYTES or len(lines) > 2 * MAX_ENTRIES:
            kept = "".join(json.dumps(entry) + "\n" for entry in entries)
            write_atomic(self._path, kept.encode(), mode=0o600, sync=False)
        self._last = entries[-1] if entries else ""
        return entries

    def add(self, line: str) -> bool:
        """Store a line, unless it begins with a space, repeats the last one or is too long."""
        if not line or line[0] == " " or line == self._last or len(line) > MAX_ENTRY:
            return False
        self._last = line
        with explain_os_errors(f"write the history {self._path}", rule="history.io"):
            descriptor = os.open(self._path, _FLAGS | os.O_WRONLY | os.O_APPEND, 0o600)
            try:
                os.fchmod(descriptor, 0o600)
                os.write(descriptor, json.dumps(line).encode() + b"\n")
            finally:
                os.close(descriptor)
        return True


def _decode_entry(line: bytes) -> str | None:
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, str) and len(entry) <= MAX_ENTRY else None


MAX_LINE: Final = 2**20
"""Bytes of one line from a pipe."""


_log = logging.getLogger(__name__)


class MessageLines(Protocol):
    """The source of messages."""

    def read(self, prompt: str) -> str | None:
        """Return the next line without its end; ``None`` at the end of input."""


class PipedLines:
    """Lines from a pipe, without a prompt."""

    __slots__ = ("_source",)

    def __init__(self, source: TextIO) -> None:
        self._source = source

    def read(self, prompt: str) -> str | None:  # noqa: ARG002 - a pipe shows no prompt
        line = self._take()
        if not line:
            return None
        if len(line) >= MAX_LINE and not line.endswith(b"\n"):
            while line and not line.endswith(b"\n"):
                line = self._take()
            raise UsageError(f"the line is longer than {MAX_LINE} bytes", rule="message.large")
        try:
            return str(line, "utf-8").rstrip("\r\n")
        except UnicodeDecodeError as problem:
            raise UsageError("the line is not valid UTF-8", rule="message.encoding") from problem

    def _take(self) -> bytes:
        # Bytes, if available: a text decoder could not continue after an invalid byte.
        raw = getattr(self._source, "buffer", None)
        if raw is None:
            return self._source.readline(MAX_LINE).encode("utf-8", "surrogatepass")
        return bytes(raw.readline(MAX_LINE))


class EditedLines:
    """Lines that the user edits, within ``editing``."""

    __slots__ = ("_history", "_marks_paste")

    def __init__(self, history: LineHistory | None, *, marks_paste: bool) -> None:
        self._history = history
        self._marks_paste = marks_paste

    @contextmanager
    def editing(self, complete: Callable[[str, str], list[str]]) -> Iterator[None]:
        """Enable line editing, history and completion; ``complete`` gets the line and a word."""
        import readline

        def candidate(word: str, number: int) -> str | None:
            found = complete(readline.get_line_buffer()[: readline.get_endidx()], word)
            return found[number] if number < len(found) else None

        before = readline.get_completer(), readline.get_completer_delims()
        readline.set_auto_history(False)
        readline.clear_history()
        readline.set_completer(candidate)
        readline.set_completer_delims(" ")
        editline = "libedit" in (readline.__doc__ or "")
        readline.parse_and_bind("bind ^I rl_complete" if editline else "tab: complete")
        if self._marks_paste:  # lines that are pasted together are one message
            readline.parse_and_bind("set enable-bracketed-paste on")
        for entry in self._load_history():
            readline.add_history(entry)
        try:
            yield
        finally:
            readline.clear_history()
            readline.parse_and_bind("set enable-bracketed-paste off")
            readline.set_completer(before[0])
            readline.set_completer_delims(before[1])
            readline.set_auto_history(True)

    def read(self, prompt: str) -> str | None:
        import readline

        try:
            line = input(prompt)
        except EOFError:
            return None
        except UnicodeDecodeError as problem:
            raise UsageError("the line is not valid UTF-8", rule="message.encoding") from problem
        if self._keep(line):
            readline.add_history(line)
        return line

    def _load_history(self) -> list[str]:
        try:
            return self._history.load() if self._history else []
        except EnvironmentFault as problem:
            return self._without_history(problem)

    def _keep(self, line: str) -> bool:
        try:
            return self._history is not None and self._history.add(line)
        except EnvironmentFault as problem:
            self._without_history(problem)
            return True

    def _without_history(self, problem: EnvironmentFault) -> list[str]:
        """Continue the conversation without the history file, and log a warning."""
        _log.warning("%s", problem.message)
        self._history = None
        return []
