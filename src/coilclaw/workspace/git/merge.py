"""Apply accepted patches in order, and merge the result with a branch.

This works in memory and in the repository's objects: no worktree, index or branch of the user
changes. The result is kept under ``refs/coilclaw/runs/<run_id>/`` until it is deleted.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from coilclaw.kernel import PlanRefused, UsageError, quote_text
from coilclaw.workspace.git.borrowed_git import BorrowingGit
from coilclaw.workspace.git.client import MAX_LISTING_BYTES
from coilclaw.workspace.git.repository import check_commit_id, list_paths

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from coilclaw.workspace.git.repository import Repository

REFS: Final = "refs/coilclaw/runs"
MAX_PATCH_BYTES: Final = 2**30
MAX_PATHSPEC_BYTES: Final = 2**16
"""Beyond it the whole index is listed rather than the paths of a patch."""
MERGE_TIMEOUT_S: Final = 1800.0
MAX_CONFLICT_BYTES: Final = 64 * 2**20

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*")
_Entries: TypeAlias = dict[str, bytes]
"""Mode, object and stage of each path."""


@dataclass(frozen=True, slots=True)
class Patch:
    """The work of one task, as a git patch with full object ids."""

    task_id: str
    data: bytes
    message: str


@dataclass(frozen=True, slots=True)
class MergeCandidate:
    """The baseline with all patches, one commit each."""

    commit: str
    tree: str
    commits: tuple[str, ...]
    """The first patch's commit first; a patch without any change has none."""


@dataclass(frozen=True, slots=True)
class Merged:
    """What a branch may become."""

    commit: str
    tree: str
    parents: tuple[str, ...]
    onto: str
    """Where the branch stood: it may be moved from there only."""
    fast_forward: bool


@dataclass(frozen=True, slots=True)
class Conflicted:
    """The branch and the candidate changed the same things."""

    onto: str
    reason: str
    paths: tuple[str, ...] = ()


def build_candidate(
    repository: Repository,
    own_git: Path,
    baseline: str,
    patches: Sequence[Patch],
    *,
    run_id: str,
    time: str,
    name: str = "candidate",
) -> MergeCandidate:
    """Apply patches one after the other, each exactly, and keep the result by its name.

    The commits are made at ``time`` (ISO 8601): the same patches give the same ids. A patch that
    does not apply raises ``PlanRefused``.
    """
    ref, seconds = _make_ref(run_id, name), _parse_seconds(time)
    borrowing = BorrowingGit(own_git, repository)
    commits, tree = [check_commit_id(baseline)], repository.tree(baseline)
    with borrowing.index() as index:
        borrowing.git.run("read-tree", baseline, variables=index)
        for patch in patches:
            if not patch.data:
                continue
            _Application(borrowing, patch, index).run()
            tree = borrowing.git.read_line("write-tree", variables=index)
            commit = borrowing.commit(tree, (commits[-1],), patch.message, seconds=seconds)
            commits.append(commit)
    _keep(repository, ref, commits[-1])
    return MergeCandidate(commits[-1], tree, tuple(commits[1:]))


def merge_candidate(
    repository: Repository,
    own_git: Path,
    branch: str,
    candidate: str,
    *,
    run_id: str,
    message: str,
    time: str,
) -> Merged | Conflicted:
    """Merge a candidate with the tip of a branch, and keep the result as ``merged``."""
    ref, seconds = _make_ref(run_id, "merged"), _parse_seconds(time)
    tip = repository.branch(branch)
    if tip is None:
        raise UsageError(f"the branch {quote_text(branch)} does not exist", rule="merge.branch")
    if repository.is_ancestor(candidate, tip):
        return _make_merged(repository, tip, tip)
    if repository.is_ancestor(tip, candidate):
        _keep(repository, ref, candidate)
        return _make_merged(repository, candidate, tip)
    borrowing = BorrowingGit(own_git, repository)
    base = borrowing.git.answer("merge-base", tip, candidate, accept=(0, 1))
    if base.exit_code != 0:
        return Conflicted(tip, "the branch and the candidate have no history in common")
    said = borrowing.git.answer(
        *("merge-tree", "--write-tree", "--no-messages", "--name-only", "-z", tip, candidate),
        accept=(0, 1),
        timeout_s=MERGE_TIMEOUT_S,
        limit_bytes=MAX_CONFLICT_BYTES,
    )
    tree, *paths = os.fsdecode(said.stdout).rstrip("\0").split("\0")
    if said.exit_code != 0:
        names = tuple(sorted({path for path in paths if path}))
        return Conflicted(tip, "the branch and the candidate changed the same lines", names)
    commit = borrowing.commit(tree.strip(), (tip, candidate), message, seconds=seconds)
    _keep(repository, ref, commit)
    return Merged(commit, tree.strip(), (tip, candidate), tip, fast_forward=False)


