"""The contents of approved files, by their hash, so that a change can be shown as a difference."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from coilclaw.domain.canonical import digest
from coilclaw.plugins.files import MAX_FILE_BYTES
from coilclaw.storage.atomic import write_atomic

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from coilclaw.plugins.files import PluginFile
    from coilclaw.plugins.pins import Pin

NAME: Final = "plugin_files"


def keep(home: Path, files: Iterable[PluginFile]) -> None:
    """Keep the contents of files that are about to be approved."""
    folder = home / NAME
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for file in files:
        path = folder / file.sha256
        if not path.exists():
            write_atomic(path, file.content, mode=0o600)


def prune(home: Path, pins: Mapping[str, Pin]) -> None:
    """Let go of everything that no approved plugin has."""
    wanted = {file.sha256 for pin in pins.values() for file in pin.files.values()}
    folder = home / NAME
    for name in os.listdir(folder) if folder.is_dir() else ():
        if name not in wanted:
            with suppress(FileNotFoundError):
                os.unlink(folder / name)


def recall(home: Path, sha256: str) -> bytes | None:
    """Return what was kept under a hash; ``None`` where that is gone or no longer the same."""
    try:
        with (home / NAME / sha256).open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError:
        return None
    return content if digest(content) == sha256 else None
