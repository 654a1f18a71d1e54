"""What a crash leaves after the last whole record: kept beside the journal, never thrown away."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.storage.atomic import sync_directory, write_all
from coilclaw.storage.paths import torn_path

if TYPE_CHECKING:
    from pathlib import Path

_COPY_BYTES: Final = 2**20


@dataclass(frozen=True, slots=True)
class Recovered:
    """Bytes that were no whole record, moved out of the journal."""

    path: Path
    """Where they are kept."""
    size: int
    record: int
    """The number, from 1, of the record that they would have begun."""


def set_aside(path: Path, descriptor: int, start: int, record: int) -> Recovered:
    """Move everything from ``start`` on out of a journal whose lock the caller holds.

    A kill in the middle leaves the bytes in the journal, in the copy, or in both.
    """
    kept = _free_name(path)
    temporary = path.with_name(f".coilclaw-{os.urandom(8).hex()}.tmp")
    copy = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        try:
            size = _copy(descriptor, start, copy)
            os.fsync(copy)
        finally:
            os.close(copy)
        os.rename(temporary, kept)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
    sync_directory(path.parent)
    os.ftruncate(descriptor, start)
    os.fsync(descriptor)
    return Recovered(kept, size, record)


def _copy(source: int, start: int, target: int) -> int:
    position = start
    while piece := os.pread(source, _COPY_BYTES, position):
        write_all(target, piece)
        position += len(piece)
    return position - start


def _free_name(path: Path) -> Path:
    number = 1
    while os.path.lexists(torn_path(path, number)):
        number += 1
    return torn_path(path, number)