def list_kept(repository: Repository, run_id: str) -> dict[str, str]:
    """Return the commits that are kept for a run, by name."""
    below = _make_ref(run_id, "")
    listing = repository.git.run("for-each-ref", "--format=%(objectname) %(refname)", below)
    rows = [row.split(" ", 1) for row in listing.decode("ascii").splitlines()]
    return {ref.removeprefix(below): commit for commit, ref in rows}


def delete_refs(repository: Repository, run_id: str) -> tuple[str, ...]:
    """Delete everything that is kept for a run; return the names."""
    names = tuple(list_kept(repository, run_id))
    orders = "".join(f"delete {_make_ref(run_id, name)}\0\0" for name in names).encode("ascii")
    repository.git.run("update-ref", "--stdin", "-z", "--no-deref", stdin=orders)
    return names


class _Application:
    """One patch and the index that it is applied to."""

    def __init__(self, borrowing: BorrowingGit, patch: Patch, index: Mapping[str, str]) -> None:
        self._borrowing = borrowing
        self._patch = patch
        self._index = index

    def run(self) -> None:
        """Apply the patch to the index; raise ``PlanRefused`` if it does not fit exactly."""
        if len(self._patch.data) > MAX_PATCH_BYTES:
            raise self._refusal_error(f"it is larger than {MAX_PATCH_BYTES} bytes")
        # git itself would move a hunk to where its context happens to stand.
        self._compare("it was made from other contents")
        self._apply("--cached", "--binary", "--whitespace=nowarn")
        self._compare("its result is not what it names", "--reverse")

    def _compare(self, reason: str, *direction: str) -> None:
        """Refuse a patch that names other contents, on one side of it, than the index holds."""
        with self._borrowing.index() as ancestor:
            self._apply(*direction, f"--build-fake-ancestor={ancestor['GIT_INDEX_FILE']}")
            named = self._entries(ancestor)
        there = self._entries(self._index, tuple(named))
        # Read backwards, a patch need not name the mode of a file whose mode it leaves alone.
        start = len(b"100644 ") if direction else 0
        wrong = [
            path for path, entry in named.items() if there.get(path, b"")[start:] != entry[start:]
        ]
        if wrong:
            raise self._refusal_error(f"{reason}: {list_paths(wrong)}", wrong[0])

    def _apply(self, *options: str) -> None:
        command = ("apply", *options, "-")
        said = self._borrowing.git.answer(
            *command, stdin=self._patch.data, accept=(0, 1, 128), variables=self._index
        )
        if said.exit_code != 0:
            # The first thing that git complains of.
            lines = [line.strip() for line in said.stderr.splitlines() if line.strip()]
            line = lines[0] if lines else "it does not say why"
            raise self._refusal_error(line.removeprefix("error: ").removeprefix("fatal: ")[:500])

    def _refusal_error(self, reason: str, path: str | None = None) -> PlanRefused:
        return PlanRefused(
            f"the patch of task {quote_text(self._patch.task_id)} does not apply: {reason}",
            rule="merge.patch",
            path=path,
        )

    def _entries(self, index: Mapping[str, str], paths: tuple[str, ...] = ()) -> _Entries:
        few = sum(map(len, paths)) < MAX_PATHSPEC_BYTES
        listing = self._borrowing.git.run(
            *("ls-files", "--stage", "-z", "--", *(paths if few else ())),
            limit_bytes=MAX_LISTING_BYTES,
            variables={**index, "GIT_LITERAL_PATHSPECS": "1"},
        )
        rows = [row.partition(b"\t") for row in listing.split(b"\0") if row]
        return {os.fsdecode(path): entry for entry, _, path in rows}


def _make_merged(repository: Repository, commit: str, tip: str) -> Merged:
    parents = tuple(repository.git.read_line("rev-parse", f"{check_commit_id(commit)}^@").split())
    return Merged(commit, repository.tree(commit), parents, tip, fast_forward=True)


def _keep(repository: Repository, ref: str, commit: str) -> None:
    """Keep a commit under a ref, so that git does not prune it."""
    repository.git.run("update-ref", "--no-deref", ref, check_commit_id(commit))


def _make_ref(run_id: str, name: str) -> str:
    for part in (run_id, name or "all"):
        if not _NAME.fullmatch(part) or part.endswith(".lock"):
            raise UsageError(f"{quote_text(part)} cannot be part of a ref", rule="merge.ref")
    return f"{REFS}/{run_id}/{name}"


def _parse_seconds(time: str) -> int:
    from datetime import datetime

    try:
        moment = datetime.fromisoformat(time)
    except ValueError as problem:
        raise UsageError(f"{quote_text(time)} is not a time", rule="merge.time") from problem
    if moment.tzinfo is None:
        raise UsageError(f"{quote_text(time)} has no time zone", rule="merge.time")
    return int(moment.timestamp())
