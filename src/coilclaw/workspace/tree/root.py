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
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self, TypeAlias

from coilclaw.changes import PathState
from coilclaw.kernel import (
    EnvironmentFault,
    Found,
    Obstacle,
    PathRefused,
    PlanRefused,
    RegularFile,
    Symlink,
    TreePath,
    UsageError,
    quote_text,
    refuse_path,
)
from coilclaw.workspace.tree.directory_entry import DIRECTORY, FILE

if TYPE_CHECKING:
    from collections.abc import Container, Iterator
    from pathlib import Path

MAX_LINKS: Final = 40
MAX_READ_BYTES: Final = 32 * 2**20

_OBSTACLES: Final = {
    stat.S_IFDIR: Obstacle("directory"),
    stat.S_IFIFO: Obstacle("fifo"),
    stat.S_IFSOCK: Obstacle("socket"),
}
_LINK: Final = ("path.symlink", "a symbolic link")
_NO_DIRECTORY: Final = ("path.directory", "no directory")
_End: TypeAlias = tuple[TreePath, Found, tuple[int, int] | None]
"""Where a walk ended: the real location, what stands there, device and inode of a file."""


class Root:
    """An open tree. Close it, or use it as a context manager."""

    def __init__(self, path: Path) -> None:
        try:
            self.path = path.resolve(strict=True)
            self.fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError as problem:
            raise UsageError(
                f"the directory {path} does not exist", rule="root.missing"
            ) from problem
        except NotADirectoryError as problem:
            raise UsageError(f"{path} is not a directory", rule="root.directory") from problem
        except (OSError, RuntimeError) as problem:
            reason = getattr(problem, "strerror", None) or str(problem)
            what = f"cannot open the directory {path}: {reason}"
            raise EnvironmentFault(what, rule="root.open") from problem

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def sight(self, path: TreePath, *, limit: int = MAX_READ_BYTES) -> PathState:
        """Find what stands at a path, or refuse a path that leads out of the tree."""
        names = deque(path.parts)
        walk = _Walk(self.path, path, names.copy(), [self.fd])
        own, own_found, identity = walk.run(follow=False, limit=limit)
        real, found = own, own_found
        if isinstance(own_found, Symlink):
            walk = _Walk(self.path, path, names, [self.fd])
            real, found, identity = walk.run(follow=True, limit=limit)
            if found is None:
                raise refuse_path(str(path), "path.dangling", "is a symbolic link to nothing")
        return PathState(own, own_found, real, found, identity)

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
                        mode = os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode
                        if not stat.S_ISDIR(mode):
                            return inside
                        ahead.append(inside)
            except FileNotFoundError:
                continue
            except PathRefused:
                return None if parts == real.parts else parts
        return None

    @contextmanager
    def parent(self, real: TreePath) -> Iterator[int]:
        """Open the directory of a real location, following no link."""
        if real.name in {"", ".", ".."} or "/" in real.name:
            raise refuse_path(str(real), "path.parent", "is not a path of a tree")
        with self.directory(real.parents, real) as fd:
            yield fd

    @contextmanager
    def directory(self, parts: tuple[str, ...], path: TreePath | None = None) -> Iterator[int]:
        """Open a directory of the tree; a refusal names ``path`` if it is opened for that."""
        fd, path = self.fd, path or TreePath(parts)
        try:
            for name in parts:
                if name in {"", ".", ".."} or "/" in name:
                    raise refuse_path(str(path), "path.parent", "is not a path of a tree")
                deeper = _enter(fd, name, path)
                if fd != self.fd:
                    os.close(fd)
                fd = deeper
            yield fd
        finally:
            if fd != self.fd:
                os.close(fd)


