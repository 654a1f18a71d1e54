"""The raw floor of writing files durably: temporary file, write, fsync, rename."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def write_files(root: Path, contents: Mapping[str, str]) -> None:
    """Write every file the careful way, and nothing more."""
    for name, text in contents.items():
        path = root / name
        path.parent.mkdir(exist_ok=True)
        temporary = f"{path}.tmp"
        with open(temporary, "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, path)
