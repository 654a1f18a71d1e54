"""Copies of dependencies: laid beside the files of a commit, and compared with their source."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from coilclaw.workspace.git.dependencies import (
    MAX_PARTS,
    Dependency,
    changed_files,
    lay_dependency,
    untracked_parts,
)
from tests.support.snapshot_trees import build


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return build(tmp_path / "source", {"a": b"a", "sub/b": b"b", "sub/deep/c": b"c"})


def test_a_dependency_that_nothing_tracks_stays_whole(source: Path) -> None:
    one = Dependency("deps", source, copied=True)
    assert untracked_parts(one, {"pkg", "pkg/x"}) == (one,)


def test_a_dependency_is_shown_around_what_is_tracked(source: Path) -> None:
    os.symlink("/etc", source / "link")
    one = Dependency("deps", source, copied=True)
    assert set(untracked_parts(one, {"deps", "deps/sub", "deps/sub/b"})) == {
        Dependency("deps/a", source / "a"),
        Dependency("deps/sub/deep", source / "sub/deep", copied=True),
    }
    # A file is tracked where the dependency has a directory: nothing can be shown in it.
    assert untracked_parts(one, {"deps", "deps/sub"}) == (Dependency("deps/a", source / "a"),)
    # A file is tracked in the place of the whole, or the dependency is a file itself.
    assert untracked_parts(one, {"deps"}) == ()
    assert untracked_parts(Dependency("deps", source / "a"), {"deps"}) == ()


def test_too_many_parts_are_not_shown(source: Path) -> None:
    tracked = {"deps", "deps/a"}
    for number in range(MAX_PARTS - 1):
        (source / f"n{number}").touch()
    assert len(untracked_parts(Dependency("deps", source), tracked)) == MAX_PARTS
    (source / "more").touch()
    assert untracked_parts(Dependency("deps", source), tracked) == ()


def test_a_copy_is_laid_beside_what_stands_there(source: Path, tmp_path: Path) -> None:
    root = build(tmp_path / "tree", {"deps/a": b"mine", "deps/sub/deep": b"a file"})
    assert lay_dependency(Dependency("deps", source), root)
    assert (root / "deps/a").read_bytes() == b"mine"
    assert (root / "deps/sub/b").read_bytes() == b"b"
    assert (root / "deps/sub/deep").read_bytes() == b"a file"
    assert lay_dependency(Dependency("one", source / "a"), root)
    assert (root / "one").read_bytes() == b"a"


def test_nothing_is_laid_through_a_link_or_into_what_is_missing(
    source: Path, tmp_path: Path
) -> None:
    root, elsewhere = build(tmp_path / "tree", {"x": b""}), tmp_path / "elsewhere"
    elsewhere.mkdir()
    os.symlink(elsewhere, root / "other")
    assert not lay_dependency(Dependency("other/deps", source), root)
    assert not lay_dependency(Dependency("missing/deps", source), root)
    assert os.listdir(elsewhere) == []
    assert sorted(os.listdir(root)) == ["other", "x"]


def test_what_differs_is_found(source: Path, tmp_path: Path) -> None:
    root = tmp_path / "tree"
    root.mkdir()
    lay_dependency(Dependency("deps", source), root)
    copy = root / "deps"
    assert list(changed_files(source, copy)) == []
    # The same contents written anew are no change; other contents of the same length are.
    (copy / "sub/b").write_bytes(b"b")
    os.utime(copy / "sub/b", (1, 1))
    assert list(changed_files(source, copy)) == []
    (copy / "a").write_bytes(b"A")
    os.utime(copy / "a", (1, 1))
    (copy / "sub/b").chmod(0o755)
    (copy / "sub/deep/c").unlink()
    (copy / "new/x").parent.mkdir()
    (copy / "new/x").touch()
    os.symlink("/etc", copy / "link")
    assert sorted(changed_files(source, copy)) == [
        ("a", True),
        ("link", True),
        ("new/x", True),
        ("sub/b", True),
        ("sub/deep/c", False),
    ]


def test_a_link_in_the_place_of_a_copy_is_not_followed(source: Path, tmp_path: Path) -> None:
    os.symlink(source, tmp_path / "copy")
    assert list(changed_files(source, tmp_path / "copy")) == [("", True)]
    build(tmp_path / "other", {"a": b"a"})
    os.symlink(source / "sub", tmp_path / "other/sub")
    assert list(changed_files(source, tmp_path / "other")) == [("sub", True)]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_directory_that_cannot_be_read_differs(source: Path, tmp_path: Path) -> None:
    root = tmp_path / "tree"
    root.mkdir()
    lay_dependency(Dependency("deps", source), root)
    (root / "deps/sub").chmod(0)
    assert list(changed_files(source, root / "deps")) == [("sub", True)]
    (root / "deps/sub").chmod(0o700)
