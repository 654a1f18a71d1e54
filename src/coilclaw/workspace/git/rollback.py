"""Undo every change in a worktree, and verify that it is undone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from coilclaw.kernel import EnvironmentFault, GitFailed, UsageError, quote_text, write_atomic
from coilclaw.workspace.git.repository import read_pointer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coilclaw.workspace.git.worktrees import Worktree, Worktrees
    from coilclaw.workspace.snapshot.store import SnapshotStore

Strategy: TypeAlias = Literal["git_reset_hard", "git_revert_commit", "worktree_drop"]

READ_TIMEOUT_S: Final = 60.0
"""How long reading what an agent wrote may take."""
_SHORT_ID: Final = re.compile(r"[0-9a-f]{7,40}")


@dataclass(frozen=True, slots=True)
class RolledBack:
    """What a rollback left."""

    strategy: Strategy
    tree: str
    """The tree of a picture taken afterwards, which is the baseline's; empty: there is none."""
    head: str
    """The commit that the worktree stands at; empty: there is not a worktree."""


def roll_back(
    worktrees: Worktrees,
    worktree: Worktree,
    strategy: Strategy,
    store: SnapshotStore,
    *,
    target: str = "",
    seconds: int = 0,
) -> RolledBack:
    """Undo all changes in a worktree: committed, staged, untracked and ignored ones.

    ``git_reset_hard`` goes back to the baseline. ``git_revert_commit`` does so with a commit on top
    of ``target``, made at ``seconds``, that undoes everything since the baseline. ``target`` is an
    id, or ``HEAD``, which nothing is put on top of if nothing was committed; another commit that
    was not made after the baseline is refused, when the files are back already. ``worktree_drop``
    removes the worktree.
    """
    if strategy not in get_args(Strategy):
        raise UsageError(
            f"{quote_text(strategy)} is not a way to roll back", rule="rollback.strategy"
        )
    if strategy == "worktree_drop":
        worktrees.remove(worktree)
        return RolledBack(strategy, "", "")
    head = worktree.commit
    try:
        if strategy == "git_revert_commit":
            head = _revert(worktrees, worktree, target, seconds)
    finally:
        worktrees.reset(worktree)
    if head != worktree.commit:
        write_atomic(worktree.git_dir / "HEAD", f"{head}\n".encode("ascii"), sync=False)
    tree = store.take(worktree.path, reread=True).tree
    if tree != worktrees.borrowing.exact_tree(worktree.commit):
        raise EnvironmentFault(
            f"{worktree.path} is not what commit {worktree.commit} holds, though it was reset",
            rule="rollback.unproven",
            hint="end whatever still writes in it",
        )
    return RolledBack(strategy, tree, head)


def _revert(worktrees: Worktrees, worktree: Worktree, target: str, seconds: int) -> str:
    """Make the commit that undoes everything from the baseline up to the target."""
    # What an agent committed is in its own store only, and stays there.
    store = {
        "GIT_OBJECT_DIRECTORY": str(worktree.objects),
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": worktree.environ["GIT_ALTERNATE_OBJECT_DIRECTORIES"],
    }
    try:
        name = target
        if target == "HEAD":
            name = read_pointer(worktree.git_dir / "HEAD") or ""
        if not _SHORT_ID.fullmatch(name):
            raise UsageError(
                f"{quote_text(name)} is neither HEAD nor the id of a commit to revert",
                rule="rollback.target",
            )
        commit = _find_later(worktrees, worktree, name, store)
        message = f"Revert everything from {worktree.commit} to {commit}"
        tree = worktrees.repository.tree(worktree.commit)
        return worktrees.borrowing.commit(
            tree, (commit,), message, seconds=seconds, variables=store
        )
    except (UsageError, GitFailed):
        # Whatever else an agent left there, another commit cannot go on top of it.
        if target == "HEAD":
            return worktree.commit
        raise


def _find_later(
    worktrees: Worktrees, worktree: Worktree, commit: str, store: Mapping[str, str]
) -> str:
    """Return the full id of a commit that was made after the baseline, or raise."""
    git = worktrees.borrowing.git
    found = git.find_commit(commit, timeout_s=READ_TIMEOUT_S, variables=store)
    if found is None:
        raise UsageError(
            f"{quote_text(commit)} does not name a commit in {worktree.path}",
            rule="rollback.target",
        )
    after = git.answer(
        *("merge-base", "--is-ancestor", worktree.commit, found),
        accept=(0, 1),
        timeout_s=READ_TIMEOUT_S,
        variables=store,
    )
    if found == worktree.commit or after.exit_code != 0:
        raise UsageError(
            f"commit {found} was not made after the baseline {worktree.commit}: "
            "reverting it would undo other work",
            rule="rollback.baseline",
        )
    return found
