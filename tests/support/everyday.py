"""Read the everyday command lines, by what they are for."""

from __future__ import annotations

from functools import cache
from pathlib import Path

_FILE = Path(__file__).with_name("everyday_commands.txt")


@cache
def everyday_commands() -> dict[str, tuple[str, ...]]:
    """Return the command lines of every section."""
    sections: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in _FILE.read_text("utf-8").splitlines():
        if line.startswith("  |"):
            lines[-1] += "\n" + line.removeprefix("  |").removeprefix(" ")
        elif line.startswith("[") and line.endswith("]") and " " not in line:
            lines = sections.setdefault(line[1:-1], [])
        elif line and not line.startswith("#"):
            lines.append(line)
    return {name: tuple(each) for name, each in sections.items()}
