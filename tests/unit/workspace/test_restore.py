from __future__ import annotations

import os
from pathlib import Path

import pytest

from coilclaw.kernel.errors import UsageError
from coilclaw.kernel.tree_files import ChangeKind
from coilclaw.workspace.snapshot.store import SnapshotStore
from coilclaw.workspace.tree.root import Root
from coilclaw.workspace.tree.state import TreeState
from coilclaw.workspace.tree.undo import Restored, restore_snapshot, undo_change
from tests.support.trees import make, picture


class World:
    """A tree with its state and its snapshots."""

    def __init__(self, tmp_path: Path) -> None:
        self.tree = make(
            tmp_path / "tree",
            {
                "a.txt": b"a\n",
                "run.sh": (b"#!/bin/sh\n", 0o755),
                "was_file": b"f",
                "was_dir/x/y": b"y",
                os.fsdecode(b"odd \xff\nname"): b"odd",
            },
        )
        os.symlink("a.txt", self.tree / "link")
        (self.tree / "empty" / "deep").mkdir(parents=True)
        self.state = TreeState.of(tmp_path / "home", self.tree)
        self.state.create()
        self.store = SnapshotStore(self.state.snapshots)

    def take(self) -> str:
        return self.store.take(self.tree).id

    def restore(self, snapshot: str, *, dry_run: bool = False) -> Restored:
        with Root(self.tree) as root:
            return restore_snapshot(root, self.state, self.store, snapshot, dry_run=dry_run)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def wreck(tree: Path) -> None:
    make(tree, {"a.txt": b"other\n", "new/b.txt": b"b"})
    (tree / "run.sh").chmod(0o644)
    (tree / "link").unlink()
    os.symlink("run.sh", tree / "link")
    (tree / "was_file").unlink()
    make(tree, {"was_file/now/z": b"z"})
    (tree / "was_dir/x/y").unlink()
    (tree / "was_dir/x").rmdir()
    (tree / "was_dir").rmdir()
    make(tree, {"was_dir": b"file now"})
    (tree / os.fsdecode(b"odd \xff\nname")).unlink()
    (tree / "empty" / "deep").rmdir()
    (tree / "fresh").mkdir()


def test_a_tree_is_put_back_whatever_became_of_it(world: World) -> None:
    before = picture(world.tree)
    snapshot = world.take()
    wreck(world.tree)
    done = world.restore(snapshot)
    assert picture(world.tree) == before
    assert done.left == ()
    assert world.take() == snapshot


def test_a_restore_can_be_undone(world: World) -> None:
    snapshot = world.take()
    wreck(world.tree)
    wrecked = picture(world.tree)
    done = world.restore(snapshot)
    assert done.change is not None
    with Root(world.tree) as root:
        undo_change(root, world.state, done.change.id)
    assert picture(world.tree) == wrecked
    assert world.store.exists(done.before)


def test_links_and_directories_swap_places(world: World) -> None:
    os.symlink("a.txt", world.tree / "l")
    make(world.tree, {"full/x": b"x"})
    (world.tree / "hollow").mkdir()
    before = picture(world.tree)
    snapshot = world.take()
    (world.tree / "l").unlink()
    make(world.tree, {"l/inside": b"i"})
    (world.tree / "full/x").unlink()
    (world.tree / "full").rmdir()
    os.symlink("a.txt", world.tree / "full")
    (world.tree / "hollow").rmdir()
    make(world.tree, {"hollow": b"file"})
    after = picture(world.tree)
    done = world.restore(snapshot)
    assert picture(world.tree) == before
    assert done.change is not None
    with Root(world.tree) as root:
        undo_change(root, world.state, done.change.id)
    assert picture(world.tree) == after


def test_directories_alone_are_restored_and_undone(world: World) -> None:
    snapshot = world.take()
    before = picture(world.tree)
    (world.tree / "empty" / "deep").rmdir()
    (world.tree / "fresh" / "one").mkdir(parents=True)
    after = picture(world.tree)
    done = world.restore(snapshot)
    assert picture(world.tree) == before
    assert done.change is not None
    with Root(world.tree) as root:
        undo_change(root, world.state, done.change.id)
    assert picture(world.tree) == after


def test_permission_bits_come_back(world: World) -> None:
    make(world.tree, {"secret": (b"s", 0o600), "plain": b"p"})
    snapshot = world.take()
    (world.tree / "secret").unlink()
    (world.tree / "plain").chmod(0o600)
    shown = {change.path: change.kind for change in world.store.diff(snapshot, world.take())}
    assert shown == {"secret": ChangeKind.REMOVED, "plain": ChangeKind.MODE}
    done = world.restore(snapshot)
    assert [(world.tree / name).stat().st_mode & 0o777 for name in ("secret", "plain")] == [
        0o600,
        0o644,
    ]
    assert world.take() == snapshot
    assert done.change is not None
    with Root(world.tree) as root:
        undo_change(root, world.state, done.change.id)
    assert not (world.tree / "secret").exists()
    assert (world.tree / "plain").stat().st_mode & 0o777 == 0o600


def test_what_was_left_out_of_a_snapshot_is_left_alone(world: World) -> None:
    make(world.tree, {"node_modules/dep": b"d"})
    snapshot = world.store.take(world.tree, exclude=("node_modules",)).id
    make(world.tree, {"a.txt": b"other\n"})
    world.restore(snapshot)
    assert (world.tree / "node_modules/dep").read_bytes() == b"d"
    assert (world.tree / "a.txt").read_bytes() == b"a\n"


@pytest.mark.parametrize("path", ["", ".", "..", "/etc", "../x", "a/../b", "a//b"])
def test_what_is_left_out_is_a_path_of_the_tree(world: World, path: str) -> None:
    with pytest.raises(UsageError, match="not a path inside the tree"):
        world.store.take(world.tree, exclude=(path,))


def test_a_dry_run_and_an_unchanged_tree_change_nothing(world: World) -> None:
    snapshot = world.take()
    assert world.restore(snapshot).change is None
    wreck(world.tree)
    wrecked = picture(world.tree)
    assert world.restore(snapshot, dry_run=True).change is None
    assert picture(world.tree) == wrecked


def test_what_only_a_digest_was_kept_of_is_named_and_left(world: World) -> None:
    os.mkfifo(world.tree / "pipe")
    make(world.tree, {"nested/.git/HEAD": b"ref: refs/heads/main\n"})
    snapshot = world.take()
    (world.tree / "pipe").unlink()
    make(world.tree, {"nested/.git/HEAD": b"changed\n", "a.txt": b"other\n"})
    done = world.restore(snapshot)
    assert sorted(done.left) == ["nested/.git", "pipe"]
    assert (world.tree / "a.txt").read_bytes() == b"a\n"
    assert (world.tree / "nested/.git/HEAD").read_bytes() == b"changed\n"
