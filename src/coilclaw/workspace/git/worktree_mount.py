"""``WorktreeMount``: a worktree at the path of the user's checkout.

Editable installs, ``.pth`` files and build caches lead to the checkout by its path. A command that
judges a worktree has to find the worktree there, and nothing of the checkout but its dependencies.
"""

from __future__ import annotations

import os
import threading
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import explain_os_errors
from coilclaw.workspace.git.dependencies import Dependency, copy_dependency
from coilclaw.workspace.process.confinement import Mount
from coilclaw.workspace.tree.directory_entry import DIRECTORY
from coilclaw.workspace.tree.removal import remove_tree

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from coilclaw.workspace.git.repository import Repository
    from coilclaw.workspace.git.worktrees import Worktree
    from coilclaw.workspace.process.confinement import Kind, SandboxSupport

_RUNTIME: Final = "runtime"
_POINTER: Final = "gitfile"
_REPOSITORY: Final = "repository.git"
_COPIES: Final = "copies"


class MountPoints:
    """Empty paths of a worktree at which something is mounted, there only while they are needed."""

    def __init__(self, root: Path, targets: Mapping[str, bool]) -> None:
        """``targets`` are paths below ``root``, each with whether it is a directory."""
        self._root = root
        self._targets = targets
        self._lock = threading.Lock()
        self._users = 0
        self._made: list[tuple[str, bool]] = []

    @contextmanager
    def hold_mounts(self) -> Iterator[None]:
        """Create the paths for as long as the block lasts; the last user removes them."""
        with self._lock:
            if self._users == 0:
                self._make()
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if self._users == 0:
                    self._remove()

    def _make(self) -> None:
        self._made = []
        try:
            with explain_os_errors(f"prepare {self._root} to be mounted", rule="worktree.mount"):
                for target, directory in self._targets.items():
                    parts = target.split("/")
                    for count in range(1, len(parts) + 1):
                        self._make_one("/".join(parts[:count]), directory or count < len(parts))
        except BaseException:
            self._remove()
            raise

    def _make_one(self, path: str, directory: bool) -> None:
        with _open_parent(self._root, path) as (folder, name), suppress(FileExistsError):
            if directory:
                os.mkdir(name, dir_fd=folder)
            else:
                flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW
                os.close(os.open(name, flags, 0o644, dir_fd=folder))
            self._made.append((path, directory))

    def _remove(self) -> None:
        """Remove what was made; what is not empty is an agent's work, and judged like it."""
        for path, directory in reversed(self._made):
            with suppress(OSError), _open_parent(self._root, path) as (folder, name):
                if directory:
                    os.rmdir(name, dir_fd=folder)
                elif os.stat(name, dir_fd=folder, follow_symlinks=False).st_size == 0:
                    os.unlink(name, dir_fd=folder)
        self._made = []


@dataclass(frozen=True, slots=True)
class WorktreeMount:
    """One worktree, ready to be mounted over the checkout for any number of commands."""

    worktree: Worktree
    checkout: Path
    """The top of the user's worktree; real path."""
    runtime: Path
    """Where runs keep what they need; often inside the checkout."""
    scratch: Path
    """A directory of its own, with what is mounted beside the worktree."""
    mounts: tuple[Mount, ...]
    points: MountPoints
    mounting: bool
    """Whether the sandbox of this machine can mount; otherwise it hides the checkout."""
    installed: tuple[Path, ...] = ()
    """Paths of dependencies that no command can write: what is installed there is the user's."""
    copies: tuple[tuple[Dependency, Path], ...] = ()
    """The dependencies that commands can write, each with the copy of this worktree."""

    def renew(self) -> None:
        """Copy the dependencies again, as nothing that ran here has seen them."""
        for dependency, copy in self.copies:
            remove_tree(copy)
            copy_dependency(dependency.source, copy)

    @property
    def seen_at(self) -> Path:
        """Where a command finds the worktree."""
        return self.checkout if self.mounting else self.worktree.path

    @property
    def environ(self) -> dict[str, str]:
        """The variables with which git works in the worktree, wherever it is found."""
        repository = self.scratch / _REPOSITORY if self.mounting else None
        return self.worktree.environ_at(self.seen_at, repository)

    def with_home(self, home: Path, *more: Path) -> tuple[Mount, ...]:
        """Return all mounts of a command whose home, and what ``more`` it writes, is in place."""
        kept = (self.checkout, self.runtime)
        own = [path for path in (home, *more) if any(path.is_relative_to(one) for one in kept)]
        for path in own:
            if path.is_relative_to(self.runtime):
                # Make the place at which it is mounted.
                place = self.scratch / _RUNTIME / path.relative_to(self.runtime)
                place.mkdir(mode=0o700, parents=True, exist_ok=True)
        return (*self.mounts, *(Mount(path, path) for path in own))


