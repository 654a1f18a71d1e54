"""``Repository``: the user's repository, read without running anything that it configures."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from coilclaw.domain.treepath import shown
from coilclaw.errors import UsageError
from coilclaw.workspace.git import Git

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_LISTING_BYTES: Final = 2**30
"""Longest listing of a tree that is read."""
MAX_REF_CHARS: Final = 500
MAX_POINTER_BYTES: Final = 2**14
"""Longest ``.git`` file or ``HEAD`` that is read."""
MAX_CONFIG_BYTES: Final = 2**22
COMMIT_ID: Final = re.compile(r"[0-9a-f]{40}")

_GIT_DIRECTORIES: Final = ("objects", "refs")
_RUNS_PROGRAMS: Final = (
    r"^(filter\..*\.(clean|smudge|process|required)|branch\..*\.mergeoptions"
    r"|merge\..*\.driver|diff\..*\.(command|textconv))$"
)


class Repository:
    """A repository with a worktree and at least one commit.

    Its own configuration is read, because a checkout in the user's worktree must look as the user
    wants it; but no hook, filter, merge or diff driver, monitor or alias of it runs.
    """

    def __init__(self, top: Path, git_dir: Path, common_dir: Path, git: Git) -> None:
        self.top = top
        """The top of the worktree; real path."""
        self.git_dir = git_dir
        """The worktree's own git directory."""
        self.common_dir = common_dir
        """What all worktrees share: objects, branches, configuration."""
        self.git = git

    @classmethod
    def open(cls, path: Path, *, unborn: bool = False) -> Self:
        """Find the repository that a path lies in, also from below its top.

        ``unborn`` takes one whose branch has no commit yet as well.
        """
        top, git_dir = _found(Path(os.path.realpath(path)))
        common = _common(git_dir)
        plain = Git(git_dir, foreign=True)
        form = plain.run("rev-parse", "--show-object-format", work_tree=top).strip()
        if form != b"sha1":
            raise UsageError(
                f"{top} names its objects by {form.decode('ascii', 'replace')}; only sha1 is known",
                rule="repository.format",
            )
        repository = cls(top, git_dir, common, quiet(plain, top))
        if not unborn and repository._commit("HEAD") is None:
            raise UsageError(
                f"{top} has no commit yet",
                rule="repository.empty",
                hint="make a first commit: git add -A && git commit -m 'First commit'",
            )
        return repository

    @property
    def objects(self) -> Path:
        return self.common_dir / "objects"

    def resolve(self, ref: str) -> str:
        """Return the full id of the commit that a name stands for."""
        if not ref or ref.startswith("-") or len(ref) > MAX_REF_CHARS or not ref.isprintable():
            raise UsageError(f"{shown(ref)} is no name of a commit", rule="repository.ref")
        commit = self._commit(ref)
        if commit is None:
            raise UsageError(
                f"{shown(ref)} names no commit of {self.top}", rule="repository.unknown_ref"
            )
        return commit

    def head(self) -> tuple[str | None, str]:
        """Return the branch that is checked out, ``None`` if it is detached, and its commit."""
        said = self.git.answer("symbolic-ref", "--quiet", "HEAD", accept=(0, 1))
        name = os.fsdecode(said.stdout.rstrip(b"\n"))
        branch = name.removeprefix("refs/heads/") if name.startswith("refs/heads/") else None
        return branch, self.resolve("HEAD")

    def branch(self, name: str) -> str | None:
        """Return the commit that a branch stands at; ``None`` if there is no such branch."""
        return self._commit(branch_ref(name))

    def tree(self, commit: str) -> str:
        """Return the id of a commit's tree."""
        said = self.git.run("rev-parse", "--verify", f"{checked(commit)}^{{tree}}")
        return said.decode("ascii").strip()

    def files(self, commit: str) -> tuple[str, ...]:
        """Return every file, link and submodule of a commit, in git's order."""
        return self._listed("-r", checked(commit))

    def directories(self, commit: str) -> tuple[str, ...]:
        """Return every directory of a commit that holds something; not submodules."""
        rows = self._rows("-r", "-d", checked(commit))
        return tuple(os.fsdecode(name) for facts, name in rows if facts.startswith(b"040000 "))

    def gitlinks(self, commit: str) -> tuple[str, ...]:
        """Return where submodules stand in a commit."""
        rows = self._rows("-r", checked(commit))
        return tuple(os.fsdecode(name) for facts, name in rows if facts.startswith(b"160000 "))

    def links(self, commit: str) -> tuple[str, ...]:
        """Return where something stands in a commit that is no regular file: links, submodules."""
        rows = self._rows("-r", checked(commit))
        return tuple(os.fsdecode(name) for facts, name in rows if not facts.startswith(b"100"))

    def read(self, commit: str, path: str, limit: int) -> bytes | None:
        """Return the content of a file of a commit; ``None`` if nothing stands there."""
        found = [
            facts.split()
            for facts, name in self._rows("-l", checked(commit), "--", path)
            if os.fsdecode(name) == path
        ]
        if not found:
            return None
        mode, _, blob, size = found[0]
        if mode not in {b"100644", b"100755"}:
            raise UsageError(
                f"{shown(path)} is no file in commit {commit}", rule="repository.not_a_file"
            )
        if int(size) > limit:
            raise UsageError(
                f"{shown(path)} holds {int(size)} bytes in commit {commit}, more than {limit}",
                rule="repository.file_large",
            )
        return self.git.run("cat-file", "blob", blob.decode("ascii"), limit_bytes=max(limit, 1))

    def is_ancestor(self, ancestor: str, commit: str) -> bool:
        """Whether one commit is the other, or lies in its history."""
        said = self.git.answer(
            "merge-base", "--is-ancestor", checked(ancestor), checked(commit), accept=(0, 1)
        )
        return said.exit_code == 0

    def modified(self, paths: Sequence[str] = ()) -> tuple[str, ...]:
        """Return the tracked files that differ from the commit that is checked out, sorted.

        Untracked files and what is inside submodules does not count.
        """
        listing = self.git.run(
            "status",
            "--porcelain=v1",
            "-z",
            "--no-renames",
            "--untracked-files=no",
            "--ignore-submodules=all",
            "--",
            *paths,
            work_tree=self.top,
            limit_bytes=MAX_LISTING_BYTES,
            variables={"GIT_LITERAL_PATHSPECS": "1"},
        )
        return tuple(sorted(os.fsdecode(row[3:]) for row in listing.split(b"\0") if row))

    def status_clean(self, paths: Sequence[str] = ()) -> bool:
        """Whether no tracked file differs from the commit that is checked out."""
        return not self.modified(paths)

    def _commit(self, ref: str) -> str | None:
        said = self.git.answer(
            "rev-parse",
            "--verify",
            "--quiet",
            "--end-of-options",
            f"{ref}^{{commit}}",
            accept=(0, 1, 128),
        )
        name = said.stdout.decode("ascii", "replace").strip()
        return name if said.exit_code == 0 and COMMIT_ID.fullmatch(name) else None

    def _listed(self, *arguments: str) -> tuple[str, ...]:
        return tuple(os.fsdecode(name) for _, name in self._rows(*arguments))

    def _rows(self, *arguments: str) -> list[tuple[bytes, bytes]]:
        listing = self.git.run(
            "ls-tree",
            "-z",
            "--full-tree",
            *arguments,
            limit_bytes=MAX_LISTING_BYTES,
            variables={"GIT_LITERAL_PATHSPECS": "1"},
        )
        rows = [row.partition(b"\t") for row in listing.split(b"\0") if row]
        return [(facts, name) for facts, _, name in rows]


