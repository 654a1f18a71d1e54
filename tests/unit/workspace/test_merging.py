"""Patches are put together exactly, and joined with what the branch became."""

from __future__ import annotations

from pathlib import Path

import pytest

from coilclaw.kernel.errors import PlanRefused, UsageError
from coilclaw.workspace.git import merge
from coilclaw.workspace.git.merge import Conflicted, MergeCandidate, Merged, Patch
from coilclaw.workspace.git.repository import Repository
from coilclaw.workspace.git.worktrees import Worktrees
from coilclaw.workspace.snapshot.store import SnapshotStore
from tests.support.snapshot_trees import Content, Link, Program, build, git

LINES = "".join(f"line {number}\n" for number in range(40))
FILES: dict[str, Content] = {
    "a.txt": LINES.encode(),
    "b.txt": b"b\n",
    "dos.txt": b"one\r\ntwo\r\nthree\r\n",
    ".gitattributes": b"*.txt text eol=crlf\n",
    "binary": bytes(range(256)),
    "dir/run.sh": Program(b"#!/bin/sh\necho\n"),
    "dir/link": Link("../a.txt"),
}
TIME = "2026-01-02T03:04:05Z"
RUN = "run-0001"


class World:
    def __init__(self, root: Path) -> None:
        self.tree = build(root / "tree", FILES)
        git(self.tree, "init", "-q", "-b", "main")
        build(self.tree, {".git/info/attributes": b"* -text\n"})
        git(self.tree, "add", "-A")
        git(self.tree, "commit", "-q", "-m", "first")
        self.repository = Repository.open(self.tree)
        self.commit = self.repository.resolve("HEAD")
        self.own = root / "own"
        self.worktrees = Worktrees(self.repository, self.own, root / "worktrees")
        self.store = SnapshotStore(root / "snapshots")
        self._made = 0

    def patch(
        self, entries: dict[str, Content], *, gone: tuple[str, ...] = (), commit: str = ""
    ) -> tuple[Patch, str]:
        """The work of a task, and the tree that it made."""
        self._made += 1
        path = self.worktrees.directory / "run" / f"task-{self._made}"
        worktree = self.worktrees.add(path, commit or self.commit)
        before = self.store.take(path)
        for name in (*gone, *entries):
            (path / name).unlink(missing_ok=True)
        build(path, entries)
        after = self.store.take(path)
        data = self.store.patch(before.id, after.id)
        self.worktrees.remove(worktree)
        return Patch(f"task-{self._made}", data, f"work {self._made}\n"), after.tree

    def build(self, *patches: Patch, baseline: str = "") -> MergeCandidate:
        return merge.build_candidate(
            self.repository, self.own, baseline or self.commit, patches, run_id=RUN, time=TIME
        )

    def merge(self, candidate: str, branch: str = "main") -> Merged | Conflicted:
        return merge.merge_candidate(
            self.repository, self.own, branch, candidate, run_id=RUN, message="merge", time=TIME
        )

    def user_commits(self, entries: dict[str, Content]) -> str:
        build(self.tree, entries)
        git(self.tree, "add", "-A")
        git(self.tree, "commit", "-q", "-m", "user")
        return self.repository.resolve("HEAD")

    def show(self, what: str) -> bytes:
        return git(self.tree, "cat-file", "blob", what)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def changed(number: int, text: str) -> bytes:
    return LINES.replace(f"line {number}\n", f"{text}\n").encode()


def test_a_patch_from_other_contents_is_refused_even_if_git_would_place_it(world: World) -> None:
    first, _ = world.patch({"a.txt": changed(3, "new")})
    second, _ = world.patch({"a.txt": changed(30, "other")})
    with pytest.raises(PlanRefused, match=r"'task-2' does not apply: it was made from other") as no:
        world.build(first, second)
    assert (no.value.rule, no.value.path) == ("merge.patch", "a.txt")
    assert merge.list_kept(world.repository, RUN) == {}


def test_a_file_that_both_add_is_refused(world: World) -> None:
    first, _ = world.patch({"new": b"1\n"})
    second, _ = world.patch({"new": b"2\n"})
    with pytest.raises(PlanRefused, match=r"'task-2' does not apply: new: already exists"):
        world.build(first, second)


@pytest.mark.parametrize(
    "data",
    [b"no patch at all\n", b"diff --git a/../x b/../x\nnew file mode 100644\n--- /dev/null\n"],
)
def test_what_is_no_patch_is_refused(world: World, data: bytes) -> None:
    with pytest.raises(PlanRefused, match="'task' does not apply"):
        world.build(Patch("task", data, "m"))


