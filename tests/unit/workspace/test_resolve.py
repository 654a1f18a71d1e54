from __future__ import annotations

import gc
import os
import socket
from pathlib import Path

import pytest

from coilclaw.kernel.errors import EnvironmentFault, PathRefused, PlanRefused, UsageError
from coilclaw.kernel.tree_files import Obstacle, RegularFile, Symlink
from coilclaw.kernel.tree_path import TreePath
from coilclaw.workspace.tree.root import Root


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    (root / "src").mkdir(parents=True)
    (root / "src" / "a.txt").write_bytes(b"a\n")
    (root / ".git" / "hooks").mkdir(parents=True)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_bytes(b"secret")
    return root


def path(text: str) -> TreePath:
    return TreePath.parse(text)


def refused(root: Root, text: str) -> str:
    with pytest.raises(PathRefused) as caught:
        root.sight(path(text))
    return caught.value.rule


LEAVING = {
    "absolute link": ("out", "{outside}", "out/secret.txt"),
    "relative link": ("out", "../outside", "out/secret.txt"),
    "link as the leaf": ("leaf", "../outside/secret.txt", "leaf"),
    "absolute leaf": ("leaf", "{outside}/secret.txt", "leaf"),
    "link to the parent": ("up", "..", "up/outside/secret.txt"),
    "climbing through a directory": ("deep", "src/../../outside", "deep/secret.txt"),
    "procfs": ("proc", "/proc/self/cwd", "proc/x"),
    "new file below it": ("out", "../outside", "out/new.txt"),
    "beside the tree with its name as prefix": ("twin", "{root}-twin", "twin/x"),
}


@pytest.mark.parametrize("case", LEAVING)
def test_a_link_that_leaves_the_tree_is_refused(tree: Path, case: str) -> None:
    name, target, asked = LEAVING[case]
    os.symlink(target.format(outside=tree.parent / "outside", root=tree), tree / name)
    with Root(tree) as root:
        assert refused(root, asked) == "path.symlink"


def test_a_link_in_a_deeper_directory_is_refused_too(tree: Path) -> None:
    os.symlink("../../outside", tree / "src" / "deep")
    with Root(tree) as root:
        assert refused(root, "src/deep/secret.txt") == "path.symlink"


def test_links_that_go_round_are_refused(tree: Path) -> None:
    os.symlink("b", tree / "a")
    os.symlink("a", tree / "b")
    with Root(tree) as root:
        assert refused(root, "a/x") == "path.symlink"


def test_a_link_into_git_is_refused(tree: Path) -> None:
    os.symlink(".git", tree / "innocent")
    os.symlink(".git/config", tree / "leaf")
    with Root(tree) as root:
        assert refused(root, "innocent/hooks/post-commit") == "path.git"
        assert refused(root, "leaf") == "path.git"


def test_a_dangling_link_is_refused(tree: Path) -> None:
    os.symlink("nowhere", tree / "gone")
    with Root(tree) as root:
        assert refused(root, "gone") == "path.dangling"


def test_a_file_is_no_directory(tree: Path) -> None:
    with Root(tree) as root:
        assert refused(root, "src/a.txt/x") == "path.directory"


def test_links_that_stay_inside_are_followed_to_the_real_place(tree: Path) -> None:
    os.symlink("src", tree / "alias")
    os.symlink(str(tree / "src"), tree / "absolute")
    os.symlink("src/a.txt", tree / "leaf")
    os.symlink("../src/../src", tree / "src" / "round")
    with Root(tree) as root:
        for asked in ("alias/a.txt", "absolute/a.txt", "src/round/a.txt"):
            sighting = root.sight(path(asked))
            assert (sighting.real, sighting.real_found) == (path("src/a.txt"), RegularFile(b"a\n"))
        leaf = root.sight(path("leaf"))
        assert (leaf.own, leaf.own_found) == (path("leaf"), Symlink(b"src/a.txt"))
        assert (leaf.real, leaf.real_found) == (path("src/a.txt"), RegularFile(b"a\n"))
        new = root.sight(path("alias/new/b.txt"))
        assert (new.real, new.real_found) == (path("src/new/b.txt"), None)


def test_a_link_swapped_in_after_the_check_is_not_followed(tree: Path) -> None:
    with Root(tree) as root:
        sighting = root.sight(path("src/a.txt"))
        (tree / "src").rename(tree / "src.old")
        os.symlink("../outside", tree / "src")
        with pytest.raises(PathRefused) as caught:
            root.read(sighting.real)
        assert caught.value.rule == "path.symlink"
        with pytest.raises(PathRefused), root.parent(sighting.real):
            pass
    assert not (tree.parent / "outside" / "a.txt").exists()


def test_a_leaf_swapped_for_a_link_is_seen_as_a_link(tree: Path) -> None:
    with Root(tree) as root:
        (tree / "src" / "a.txt").unlink()
        os.symlink("../../outside/secret.txt", tree / "src" / "a.txt")
        assert root.read(path("src/a.txt")) == Symlink(b"../../outside/secret.txt")


def test_special_files_are_told_apart_and_never_block(tree: Path) -> None:
    os.mkfifo(tree / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tree / "sock"))
        with Root(tree) as root:
            assert root.sight(path("fifo")).own_found == Obstacle("fifo")
            assert root.sight(path("sock")).own_found == Obstacle("socket")
            assert root.sight(path("src")).own_found == Obstacle("directory")


def test_modes_and_identity_are_seen(tree: Path) -> None:
    script = tree / "run"
    script.write_bytes(b"#!/bin/sh\n")
    script.chmod(0o755)
    os.link(script, tree / "twin")
    with Root(tree) as root:
        seen = root.sight(path("run"))
        assert (seen.own_found, seen.identity) == (RegularFile(b"#!/bin/sh\n", True), None)
        info = (tree / "src" / "a.txt").stat()
        assert root.sight(path("src/a.txt")).identity == (info.st_dev, info.st_ino)


def test_a_file_beyond_the_bound_is_refused_unread(tree: Path) -> None:
    with (tree / "sparse").open("wb") as file:
        file.truncate(10 * 2**30)
    (tree / "fits").write_bytes(b"x" * 100)
    with Root(tree) as root:
        with pytest.raises(PlanRefused, match="larger than the bound"):
            root.sight(path("sparse"))
        assert root.read(path("fits"), limit=100) == RegularFile(b"x" * 100)
        with pytest.raises(PlanRefused):
            root.read(path("fits"), limit=99)


def test_a_root_must_be_a_directory(tree: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        Root(tree / "missing")
    with pytest.raises(UsageError, match="not a directory"):
        Root(tree / "src" / "a.txt")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file_is_a_fault_that_names_it(tree: Path) -> None:
    (tree / "src" / "a.txt").chmod(0)
    with Root(tree) as root, pytest.raises(EnvironmentFault, match=r"src/a\.txt"):
        root.sight(path("src/a.txt"))


def test_no_descriptor_is_left_open(tree: Path) -> None:
    os.symlink("../outside", tree / "out")
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        with Root(tree) as root:
            root.sight(path("src/a.txt"))
            root.sight(path("x/y/z"))
            with pytest.raises(PathRefused):
                root.sight(path("out/x"))
    assert len(os.listdir("/proc/self/fd")) == before