def checked(commit: str) -> str:
    """Return a full commit id, or raise."""
    if not COMMIT_ID.fullmatch(commit):
        raise UsageError(f"{shown(commit)} is no full id of a commit", rule="repository.commit")
    return commit


def branch_ref(name: str) -> str:
    """Return the full name of a branch, or raise if no branch can be called so."""
    bad = (
        not name
        or name.startswith(("-", "/", "."))
        or name.endswith(("/", ".", ".lock"))
        or ".." in name
        or "//" in name
        or "/." in name
        or "@{" in name
        or len(name) > MAX_REF_CHARS
        or not name.isprintable()
        or bool(set(name) & set(" ~^:?*[\\"))
    )
    if bad:
        raise UsageError(f"{shown(name)} is no name of a branch", rule="repository.branch")
    return f"refs/heads/{name}"


def read_pointer(path: Path) -> str | None:
    """Return the one line of a small file that an agent may have replaced by something else.

    ``None`` is: nothing there, or no plain file, or too long for what it should be.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        data = os.read(descriptor, MAX_POINTER_BYTES + 1)
    finally:
        os.close(descriptor)
    text = os.fsdecode(data)
    return None if len(data) > MAX_POINTER_BYTES or "\0" in text else text.removesuffix("\n")


def quiet(git: Git, top: Path) -> Git:
    """Return the same git with everything switched off that the configuration would run."""
    said = git.answer(
        "config",
        "--includes",
        "--name-only",
        "-z",
        "--get-regexp",
        _RUNS_PROGRAMS,
        accept=(0, 1),
        work_tree=top,
        limit_bytes=MAX_CONFIG_BYTES,
    )
    names = sorted({os.fsdecode(name) for name in said.stdout.split(b"\0") if name})
    settings = [(name, "false" if name.endswith(".required") else "") for name in names]
    return Git(git.git_dir, foreign=True, variables=configured(settings))


def configured(settings: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return the variables that give git these settings over all others."""
    variables = {"GIT_CONFIG_COUNT": str(len(settings))}
    for number, (name, value) in enumerate(settings):
        variables[f"GIT_CONFIG_KEY_{number}"] = name
        variables[f"GIT_CONFIG_VALUE_{number}"] = value
    return variables


