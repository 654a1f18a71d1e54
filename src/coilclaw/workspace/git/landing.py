"""Move a branch to a commit, wherever it is checked out, and never over local changes."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import GitFailed, hold_guard, quote_text
from coilclaw.workspace.git.borrowed_git import IDENTITY, BorrowingGit
from coilclaw.workspace.git.client import MAX_LISTING_BYTES, Git, name_author
from coilclaw.workspace.git.repository import (
    branch_ref,
    check_commit_id,
    find_worktree,
    list_entries,
    list_paths,
    read_pointer,
    silence_config,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from typing import BinaryIO

    from coilclaw.workspace.git.client import GitAnswer
    from coilclaw.workspace.git.repository import Repository

LAND_TIMEOUT_S: Final = 3600.0
INDEX_WAIT_S: Final = 10.0
"""How long to wait for another git that works in the worktree."""
PAUSE_S: Final = 0.05
GUARD: Final = "landing"
MOVED: Final = "merge.moved"
"""The rule of a refusal after which the same can be tried with what the branch is now."""

_OPERATIONS: Final = {
    "MERGE_HEAD": "a merge",
    "CHERRY_PICK_HEAD": "a cherry-pick",
    "REVERT_HEAD": "a revert",
    "sequencer": "a cherry-pick or revert",
    "rebase-merge": "a rebase",
    "rebase-apply": "a rebase",
    "BISECT_LOG": "a bisection",
}
_NAMING: Final = ("rebase-merge/head-name", "rebase-apply/head-name", "BISECT_START")
"""Where git notes the branch that an operation will come back to."""
_NO_FILTER: Final = frozenset((b"unspecified", b"unset"))


@dataclass(frozen=True, slots=True)
class Landed:
    """A branch stands at its new commit."""

    branch: str
    old: str
    new: str
    worktree: Path | None
    """Where it is checked out; its files were brought up to date."""


@dataclass(frozen=True, slots=True)
class LandingRefused:
    """The branch was not moved, and nothing was changed."""

    rule: str
    reason: str
    paths: tuple[str, ...] = ()
    hint: str = ""


@dataclass(frozen=True, slots=True)
class _Place:
    git_dir: Path
    path: Path | None


def land_branch(
    repository: Repository,
    own_git: Path,
    branch: str,
    expected_old: str,
    commit: str,
    *,
    ours: Collection[Path] = (),
) -> Landed | LandingRefused:
    """Move a branch forward from one commit to another, if it stands there.

    ``ours`` are the git directories of agents' worktrees, which are not asked about branches.
    No hook or filter runs. One caller at a time: two that bring the same files up to date would
    leave the work of one of them there without its commit.
    """
    borrowing, ref = BorrowingGit(own_git, repository), branch_ref(branch)
    borrowing.prepare()
    with hold_guard(borrowing.own / GUARD, timeout_s=LAND_TIMEOUT_S) as guard:
        if repository.branch(branch) != check_commit_id(expected_old):
            return _refuse_moved(branch, expected_old)
        if not repository.is_ancestor(expected_old, check_commit_id(commit)):
            return LandingRefused(
                "merge.rewind",
                f"commit {commit} does not have {expected_old} in its history, "
                f"so branch {quote_text(branch)} would lose something",
            )
        places = [
            place
            for place in _list_places(repository, ours)
            if ref in _list_branches(place.git_dir)
        ]
        if commit == expected_old:
            return Landed(branch, expected_old, commit, places[0].path if places else None)
        if not places:
            return _move(repository, branch, expected_old, commit)
        refused = _find_obstacle(borrowing, branch, places, expected_old, commit)
        return refused or _check_out(repository, branch, places[0], expected_old, commit, guard)


def _refuse_moved(branch: str, old: str) -> LandingRefused:
    return LandingRefused(
        MOVED,
        f"branch {quote_text(branch)} no longer points to {old}",
        hint="merge again with what it is now",
    )


def _move(repository: Repository, branch: str, old: str, new: str) -> Landed | LandingRefused:
    said = repository.git.answer(
        *("update-ref", "-m", "coilclaw: merge a run", "--no-deref", branch_ref(branch), new, old),
        accept=(0, 1, 128),
        variables=name_author(*IDENTITY),
    )
    if said.exit_code != 0:
        reason = f"branch {quote_text(branch)} could not be moved: {said.stderr.strip()[:500]}"
        return LandingRefused(MOVED, reason, hint="try again")
    return Landed(branch, old, new, None)


def _find_obstacle(
    borrowing: BorrowingGit, branch: str, places: list[_Place], old: str, new: str
) -> LandingRefused | None:
    """Return why a branch that is checked out cannot be moved; ``None`` if git may try."""
    place = places[0]
    where = place.path or place.git_dir
    if len(places) > 1:
        reason = f"branch {quote_text(branch)} is checked out in {len(places)} worktrees"
        return LandingRefused("merge.checked_out", reason)
    for name, what in _OPERATIONS.items():
        if os.path.lexists(place.git_dir / name):
            reason = f"{what} is under way in {where}"
            return LandingRefused("merge.busy", reason, hint="finish it, or abort it")
    if place.path is None or not place.path.is_dir():
        return LandingRefused(
            "merge.worktree",
            f"branch {quote_text(branch)} is checked out in a worktree that is missing: {where}",
            hint="bring it back, or run git worktree prune",
        )
    filtered = _find_filtered(borrowing, place, old, new)
    if filtered:
        return LandingRefused(
            "merge.filtered",
            f"a filter belongs to {list_paths(filtered)}, and none is run here",
            filtered,
            hint=f"run git merge --ff-only {new} in {where} yourself",
        )
    return None


def _check_out(
    repository: Repository, branch: str, place: _Place, old: str, new: str, guard: BinaryIO
) -> Landed | LandingRefused:
    """Bring the branch and its worktree forward; git refuses to overwrite anything local."""
    assert place.path is not None
    said = _fast_forward(place, new, guard)
    until = time.monotonic() + INDEX_WAIT_S
    # An editor that looks at the state of the tree locks its index for a moment.
    while "index.lock" in said.stderr and time.monotonic() < until:
        time.sleep(PAUSE_S)
        said = _fast_forward(place, new, guard)
    now = repository.branch(branch)
    if now == new:
        return Landed(branch, old, new, place.path)
    if now != old:
        return _refuse_moved(branch, old)
    if said.exit_code == 0:
        raise GitFailed(
            f"git merge in {place.path} said nothing, but branch {quote_text(branch)} did not move"
        )
    paths = tuple(line[1:] for line in said.stderr.splitlines() if line.startswith("\t"))
    if paths:
        return LandingRefused(
            "merge.local_changes",
            f"local changes in {place.path} are in the way: {list_paths(paths)}",
            paths,
            hint="commit or stash them, or move the files away",
        )
    reason = f"git merge in {place.path}: {said.stderr.strip()[:500]}"
    return LandingRefused("merge.refused", reason)


def _fast_forward(place: _Place, new: str, guard: BinaryIO) -> GitAnswer:
    assert place.path is not None
    options = ("--quiet", "--no-stat", "--no-autostash", "--no-verify-signatures")
    return silence_config(Git(place.git_dir, foreign=True), place.path).answer(
        *("merge", "--ff-only", *options, "--no-overwrite-ignore", new),
        stdin=guard,
        work_tree=place.path,
        accept=(0, 1, 2, 128),
        timeout_s=LAND_TIMEOUT_S,
        variables={**name_author(*IDENTITY), "GIT_REFLOG_ACTION": "coilclaw"},
    )


def _find_filtered(borrowing: BorrowingGit, place: _Place, old: str, new: str) -> tuple[str, ...]:
    """Return the changed files that a filter of the new tree's attributes belongs to."""
    command = ("diff-tree", "-r", "-z", "--name-only", "--no-renames", "--diff-filter=d")
    changed = borrowing.git.run(*command, old, new, limit_bytes=MAX_LISTING_BYTES)
    if not changed:
        return ()
    with borrowing.index() as index:
        borrowing.git.run("read-tree", new, variables=index)
        # In the user's git directory, whose own attributes count too.
        said = Git(place.git_dir, foreign=True).run(
            *("check-attr", "--cached", "--stdin", "-z", "filter"),
            stdin=changed,
            work_tree=place.path,
            limit_bytes=MAX_LISTING_BYTES,
            variables=index,
        )
    fields = said.split(b"\0")
    rows = zip(fields[0::3], fields[2::3], strict=False)
    return tuple(os.fsdecode(path) for path, value in rows if value not in _NO_FILTER)


def _list_places(repository: Repository, ours: Collection[Path]) -> Iterator[_Place]:
    """Yield the worktrees of the repository, except those of agents."""
    common = repository.common_dir
    if repository.git_dir == common:
        yield _Place(common, repository.top)
    else:
        git = Git(common, foreign=True)
        bare = git.run("config", "--bool", "--default=false", "--get", "core.bare")
        if not bare.startswith(b"true"):
            said = git.run("config", "--get", "core.worktree", accept=(0, 1)).rstrip(b"\n")
            place = common / os.fsdecode(said) if said else common.parent
            yield _Place(common, Path(os.path.realpath(place)))
    for entry in list_entries(common / "worktrees"):
        if entry not in ours and os.path.lexists(entry / "HEAD"):
            yield _Place(entry, find_worktree(entry))


def _list_branches(git_dir: Path) -> set[str]:
    """Return the branches that a worktree has checked out, or returns to after an operation."""
    head = (read_pointer(git_dir / "HEAD") or "").removeprefix("ref: ")
    named = [line for name in _NAMING if (line := read_pointer(git_dir / name)) is not None]
    return {head, *named, *(f"refs/heads/{line}" for line in named)}
