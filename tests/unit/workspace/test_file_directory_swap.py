"""A file that becomes a directory, or the reverse, in one answer."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from coilclaw.changes import answer
from coilclaw.changes.operations import AnswerOptions
from coilclaw.kernel.errors import CoilClawError, PlanRefused
from coilclaw.workspace.tree import recovery
from coilclaw.workspace.tree.delivery import Delivered, DeliveryTerms, deliver_answer
from coilclaw.workspace.tree.root import Root
from coilclaw.workspace.tree.state import TreeState
from coilclaw.workspace.tree.undo import undo_change
from tests.support.trees import make, picture

Entry = dict[str, str]
TO_DIRECTORY: list[Entry] = [
    {"path": "a", "operation": "delete"},
    {"path": "a/b", "content": "below\n"},
    {"path": "a/c/d", "content": "far below\n"},
]
TO_FILE: list[Entry] = [
    {"path": "a", "content": "a file\n"},
    {"path": "a/b", "operation": "delete"},
    {"path": "a/c/d", "operation": "delete"},
]


def bundle(entries: list[Entry]) -> str:
    return json.dumps({"root": ".", "files": entries})


def apply(tree: Path, home: Path, text: str, options: AnswerOptions = AnswerOptions()) -> None:
    with Root(tree) as root:
        outcome = deliver_answer(
            root,
            TreeState.of(home, tree),
            answer.parse_answer(text),
            DeliveryTerms(options=options),
        )
    assert isinstance(outcome, Delivered)
    assert outcome.change is not None


def take_back(tree: Path, home: Path) -> None:
    with Root(tree) as root:
        undo_change(root, TreeState.of(home, tree), None)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.mark.parametrize("order", [1, -1])
def test_a_file_becomes_a_directory_and_back_and_each_can_be_undone(
    tmp_path: Path, home: Path, order: int
) -> None:
    tree = tmp_path / "tree"
    make(tree, {"a": b"a file\n", "other": b"o"})
    as_file = picture(tree)
    apply(tree, home, bundle(TO_DIRECTORY[::order]))
    as_directory = picture(tree)
    assert (tree / "a" / "c" / "d").read_bytes() == b"far below\n"
    take_back(tree, home)
    assert picture(tree) == as_file
    apply(tree, home, bundle(TO_DIRECTORY[::order]))
    assert picture(tree) == as_directory
    apply(tree, home, bundle(TO_FILE[::order]))
    assert picture(tree) == as_file
    take_back(tree, home)
    assert picture(tree) == as_directory


PATCH = """\
diff --git a/a b/a
deleted file mode 100644
--- a/a
+++ /dev/null
@@ -1 +0,0 @@
-a file
diff --git a/a/b b/a/b
new file mode 100644
--- /dev/null
+++ b/a/b
@@ -0,0 +1 @@
+below
"""
MOVE = """\
diff --git a/a b/a/b
similarity index 100%
rename from a
rename to a/b
"""


@pytest.mark.parametrize(("patch", "content"), [(PATCH, b"below\n"), (MOVE, b"a file\n")])
def test_a_git_patch_turns_a_file_into_a_directory(
    tmp_path: Path, home: Path, patch: str, content: bytes
) -> None:
    tree = tmp_path / "tree"
    make(tree, {"a": b"a file\n"})
    apply(tree, home, patch)
    assert (tree / "a" / "b").read_bytes() == content


def test_a_link_that_goes_is_not_followed_for_what_comes_in_its_place(
    tmp_path: Path, home: Path
) -> None:
    tree = tmp_path / "tree"
    make(tree, {"d/keep": b"k"})
    os.symlink("d", tree / "a")
    apply(tree, home, bundle(TO_DIRECTORY))
    assert not (tree / "a").is_symlink()
    assert sorted(path.name for path in (tree / "d").iterdir()) == ["keep"]
    take_back(tree, home)
    assert os.readlink(tree / "a") == "d"


def refused(tree: Path, home: Path, entries: list[Entry]) -> CoilClawError:
    before = picture(tree)
    with pytest.raises(CoilClawError) as caught:
        apply(tree, home, bundle(entries))
    assert picture(tree) == before
    return caught.value


def test_real_conflicts_are_still_refused(tmp_path: Path, home: Path) -> None:
    tree = tmp_path / "tree"
    make(tree, {"a": b"a file\n", "d/b": b"b", "d/c": b"c", "e/f": b"f"})
    (tree / "e" / "empty").mkdir()
    below = {"path": "a/b", "content": "x"}
    assert refused(tree, home, [below]).rule == "path.directory"
    assert refused(tree, home, [below, {"path": "a", "content": "y"}]).rule == "path.directory"
    both = [{"path": "n", "content": "y"}, {"path": "n/m", "content": "y"}]
    assert refused(tree, home, both).rule == "plan.overlap"
    # One file of the directory would stay, so there is no room for a file of its name.
    crowded = refused(
        tree, home, [{"path": "d", "content": "y"}, {"path": "d/b", "operation": "delete"}]
    )
    assert isinstance(crowded, PlanRefused)
    assert (crowded.rule, crowded.path) == ("plan.obstacle", "d")
    assert "'d/c'" in crowded.message
    hollow = [{"path": "e", "content": "y"}, {"path": "e/f", "operation": "delete"}]
    assert refused(tree, home, hollow).rule == "plan.obstacle"
    assert refused(tree, home, [{"path": "d", "content": "y"}]).rule == "plan.obstacle"


def test_a_kill_at_any_call_leaves_one_side_whole(tmp_path: Path) -> None:
    """The child is killed at its n-th change of the file system, for every n."""
    outcomes, finished = set(), False
    for count in range(1, 80):
        tree, home = tmp_path / f"t{count}", tmp_path / f"h{count}"
        make(tree, {"a": b"a file\n"})
        before = picture(tree)
        finished = run_until(count, tree, home)
        with Root(tree) as root:
            recovery.repair_tree(root, TreeState.of(home, tree))
        found = picture(tree)
        assert found == before or (tree / "a" / "c" / "d").read_bytes() == b"far below\n"
        outcomes.add(found == before)
        if finished:
            break
    assert finished
    assert outcomes == {True, False}


def run_until(count: int, tree: Path, home: Path) -> bool:
    """Apply the answer in a child that ends like a killed one at a call; say if it finished."""
    pid = os.fork()
    if pid == 0:
        left = count

        def counting(name: str) -> None:
            real = getattr(os, name)

            def call(*args: object, **more: object) -> object:
                nonlocal left
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), 9)
                return real(*args, **more)

            setattr(os, name, call)

        for name in ("rename", "replace", "unlink", "mkdir", "rmdir", "fsync"):
            counting(name)
        try:
            apply(tree, home, bundle(TO_DIRECTORY))
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
