"""``Worktrees``: isolated worktrees of the user's repository, with the exact bytes of a commit.

An agent owns its worktree's git directory, so nothing in it is trusted: our git never runs on it,
and what to remove comes from our own records.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import (
    EnvironmentFault,
    FileLock,
    GitFailed,
    LockTimeout,
    UsageError,
    explain_os_errors,
    hold_guard,
    quote_text,
    read_private,
    write_atomic,
)
from coilclaw.workspace.git.borrowed_git import BorrowingGit
from coilclaw.workspace.git.client import Git, name_author
from coilclaw.workspace.git.repository import (
    COMMIT_ID,
    check_commit_id,
    find_worktree,
    follow_pointer,
    list_entries,
    make_config_variables,
    read_pointer,
)
from coilclaw.workspace.process.owner import Owner
from coilclaw.workspace.tree.removal import is_remainder, remove_tree, sweep_remainders

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from contextlib import AbstractContextManager
    from typing import BinaryIO

    from coilclaw.kernel import Json
    from coilclaw.workspace.git.repository import Repository


GUARD_TIMEOUT_S: Final = 3600.0
AGENT: Final = ("CoilClaw agent", "agent@coilclaw.invalid")
"""Who authors what an agent commits."""

_SUFFIX: Final = ".json"
_GUARD: Final = ".guard"
_FORM: Final = 1


@dataclass(frozen=True, slots=True)
class Worktree:
    """A detached worktree; an agent may write in it, in its git directory and its objects."""

    path: Path
    commit: str
    """The baseline: what was checked out, to the byte."""
    git_dir: Path
    """``.git/worktrees/<id>`` of the repository: its own HEAD and index."""
    objects: Path
    """Where what is committed in it goes."""
    shared: Path
    """The objects of the repository, which stay as they are."""

    @property
    def writable(self) -> tuple[Path, ...]:
        """What a sandbox has to let an agent write for git to work in it, and no more."""
        return (self.path, self.git_dir, self.objects)

    @property
    def environ(self) -> dict[str, str]:
        """The variables with which git works in it where it is."""
        return self.environ_at(self.path)

    def environ_at(self, seen_at: Path, repository: Path | None = None) -> dict[str, str]:
        """Return the variables with which git works in it while the repository is read-only.

        ``seen_at`` is where it is found, ``repository`` where the shared git directory is, if not
        at its own path.
        """
        settings = (
            ("core.hooksPath", "/dev/null"),
            ("core.fsmonitor", "false"),
            ("gc.auto", "0"),
            ("maintenance.auto", "false"),
            ("commit.gpgSign", "false"),
            ("safe.directory", str(seen_at)),
        )
        shared = self.shared if repository is None else repository / self.shared.name
        return {
            "GIT_OBJECT_DIRECTORY": str(self.objects),
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": _quote_path(str(shared)),
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            **name_author(*AGENT),
            **make_config_variables(settings),
        }


@dataclass(frozen=True, slots=True)
class WorktreeRecord:
    """What is known of a worktree without asking anything that an agent could have written."""

    path: Path
    commit: str
    objects: Path
    owner: Owner
    git_dir: Path | None = None
    """``None``: it was being made, and no agent was let in yet."""


class Records:
    """One file for each worktree, written before it is made and removed after it is gone.

    The writer holds the lock of all worktrees.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def write(self, record: WorktreeRecord) -> None:
        document: dict[str, Json] = {
            "form": _FORM,
            "path": str(record.path),
            "commit": record.commit,
            "objects": str(record.objects),
            "git_dir": None if record.git_dir is None else str(record.git_dir),
            "owner": record.owner.json(),
        }
        self._create()
        # Only a kill must not lose it: after a power cut the git directory itself still tells.
        data = json.dumps(document, ensure_ascii=True).encode("ascii")
        write_atomic(self._place(record.path), data, mode=0o600, sync=False)

    def find(self, path: Path) -> WorktreeRecord | None:
        return self._read(self._place(path))

    def all(self) -> Iterator[WorktreeRecord]:
        for place in list_entries(self._directory):
            if place.name.endswith(_SUFFIX) and (record := self._read(place)) is not None:
                yield record

    def drop(self, path: Path) -> None:
        """Forget a worktree; its guard is held by the one who does."""
        self._place(path).unlink(missing_ok=True)
        self._guard(path).unlink(missing_ok=True)

    def tidy(self) -> None:
        """Remove what a process that was killed did not get to put in place."""
        for place in self._directory.glob(".coilclaw-*"):
            place.unlink(missing_ok=True)
        for place in self._directory.glob(f"*{_GUARD}"):
            if not place.with_suffix(_SUFFIX).exists():
                with suppress(LockTimeout), hold_guard(place, timeout_s=0.0):
                    place.unlink(missing_ok=True)

    def guard_worktree(self, path: Path) -> AbstractContextManager[BinaryIO]:
        """Wait until nothing works on a worktree, and hold it."""
        self._create()
        return hold_guard(self._guard(path), timeout_s=GUARD_TIMEOUT_S)

    def _create(self) -> None:
        with explain_os_errors(f"create {self._directory}", rule="file.io"):
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _place(self, path: Path) -> Path:
        return self._directory / f"{sha256(os.fsencode(path)).hexdigest()[:32]}{_SUFFIX}"

    def _guard(self, path: Path) -> Path:
        return self._place(path).with_suffix(_GUARD)

    def _read(self, place: Path) -> WorktreeRecord | None:
        data = read_private(place)
        if data is None:
            return None
        try:
            value = json.loads(data)
            owner = Owner.of(value["owner"])
            if owner is None or value["form"] != _FORM:
                raise ValueError(place)
            git_dir = None if value["git_dir"] is None else Path(value["git_dir"])
            path, commit = Path(value["path"]), str(value["commit"])
            return WorktreeRecord(path, commit, Path(value["objects"]), owner, git_dir)
        except (ValueError, KeyError, TypeError) as problem:
            what = f"{place} is not a record of a worktree"
            raise EnvironmentFault(what, rule="worktree.record") from problem