def test_a_patch_that_lies_about_its_result_is_refused(world: World) -> None:
    patch, _ = world.patch({"b.txt": b"B\n"})
    lie = patch.data.replace(b"+B\n", b"+C\n")
    with pytest.raises(PlanRefused, match="does not apply"):
        world.build(Patch("task", lie, "m"))


def test_a_patch_that_reaches_for_git_is_refused(world: World) -> None:
    data = (
        b"diff --git a/.git/hooks/x b/.git/hooks/x\nnew file mode 100755\n"
        b"index %s..e69de29bb2d1d6434b8b29ae775ad8c2e48c5391\n" % (b"0" * 40)
    )
    with pytest.raises(PlanRefused, match="does not apply"):
        world.build(Patch("task", data, "m"))


def test_one_patch_gives_the_tree_that_was_judged(world: World) -> None:
    patch, tree = world.patch(
        {
            "a.txt": changed(3, "new"),
            "dos.txt": b"one\r\nTWO\nthree\r\n",
            "binary": bytes(reversed(range(256))),
            'odd \n\t"name': b"no newline",
            "dir/link": Link("elsewhere"),
            "dir/run.sh": Program(b"#!/bin/sh\necho changed\n"),
            "dir/plain": b"#!/bin/sh\n",
            "moved": b"b\n",
        },
        gone=("b.txt",),
    )
    candidate = world.build(patch)
    assert candidate.tree == tree == world.repository.tree(candidate.commit)
    modes, tree = world.patch(
        {"dir/run.sh": b"#!/bin/sh\necho changed\n", "dir/plain": Program(b"#!/bin/sh\n")},
        commit=candidate.commit,
    )
    assert world.build(patch, modes).tree == tree
    assert candidate.commits == (candidate.commit,)
    assert world.show(f"{candidate.commit}:dos.txt") == b"one\r\nTWO\nthree\r\n"
    said = git(world.tree, "log", "-1", "--format=%P|%an|%ae|%aI|%cI|%B", candidate.commit)
    assert said.decode().strip().split("|") == [
        world.commit,
        "CoilClaw",
        "run@coilclaw.invalid",
        "2026-01-02T03:04:05+00:00",
        "2026-01-02T03:04:05+00:00",
        "work 1",
    ]


def test_patches_are_put_one_on_top_of_the_other_and_come_out_the_same_again(world: World) -> None:
    first, _ = world.patch({"a.txt": changed(3, "new")})
    second, _ = world.patch({"b.txt": b"B\n", "new/file": b"x\n"})
    nothing = Patch("task-0", b"", "nothing")
    candidate = world.build(nothing, first, second)
    assert world.build(first, nothing, second) == candidate
    assert len(candidate.commits) == 2
    log = git(world.tree, "log", "--format=%s", candidate.commit).decode().splitlines()
    assert log == ["work 2", "work 1", "first"]
    assert world.show(f"{candidate.commit}:a.txt") == changed(3, "new")
    third, _ = world.patch({"b.txt": b"BB\n"}, commit=candidate.commit)
    again = world.build(first, second, third)
    assert world.show(f"{again.commit}:b.txt") == b"BB\n"


def test_no_patches_are_the_baseline(world: World) -> None:
    tree = world.repository.tree(world.commit)
    assert world.build() == MergeCandidate(world.commit, tree, ())


def test_submodules_of_the_baseline_stay(world: World) -> None:
    git(world.tree, "update-index", "--add", "--cacheinfo", f"160000,{world.commit},sub")
    git(world.tree, "commit", "-q", "-m", "sub")
    world.commit = world.repository.resolve("HEAD")
    patch, _ = world.patch({"b.txt": b"B\n"})
    candidate = world.build(patch)
    assert world.repository.gitlinks(candidate.commit) == ("sub",)


def test_what_is_kept_survives_a_gc_and_is_let_go_of_with_the_run(world: World) -> None:
    patch, _ = world.patch({"b.txt": b"B\n"})
    candidate = world.build(patch)
    git(world.tree, "gc", "-q", "--prune=now")
    assert world.show(f"{candidate.commit}:b.txt") == b"B\n"
    assert merge.list_kept(world.repository, RUN) == {"candidate": candidate.commit}
    assert merge.delete_refs(world.repository, "run-0002") == ()
    assert merge.delete_refs(world.repository, RUN) == ("candidate",)
    assert merge.list_kept(world.repository, RUN) == {}
    assert git(world.tree, "branch", "--format=%(refname)") == b"refs/heads/main\n"


@pytest.mark.parametrize("name", ["", "../x", "a/b", "-x", "a.lock", "a..b", "a b", "x\n"])
def test_a_run_that_cannot_be_part_of_a_ref_is_refused(world: World, name: str) -> None:
    with pytest.raises(UsageError) as caught:
        merge.build_candidate(world.repository, world.own, world.commit, (), run_id=name, time=TIME)
    assert caught.value.rule == "merge.ref"


