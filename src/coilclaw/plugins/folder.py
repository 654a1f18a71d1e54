"""Looking at a directory of plugin files: every file is read, and no link is followed."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from coilclaw.domain.treepath import shown
from coilclaw.errors import EnvironmentFault
from coilclaw.plugins.files import (
    MAX_DEPTH,
    MAX_FILES,
    MAX_TOTAL_BYTES,
    Collection,
    PluginFile,
    refused,
    too_large,
)

if TYPE_CHECKING:
    from pathlib import Path

SKIPPED: Final = frozenset({".git", "__pycache__"})
"""Directories beside a plugin's own files, which are not installed."""

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(slots=True)
class Look:
    """What stands in a directory: its files, and what is no file, with what that is."""

    files: dict[str, PluginFile] = field(default_factory=dict)
    odd: dict[str, str] = field(default_factory=dict)
    empty: list[str] = field(default_factory=list)
    """Directories with nothing in them."""
    total: int = 0


def look(path: Path, *, skip: frozenset[str] = frozenset()) -> Look:
    """Read everything below a directory, within the bounds of a plugin."""
    seen = Look()
    try:
        descriptor = os.open(path, _DIRECTORY)
        try:
            _walk(descriptor, (), seen, skip)
        finally:
            os.close(descriptor)
    except OSError as problem:
        raise EnvironmentFault(
            f"cannot read {path}: {problem.strerror or problem}", rule="plugin.read"
        ) from problem
    return seen


def read(path: Path) -> tuple[PluginFile, ...]:
    """Return the files of a directory that is to be installed, or refuse all of it."""
    return checked(look(path, skip=SKIPPED))


def checked(seen: Look) -> tuple[PluginFile, ...]:
    """Return files that could come from outside, or refuse all of them."""
    if seen.odd:
        what = ", ".join(f"{shown(name)} is {kind}" for name, kind in sorted(seen.odd.items()))
        raise refused("plugin.kind", what)
    collection = Collection()
    for name in sorted(seen.files):
        file = seen.files[name]
        collection.add(name, file.content, executable=file.executable)
    return collection.files()


def _walk(descriptor: int, parts: tuple[str, ...], seen: Look, skip: frozenset[str]) -> None:
    if len(parts) > MAX_DEPTH:
        raise refused("plugin.bounds", f"{shown('/'.join(parts))} is too deep")
    names = os.listdir(descriptor)
    if not names and parts:
        seen.empty.append("/".join(parts))
    for name in sorted(names):
        here = (*parts, name)
        mode = os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode
        if stat.S_ISDIR(mode):
            if name in skip:
                continue
            deeper = os.open(name, _DIRECTORY, dir_fd=descriptor)
            try:
                _walk(deeper, here, seen, skip)
            finally:
                os.close(deeper)
        else:
            _take(descriptor, here, mode, seen)
        if len(seen.files) + len(seen.odd) + len(seen.empty) > MAX_FILES:
            raise refused("plugin.bounds", f"there are more than {MAX_FILES} files")


def _take(descriptor: int, parts: tuple[str, ...], mode: int, seen: Look) -> None:
    path = "/".join(parts)
    if not stat.S_ISREG(mode):
        seen.odd[path] = "a symbolic link" if stat.S_ISLNK(mode) else "no plain file"
        return
    file = os.open(parts[-1], _FILE, dir_fd=descriptor)
    try:
        info = os.fstat(file)
        if not stat.S_ISREG(info.st_mode):
            seen.odd[path] = "no plain file"
            return
        room = MAX_TOTAL_BYTES - seen.total
        with open(file, "rb", closefd=False) as stream:
            content = stream.read(room + 1)
    finally:
        os.close(file)
    if len(content) > room:
        raise too_large(path)
    seen.total += len(content)
    seen.files[path] = PluginFile(path, content, stat.S_IMODE(info.st_mode))
