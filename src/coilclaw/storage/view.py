"""Looking at a journal without changing anything: where its files are, and one consistent view."""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Final

from coilclaw.errors import EnvironmentFault
from coilclaw.storage.anchor import ANCHOR_BYTES
from coilclaw.storage.descriptor import lock, unlock
from coilclaw.storage.paths import anchor_path

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_READ: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


@dataclass(frozen=True, slots=True)
class View:
    """A journal's file, how long it was when nobody was writing, and its anchor at that moment."""

    file: BinaryIO | None
    size: int
    anchor: bytes | None


@contextmanager
def open_view(path: Path) -> Iterator[View]:
    """Open a journal for reading; its lock is held only while the view is taken."""
    try:
        file = open_regular(path)
        if file is None:
            view = View(None, 0, read_anchor(anchor_path(path)))
        else:
            view = _locked_view(path, file)
    except OSError as problem:
        raise EnvironmentFault(
            f"cannot read {path}: {problem.strerror or problem}", rule="journal.io"
        ) from problem
    if view.file is None:
        yield view
    else:
        with view.file:
            yield view


def read_anchor(path: Path) -> bytes | None:
    """Return the bytes of an anchor file, or a little more than it may hold."""
    file = open_regular(path)
    if file is None:
        return None
    with file:
        return file.read(ANCHOR_BYTES + 1)


def open_regular(path: Path) -> BinaryIO | None:
    """Open a regular file for reading, ``None`` where there is nothing."""
    try:
        descriptor = os.open(path, _READ)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise EnvironmentFault(f"{path} is not a regular file", rule="journal.io")
    return open(descriptor, "rb")


def _locked_view(path: Path, file: BinaryIO) -> View:
    try:
        lock(file.fileno(), path, shared=True)
        view = View(file, os.fstat(file.fileno()).st_size, read_anchor(anchor_path(path)))
        unlock(file.fileno())
    except BaseException:
        file.close()
        raise
    return view
