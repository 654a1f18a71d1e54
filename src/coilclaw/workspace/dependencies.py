"""``Dependency``: what a checkout holds beside its sources, and a worktree of it does not.

A virtual environment or ``node_modules`` inside the checkout is no way to the old sources: it is
shown read-only, or as a copy where tools write in it.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from pathlib import Path

MAX_DIRECTORIES: Final = 5000
"""Of a checkout that are looked into."""
MAX_DEPENDENCIES: Final = 64
MAX_COPY_FILES: Final = 100_000
MAX_COPY_BYTES: Final = 2 * 2**30
_ENVIRONMENT_MARK: Final = "pyvenv.cfg"
_COPIED: Final = {"node_modules": "package.json", "target": "Cargo.toml"}
"""Directories that tools write in, each with what has to stand beside it."""
_METADATA: Final = ".egg-info"
_GENERATED: Final = "_version.py"
"""What build backends write into the sources, and packages import."""


@dataclass(frozen=True, slots=True)
class Dependency:
    """One file or directory that belongs at a path of the checkout."""

    path: str
    """Relative to the top, with slashes."""
    source: Path
    copied: bool = False
    """Whether tools write in it, so that each worktree gets a copy."""


def find_dependencies(top: Path, tracked: Iterable[str]) -> tuple[Dependency, ...]:
    """Return the dependencies that a checkout holds beside what git tracks, sorted by path."""
    files = frozenset(tracked)
    directories = {""}
    for path in files:
        parent = path.rpartition("/")[0]
        while parent not in directories:
            directories.add(parent)
            parent = parent.rpartition("/")[0]
    found: dict[str, Dependency] = {}
    for directory in islice(sorted(directories), MAX_DIRECTORIES):
        for name, copied in _names_in(top, directory, files):
            path = f"{directory}/{name}" if directory else name
            if path not in directories and path not in files:
                found[path] = Dependency(path, top / path, copied)
    return tuple(found[path] for path in sorted(found)[:MAX_DEPENDENCIES])


def _names_in(top: Path, directory: str, files: frozenset[str]) -> Iterator[tuple[str, bool]]:
    """The dependencies that stand in one directory, and whether they are copied."""
    prefix = f"{directory}/" if directory else ""
    try:
        with os.scandir(top / directory) as entries:
            found = [entry for entry in entries if not entry.is_symlink()]
    except OSError:
        return  # the checkout may lack a directory that the baseline has
    for entry in found:
        name = entry.name
        if not entry.is_dir(follow_symlinks=False):
            if name == _GENERATED:
                yield name, False
        elif name in _COPIED:
            if prefix + _COPIED[name] in files:
                yield name, True
        elif is_installation(top / directory / name, name):
            yield name, False


def is_installation(directory: Path, path: str) -> bool:
    """Whether a directory is a virtual environment or what an install says of itself.

    Nothing writes in it but an installer.
    """
    return path.endswith(_METADATA) or (directory / _ENVIRONMENT_MARK).is_file()


def untracked_paths(root: Path, kept: Collection[str]) -> Iterator[tuple[str, bool]]:
    """Yield what stands below ``root`` beside the paths that are kept, the outermost of it.

    Each path comes with whether it is a directory. ``kept`` are files and their directories.
    """
    ahead = [""]
    while ahead:
        prefix = ahead.pop()
        try:
            with os.scandir(root / prefix) as entries:
                found = sorted((e.name, e.is_dir(follow_symlinks=False)) for e in entries)
        except OSError:
            continue  # who needs to know what is in it finds out what is wrong with it
        for name, directory in found:
            path = f"{prefix}{name}"
            if path in kept:
                if directory:
                    ahead.append(f"{path}/")
            elif path != ".git":
                yield path, directory


def copy_dependency(dependency: Dependency, target: Path) -> bool:
    """Copy a directory for one worktree; ``False`` where it is too large to be copied."""
    if not is_small(dependency.source):
        return False
    shutil.copytree(dependency.source, target, symlinks=True)
    return True


def is_small(directory: Path) -> bool:
    """Whether a directory, or a file, is small enough to be copied for each worktree."""
    files = size = 0
    for parent, _, names in os.walk(directory):
        for name in names:
            files += 1
            size += os.lstat(os.path.join(parent, name)).st_size
        if files > MAX_COPY_FILES or size > MAX_COPY_BYTES:
            return False
    return True
