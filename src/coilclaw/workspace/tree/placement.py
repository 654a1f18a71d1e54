"""Putting one file at its place: stage beside it, rename, remove, prune, sync."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from coilclaw.kernel import PathRefused, RegularFile, Symlink, TreePath, write_all
from coilclaw.policy import STAGING_PREFIX

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

    from coilclaw.changes import Plan
    from coilclaw.workspace.tree.root import Root

_STAYS: Final = {errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.EBUSY}
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


Parts: TypeAlias = tuple[str, ...]
Signature: TypeAlias = tuple[int, int, int, int, int]
"""Device, inode, size, and the times of the last write and the last change."""


@dataclass(frozen=True, slots=True)
class Staged:
    """New content that waits under a name of ours for its rename."""

    path: TreePath
    directory: Parts
    name: str


@dataclass(frozen=True, slots=True)
class Placement:
    """Places the files of one change in a tree; all names of ours carry the change's id."""

    root: Root
    change_id: str
    dirty: set[Parts] = field(default_factory=set)
    """Directories whose names changed and are not synced yet."""

    def mode(self, path: TreePath) -> int | None:
        """Return the permission bits of a file that is there."""
        info = self._info(path)
        return stat.S_IMODE(info.st_mode) if info and stat.S_ISREG(info.st_mode) else None

    def signature(self, path: TreePath) -> Signature | None:
        """Return what changes whenever a process writes to a path; ``None`` is nothing there."""
        info = self._info(path)
        if info is None:
            return None
        return info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns

    def existing(self, directory: Parts) -> Parts:
        """Return a directory as far as it exists already."""
        for depth in range(len(directory), 0, -1):
            parts = directory[:depth]
            with suppress(FileNotFoundError, PathRefused), self.root.directory(parts):
                return parts
        return ()

    def stage(
        self, index: int, path: TreePath, state: RegularFile | Symlink, mode: int | None
    ) -> Staged:
        """Write new content beside its place, synced; ``mode`` is None for a file that is new."""
        directory = self.existing(path.parents)
        staged = Staged(path, directory, f"{STAGING_PREFIX}{self.change_id}-{index}")
        with self.root.directory(directory, path) as fd:
            if isinstance(state, Symlink):
                os.symlink(state.target, os.fsencode(staged.name), dir_fd=fd)
            else:
                self._write(fd, staged, state, mode)
        self.dirty.add(directory)
        return staged

    def _write(self, fd: int, staged: Staged, state: RegularFile, mode: int | None) -> None:
        # A file whose bits are known is closed to others until it has them; to one that is new
        # the kernel applies the umask.
        first = 0o600 if mode is not None else 0o777 if state.executable else 0o666
        file = os.open(staged.name, _NEW, first, dir_fd=fd)
        try:
            write_all(file, state.content)
            if mode is not None:
                info, mine = self._info(staged.path), os.fstat(file)
                if info and (info.st_uid, info.st_gid) != (mine.st_uid, mine.st_gid):
                    # Only root may give a file away; the bytes are what counts.
                    with suppress(PermissionError):
                        os.fchown(file, info.st_uid, info.st_gid)
                # All permission bits but the set-id bits, in agreement with ``executable``.
                plain = mode & 0o777
                if bool(plain & 0o100) != state.executable:
                    plain = plain | (plain & 0o444) >> 2 if state.executable else plain & ~0o111
                os.fchmod(file, plain)
            os.fsync(file)
        finally:
            os.close(file)

    def install(self, staged: Staged, modes: Mapping[Parts, int | None]) -> None:
        """Make the directories on the way and rename the staged content into place."""
        path = staged.path
        self.make_directories((path.parents,), modes)
        with (
            self.root.directory(staged.directory, path) as source,
            self.root.parent(path) as target,
        ):
            os.rename(staged.name, path.name, src_dir_fd=source, dst_dir_fd=target)
        self.dirty.add(path.parents)

    def make_directories(self, wanted: Iterable[Parts], modes: Mapping[Parts, int | None]) -> None:
        """Make what is missing of some directories, outermost first, with their bits if known."""
        for directory in sorted(wanted):
            for depth in range(len(self.existing(directory)), len(directory)):
                parent, name = directory[:depth], directory[depth]
                with self.root.directory(parent) as fd, suppress(FileExistsError):
                    os.mkdir(name, dir_fd=fd)
                    self.dirty.add(parent)
                    if (mode := modes.get((*parent, name))) is not None:
                        os.chmod(name, mode, dir_fd=fd)

    def list_missing(self, plan: Plan, besides: Iterable[Parts]) -> tuple[Parts, ...]:
        """Return the directories of a plan that are not there yet, outermost first."""
        wanted = {item.path.parents for item in plan.changes if item.after is not None}
        found: set[Parts] = set()
        for parts in wanted.union(besides):
            depth = len(self.existing(parts))
            found.update(parts[:level] for level in range(depth + 1, len(parts) + 1))
        return tuple(sorted(found))

    def list_emptied(
        self, plan: Plan, removable: Container[Parts] | None, besides: Iterable[Parts]
    ) -> tuple[tuple[Parts, int], ...]:
        """Return the directories that lose their last entry, outermost first, with their bits."""
        needed = list_parents(item.path for item in plan.changes if item.after is not None)
        going: dict[Parts, set[str]] = {parts: set() for parts in besides}
        allowed = frozenset(going)
        for item in plan.changes:
            if item.after is None and item.path.parents:
                going.setdefault(item.path.parents, set()).add(item.path.name)
        found: dict[Parts, int] = {}
        while going:
            parts = max(going, key=len)
            names = going.pop(parts)
            kept = removable is not None and parts not in removable and parts not in allowed
            if kept or parts in needed:
                continue
            with (
                suppress(FileNotFoundError, PathRefused),
                self.root.directory(parts) as fd,
            ):
                if not names.issuperset(os.listdir(fd)):
                    continue
                found[parts] = stat.S_IMODE(os.fstat(fd).st_mode)
                if len(parts) > 1:
                    going.setdefault(parts[:-1], set()).add(parts[-1])
        return tuple(sorted(found.items()))

    def remove(self, path: TreePath) -> None:
        """Unlink a file or a link; one that is gone already is fine."""
        with suppress(FileNotFoundError), self.root.parent(path) as fd:
            os.unlink(path.name, dir_fd=fd)
            self.dirty.add(path.parents)

    def remove_directory(self, parts: Parts) -> None:
        """Remove a directory if it is empty; one that is gone or in use stays as it is."""
        try:
            with self.root.directory(parts[:-1]) as fd:
                os.rmdir(parts[-1], dir_fd=fd)
        except OSError as problem:
            if problem.errno in _STAYS:
                return
            raise
        self.dirty.discard(parts)
        self.dirty.add(parts[:-1])

    def discard(self, directories: set[Parts]) -> None:
        """Remove every staged file of this change from the given directories."""
        for parts in directories:
            with (
                suppress(FileNotFoundError, PathRefused),
                self.root.directory(parts) as fd,
            ):
                for name in os.listdir(fd):
                    if name.startswith(f"{STAGING_PREFIX}{self.change_id}-"):
                        os.unlink(name, dir_fd=fd)
                        self.dirty.add(parts)

    def sync(self) -> None:
        """Make every rename, removal and new directory durable."""
        for parts in sorted(self.dirty):
            with (
                suppress(FileNotFoundError),
                self.root.directory(parts) as fd,
            ):
                os.fsync(fd)
        self.dirty.clear()

    def _info(self, path: TreePath) -> os.stat_result | None:
        with suppress(FileNotFoundError, PathRefused), self.root.parent(path) as fd:
            return os.stat(path.name, dir_fd=fd, follow_symlinks=False)
        return None


def list_parents(paths: Iterable[TreePath]) -> frozenset[Parts]:
    """Return every directory that some of the paths lie in."""
    return frozenset(path.parts[:depth] for path in paths for depth in range(1, len(path.parts)))


def lies_below(path: TreePath, others: Container[Parts]) -> bool:
    """Tell whether a path lies below one of others: files or links of the same change."""
    return any(path.parts[:depth] in others for depth in range(1, len(path.parts)))
