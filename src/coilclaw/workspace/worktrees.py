"""``Worktrees``: isolated worktrees of the user's repository, with the exact bytes of a commit.

An agent owns its worktree's git directory, so nothing in there is believed: no git of ours runs on
it, and what is to be removed is known from records of our own.
"""

from __future__ import annotations

import os
import time
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw.domain.treepath import shown
from coilclaw.errors import EnvironmentFault, GitFailed, UsageError
from coilclaw.storage.atomic import write_atomic
from coilclaw.storage.lock import FileLock
from coilclaw.workspace.borrowing import BorrowingGit
from coilclaw.workspace.git import Git
from coilclaw.workspace.owner import Owner
from coilclaw.workspace.removal import is_remainder, remove_tree, sweep_remainders
from coilclaw.workspace.repository import COMMIT_ID, checked, pointed, read_pointer
from coilclaw.workspace.worktree import Record, Records, Worktree

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from typing import BinaryIO

    from coilclaw.workspace.repository import Repository

__all__ = ["Worktree", "Worktrees"]

MAKE_TIMEOUT_S: Final = 60.0
MAX_ATTEMPTS: Final = 5
"""How often a worktree is tried: git's own commands get in each other's way while they make one."""
MAX_REMOVALS: Final = 100
PAUSE_S: Final = 0.05

_BRANCH: Final = "ref: refs/heads/"


