"""Copies of dependencies in which an agent works, compared with what they were copied from."""

from __future__ import annotations

import filecmp
import os
import shutil
import stat
from itertools import islice
from typing import TYPE_CHECKING, Final

from coilclaw.errors import EnvironmentFault
from coilclaw.workspace.dependencies import Dependency, is_small, untracked_paths

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

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
    if not is_beside(dependency.path, root) or not is_small(dependency.source):
        return False

    def skip(folder: str, names: list[str]) -> list[str]:
        """What stands there already belongs to the commit."""
        at = place / os.path.relpath(folder, dependency.source)
        both = (name for name in names if os.path.lexists(at / name))
        return [
            name
            for name in both
            if not _is_directory(at / name) or not _is_directory(os.path.join(folder, name))
        ]

    try:
        if dependency.source.is_dir():
            shutil.copytree(
                dependency.source, place, symlinks=True, ignore=skip, dirs_exist_ok=True
            )
        else:
            shutil.copy2(dependency.source, place, follow_symlinks=False)
    except OSError as problem:
        raise EnvironmentFault(
            f"cannot copy {dependency.source}: {problem.strerror or problem}", rule="worktree.mount"
        ) from problem
    return True


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
        was, now = _is_directory(old), _is_directory(new)
        if os.path.lexists(new) and not now:
            if not _is_same(old, new):
                yield path, True
            continue  # what is below a link is not looked at
        if not was and not now:
            yield path, False
            continue
        try:
            names = {*_names(old), *_names(new)}
        except OSError:
            yield path, True
            continue
        ahead += [f"{path}/{name}" if path else name for name in sorted(names)]


def _names(path: Path) -> list[str]:
    return os.listdir(path) if _is_directory(path) else []


def _is_directory(path: Path | str) -> bool:
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