def _found(start: Path) -> tuple[Path, Path]:
    """The top of the worktree around a path, and its git directory."""
    for place in (start, *start.parents):
        entry = place / ".git"
        if entry.is_dir():
            return place, Path(os.path.realpath(entry))
        if os.path.lexists(entry):
            return place, pointed(entry)
        if (place / "HEAD").is_file() and all((place / name).is_dir() for name in _GIT_DIRECTORIES):
            raise UsageError(
                f"{place} is a bare repository or a git directory, not a worktree",
                rule="repository.bare",
                hint="name a directory with checked-out files",
            )
    raise UsageError(
        f"{start} is not in a git repository",
        rule="repository.none",
        hint="make one: git init && git add -A && git commit -m 'First commit'",
    )


def pointed(entry: Path) -> Path:
    """Return the git directory that a ``.git`` file leads to."""
    line = read_pointer(entry)
    if line is not None and line.startswith("gitdir: "):
        target = Path(os.path.realpath(entry.parent / line.removeprefix("gitdir: ")))
        if (target / "HEAD").exists():
            return target
    raise UsageError(f"{entry} leads to no git directory", rule="repository.pointer")


def _common(git_dir: Path) -> Path:
    line = read_pointer(git_dir / "commondir")
    common = Path(os.path.realpath(git_dir if line is None else git_dir / line))
    if not (common / "objects").is_dir():
        raise UsageError(f"{common} is no git directory", rule="repository.pointer")
    if line is None and Git(common, foreign=True).run(
        "config", "--bool", "--default=false", "--get", "core.bare"
    ).startswith(b"true"):
        raise UsageError(
            f"{common} is the git directory of a bare repository", rule="repository.bare"
        )
    return common
