"""A branch moves forward only, from where it was expected, and never over local changes."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from coilclaw.kernel.errors import LockTimeout, UsageError
from coilclaw.kernel.file_lock import hold_guard
from coilclaw.workspace.git import landing, merge
from coilclaw.workspace.git.client import GitAnswer
from coilclaw.workspace.git.landing import Landed, LandingRefused, land_branch
from coilclaw.workspace.git.repository import Repository
from coilclaw.workspace.git.worktrees import Worktrees
from tests.support.snapshot_trees import Content, Program, build, git, witness

FILES: dict[str, Content] = {
    "a.txt": b"one\n",
    "b.txt": b"two\n",
    "gone.txt": b"gone\n",
    ".gitignore": b"*.log\n",
}


class World:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.tree = build(root / "tree", FILES)
        git(self.tree, "init", "-q", "-b", "main")
        git(self.tree, "add", "-A")
        git(self.tree, "commit", "-q", "-m", "first")
        git(self.tree, "branch", "side")
        self.repository = Repository.open(self.tree)
        self.old = self.repository.resolve("HEAD")
        self.own = root / "own"
        self.new = self.made({"a.txt": b"ONE\n", "new/file.log": b"new\n"}, gone=("gone.txt",))

    def made(self, entries: dict[str, Content], gone: tuple[str, ...] = ()) -> str:
        """A commit on top of the old one."""
        place = self.root / "maker"
        git(self.tree, "worktree", "add", "-q", "--detach", str(place), self.old)
        for name in gone:
            (place / name).unlink()
        build(place, entries)
        git(place, "add", "-A", "-f")
        git(place, "commit", "-q", "-m", "new")
        commit = git(place, "rev-parse", "HEAD").decode().strip()
        git(self.tree, "worktree", "remove", "--force", str(place))
        return commit

    def land(
        self, branch: str = "main", *, old: str = "", new: str = ""
    ) -> Landed | LandingRefused:
        return land_branch(self.repository, self.own, branch, old or self.old, new or self.new)

    def refusal(self, branch: str = "main", *, old: str = "", new: str = "") -> LandingRefused:
        """Nothing at all may have changed."""
        before = witness(self.tree / ".git/refs"), self._state()
        done = self.land(branch, old=old, new=new)
        assert isinstance(done, LandingRefused)
        assert (witness(self.tree / ".git/refs"), self._state()) == before
        return done

    def _state(self) -> tuple[dict[str, bytes], bytes]:
        files = {
            str(path): path.read_bytes()
            for path in self.tree.rglob("*")
            if path.is_file() and ".git" not in path.parts
        }
        return files, git(self.tree, "status", "--porcelain", "--ignored")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_branch_that_moved_meanwhile_is_not_moved(world: World) -> None:
    git(world.tree, "branch", "-f", "side", world.made({"x": b"x"}))
    assert world.refusal("side").rule == "merge.moved"
    assert world.refusal("nowhere").rule == "merge.moved"
    with pytest.raises(UsageError):
        world.land("-D")


def test_a_branch_never_loses_a_commit(world: World) -> None:
    other = world.made({"x": b"x"})
    git(world.tree, "branch", "-f", "side", other)
    assert world.refusal("side", old=other).rule == "merge.rewind"


def test_a_branch_that_is_checked_out_nowhere_is_moved(world: World) -> None:
    before = world._state()
    assert world.land("side") == Landed("side", world.old, world.new, None)
    assert world.repository.branch("side") == world.new
    assert world._state() == before
    assert world.repository.branch("main") == world.old
    assert world.land("side", old=world.new) == Landed("side", world.new, world.new, None)


def test_the_checked_out_branch_is_moved_with_its_files(world: World) -> None:
    (world.tree / "b.txt").write_text("mine\n")
    (world.tree / "untracked").write_text("mine\n")
    assert world.land() == Landed("main", world.old, world.new, world.tree)
    assert world.repository.head() == ("main", world.new)
    assert (world.tree / "a.txt").read_text() == "ONE\n"
    assert (world.tree / "new/file.log").read_text() == "new\n"
    assert not (world.tree / "gone.txt").exists()
    assert (world.tree / "b.txt").read_text() == "mine\n"
    assert git(world.tree, "status", "--porcelain") == b" M b.txt\n?? untracked\n"
    assert git(world.tree, "reflog", "-1", "--format=%gs").startswith(b"coilclaw")


def test_what_is_staged_elsewhere_stays_staged(world: World) -> None:
    (world.tree / "b.txt").write_text("mine\n")
    git(world.tree, "add", "b.txt")
    assert isinstance(world.land(), Landed)
    assert git(world.tree, "status", "--porcelain") == b"M  b.txt\n"


def test_local_changes_are_never_overwritten(world: World) -> None:
    (world.tree / "a.txt").write_text("mine\n")
    (world.tree / "gone.txt").write_text("mine\n")
    done = world.refusal()
    assert (done.rule, done.paths) == ("merge.local_changes", ("a.txt", "gone.txt"))
    assert "'a.txt'" in done.reason
    git(world.tree, "add", "-A")
    assert world.refusal().rule == "merge.local_changes"


def test_ignored_and_untracked_files_are_not_overwritten_either(world: World) -> None:
    build(world.tree, {"new/file.log": b"mine\n"})
    assert git(world.tree, "status", "--porcelain") == b""
    done = world.refusal()
    assert (done.rule, done.paths) == ("merge.local_changes", ("new/file.log",))
    commit = world.made({"plain": b"theirs\n"})
    build(world.tree, {"plain": b"mine\n"})
    assert world.refusal(new=commit).paths == ("plain",)


@pytest.mark.parametrize(
    "mark", ["MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "rebase-merge/x", "BISECT_LOG"]
)
def test_an_operation_that_is_going_on_is_not_disturbed(world: World, mark: str) -> None:
    build(world.tree / ".git", {mark: world.old.encode()})
    assert world.refusal().rule == "merge.busy"
    assert isinstance(world.land("side"), Landed), "another branch has nothing to do with it"


@pytest.mark.parametrize(
    ("name", "text"),
    [("rebase-merge/head-name", "refs/heads/side\n"), ("BISECT_START", "side\n")],
)
def test_a_branch_that_an_operation_will_come_back_to_is_not_moved(
    world: World, name: str, text: str
) -> None:
    build(world.tree / ".git", {name: text.encode(), "BISECT_LOG": b""})
    assert world.refusal("side").rule == "merge.busy"


def test_an_index_that_stays_locked_is_left_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(landing, "INDEX_WAIT_S", 0.0)
    build(world.tree / ".git", {"index.lock": b""})
    done = world.land()
    assert isinstance(done, LandingRefused)
    assert (done.rule, "index.lock" in done.reason) == ("merge.refused", True)
    assert world.repository.branch("main") == world.old


def test_an_index_that_is_locked_for_a_moment_is_waited_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As by an editor that shows the state of the tree.
    build(world.tree / ".git", {"index.lock": b""})
    monkeypatch.setattr(
        time, "sleep", lambda _: (world.tree / ".git/index.lock").unlink(missing_ok=True)
    )
    assert isinstance(world.land(), Landed)
    assert git(world.tree, "status", "--porcelain") == b""


def test_a_branch_that_moves_at_the_last_moment_is_not_gone_back_from(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = world.made({"b.txt": b"user\n"})
    fast_forward = landing._fast_forward

    def move_first(*arguments: Any) -> GitAnswer:
        git(world.tree, "merge", "-q", "--ff-only", other)
        return fast_forward(*arguments)

    monkeypatch.setattr(landing, "_fast_forward", move_first)
    done = world.land()
    assert isinstance(done, LandingRefused)
    assert done.rule == landing.MOVED
    assert world.repository.branch("main") == other
    assert git(world.tree, "status", "--porcelain") == b""


def test_nobody_else_lands_while_files_are_brought_up_to_date(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    # git checks where the branch stands only after it wrote the files.
    fast_forward = landing._fast_forward

    def try_guard(*arguments: Any) -> GitAnswer:
        with (
            pytest.raises(LockTimeout),
            hold_guard(world.own / "coilclaw" / landing.GUARD, timeout_s=0.0),
        ):
            pass
        return fast_forward(*arguments)

    monkeypatch.setattr(landing, "_fast_forward", try_guard)
    assert isinstance(world.land(), Landed)


def test_a_branch_in_another_worktree_is_moved_there(world: World, tmp_path: Path) -> None:
    other = tmp_path / "other"
    git(world.tree, "worktree", "add", "-q", str(other), "side")
    assert world.land("side") == Landed("side", world.old, world.new, other)
    assert (other / "a.txt").read_text() == "ONE\n"
    assert git(other, "status", "--porcelain") == b""
    # And the main one, seen from the other.
    world.repository = Repository.open(other)
    assert world.land() == Landed("main", world.old, world.new, world.tree)
    assert (world.tree / "a.txt").read_text() == "ONE\n"


def test_a_worktree_that_is_not_there_is_named(world: World, tmp_path: Path) -> None:
    other = tmp_path / "other"
    git(world.tree, "worktree", "add", "-q", str(other), "side")
    other.rename(tmp_path / "away")
    assert world.refusal("side").rule == "merge.worktree"


def test_a_branch_that_is_checked_out_twice_is_not_moved(world: World, tmp_path: Path) -> None:
    for name in ("one", "two"):
        git(world.tree, "worktree", "add", "-q", "-f", str(tmp_path / name), "side")
    assert world.refusal("side").rule == "merge.checked_out"


def test_what_an_agent_claims_to_have_checked_out_does_not_count(
    world: World, tmp_path: Path
) -> None:
    worktrees = Worktrees(world.repository, world.own, tmp_path / "worktrees")
    worktree = worktrees.add(tmp_path / "worktrees/run/task", world.old)
    (worktree.git_dir / "HEAD").write_text("ref: refs/heads/main\n")
    assert world.refusal().rule == "merge.checked_out"
    done = land_branch(
        world.repository, world.own, "main", world.old, world.new, ours=worktrees.git_dirs()
    )
    assert done == Landed("main", world.old, world.new, world.tree)


def test_what_a_filter_belongs_to_is_left_to_the_user(world: World) -> None:
    commit = world.made({".gitattributes": b"*.bin filter=lfs\n", "x.bin": b"x", "y.txt": b"y"})
    done = world.refusal(new=commit)
    assert (done.rule, done.paths) == ("merge.filtered", ("x.bin",))
    assert commit in done.hint
    assert isinstance(world.land("side", new=commit), Landed), "no files are written there"


def test_no_hook_filter_or_option_of_the_repository_has_a_say(world: World, tmp_path: Path) -> None:
    trap = b"#!/bin/sh\necho \"$0\" >> '%s/ran'\ncat\n" % bytes(tmp_path)
    names = ("post-merge", "post-checkout", "reference-transaction", "post-index-change")
    build(world.tree / ".git/hooks", {name: Program(trap) for name in names})
    build(tmp_path, {"trap": Program(trap)})
    settings = {
        "core.fsmonitor": str(tmp_path / "trap"),
        "filter.x.clean": str(tmp_path / "trap"),
        "filter.x.smudge": str(tmp_path / "trap"),
        "branch.main.mergeOptions": "--squash",
        "merge.ff": "false",
        "merge.autoStash": "true",
        "merge.verifySignatures": "true",
    }
    for name, value in settings.items():
        git(world.tree, "config", name, value)
    build(world.tree, {".git/info/attributes": b"b.txt filter=x\n"})
    os.utime(world.tree / "b.txt", (1, 1))
    world.repository = Repository.open(world.tree)
    assert world.land() == Landed("main", world.old, world.new, world.tree)
    assert world.land("side") == Landed("side", world.old, world.new, None)
    assert not (tmp_path / "ran").exists()


def test_the_user_s_line_ends_are_respected_in_the_user_s_worktree(world: World) -> None:
    git(world.tree, "config", "core.autocrlf", "true")
    assert isinstance(world.land(), Landed)
    assert (world.tree / "a.txt").read_bytes() == b"ONE\r\n"
    assert git(world.tree, "status", "--porcelain") == b""


def test_of_many_that_land_at_once_one_does(world: World) -> None:
    commits = [world.made({"x": b"%d" % number}) for number in range(4)]
    barrier = threading.Barrier(4)
    results: list[Landed | LandingRefused] = []

    def one(commit: str) -> None:
        barrier.wait()
        results.append(world.land("side", new=commit))

    threads = [threading.Thread(target=one, args=(commit,)) for commit in commits]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    landed = [done.new for done in results if isinstance(done, Landed)]
    assert len(landed) == 1
    assert world.repository.branch("side") == landed[0]
    assert {done.rule for done in results if isinstance(done, LandingRefused)} == {"merge.moved"}


def test_a_whole_merge_lands(world: World) -> None:
    build(world.tree, {"b.txt": b"user\n"})
    git(world.tree, "commit", "-q", "-am", "user")
    merged = merge.merge_candidate(
        world.repository,
        world.own,
        "main",
        world.new,
        run_id="run-0001",
        message="merge run-0001",
        time="2026-01-02T03:04:05Z",
    )
    assert isinstance(merged, merge.Merged)
    assert isinstance(world.land(old=merged.onto, new=merged.commit), Landed)
    assert (world.tree / "b.txt").read_text() == "user\n"
    assert (world.tree / "a.txt").read_text() == "ONE\n"
    assert git(world.tree, "status", "--porcelain") == b""