class Worktrees:
    """The worktrees below one directory; any number of threads and processes may make them."""

    def __init__(self, repository: Repository, own_git: Path, directory: Path) -> None:
        self.repository = repository
        self.borrowing = BorrowingGit(own_git, repository)
        self.directory = Path(os.path.realpath(directory))
        self._records = Records(self.borrowing.own / "worktrees")
        self._lock = FileLock(self.borrowing.own / "worktrees.lock", timeout_s=10 * MAKE_TIMEOUT_S)
        # Worktrees are listed in the shared git directory, whichever one the user works in.
        self._git = Git(repository.common_dir, foreign=True)

    def add(self, path: Path, commit: str, *, objects: Path | None = None) -> Worktree:
        """Make a detached worktree that holds exactly what a commit holds.

        ``objects`` is where an agent's commits go: a directory that is made, and removed with it.
        """
        path = self._inside(path)
        _refuse_taken(path)
        own = self.borrowing.own / "objects" / os.urandom(8).hex()
        record = Record(path, checked(commit), objects or own, Owner.here())
        with self._records.guarded(path) as guard:
            _refuse_taken(path)  # somebody may have been making it
            try:
                record = self._make(record, guard)
                worktree = self._worktree(record)
                worktree.objects.mkdir(mode=0o700, parents=True, exist_ok=True)
                index = worktree.git_dir / "index"
                self.borrowing.check_out(commit, path, index=index, guard=guard)
            except BaseException:
                self._take_down(record)
                raise
        return worktree

    def find(self, path: Path) -> Worktree | None:
        """Return a worktree that was made earlier, if it is still there."""
        record = self._records.find(self._inside(path))
        return None if record is None or not _whole(record) else self._worktree(record)

    def adopt(self, path: Path) -> Worktree | None:
        """Like ``find``, for a process that goes on with what another one left."""
        record = self._records.find(self._inside(path))
        if record is None or not _whole(record):
            return None
        with self._locked():
            return self._worktree(self._records.adopt(record))

    def git_dirs(self) -> frozenset[Path]:
        """Return the git directories in which agents may have written."""
        return frozenset(record.git_dir for record in self._records.all() if record.git_dir)

    def reset(self, worktree: Worktree) -> None:
        """Make a worktree what it was when it was added, whatever is in it now."""
        with self._records.guarded(worktree.path) as guard:
            remove_tree(worktree.path)
            # Locked, because a free name is taken by the next worktree that is made.
            with self._locked():
                self._remove_git_dir(worktree.git_dir, worktree.path)
                try:
                    worktree.path.mkdir(parents=True)
                    worktree.git_dir.mkdir(parents=True)
                except OSError as problem:
                    raise EnvironmentFault(
                        f"cannot make {worktree.path} again: {problem.strerror}",
                        rule="worktree.reset",
                    ) from problem
                for name, text in _pointers(worktree.path, worktree.commit).items():
                    write_atomic(worktree.git_dir / name, os.fsencode(text), sync=False)
            pointer = os.fsencode(f"gitdir: {worktree.git_dir}\n")
            write_atomic(worktree.path / ".git", pointer, sync=False)
            index = worktree.git_dir / "index"
            self.borrowing.check_out(worktree.commit, worktree.path, index=index, guard=guard)

    def remove(self, worktree: Worktree) -> None:
        """Remove a worktree with everything in it, and make sure that nothing of it is left."""
        record = self._records.find(worktree.path) or Record(
            worktree.path, worktree.commit, worktree.objects, Owner.here(), worktree.git_dir
        )
        with self._records.guarded(record.path):
            self._take_down(record)

    def leftovers(self) -> tuple[Path, ...]:
        """Return what worktrees were left behind by processes that are gone, sorted."""
        # In this order: whoever makes one writes its record first.
        seen = {*self._below(), *self._listed()}
        records = list(self._records.all())
        gone = {record.path for record in records if not record.owner.runs()}
        return tuple(sorted((seen | gone) - {record.path for record in records} | gone))

    def sweep(self, keep: Collection[Path] = ()) -> tuple[Path, ...]:
        """Remove what was left behind, but for what is to be kept; return what was removed."""
        kept = {self._inside(path) for path in keep}
        removed = []
        for path in self.leftovers():
            if path in kept or any(path in other.parents for other in kept):
                continue
            nothing = self.borrowing.own / "objects" / "none"
            stray = Record(path, "", nothing, Owner.here(), None)
            with self._records.guarded(path):
                record = self._records.find(path) or stray
                # Since the look it may have been removed, and made again by a process that runs.
                if record is stray or not record.owner.runs():
                    self._take_down(record)
                    removed.append(path)
        for place in (self.repository.common_dir, self.borrowing.own / "objects"):
            sweep_remainders(place)
        with self._locked():
            self._records.tidy()
        self.borrowing.sweep()
        return tuple(removed)

    def _make(self, record: Record, guard: BinaryIO) -> Record:
        for attempt in range(1, MAX_ATTEMPTS + 1):
            try:
                with self._locked():
                    self._records.write(record)
                    self._disarm()
                    self._unlist(record)
                    self._git.run(
                        "worktree",
                        "add",
                        "--no-checkout",
                        "--detach",
                        "--",
                        str(record.path),
                        record.commit,
                        stdin=guard,
                        timeout_s=MAKE_TIMEOUT_S,
                    )
                    made = replace(record, git_dir=pointed(record.path / ".git"))
                    self._records.write(made)
                    return made
            except GitFailed as problem:
                # Not only we make and prune worktrees of this repository.
                raced = "failed to read" in problem.message or "could not open" in problem.message
                if attempt == MAX_ATTEMPTS or not raced:
                    raise
                remove_tree(record.path)
        raise AssertionError("unreachable")

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self.borrowing.prepare()
        with self._lock:
            yield

    def _disarm(self) -> None:
        """Put plain files where git will look, in case an agent left something to get stuck on."""
        # The record of a process that was killed may name what another worktree has got since.
        records = sorted(self._records.all(), key=lambda record: record.path.is_dir())
        for record in {record.git_dir: record for record in records}.values():
            if record.git_dir is None or not record.git_dir.is_dir():
                continue
            for name, text in _pointers(record.path, record.commit).items():
                line = read_pointer(record.git_dir / name)
                # Any other HEAD would be looked up in what the agent can write.
                if line != text.rstrip("\n") and not (name == "HEAD" and _plain_head(line)):
                    remove_tree(record.git_dir / name)
                    write_atomic(record.git_dir / name, os.fsencode(text), sync=False)
            if read_pointer(record.git_dir / "locked") is None:
                remove_tree(record.git_dir / "locked")

    def _take_down(self, record: Record) -> None:
        remove_tree(record.path)
        with self._locked():
            self._unlist(record)
            # Forgotten before the lock is free: the next worktree may get the same git directory.
            self._records.write(replace(record, git_dir=None))
            self._remove_empty(record.path)
        remove_tree(record.objects)
        if os.path.lexists(record.path):
            raise _left(record.path)
        self._records.drop(record.path)

    def _unlist(self, record: Record) -> None:
        """Remove a worktree's git directory; unless it is known, the list still says the truth.

        ``git worktree prune`` would also remove those of others whose tree is away for a moment.
        """
        places = self.repository.common_dir / "worktrees"
        taken = {other.git_dir for other in self._records.all() if other.path != record.path}
        found = [entry for entry in _entries(places) if _leads_to(entry) == record.path]
        for place in {record.git_dir, *found} - taken:
            if place is not None and place.parent == places:
                self._remove_git_dir(place, record.path)

    def _remove_git_dir(self, git_dir: Path, path: Path) -> None:
        for _ in range(MAX_REMOVALS):
            remove_tree(git_dir, aside_in=self.repository.common_dir)
            if not os.path.lexists(git_dir):
                return
            # No agent can put anything back, but a ``git gc`` of the user's locks every reflog.
            time.sleep(PAUSE_S)
        raise _left(path)

    def _remove_empty(self, path: Path) -> None:
        """Remove the directories that a worktree needed, where nothing else is in them."""
        places = self.repository.common_dir / "worktrees"
        for place in (places, *path.parents):
            if place == places or self.directory in place.parents:
                with suppress(OSError):  # it is not empty, or not there
                    place.rmdir()

    def _listed(self) -> Iterator[Path]:
        """The worktrees in our directory that the repository knows of and our records do not."""
        known = self.git_dirs()
        for entry in _entries(self.repository.common_dir / "worktrees"):
            path = _leads_to(entry)
            if entry not in known and path is not None and self.directory in path.parents:
                yield path

    def _below(self) -> Iterator[Path]:
        """What stands in our directory where worktrees stand: one below, or one of a run's own."""
        for run in _entries(self.directory):
            if is_remainder(run.name) or os.path.lexists(run / ".git"):
                yield run
            elif not _is_busy(run) and not run.is_symlink() and run.is_dir():
                yield from (entry for entry in _entries(run) if not _is_busy(entry))

    def _worktree(self, record: Record) -> Worktree:
        assert record.git_dir is not None
        shared = self.repository.objects
        return Worktree(record.path, record.commit, record.git_dir, record.objects, shared)

    def _inside(self, path: Path) -> Path:
        """The same path as it is spelled everywhere else."""
        real = Path(os.path.realpath(path.parent)) / path.name
        if path.name == ".." or self.directory not in real.parents:
            raise UsageError(
                f"{shown(str(path))} is not below {self.directory}, where worktrees belong",
                rule="worktree.path",
            )
        return real


