"""``Repository``: the user's repository, read without running anything that it configures."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from coilclaw.kernel import UsageError, quote_text
from coilclaw.workspace.git import client as own_git
from coilclaw.workspace.git.client import Git, name_author
from coilclaw.workspace.tree.directory_entry import FILE

if TYPE_CHECKING:
    from collections.abc import Sequence


MAX_REF_CHARS: Final = 500
MAX_POINTER_BYTES: Final = 2**14
"""Longest ``.git`` file or ``HEAD`` that is read."""
MAX_CONFIG_BYTES: Final = 2**22
MAX_SHOWN: Final = 20
"""How many paths a sentence names."""

COMMIT_ID: Final = own_git.COMMIT_ID
_LITERAL: Final = {"GIT_LITERAL_PATHSPECS": "1"}
_BAD_REF: Final = re.compile(r"^[-/.]|(/|\.|\.lock)$|\.\.|//|/\.|@\{|[ ~^:?*\[\\]")
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
        top, git_dir = _find_top(Path(os.path.realpath(path)))
        common = _find_common(git_dir)
        plain = Git(git_dir, foreign=True)
        form = plain.run("rev-parse", "--show-object-format", work_tree=top).strip()
        if form != b"sha1":
            raise UsageError(
                f"{top} names its objects by {form.decode('ascii', 'replace')}; only sha1 is known",
                rule="repository.format",
            )
        repository = cls(top, git_dir, common, silence_config(plain, top))
        if not unborn and repository.git.find_commit("HEAD") is None:
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
            raise UsageError(f"{quote_text(ref)} is not a name of a commit", rule="repository.ref")
        commit = self.git.find_commit(ref)
        if commit is None:
            raise UsageError(
                f"{quote_text(ref)} does not name a commit of {self.top}",
                rule="repository.unknown_ref",
            )
        return commit

    def head(self) -> tuple[str | None, str]:
        """Return the branch that is checked out, ``None`` if it is detached, and its commit."""
        said = self.git.answer("symbolic-ref", "--quiet", "HEAD", accept=(0, 1))
        name = os.fsdecode(said.stdout.rstrip(b"\n"))
        branch = name.removeprefix("refs/heads/") if name.startswith("refs/heads/") else None
        return branch, self.resolve("HEAD")

    def branch(self, name: str) -> str | None:
        """Return the commit of a branch; ``None`` if the branch does not exist."""
        return self.git.find_commit(branch_ref(name))

    def tree(self, commit: str) -> str:
        """Return the id of a commit's tree."""
        return self.git.read_line("rev-parse", "--verify", f"{check_commit_id(commit)}^{{tree}}")

    def files(self, commit: str) -> tuple[str, ...]:
        """Return every file, link and submodule of a commit, in git's order."""
        return tuple(name for _, name in self._rows("-r", check_commit_id(commit)))

    def directories(self, commit: str) -> tuple[str, ...]:
        """Return every directory of a commit that holds something; not submodules."""
        rows = self._rows("-r", "-d", check_commit_id(commit))
        return tuple(name for facts, name in rows if facts.startswith("040000 "))

    def gitlinks(self, commit: str) -> tuple[str, ...]:
        """Return where submodules stand in a commit."""
        rows = self._rows("-r", check_commit_id(commit))
        return tuple(name for facts, name in rows if facts.startswith("160000 "))

    def links(self, commit: str) -> tuple[str, ...]:
        """Return where a link or a submodule stands in a commit, not a regular file."""
        rows = self._rows("-r", check_commit_id(commit))
        return tuple(name for facts, name in rows if not facts.startswith("100"))

    def read(self, commit: str, path: str, limit: int) -> bytes | None:
        """Return the content of a file of a commit; ``None`` if nothing stands there."""
        rows = self._rows("-l", check_commit_id(commit), "--", path)
        found = [facts.split() for facts, name in rows if name == path]
        if not found:
            return None
        mode, _, blob, size = found[0]
        if mode not in {"100644", "100755"}:
            what = f"{quote_text(path)} is not a file in commit {commit}"
            raise UsageError(what, rule="repository.not_a_file")
        if int(size) > limit:
            raise UsageError(
                f"{quote_text(path)} holds {int(size)} bytes in commit {commit}, more than {limit}",
                rule="repository.file_large",
            )
        return self.git.run("cat-file", "blob", blob, limit_bytes=max(limit, 1))

    def is_ancestor(self, ancestor: str, commit: str) -> bool:
        """Whether one commit is the other, or lies in its history."""
        commits = (check_commit_id(ancestor), check_commit_id(commit))
        said = self.git.answer("merge-base", "--is-ancestor", *commits, accept=(0, 1))
        return said.exit_code == 0

    def _rows(self, *arguments: str) -> list[tuple[str, str]]:
        command = ("ls-tree", "-z", "--full-tree", *arguments)
        rows = [row.partition("\t") for row in self.git.list_names(*command, variables=_LITERAL)]
        return [(facts, name) for facts, _, name in rows]


def check_commit_id(commit: str) -> str:
    """Return a full commit id, or raise."""
    if not COMMIT_ID.fullmatch(commit):
        what = f"{quote_text(commit)} is not the full id of a commit"
        raise UsageError(what, rule="repository.commit")
    return commit