def _quote_path(path: str) -> str:
    """Quote a path for a list that colons separate and that may hold comments and C strings."""
    if ":" not in path and not path.startswith(('"', "#")):
        return path
    return '"' + path.replace("\\", "\\\\").replace('"', '\\"') + '"'


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

    def add(self, path: Path, commit: str) -> Worktree:
        """Make a detached worktree that holds exactly what a commit holds."""
        path = self._inside(path)
        _refuse_taken(path)
        objects = self.borrowing.own / "objects" / os.urandom(8).hex()
        record = WorktreeRecord(path, check_commit_id(commit), objects, Owner.here())
        with self._records.guard_worktree(path) as guard:
            _refuse_taken(path)  # a process may have been making it
            try:
                record = self._make(record, guard)
                worktree = self._worktree(record)
                worktree.objects.mkdir(mode=0o700, parents=True, exist_ok=True)
                self.borrowing.check_out(commit, path, worktree.git_dir, guard)
            except BaseException:
                self._take_down(record)
                raise
        return worktree

    def find(self, path: Path) -> Worktree | None:
        """Return a worktree that was made earlier, if it is still there."""
        record = self._records.find(self._inside(path))
        if record is None or record.git_dir is None:
            return None
        there = record.path.is_dir() and record.git_dir.is_dir()
        return self._worktree(record) if there else None

    def git_dirs(self) -> frozenset[Path]:
        """Return the git directories in which agents may have written."""
        return frozenset(record.git_dir for record in self._records.all() if record.git_dir)

    def reset(self, worktree: Worktree) -> None:
        """Make a worktree what it was when it was added, whatever is in it now."""
        with self._records.guard_worktree(worktree.path) as guard:
            remove_tree(worktree.path)
            # Locked, because a free name is taken by the next worktree that is made.
            with self._take_lock():
                self._remove_git_dir(worktree.git_dir, worktree.path)
                with explain_os_errors(f"make {worktree.path} again", rule="worktree.reset"):
                    worktree.path.mkdir(parents=True)
                    worktree.git_dir.mkdir(parents=True)
                for name, text in _make_pointers(worktree.path, worktree.commit).items():
                    write_atomic(worktree.git_dir / name, os.fsencode(text), sync=False)
            pointer = os.fsencode(f"gitdir: {worktree.git_dir}\n")
            write_atomic(worktree.path / ".git", pointer, sync=False)
            self.borrowing.check_out(worktree.commit, worktree.path, worktree.git_dir, guard)

    def remove(self, worktree: Worktree) -> None:
        """Remove a worktree with everything in it, and make sure that nothing of it is left."""
        record = self._records.find(worktree.path) or WorktreeRecord(
            worktree.path, worktree.commit, worktree.objects, Owner.here(), worktree.git_dir
        )
        with self._records.guard_worktree(record.path):
            self._take_down(record)

    def leftovers(self) -> tuple[Path, ...]:
        """Return what worktrees were left behind by processes that are gone, sorted."""
        # In this order: a process that makes one writes its record first.
        known = self.git_dirs()
        entries = set(list_entries(self.repository.common_dir / "worktrees")) - known
        listed = {path for entry in entries if (path := find_worktree(entry)) is not None}
        seen = {path for path in listed if self.directory in path.parents}
        for run in list_entries(self.directory):
            # Worktrees stand in our directory, or one below, in that of a run.
            if is_remainder(run.name) or os.path.lexists(run / ".git"):
                seen.add(run)
            elif not _is_busy(run) and not run.is_symlink() and run.is_dir():
                seen |= {entry for entry in list_entries(run) if not _is_busy(entry)}
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
            stray = WorktreeRecord(path, "", nothing, Owner.here(), None)
            with self._records.guard_worktree(path):
                record = self._records.find(path) or stray
                # Since the look it may have been removed, and made again by a process that runs.
                if record is stray or not record.owner.runs():
                    self._take_down(record)
                    removed.append(path)
        for place in (self.repository.common_dir, self.borrowing.own / "objects"):
            sweep_remainders(place)
        with self._take_lock():
            self._records.tidy()
        self.borrowing.sweep()
        return tuple(removed)

    def _make(self, record: WorktreeRecord, guard: BinaryIO) -> WorktreeRecord:
        for attempt in range(1, MAX_ATTEMPTS + 1):
            try:
                with self._take_lock():
                    self._records.write(record)
                    self._disarm()
                    self._unlist(record)
                    command = ("worktree", "add", "--no-checkout", "--detach", "--")
                    place = (str(record.path), record.commit)
                    self._git.run(*command, *place, stdin=guard, timeout_s=MAKE_TIMEOUT_S)
                    made = replace(record, git_dir=follow_pointer(record.path / ".git"))
                    self._records.write(made)
                    return made
            except GitFailed as problem:
                # Not only we make and prune worktrees of this repository.
                raced = "failed to read" in problem.message or "could not open" in problem.message
                if attempt == MAX_ATTEMPTS or not raced:
                    raise
                remove_tree(record.path)
        raise AssertionError("unreachable")

    def _take_lock(self) -> FileLock:
        self.borrowing.prepare()
        return self._lock

    def _disarm(self) -> None:
        """Put plain files where git will look, in case an agent left something to get stuck on."""
        # The record of a process that was killed may name what another worktree has got since.
        records = sorted(self._records.all(), key=lambda record: record.path.is_dir())
        for record in {record.git_dir: record for record in records}.values():
            if record.git_dir is None or not record.git_dir.is_dir():
                continue
            for name, text in _make_pointers(record.path, record.commit).items():
                line = read_pointer(record.git_dir / name) or ""
                # Any other HEAD would be looked up in what the agent can write.
                plain = bool(COMMIT_ID.fullmatch(line)) or line.startswith(_BRANCH)
                if line != text.rstrip("\n") and not (name == "HEAD" and plain):
                    remove_tree(record.git_dir / name)
                    write_atomic(record.git_dir / name, os.fsencode(text), sync=False)
            if read_pointer(record.git_dir / "locked") is None:
                remove_tree(record.git_dir / "locked")

    def _take_down(self, record: WorktreeRecord) -> None:
        remove_tree(record.path)
        with self._take_lock():
            self._unlist(record)
            # Forgotten before the lock is free: the next worktree may get the same git directory.
            self._records.write(replace(record, git_dir=None))
            # The directories that it needed go, where nothing else is in them.
            places = self.repository.common_dir / "worktrees"
            for place in (places, *record.path.parents):
                if place == places or self.directory in place.parents:
                    with suppress(OSError):  # it is not empty, or not there
                        place.rmdir()
        remove_tree(record.objects)
        if os.path.lexists(record.path):
            raise _explain_left(record.path)
        self._records.drop(record.path)

    def _unlist(self, record: WorktreeRecord) -> None:
        """Remove a worktree's git directory; unless it is known, the list still says the truth.

        ``git worktree prune`` would also remove those of others whose tree is away for a moment.
        """
        places = self.repository.common_dir / "worktrees"
        taken = {other.git_dir for other in self._records.all() if other.path != record.path}
        found = [entry for entry in list_entries(places) if find_worktree(entry) == record.path]
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
        raise _explain_left(path)

    def _worktree(self, record: WorktreeRecord) -> Worktree:
        assert record.git_dir is not None
        shared = self.repository.objects
        return Worktree(record.path, record.commit, record.git_dir, record.objects, shared)

    def _inside(self, path: Path) -> Path:
        """Return the path in its canonical form; raise if it is not below our directory."""
        real = Path(os.path.realpath(path.parent)) / path.name
        if path.name == ".." or self.directory not in real.parents:
            raise UsageError(
                f"{quote_text(str(path))} is not below {self.directory}, where worktrees belong",
                rule="worktree.path",
            )
        return real


def _explain_left(path: Path) -> EnvironmentFault:
    return EnvironmentFault(
        f"something writes in the worktree {path} while it is removed",
        rule="worktree.left",
        hint="end the process that works in it, then remove it again",
    )


def _refuse_taken(path: Path) -> None:
    if os.path.lexists(path):
        raise UsageError(f"{path} exists already", rule="worktree.exists")


def _make_pointers(path: Path, commit: str) -> dict[str, str]:
    """Return the files that make a directory the git directory of a worktree."""
    return {"gitdir": f"{path}/.git\n", "commondir": "../..\n", "HEAD": f"{commit}\n"}


def _is_busy(entry: Path) -> bool:
    """Whether this is being removed by a process that runs."""
    return entry.name.startswith(".coilclaw-") and not is_remainder(entry.name)
