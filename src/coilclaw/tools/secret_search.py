"""Find the files of a workspace that hold secrets by their name, within bounds."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coilclaw.security.secret_files import SecretFiles

MAX_ENTRIES: Final = 50_000
MAX_FOUND: Final = 256
_SKIPPED: Final = frozenset({".git", "node_modules", "__pycache__", ".tox", ".mypy_cache"})
"""Where others' files lie, by the thousand; what lies there is no secret of the user."""


def find_secrets(workspace: Path, secrets: SecretFiles) -> Iterator[Path]:
    """Yield the files, nearest to the top first; what lies beyond the bounds is not found."""
    if secrets.read == "allow":
        return
    waiting = [workspace]
    seen = found = 0
    for directory in waiting:
        try:
            entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
        except OSError:
            continue  # It cannot be listed by the command either.
        for entry in entries:
            seen += 1
            if seen > MAX_ENTRIES or found >= MAX_FOUND:
                return
            if entry.is_dir(follow_symlinks=False):
                waiting += [Path(entry.path)] if entry.name not in _SKIPPED else []
            elif secrets.covers(entry.name):
                found += 1
                yield Path(entry.path)
