"""``Recording``: a trajectory to look at again: its trace, and the code at each of its parts."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import EnvironmentFault, UsageError, explain_os_errors, write_atomic
from coilclaw.traces.trajectory import bundles, tree_files
from coilclaw.workspace import EXACT_BYTES, remove_index

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from coilclaw.traces.trajectory.trace import Trace
    from coilclaw.workspace import Git

MAX_DIFF_BYTES: Final = 64 * 2**20


@dataclass(frozen=True, slots=True)
class Span:
    """Consecutive parts at the end of which the files were the same."""

    first: int
    last: int
    commit: str
    tree: str


@dataclass(frozen=True, slots=True)
class Recording:
    """A trace, and a repository that holds every commit it names."""

    trace: Trace
    git: Git
    trees: dict[str, str]
    """Commit → tree, for the first commit and that of every part."""

    @classmethod
    def of(cls, trace: Trace, git: Git) -> Recording:
        """Put the two together; commits that are missing are refused here, and not later."""
        commits = (trace.initial_commit, *part_commits(trace).values())
        trees = _read_trees(git, dict.fromkeys(commits))
        missing = [commit for commit, tree in trees.items() if not tree]
        if missing:
            raise EnvironmentFault(
                f"{len(missing)} commits of trajectory {trace.trajectory_id} are not in its "
                f"repository, the first of them {missing[0]}",
                rule="replay.commit",
                hint="the bundle is older than the trace: give the pieces in bundles/, too",
            )
        return cls(trace, git, trees)

    def commit(self, part: int) -> str:
        """Return the commit with the files after a part; 0 is before the first."""
        return self.trace.initial_commit if part == 0 else self.trace.part(part).git_commit

    def spans(self) -> tuple[Span, ...]:
        """Return all parts in order, grouped while the files stay the same."""
        found: list[Span] = []
        for part, commit in part_commits(self.trace).items():
            tree = self.trees[commit]
            if found and found[-1].tree == tree:
                found[-1] = Span(found[-1].first, part, found[-1].commit, tree)
            else:
                found.append(Span(part, part, commit, tree))
        return tuple(found)

    def checkout(self, commit: str, directory: Path) -> None:
        """Write the files of a commit into a new directory, without any history."""
        _make_empty(directory)
        index = directory.with_name(f".{directory.name}.{os.urandom(8).hex()}.index")
        try:
            tree_files.write(self.git, commit, directory, index, "-m")
        finally:
            remove_index(index)

    def clone(self, commit: str, directory: Path) -> None:
        """Make a new directory a repository with the whole history, at a commit."""
        _make_empty(directory)
        git_dir = directory / ".git"
        whole = directory / ".git-bundle"
        bundles.write_whole(self.git, whole)
        try:
            copy = bundles.assemble([whole], git_dir)
        finally:
            whole.unlink(missing_ok=True)
        make_exact(copy)
        copy.run("config", "core.bare", "false")
        copy.run("update-ref", "--no-deref", "HEAD", commit)
        tree_files.write(copy, commit, directory, git_dir / "index", "-m")

    def diff(self, before: int, after: int, *, stat: bool = False) -> str:
        """Return the patch from the files after one part to those after another."""
        flags = ("--find-renames", "--no-color", "--no-ext-diff", "--no-textconv")
        said = self.git.run(
            *("diff-tree", "-r", "--stat" if stat else "-p", *flags, "--end-of-options"),
            *(self.commit(before), self.commit(after)),
            limit_bytes=MAX_DIFF_BYTES,
        )
        return said.decode("utf-8", "replace")


def part_commits(trace: Trace) -> dict[int, str]:
    """Return the commit of each part."""
    return {part.part: part.git_commit for part in trace.parts}


def gather_bundles(pieces: Iterable[Path], git_dir: Path) -> Git:
    """Unpack bundles, in order, into a repository to read from."""
    git = bundles.assemble(pieces, git_dir)
    make_exact(git)
    return git


def make_exact(git: Git) -> None:
    """Make a repository check files out byte for byte, whatever its attributes say."""
    info = git.git_dir / "info"
    with explain_os_errors(f"create {info}", rule="replay.store"):
        info.mkdir(mode=0o700, exist_ok=True)
    write_atomic(info / "attributes", EXACT_BYTES, sync=False)


def _read_trees(git: Git, commits: Iterable[str]) -> dict[str, str]:
    """Return the tree of each commit, empty where the commit or its tree is missing."""
    wanted = list(commits)
    lines = "".join(f"{commit}^{{tree}}\n" for commit in wanted).encode("ascii")
    said = git.run(
        "cat-file", "--batch-check=%(objecttype) %(objectname)", stdin=lines, limit_bytes=2**28
    )
    rows = (line.partition(" ") for line in said.decode("ascii").splitlines())
    names = (name if kind == "tree" else "" for kind, _, name in rows)
    return dict(zip(wanted, names, strict=True))


def _make_empty(directory: Path) -> None:
    if os.path.lexists(directory) and not directory.is_dir():
        raise UsageError(f"{directory} is not a directory", rule="replay.destination")
    with explain_os_errors(f"make {directory}", rule="replay.destination"):
        directory.mkdir(parents=True, exist_ok=True)
        taken = os.listdir(directory)
    if taken:
        hint = "name a directory that does not exist yet"
        raise UsageError(f"{directory} is not empty", rule="replay.destination", hint=hint)
