"""A rollback takes everything back, and proves it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from coilclaw.kernel.errors import UsageError
from coilclaw.workspace.git.repository import Repository
from coilclaw.workspace.git.rollback import RolledBack, roll_back
from coilclaw.workspace.git.worktrees import Worktree, Worktrees
from coilclaw.workspace.snapshot.store import SnapshotStore
from tests.support.snapshot_trees import Content, Link, build, contents, git

FILES: dict[str, Content] = {
    ".gitignore": b"ignored\n*.log\n",
    "a.txt": b"one\n",
    "dir/b.txt": b"two\n",
    "dir/c.txt": b"three\n",
}


class World:
    def __init__(self, root: Path) -> None:
        self.tree = build(root / "tree", {"a.txt": b"zero\n"})
        git(self.tree, "init", "-q", "-b", "main")
        self._commit("zero")
        build(self.tree, FILES)
        self._commit("first")
        self.repository = Repository.open(self.tree)
        self.commit = self.repository.resolve("HEAD")
        self.worktrees = Worktrees(self.repository, root / "own", root / "worktrees")
        self.worktree = self.worktrees.add(root / "worktrees/run/task", self.commit)
        self.store = SnapshotStore(root / "snapshots")

    def _commit(self, message: str) -> None:
        git(self.tree, "add", "-A")
        git(self.tree, "commit", "-q", "-m", message)

    def agent(self, *arguments: str) -> str:
        """Git as an agent runs it."""
        env = {"PATH": os.environ["PATH"], **self.worktree.environ}
        done = subprocess.run(
            ["git", *arguments], cwd=self.worktree.path, env=env, capture_output=True, check=True
        )
        return done.stdout.decode().strip()

    def back(self, strategy: Any, **fields: Any) -> RolledBack:
        return roll_back(self.worktrees, self.worktree, strategy, self.store, **fields)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def mess(worktree: Worktree) -> None:
    """Changed, removed, untracked and ignored files, a nested repository, another index."""
    path = worktree.path
    build(
        path, {"new": b"new", "ignored": b"x", "deep/er/x.log": b"x", "link": Link("/etc/passwd")}
    )
    (path / "a.txt").write_text("changed\n")
    (path / "dir/b.txt").unlink()
    (path / "dir/b.txt").mkdir()
    git(build(path / "nested", {"f": b"f"}), "init", "-q")
    (path / "dir/c.txt").chmod(0o755)


def test_a_strategy_that_nobody_knows_is_refused(world: World) -> None:
    with pytest.raises(UsageError) as caught:
        world.back("hope")
    assert caught.value.rule == "rollback.strategy"


def test_reset_takes_back_what_was_staged_committed_untracked_and_ignored(world: World) -> None:
    mess(world.worktree)
    world.agent("add", "a.txt", "new")
    world.agent("commit", "-q", "-m", "mine")
    world.agent("add", "-f", "ignored")
    tree = world.repository.tree(world.commit)
    assert world.back("git_reset_hard") == RolledBack("git_reset_hard", tree, world.commit)
    assert contents(world.worktree.path, skip=frozenset({".git"})) == FILES
    assert world.agent("status", "--porcelain", "--ignored") == ""
    assert world.agent("rev-parse", "HEAD") == world.commit


def test_files_with_the_old_size_and_times_are_written_again_too(world: World) -> None:
    place = world.worktree.path / "a.txt"
    status = place.stat()
    place.write_text("ONE\n")
    os.utime(place, ns=(status.st_atime_ns, status.st_mtime_ns))
    world.back("git_reset_hard")
    assert place.read_text() == "one\n"


def test_dropping_removes_the_worktree(world: World) -> None:
    mess(world.worktree)
    assert world.back("worktree_drop") == RolledBack("worktree_drop", "", "")
    assert not world.worktree.path.exists()
    assert not world.worktree.git_dir.exists()


def test_revert_puts_a_commit_on_top_that_undoes_everything(world: World) -> None:
    mess(world.worktree)
    world.agent("add", "a.txt")
    world.agent("commit", "-q", "-m", "one")
    world.agent("commit", "-q", "--allow-empty", "-m", "two")
    mine = world.agent("rev-parse", "HEAD")
    done = world.back("git_revert_commit", target="HEAD", seconds=1000)
    assert done.tree == world.repository.tree(world.commit)
    assert contents(world.worktree.path, skip=frozenset({".git"})) == FILES
    assert world.agent("rev-parse", "HEAD", "HEAD~1", "HEAD^{tree}").split() == [
        done.head,
        mine,
        done.tree,
    ]
    assert world.agent("status", "--porcelain") == ""


@pytest.mark.parametrize("target", ["baseline", "before", "--all", "main", "", "1" * 40])
def test_reverting_what_the_agent_did_not_make_is_refused(world: World, target: str) -> None:
    names = {"baseline": world.commit, "before": world.repository.resolve("HEAD~1")}
    mess(world.worktree)
    with pytest.raises(UsageError) as caught:
        world.back("git_revert_commit", target=names.get(target, target))
    assert caught.value.rule in {"rollback.baseline", "rollback.target"}
    # The files are back all the same.
    assert contents(world.worktree.path, skip=frozenset({".git"})) == FILES
    assert world.agent("rev-parse", "HEAD") == world.commit


@pytest.mark.parametrize("head", [None, "ref: refs/heads/main", "1" * 40, "garbage", ""])
def test_there_is_nothing_to_revert_if_nothing_was_committed(
    world: World, head: str | None
) -> None:
    mess(world.worktree)
    if head is not None:
        (world.worktree.git_dir / "HEAD").write_text(head)
    done = world.back("git_revert_commit", target="HEAD")
    assert done == RolledBack(
        "git_revert_commit", world.repository.tree(world.commit), world.commit
    )
    assert world.agent("rev-parse", "HEAD") == world.commit


def test_the_proof_counts_a_submodule_as_the_directory_that_it_is(tmp_path: Path) -> None:
    world = World(tmp_path)
    git(world.tree, "update-index", "--add", "--cacheinfo", f"160000,{world.commit},sub")
    git(world.tree, "commit", "-q", "-m", "sub")
    commit = world.repository.resolve("HEAD")
    world.worktree = world.worktrees.add(tmp_path / "worktrees/run/other", commit)
    build(world.worktree.path, {"sub/x": b"x"})
    done = world.back("git_reset_hard")
    assert done.tree == world.repository.tree(world.commit)
    assert list((world.worktree.path / "sub").iterdir()) == []