def can_mount(kind: Kind, support: SandboxSupport) -> bool:
    """Say whether a sandbox of this kind can show a worktree at another path."""
    return kind in {"auto", "bubblewrap"} and bool(support.bubblewrap)


@contextmanager
def mount_worktree(
    worktree: Worktree,
    repository: Repository,
    *,
    runtime: Path,
    scratch: Path,
    dependencies: Sequence[Dependency] = (),
    mounting: bool,
) -> Iterator[WorktreeMount]:
    """Prepare a worktree to be mounted; ``scratch`` is made for it, and removed afterwards."""
    checkout = repository.top
    if scratch.exists():
        remove_tree(scratch)
    with explain_os_errors(f"prepare {worktree.path} to be mounted", rule="worktree.mount"):
        scratch.mkdir(mode=0o700, parents=True)
        mounts, targets = _make_mounts(worktree, repository, runtime, scratch)
        installed: list[Path] = []
        copies: list[tuple[Dependency, Path]] = []
        for number, dependency in enumerate(dependencies if mounting else ()):
            copy = scratch / _COPIES / str(number)
            private = dependency.copied and copy_dependency(dependency.source, copy)
            source = copy if private else dependency.source
            mounts.append(Mount(source, checkout / dependency.path, private=private))
            targets[dependency.path] = source.is_dir()
            if private:
                copies.append((dependency, copy))
            else:
                installed.append(checkout / dependency.path)
        if not mounting:
            mounts = [Mount(worktree.path, checkout)]
            left = [one.source for one in dependencies if one.source == checkout / one.path]
            mounts += [Mount(path, path) for path in left]
            targets = {}
    points, own = MountPoints(worktree.path, targets), (worktree, checkout, runtime, scratch)
    try:
        yield WorktreeMount(*own, tuple(mounts), points, mounting, tuple(installed), tuple(copies))
    finally:
        remove_tree(scratch)


def _make_mounts(
    worktree: Worktree, repository: Repository, runtime: Path, scratch: Path
) -> tuple[list[Mount], dict[str, bool]]:
    """Return the mounts of the worktree itself, and the paths in it that they need."""
    checkout, common = repository.top, repository.common_dir
    alias = scratch / _REPOSITORY
    inside = alias / worktree.git_dir.relative_to(common)
    alias.mkdir(mode=0o700)
    pointer = scratch / _POINTER
    pointer.write_bytes(os.fsencode(f"gitdir: {inside}\n"))
    mounts = [
        Mount(worktree.path, checkout),
        Mount(pointer, checkout / ".git"),
        # The checkout's own git directory lies where the worktree is mounted.
        Mount(common, alias),
        Mount(worktree.git_dir, inside),
    ]
    targets: dict[str, bool] = {}
    if runtime.is_relative_to(checkout):
        skeleton = scratch / _RUNTIME
        # Only what is mounted is to be seen: tools walk the tree, and copies hold tests.
        (skeleton / alias.relative_to(runtime)).mkdir(mode=0o700, parents=True)
        (skeleton / worktree.objects.relative_to(runtime)).mkdir(mode=0o700, parents=True)
        mounts.append(Mount(skeleton, runtime))
        mounts.append(Mount(worktree.objects, worktree.objects))
        targets[runtime.relative_to(checkout).as_posix()] = True
    return mounts, targets


@contextmanager
def _open_parent(root: Path, path: str) -> Iterator[tuple[int, str]]:
    """Open the directory that a path stands in; a link on the way is an error."""
    *folders, name = path.split("/")
    at: int | None = None
    with ExitStack() as stack:
        for folder in (str(root), *folders):
            at = os.open(folder, DIRECTORY, dir_fd=at)
            stack.callback(os.close, at)
        assert at is not None
        yield at, name