@pytest.mark.parametrize("time", ["", "yesterday", "2026-01-02T03:04:05"])
def test_what_is_no_time_is_refused(world: World, time: str) -> None:
    with pytest.raises(UsageError) as caught:
        merge.build_candidate(world.repository, world.own, world.commit, (), run_id=RUN, time=time)
    assert caught.value.rule == "merge.time"


def test_a_branch_that_did_not_move_is_moved_forward(world: World) -> None:
    candidate = world.build(world.patch({"b.txt": b"B\n"})[0])
    assert world.merge(candidate.commit) == Merged(
        candidate.commit, candidate.tree, (world.commit,), world.commit, fast_forward=True
    )
    assert world.repository.branch("main") == world.commit, "nothing has landed yet"


def test_what_is_in_the_branch_already_changes_nothing(world: World) -> None:
    tip = world.user_commits({"b.txt": b"B\n"})
    merged = world.merge(world.commit)
    assert isinstance(merged, Merged)
    assert (merged.commit, merged.onto, merged.fast_forward) == (tip, tip, True)


def test_a_branch_that_moved_is_joined_line_by_line(world: World) -> None:
    candidate = world.build(world.patch({"a.txt": changed(3, "agent"), "n": b"n"})[0])
    tip = world.user_commits({"a.txt": changed(30, "user"), "b.txt": b"user\n"})
    merged = world.merge(candidate.commit)
    assert isinstance(merged, Merged)
    assert (merged.parents, merged.onto, merged.fast_forward) == (
        (tip, candidate.commit),
        tip,
        False,
    )
    text = world.show(f"{merged.commit}:a.txt").decode()
    assert ("agent\n" in text, "user\n" in text) == (True, True)
    assert world.show(f"{merged.commit}:b.txt") == b"user\n"
    assert merged.tree == world.repository.tree(merged.commit)
    assert world.merge(candidate.commit) == merged, "the same again"
    assert merge.list_kept(world.repository, RUN)["merged"] == merged.commit


def test_conflicts_are_named_by_path_and_nothing_changes(world: World) -> None:
    candidate = world.build(
        world.patch({"a.txt": changed(3, "agent"), "binary": b"\0agent", "odd \n": b"1"})[0]
    )
    tip = world.user_commits({"a.txt": changed(3, "user"), "binary": b"\0user", "odd \n": b"2"})
    reason = "the branch and the candidate changed the same lines"
    assert world.merge(candidate.commit) == Conflicted(tip, reason, ("a.txt", "binary", "odd \n"))
    assert world.repository.branch("main") == tip
    assert "merged" not in merge.list_kept(world.repository, RUN)


def test_histories_with_nothing_in_common_are_not_joined(world: World) -> None:
    git(world.tree, "checkout", "-q", "--orphan", "other")
    git(world.tree, "commit", "-q", "-m", "other")
    candidate = world.build(world.patch({"b.txt": b"B\n"})[0])
    merged = world.merge(candidate.commit, "other")
    assert isinstance(merged, Conflicted)
    assert "no history in common" in merged.reason


def test_an_unknown_branch_is_refused(world: World) -> None:
    with pytest.raises(UsageError, match="the branch 'nowhere' does not exist"):
        world.merge(world.commit, "nowhere")


def test_no_driver_or_hook_of_the_repository_runs(world: World, tmp_path: Path) -> None:
    trap = b"#!/bin/sh\necho \"$0\" >> '%s/ran'\n" % bytes(tmp_path)
    build(tmp_path, {"trap": Program(trap)})
    build(world.tree / ".git/hooks", {"reference-transaction": Program(trap)})
    git(world.tree, "config", "merge.x.driver", str(tmp_path / "trap"))
    git(world.tree, "config", "filter.x.clean", str(tmp_path / "trap"))
    build(world.tree, {".git/info/attributes": b"* merge=x filter=x\n"})
    world.repository = Repository.open(world.tree)
    candidate = world.build(world.patch({"a.txt": changed(3, "agent")})[0])
    (tmp_path / "ran").unlink(missing_ok=True)
    build(world.tree, {".git/info/attributes": b"* -text\n", "a.txt": changed(30, "user")})
    git(world.tree, "-c", "core.hooksPath=/dev/null", "commit", "-qam", "user")
    build(world.tree, {".git/info/attributes": b"* merge=x filter=x\n"})
    assert isinstance(world.merge(candidate.commit), Merged)
    merge.delete_refs(world.repository, RUN)
    assert not (tmp_path / "ran").exists()