def branch_ref(name: str) -> str:
    """Return the full name of a branch, or raise if no branch can be called so."""
    bad = len(name) > MAX_REF_CHARS or not name.isprintable() or bool(_BAD_REF.search(name))
    if bad or not name:
        raise UsageError(f"{quote_text(name)} cannot name a branch", rule="repository.branch")
    return f"refs/heads/{name}"


def read_pointer(path: Path) -> str | None:
    """Return the one line of a small file that an agent may have replaced by something else.

    Return ``None`` if the file is missing, not regular, or too long.
    """
    try:
        with open(path, "rb", opener=lambda name, _: os.open(name, FILE)) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return None
            data = file.read(MAX_POINTER_BYTES + 1)
    except OSError:
        return None
    text = os.fsdecode(data)
    return None if len(data) > MAX_POINTER_BYTES or "\0" in text else text.removesuffix("\n")


def find_worktree(git_dir: Path) -> Path | None:
    """Return where the worktree of a git directory says that it is, if it says so."""
    line = read_pointer(git_dir / "gitdir")
    if line is None or not line.endswith("/.git"):
        return None
    return Path(os.path.realpath(git_dir / line.removesuffix("/.git")))


def list_paths(paths: Sequence[str]) -> str:
    """Return paths for a sentence: the first ones, quoted, and how many more there are."""
    named = ", ".join(quote_text(path) for path in paths[:MAX_SHOWN])
    rest = len(paths) - MAX_SHOWN
    return named if rest <= 0 else f"{named} and {rest} more"


def list_entries(directory: Path) -> list[Path]:
    """Return what is in a directory, sorted; nothing where there is none."""
    try:
        return sorted(directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def silence_config(git: Git, top: Path) -> Git:
    """Return the same git with everything switched off that the configuration would run."""
    command = ("config", "--includes", "--name-only", "-z", "--get-regexp", _RUNS_PROGRAMS)
    found = git.list_names(*command, accept=(0, 1), work_tree=top, limit_bytes=MAX_CONFIG_BYTES)
    names = sorted(set(found))
    settings = [(name, "false" if name.endswith(".required") else "") for name in names]
    return Git(git.git_dir, foreign=True, variables=make_config_variables(settings))


def make_config_variables(settings: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return the variables that give git these settings over all others."""
    variables = {"GIT_CONFIG_COUNT": str(len(settings))}
    for number, (name, value) in enumerate(settings):
        variables[f"GIT_CONFIG_KEY_{number}"] = name
        variables[f"GIT_CONFIG_VALUE_{number}"] = value
    return variables


def _find_top(start: Path) -> tuple[Path, Path]:
    """Return the top of the worktree around a path, and its git directory."""
    for place in (start, *start.parents):
        entry = place / ".git"
        if entry.is_dir():
            return place, Path(os.path.realpath(entry))
        if os.path.lexists(entry):
            return place, follow_pointer(entry)
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


def follow_pointer(entry: Path) -> Path:
    """Return the git directory that a ``.git`` file leads to."""
    line = read_pointer(entry)
    if line is not None and line.startswith("gitdir: "):
        target = Path(os.path.realpath(entry.parent / line.removeprefix("gitdir: ")))
        if os.path.exists(target / "HEAD"):
            return target
    raise UsageError(f"{entry} does not lead to a git directory", rule="repository.pointer")


def _find_common(git_dir: Path) -> Path:
    line = read_pointer(git_dir / "commondir")
    common = Path(os.path.realpath(git_dir if line is None else git_dir / line))
    if not (common / "objects").is_dir():
        raise UsageError(f"{common} is not a git directory", rule="repository.pointer")
    if line is None and Git(common, foreign=True).run(
        "config", "--bool", "--default=false", "--get", "core.bare"
    ).startswith(b"true"):
        what = f"{common} is the git directory of a bare repository"
        raise UsageError(what, rule="repository.bare")
    return common


TIMEOUT_S: Final = 30.0
_NO_COMMIT: Final = "0" * 40


def open_foreign(directory: Path) -> Git:
    """Return git on the repository of a directory, with a worktree or without."""
    if (directory / "HEAD").is_file() and (directory / "objects").is_dir():
        return Git(directory, foreign=True)
    return Git(Repository.open(directory, unborn=True).common_dir, foreign=True)


def append_file(git: Git, ref: str, name: str, data: bytes, message: str) -> str:
    """Add a commit that holds only this file to a ref, and return its id.

    A ref that moves meanwhile is a ``GitFailed``: nothing of what another process added is lost.
    """
    if "/" in name or not name.isprintable():
        raise UsageError(f"{name!r} is not the name of a file", rule="git.name")
    durable = make_config_variables([("core.fsync", "committed,reference")])
    variables = {**durable, **name_author("coilclaw", "coilclaw@localhost")}

    def run(*words: str, stdin: bytes | None = None) -> str:
        return git.read_line(*words, stdin=stdin, timeout_s=TIMEOUT_S, variables=variables)

    parent = git.find_commit(ref, timeout_s=TIMEOUT_S)
    blob = run("hash-object", "-w", "--stdin", stdin=data)
    tree = run("mktree", stdin=f"100644 blob {blob}\t{name}\n".encode())
    after = ("-p", parent) if parent else ()
    commit = run("commit-tree", tree, *after, stdin=message.encode("utf-8"))
    run("update-ref", "--no-deref", ref, commit, parent or _NO_COMMIT)
    return commit
