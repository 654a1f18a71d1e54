"""What was typed before: one JSON string per line, for its owner's eyes only, and bounded."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Final

from coilclaw.errors import EnvironmentFault
from coilclaw.storage.atomic import write_atomic

if TYPE_CHECKING:
    from pathlib import Path

MAX_ENTRIES: Final = 1000
MAX_ENTRY: Final = 4096
"""Characters of a line that is worth remembering."""
MAX_BYTES: Final = 2**20
"""Size at which the file is cut down to its last entries."""

_FLAGS: Final = os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class History:
    """The lines of earlier sessions and of this one."""

    __slots__ = ("_last", "_path")

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last = ""

    def load(self) -> list[str]:
        """Return the last entries, oldest first; what cannot be read in the file is left out."""
        try:
            data = self._read()
        except OSError as problem:
            raise EnvironmentFault(
                f"cannot read the history {self._path}: {problem.strerror}", rule="history.io"
            ) from problem
        lines = data[-2 * MAX_BYTES :].splitlines()
        entries = [entry for line in lines[-MAX_ENTRIES:] if (entry := _decoded(line))]
        if len(data) > MAX_BYTES or len(lines) > 2 * MAX_ENTRIES:
            kept = "".join(json.dumps(entry) + "\n" for entry in entries)
            write_atomic(self._path, kept.encode(), mode=0o600, sync=False)
        self._last = entries[-1] if entries else ""
        return entries

    def add(self, line: str) -> bool:
        """Keep a line, unless it begins with a space, repeats the last one or is too long."""
        if not line or line[0] == " " or line == self._last or len(line) > MAX_ENTRY:
            return False
        self._last = line
        try:
            descriptor = os.open(self._path, _FLAGS | os.O_WRONLY | os.O_APPEND, 0o600)
            try:
                os.fchmod(descriptor, 0o600)
                os.write(descriptor, json.dumps(line).encode() + b"\n")
            finally:
                os.close(descriptor)
        except OSError as problem:
            raise EnvironmentFault(
                f"cannot write the history {self._path}: {problem.strerror}", rule="history.io"
            ) from problem
        return True

    def _read(self) -> bytes:
        try:
            descriptor = os.open(self._path, os.O_RDONLY | _FLAGS & ~os.O_CREAT)
        except FileNotFoundError:
            return b""
        with open(descriptor, "rb") as file:
            size = os.fstat(descriptor).st_size
            file.seek(max(0, size - 2 * MAX_BYTES))
            return file.read(2 * MAX_BYTES)


def _decoded(line: bytes) -> str | None:
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, str) and len(entry) <= MAX_ENTRY else None