@dataclass(slots=True)
class _Walk:
    """One walk along a path: a stack of open directories and the names still ahead."""

    root: Path
    path: TreePath
    ahead: deque[str]
    stack: list[int]
    """The tree itself comes first, and stays open."""
    real: list[str] = field(default_factory=list)
    links: int = 0

    def run(self, *, follow: bool, limit: int) -> _End:
        try:
            while self.ahead:
                name = self.ahead.popleft()
                if name == "..":
                    self._climb()
                    continue
                if name in {"", "."}:
                    continue
                try:
                    mode = os.stat(name, dir_fd=self.stack[-1], follow_symlinks=False).st_mode
                except FileNotFoundError as problem:
                    rest = [part for part in (name, *self.ahead) if part not in {"", "."}]
                    if ".." in rest:
                        what = "climbs out of a directory that is not there"
                        raise self._refusal("path.parent", what) from problem
                    self.real.extend(rest)
                    return self._check_real(), None, None
                except OSError as problem:
                    what = f"cannot be read: {problem.strerror}"
                    raise self._refusal("path.unreadable", what) from problem
                if stat.S_ISLNK(mode) and (self.ahead or follow):
                    self._follow(name)
                elif not self.ahead:
                    self.real.append(name)
                    real = self._check_real()
                    return real, *_look(self.stack[-1], real, limit)
                else:
                    self._descend(name, mode)
            return self._check_real(), Obstacle("directory"), None
        finally:
            for fd in self.stack[1:]:
                os.close(fd)

    def _descend(self, name: str, mode: int) -> None:
        if not stat.S_ISDIR(mode):
            where = "/".join((*self.real, name))
            raise self._refusal("path.directory", f"needs a directory at '{where}', which is none")
        try:
            self.stack.append(_enter(self.stack[-1], name, self.path))
        except FileNotFoundError as problem:
            raise self._refusal("path.changed", "changed while it was looked at") from problem
        self.real.append(name)

    def _climb(self) -> None:
        if len(self.stack) == 1:
            raise self._refusal("path.symlink", "leaves the tree through a symbolic link")
        os.close(self.stack.pop())
        self.real.pop()

    def _follow(self, name: str) -> None:
        self.links += 1
        if self.links > MAX_LINKS:
            raise self._refusal("path.symlink", "goes through too many symbolic links")
        try:
            target = os.readlink(name, dir_fd=self.stack[-1])
        except OSError as problem:
            # It was a link a moment ago: something is swapped under us.
            raise self._refusal("path.changed", "changed while it was looked up") from problem
        if target.startswith("/"):
            base = str(self.root).rstrip("/") + "/"
            if not target.startswith(base):
                raise self._refusal("path.symlink", "leaves the tree through a symbolic link")
            target = target[len(base) :]
            while len(self.stack) > 1:
                os.close(self.stack.pop())
            self.real.clear()
        self.ahead.extendleft(reversed(target.split("/")))

    def _check_real(self) -> TreePath:
        """Return the real location, which obeys the same rules: no link may lead into ``.git``."""
        if not self.real:
            raise self._refusal("path.empty", "is the tree itself")
        if tuple(self.real) == self.path.parts:
            return self.path
        return TreePath.parse("/".join(self.real))

    def _refusal(self, rule: str, what: str) -> PathRefused:
        return refuse_path(str(self.path), rule, what)


def _enter(fd: int, name: str, path: TreePath) -> int:
    try:
        return os.open(name, DIRECTORY, dir_fd=fd)
    except FileNotFoundError:
        raise
    except OSError as problem:
        if problem.errno in {errno.ELOOP, errno.ENOTDIR}:
            link = stat.S_ISLNK(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode)
            rule, what = _LINK if link else _NO_DIRECTORY
            why = f"goes through '{name}', which is {what}"
            raise refuse_path(str(path), rule, why) from problem
        raise EnvironmentFault(
            f"cannot open '{name}' on the way to {quote_text(str(path))}: {problem.strerror}",
            rule="path.open",
        ) from problem


def _look(fd: int, real: TreePath, limit: int) -> tuple[Found, tuple[int, int] | None]:
    """Read the last name of a location; the caller has its directory open."""
    name = real.name
    try:
        file = os.open(name, FILE, dir_fd=fd)
    except FileNotFoundError:
        return None, None
    except OSError as problem:
        if problem.errno == errno.ELOOP:
            return Symlink(os.fsencode(os.readlink(name, dir_fd=fd))), None
        if problem.errno == errno.ENXIO:  # a socket, or a FIFO without a peer
            return _special(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode), None
        raise EnvironmentFault(
            f"cannot read {quote_text(str(real))}: {problem.strerror}", rule="path.open"
        ) from problem
    try:
        info = os.fstat(file)
        if not stat.S_ISREG(info.st_mode):
            return _special(info.st_mode), None
        identity = (info.st_dev, info.st_ino) if info.st_nlink == 1 else None
        content = _read_bounded(file, info.st_size, real, limit)
        return RegularFile(content, bool(info.st_mode & stat.S_IXUSR)), identity
    finally:
        os.close(file)


def _special(mode: int) -> Obstacle:
    return _OBSTACLES.get(stat.S_IFMT(mode), Obstacle("device"))


def _read_bounded(file: int, size: int, real: TreePath, limit: int) -> bytes:
    pieces: list[bytes] = []
    total = 0
    while size <= limit and total <= limit:
        piece = os.read(file, min(2**20, max(size + 1 - total, 4096)))
        if not piece:
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.append(piece)
        total += len(piece)
    raise PlanRefused(
        f"{quote_text(str(real))} is larger than the bound of {limit:,} bytes",
        rule="plan.bounds",
        path=str(real),
    )
