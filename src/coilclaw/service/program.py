"""The command that a service manager has to start: this program, by absolute paths."""

from __future__ import annotations

import os
from pathlib import Path


def program(called: str, interpreter: str) -> tuple[str, ...]:
    """Return the words that start this program again; ``called`` is how it was started now."""
    path = Path(os.path.abspath(called))
    if not path.is_file() or path.name == "__main__.py":
        return os.path.abspath(interpreter), "-m", "coilclaw"
    if os.access(path, os.X_OK):
        return (str(path),)
    return os.path.abspath(interpreter), str(path)
