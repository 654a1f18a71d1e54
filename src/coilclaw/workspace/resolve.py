"""``Root``: the only way to a path inside a tree.

``sight`` looks a path up: it follows links by hand, one name at a time and relative to open
directories, and refuses whatever ends outside the tree or at ``.git``. What it returns is the real
location, and everything that later reads or writes there walks it again with no link followed at
all. So a link that is swapped in between leads to a refusal, not out of the tree.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from coilclaw.changes.sighting import Sighting
from coilclaw.domain.files import Found, Obstacle, RegularFile, Symlink
from coilclaw.domain.treepath import TreePath, shown
from coilclaw.errors import EnvironmentFault, PathRefused, PlanRefused, UsageError

if TYPE_CHECKING:
    from collections.abc import Container, Iterator
    from pathlib import Path
    from types import TracebackType

MAX_LINKS: Final = 40
MAX_READ_BYTES: Final = 32 * 2**20

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class _End:
    """Where a walk ended."""

    real: TreePath
    found: Found
    identity: tuple[int, int] | None


class Root:
    """An open tree. Close it, or use it as a context manager."""

    def __init__(self, path: Path) -> None:
        try:
            self.path = path.resolve(strict=True)
            self.fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError as problem:
            raise UsageError(f"there is no directory {path}", rule="root.missing") from problem
        except NotADirectoryError as problem:
            raise UsageError(f"{path} is not a directory", rule="root.directory") from problem
        except (OSError, RuntimeError) as problem:
            reason = getattr(problem, "strerror", None) or str(problem)
            raise EnvironmentFault(
                f"cannot open the directory {path}: {reason}", rule="root.open"
            ) from problem

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def sight(self, path: TreePath, *, limit: int = MAX_READ_BYTES) -> Sighting:
        """Find what stands at a path, or refuse a path that leads out of the tree."""
        own = self._walk(path, follow=False, limit=limit)
        if isinstance(own.found, Symlink):
            real = self._walk(path, follow=True, limit=limit)
            if real.found is None:
                raise PathRefused(
                    f"path {shown(str(path))} is a symbolic link to nothing",
                    path=str(path),
                    rule="path.dangling",
                )
        else:
            real = own
        return Sighting(own.real, own.found, real.real, real.found, real.identity)

    def read(self, real: TreePath, *, limit: int = MAX_READ_BYTES) -> Found:
        """Read what stands at a real location, following no link; below a file stands nothing."""
        try:
            with self.parent(real) as directory:
                return _look(directory, real, limit)[0]
        except FileNotFoundError:
            return None
        except PathRefused as refused:
            if refused.rule == "path.directory":
                return None
            raise

    def first_left(
        self, real: TreePath, gone: Container[tuple[str, ...]]
    ) -> tuple[str, ...] | None:
        """Return what would be left in a directory without some paths, if anything would.

        A directory that is empty already is left; where no directory stands, nothing is.
        """
        ahead = [real.parts]
        while ahead:
            parts = ahead.pop()
            try:
                with self.directory(parts, real) as fd:
                    names = os.listdir(fd)
                    if not names and parts != real.parts:
                        return parts
                    for name in names:
                        inside = (*parts, name)
                        if inside in gone:
                            continue
                        if not stat.S_ISDIR(
                            os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode
                        ):
                            return inside
                        ahead.append(inside)
            except FileNotFoundError:
                continue
            except PathRefused:
                if parts == real.parts:
                    return None
                return parts
        return None

    @contextmanager
    def parent(self, real: TreePath) -> Iterator[int]:
        """Open the directory of a real location, following no link."""
        if real.name in {"", ".", ".."} or "/" in real.name:
            raise PathRefused(
                f"path {shown(str(real))} is no path of a tree", path=str(real), rule="path.parent"
            )
        with self.directory(real.parents, real) as fd:
            yield fd

    @contextmanager
    def directory(self, parts: tuple[str, ...], path: TreePath) -> Iterator[int]:
        """Open a directory of the tree; ``path`` is what it is opened for, for messages."""
        fd = self.fd
        try:
            for name in parts:
                if name in {"", ".", ".."} or "/" in name:
                    raise PathRefused(
                        f"path {shown(str(path))} is no path of a tree",
                        path=str(path),
                        rule="path.parent",
                    )
                deeper = _enter(fd, name, path)
                if fd != self.fd:
                    os.close(fd)
                fd = deeper
            yield fd
        finally:
            if fd != self.fd:
                os.close(fd)

    def _walk(self, path: TreePath, *, follow: bool, limit: int) -> _End:
        walk = _Walk(self, path)
        try:
            return walk.to_the_end(follow=follow, limit=limit)
        finally:
            walk.close()


class _Walk:
    """One walk along a path: a stack of open directories and the names still ahead."""

    def __init__(self, root: Root, path: TreePath) -> None:
        self._root = root
        self._path = path
        self._ahead = deque(path.parts)
        self._stack: list[int] = []
        self._real: list[str] = []
        self._links = 0

    def close(self) -> None:
        for fd in self._stack:
            os.close(fd)

    def to_the_end(self, *, follow: bool, limit: int) -> _End:
        while self._ahead:
            name = self._ahead.popleft()
            if name == "..":
                self._climb()
                continue
            if name in {"", "."}:
                continue
            mode = self._mode(name)
            if mode is None:
                return self._absent(name)
            if stat.S_ISLNK(mode) and (self._ahead or follow):
                self._follow(name)
            elif not self._ahead:
                return self._leaf(name, limit)
            else:
                self._descend(name, mode)
        return _End(self._checked(), Obstacle("directory"), None)

    @property
    def _here(self) -> int:
        return self._stack[-1] if self._stack else self._root.fd

    def _mode(self, name: str) -> int | None:
        try:
            return os.stat(name, dir_fd=self._here, follow_symlinks=False).st_mode
        except FileNotFoundError:
            return None
        except OSError as problem:
            raise self._refused(
                "path.unreadable", f"cannot be read: {problem.strerror}"
            ) from problem

    def _absent(self, name: str) -> _End:
        rest = [part for part in (name, *self._ahead) if part not in {"", "."}]
        if ".." in rest:
            raise self._refused("path.parent", "climbs out of a directory that is not there")
        self._real.extend(rest)
        return _End(self._checked(), None, None)

    def _leaf(self, name: str, limit: int) -> _End:
        self._real.append(name)
        real = self._checked()
        found, identity = _look(self._here, real, limit)
        return _End(real, found, identity)

    def _descend(self, name: str, mode: int) -> None:
        if not stat.S_ISDIR(mode):
            where = "/".join((*self._real, name))
            raise self._refused("path.directory", f"needs a directory at '{where}', which is none")
        try:
            self._stack.append(_enter(self._here, name, self._path))
        except FileNotFoundError as problem:
            raise self._refused("path.changed", "changed while it was looked at") from problem
        self._real.append(name)

    def _climb(self) -> None:
        if not self._stack:
            raise self._refused("path.symlink", "leaves the tree through a symbolic link")
        os.close(self._stack.pop())
        self._real.pop()

    def _follow(self, name: str) -> None:
        self._links += 1
        if self._links > MAX_LINKS:
            raise self._refused("path.symlink", "goes through too many symbolic links")
        try:
            target = os.readlink(name, dir_fd=self._here)
        except OSError as problem:
            # It was a link a moment ago: somebody is swapping things under us.
            raise self._refused("path.changed", "changed while it was looked up") from problem
        if target.startswith("/"):
            target = self._relative(target)
            while self._stack:
                os.close(self._stack.pop())
            self._real.clear()
        self._ahead.extendleft(reversed(target.split("/")))

    def _relative(self, target: str) -> str:
        base = str(self._root.path).rstrip("/") + "/"
        if not target.startswith(base):
            raise self._refused("path.symlink", "leaves the tree through a symbolic link")
        return target[len(base) :]

    def _checked(self) -> TreePath:
        """The real location obeys the same lexical rules: a link may not lead into ``.git``."""
        if not self._real:
            raise self._refused("path.empty", "is the tree itself")
        if tuple(self._real) == self._path.parts:
            return self._path
        return TreePath.parse("/".join(self._real))

    def _refused(self, rule: str, what: str) -> PathRefused:
        return PathRefused(f"path {shown(str(self._path))} {what}", path=str(self._path), rule=rule)


def _enter(fd: int, name: str, path: TreePath) -> int:
    try:
        return os.open(name, _DIRECTORY, dir_fd=fd)
    except FileNotFoundError:
        raise
    except OSError as problem:
        if problem.errno in {errno.ELOOP, errno.ENOTDIR}:
            link = stat.S_ISLNK(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode)
            raise PathRefused(
                f"path {shown(str(path))} goes through '{name}', which is "
                f"{'a symbolic link' if link else 'no directory'}",
                path=str(path),
                rule="path.symlink" if link else "path.directory",
            ) from problem
        raise EnvironmentFault(
            f"cannot open '{name}' on the way to {shown(str(path))}: {problem.strerror}",
            rule="path.open",
        ) from problem


def _look(fd: int, real: TreePath, limit: int) -> tuple[Found, tuple[int, int] | None]:
    """Read the last name of a location; the caller has its directory open."""
    name = real.name
    try:
        file = os.open(name, _FILE, dir_fd=fd)
    except FileNotFoundError:
        return None, None
    except OSError as problem:
        if problem.errno == errno.ELOOP:
            return Symlink(os.fsencode(os.readlink(name, dir_fd=fd))), None
        if problem.errno == errno.ENXIO:  # a socket, or a FIFO without a peer
            return _special(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode), None
        raise EnvironmentFault(
            f"cannot read {shown(str(real))}: {problem.strerror}", rule="path.open"
        ) from problem
    try:
        info = os.fstat(file)
        if not stat.S_ISREG(info.st_mode):
            return _special(info.st_mode), None
        identity = (info.st_dev, info.st_ino) if info.st_nlink == 1 else None
        content = _bounded(file, info.st_size, real, limit)
        return RegularFile(content, bool(info.st_mode & stat.S_IXUSR)), identity
    finally:
        os.close(file)


def _special(mode: int) -> Obstacle:
    if stat.S_ISDIR(mode):
        return Obstacle("directory")
    if stat.S_ISFIFO(mode):
        return Obstacle("fifo")
    if stat.S_ISSOCK(mode):
        return Obstacle("socket")
    return Obstacle("device")


def _bounded(file: int, size: int, real: TreePath, limit: int) -> bytes:
    pieces: list[bytes] = []
    total = 0
    while size <= limit and total <= limit:
        piece = os.read(file, min(2**20, max(size + 1 - total, 4096)))
        if not piece:
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.append(piece)
        total += len(piece)
    raise PlanRefused(
        f"{shown(str(real))} is larger than the bound of {limit:,} bytes",
        rule="plan.bounds",
        path=str(real),
    )