def _left(path: Path) -> EnvironmentFault:
    return EnvironmentFault(
        f"something writes in the worktree {path} while it is removed",
        rule="worktree.left",
        hint="end the process that works in it, then remove it again",
    )


def _refuse_taken(path: Path) -> None:
    if os.path.lexists(path):
        raise UsageError(f"there is something at {path} already", rule="worktree.exists")


def _pointers(path: Path, commit: str) -> dict[str, str]:
    """The files that make a directory the git directory of a worktree."""
    return {"gitdir": f"{path}/.git\n", "commondir": "../..\n", "HEAD": f"{commit}\n"}


def _plain_head(line: str | None) -> bool:
    return line is not None and bool(COMMIT_ID.fullmatch(line) or line.startswith(_BRANCH))


def _leads_to(git_dir: Path) -> Path | None:
    line = read_pointer(git_dir / "gitdir")
    if line is None or not line.endswith("/.git"):
        return None
    return Path(os.path.realpath(git_dir / line.removesuffix("/.git")))


def _whole(record: Record) -> bool:
    return record.git_dir is not None and record.path.is_dir() and record.git_dir.is_dir()


def _is_busy(entry: Path) -> bool:
    """Whether this is being removed by a process that runs."""
    return entry.name.startswith(".coilclaw-") and not is_remainder(entry.name)


def _entries(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
