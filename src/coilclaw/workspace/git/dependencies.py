"""Copies of dependencies in which an agent works, compared with what they were copied from."""

from __future__ import annotations

import filecmp
import os
import shutil
import stat
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import explain_os_errors

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator


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
        for name, copied in _find_names(top, directory, files):
            path = f"{directory}/{name}" if directory else name
            if path not in directories and path not in files:
                found[path] = Dependency(path, top / path, copied)
    return tuple(found[path] for path in sorted(found)[:MAX_DEPENDENCIES])


def _find_names(top: Path, directory: str, files: frozenset[str]) -> Iterator[tuple[str, bool]]:
    """Yield the dependencies in one directory, and whether they are copied."""
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
            continue  # a caller that reads it gets the error
        for name, directory in found:
            path = f"{prefix}{name}"
            if path in kept:
                if directory:
                    ahead.append(f"{path}/")
            elif path != ".git":
                yield path, directory


def copy_dependency(source: Path, place: Path) -> bool:
    """Copy a file or directory to a place, beside what exists there.

    Return ``False`` if it is too large to be copied for each worktree.
    """
    if not _is_small(source):
        return False

    def skip(folder: str, names: list[str]) -> list[str]:
        """Return the names that exist already: they belong to the commit."""
        at = place / os.path.relpath(folder, source)
        both = [name for name in names if os.path.lexists(at / name)]
        sides = {name: (at / name, Path(folder, name)) for name in both}
        return [name for name in both if not all(map(_is_directory, sides[name]))]

    with explain_os_errors(f"copy {source}", rule="worktree.mount"):
        if source.is_dir():
            shutil.copytree(source, place, symlinks=True, ignore=skip, dirs_exist_ok=True)
        else:
            shutil.copy2(source, place, follow_symlinks=False)
    return True


def _is_small(directory: Path) -> bool:
    files = size = 0
    for parent, _, names in os.walk(directory):
        for name in names:
            files += 1
            size += os.lstat(os.path.join(parent, name)).st_size
        if files > MAX_COPY_FILES or size > MAX_COPY_BYTES:
            return False
    return True


MAX_PARTS: Final = 500
"""Into which a dependency is split."""


def untracked_parts(dependency: Dependency, tracked: Collection[str]) -> tuple[Dependency, ...]:
    """Return what of a dependency can be shown beside the files of a commit, and over none of them.

    ``tracked`` are its files and their directories. Of a dependency that would be in too many
    parts nothing is shown.
    """
    if dependency.path not in tracked:
        return (dependency,)
    below = f"{dependency.path}/"
    own = {path.removeprefix(below) for path in tracked if path.startswith(below)}
    folders = {"", *(path.rpartition("/")[0] for path in own)}
    parts = (
        Dependency(below + path, dependency.source / path, dependency.copied and directory)
        for path, directory in untracked_paths(dependency.source, own)
        if path.rpartition("/")[0] in folders and is_plain(dependency.source / path)
    )
    found = tuple(islice(parts, MAX_PARTS + 1)) if own and dependency.source.is_dir() else ()
    return found if len(found) <= MAX_PARTS else ()


def is_plain(path: Path) -> bool:
    """Whether it can be shown elsewhere: a link would be followed on this machine, to anything."""
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return False
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)


def lay_dependency(dependency: Dependency, root: Path) -> bool:
    """Copy a dependency into a worktree, beside what stands there.

    Return ``False`` where it is too large, or its place is not a directory of the worktree.
    """
    place = root / dependency.path
    return is_beside(dependency.path, root) and copy_dependency(dependency.source, place)


def is_beside(path: str, root: Path) -> bool:
    """Whether a path of a worktree is reached through directories alone, and not through a link."""
    names = path.split("/")
    return all(_is_directory(root.joinpath(*names[:count])) for count in range(len(names)))


def changed_files(source: Path, copy: Path) -> Iterator[tuple[str, bool]]:
    """Yield the files of a copy that differ from the source, each with whether it is there.

    The copy itself is the empty path. Links are compared and never followed; a directory that
    cannot be read differs.
    """
    ahead = [""]
    while ahead:
        path = ahead.pop()
        old, new = source / path, copy / path
        folders = [place for place in (old, new) if _is_directory(place)]
        if os.path.lexists(new) and new not in folders:
            if not _is_same(old, new):
                yield path, True
            continue  # what is below a link is not looked at
        if not folders:
            yield path, False
            continue
        try:
            names = {name for folder in folders for name in os.listdir(folder)}
        except OSError:
            yield path, True
            continue
        ahead += [f"{path}/{name}" if path else name for name in sorted(names)]


def _is_directory(path: Path) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)


def _is_same(old: Path, new: Path) -> bool:
    try:
        was, now = os.lstat(old), os.lstat(new)
        if stat.S_ISLNK(was.st_mode) and stat.S_ISLNK(now.st_mode):
            return os.readlink(old) == os.readlink(new)
        if not stat.S_ISREG(was.st_mode) or not stat.S_ISREG(now.st_mode):
            return False
        if was.st_size != now.st_size or (was.st_mode ^ now.st_mode) & 0o111:
            return False
        return was.st_mtime_ns == now.st_mtime_ns or filecmp.cmp(old, new, shallow=False)
    except OSError:
        return False  # one of them is missing, or cannot be read any more
