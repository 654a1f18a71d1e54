"""Putting one file at its place: stage beside it, rename, remove, prune, sync."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from coilclaw.domain.files import RegularFile, Symlink
from coilclaw.domain.treepath import TreePath
from coilclaw.errors import PathRefused
from coilclaw.security.protected import STAGING_PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coilclaw.workspace.resolve import Root

_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


Signature: TypeAlias = tuple[int, int, int, int, int]
"""Device, inode, size, and the times of the last write and the last change."""


@dataclass(frozen=True, slots=True)
class Staged:
    """New content that waits under a name of ours for its rename."""

    path: TreePath
    directory: tuple[str, ...]
    name: str


class Placement:
    """Places the files of one change in a tree; all names of ours carry the change's id."""

    def __init__(self, root: Root, change_id: str) -> None:
        self._root = root
        self._prefix = f"{STAGING_PREFIX}{change_id}-"
        self._dirty: set[tuple[str, ...]] = set()

    def mode(self, path: TreePath) -> int | None:
        """Return the permission bits of a file that is there."""
        info = self._info(path)
        return stat.S_IMODE(info.st_mode) if info and stat.S_ISREG(info.st_mode) else None

    def directory_mode(self, parts: tuple[str, ...]) -> int:
        """Return the permission bits of a directory that is there."""
        with self._root.directory(parts, _any_path(parts)) as fd:
            return stat.S_IMODE(os.fstat(fd).st_mode)

    def signature(self, path: TreePath) -> Signature | None:
        """Return what changes whenever somebody writes to a path; ``None`` is nothing there."""
        info = self._info(path)
        if info is None:
            return None
        return info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns

    def existing(self, path: TreePath) -> tuple[str, ...]:
        """Return the innermost directory on the way to a path that is there already."""
        parts = path.parents
        while parts:
            try:
                with self._root.directory(parts, path):
                    return parts
            except (FileNotFoundError, PathRefused):
                parts = parts[:-1]
        return ()

    def stage(
        self, index: int, path: TreePath, state: RegularFile | Symlink, mode: int | None
    ) -> Staged:
        """Write new content beside its place, synced; ``mode`` is None for a file that is new."""
        directory = self.existing(path)
        staged = Staged(path, directory, f"{self._prefix}{index}")
        with self._root.directory(directory, path) as fd:
            if isinstance(state, Symlink):
                os.symlink(state.target, os.fsencode(staged.name), dir_fd=fd)
            else:
                self._write(fd, staged, state, mode)
        self._dirty.add(directory)
        return staged

    def _write(self, fd: int, staged: Staged, state: RegularFile, mode: int | None) -> None:
        # A file whose bits are known is closed to others until it has them; to one that is new
        # the kernel applies the umask.
        first = 0o600 if mode is not None else 0o777 if state.executable else 0o666
        file = os.open(staged.name, _NEW, first, dir_fd=fd)
        try:
            view = memoryview(state.content)
            while view:
                view = view[os.write(file, view) :]
            if mode is not None:
                self._take_after(file, staged.path)
                os.fchmod(file, _with_execution(mode, executable=state.executable))
            os.fsync(file)
        finally:
            os.close(file)

    def _take_after(self, file: int, path: TreePath) -> None:
        info = self._info(path)
        if info is None:
            return
        mine = os.fstat(file)
        if (info.st_uid, info.st_gid) != (mine.st_uid, mine.st_gid):
            with suppress(
                PermissionError
            ):  # only root may give a file away; the bytes are what counts
                os.fchown(file, info.st_uid, info.st_gid)

    def install(self, staged: Staged, modes: Mapping[tuple[str, ...], int] | None = None) -> None:
        """Make the directories on the way and rename the staged content into place."""
        path = staged.path
        self.make_directories(path, modes)
        with (
            self._root.directory(staged.directory, path) as source,
            self._root.parent(path) as target,
        ):
            os.rename(staged.name, path.name, src_dir_fd=source, dst_dir_fd=target)
        self._dirty.add(path.parents)

    def make_directories(
        self, path: TreePath, modes: Mapping[tuple[str, ...], int] | None = None
    ) -> None:
        """Make the missing directories on the way to a path, with their bits where known."""
        start = len(self.existing(path))
        for depth in range(start + 1, len(path.parts)):
            parts = path.parts[:depth]
            with (
                self._root.directory(parts[:-1], path) as fd,
                suppress(FileExistsError),
            ):
                os.mkdir(parts[-1], dir_fd=fd)
                self._dirty.add(parts[:-1])
                if modes and parts in modes:
                    os.chmod(parts[-1], modes[parts], dir_fd=fd)

    def remove(self, path: TreePath) -> None:
        """Unlink a file or a link; one that is gone already is fine."""
        try:
            with self._root.parent(path) as fd:
                os.unlink(path.name, dir_fd=fd)
        except FileNotFoundError:
            return
        self._dirty.add(path.parents)

    def remove_directory(self, parts: tuple[str, ...]) -> None:
        """Remove a directory if it is empty; one that is gone or in use stays as it is."""
        try:
            with self._root.directory(parts[:-1], _any_path(parts)) as fd:
                os.rmdir(parts[-1], dir_fd=fd)
        except FileNotFoundError:
            return
        except OSError as problem:
            if problem.errno in {errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.EBUSY}:
                return
            raise
        self._dirty.discard(parts)
        self._dirty.add(parts[:-1])

    def names(self, parts: tuple[str, ...]) -> set[str] | None:
        """List a directory of the tree; ``None`` where there is none."""
        try:
            with self._root.directory(parts, _any_path(parts)) as fd:
                return set(os.listdir(fd))
        except (FileNotFoundError, PathRefused):
            return None

    def discard(self, directories: set[tuple[str, ...]]) -> None:
        """Remove every staged file of this change from the given directories."""
        for parts in directories:
            try:
                with self._root.directory(parts, _any_path(parts)) as fd:
                    for name in os.listdir(fd):
                        if name.startswith(self._prefix):
                            os.unlink(name, dir_fd=fd)
                            self._dirty.add(parts)
            except (FileNotFoundError, PathRefused):
                continue

    def sync(self) -> None:
        """Make every rename, removal and new directory durable."""
        for parts in sorted(self._dirty):
            try:
                with self._root.directory(parts, _any_path(parts)) as fd:
                    os.fsync(fd)
            except FileNotFoundError:
                continue
        self._dirty.clear()

    def _info(self, path: TreePath) -> os.stat_result | None:
        try:
            with self._root.parent(path) as fd:
                return os.stat(path.name, dir_fd=fd, follow_symlinks=False)
        except (FileNotFoundError, PathRefused):
            return None


def _with_execution(mode: int, *, executable: bool) -> int:
    """Keep the permission bits, less the set-id bits, and make them agree with ``executable``."""
    plain = mode & 0o777
    if bool(plain & 0o100) == executable:
        return plain
    return plain | ((plain & 0o444) >> 2) if executable else plain & ~0o111


def _any_path(parts: tuple[str, ...]) -> TreePath:
    return TreePath(parts or (".",))
