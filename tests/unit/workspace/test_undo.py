from __future__ import annotations

import os
from pathlib import Path

import pytest

from coilclaw.changes.operations import PathChange, Plan
from coilclaw.kernel.errors import UndoRefused, UsageError
from coilclaw.kernel.tree_files import FileState, RegularFile
from coilclaw.kernel.tree_path import TreePath
from coilclaw.workspace.tree.changelog import Changelog
from coilclaw.workspace.tree.root import Root
from coilclaw.workspace.tree.state import TreeState
from coilclaw.workspace.tree.undo import undo_change, undo_group
from coilclaw.workspace.tree.writer import Purpose, Writer
from tests.support.trees import make, picture


def change(name: str, before: FileState, after: FileState) -> PathChange:
    return PathChange(TreePath(tuple(name.split("/"))), before, after)


PLAN = Plan(
    (
        change("a.txt", RegularFile(b"a\n"), RegularFile(b"A\n")),
        change("d/b.txt", RegularFile(b"b\n"), None),
        change("empty/new.txt", None, RegularFile(b"n\n")),
        change("made/new.txt", None, RegularFile(b"n\n")),
    )
)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = make(tmp_path / "tree", {"a.txt": (b"a\n", 0o600), "d/b.txt": b"b\n"})
    (root / "empty").mkdir()
    return root


@pytest.fixture
def state(tmp_path: Path, tree: Path) -> TreeState:
    return TreeState.of(tmp_path / "home", tree)


def apply(root: Root, state: TreeState, plan: Plan = PLAN) -> str:
    return Writer(root, state).apply(plan, Purpose("apply", "g")).id


def test_undo_refuses_and_names_files_changed_since(tree: Path, state: TreeState) -> None:
    with Root(tree) as root:
        done = apply(root, state)
        (tree / "a.txt").write_bytes(b"mine\n")
        (tree / "made" / "new.txt").chmod(0o755)
        now = picture(tree)
        with pytest.raises(UndoRefused) as caught:
            undo_change(root, state, done)
    assert caught.value.paths == ("a.txt", "made/new.txt")
    assert "--force" in str(caught.value.hint)
    assert picture(tree) == now


def test_force_overrides(tree: Path, state: TreeState) -> None:
    before = picture(tree)
    with Root(tree) as root:
        done = apply(root, state)
        (tree / "a.txt").write_bytes(b"mine\n")
        (tree / "d").mkdir()
        (tree / "d" / "b.txt").write_bytes(b"also mine\n")
        forced = undo_change(root, state, done, force=True)
        assert picture(tree) == before
        undo_change(root, state, forced.id)
    assert (tree / "a.txt").read_bytes() == b"mine\n"
    assert (tree / "d" / "b.txt").read_bytes() == b"also mine\n"


def test_force_does_not_go_through_links_or_over_directories(tree: Path, state: TreeState) -> None:
    with Root(tree) as root:
        done = apply(root, state)
        (tree / "a.txt").unlink()
        (tree / "a.txt").mkdir()
        (tree / "made" / "new.txt").unlink()
        (tree / "made").rmdir()
        os.symlink("empty", tree / "made")
        with pytest.raises(UndoRefused) as caught:
            undo_change(root, state, done, force=True)
    assert [name.split()[0] for name in caught.value.paths] == ["a.txt", "made/new.txt"]


def test_undo_restores_every_byte_mode_and_directory(tree: Path, state: TreeState) -> None:
    before = picture(tree)
    with Root(tree) as root:
        done = apply(root, state)
        assert not (tree / "d").exists()
        taken = undo_change(root, state, None)
        assert (taken.undoes, taken.origin, taken.group) == ((done,), "undo", "g")
        assert picture(tree) == before


def test_undo_of_an_undo_brings_the_change_back(tree: Path, state: TreeState) -> None:
    with Root(tree) as root:
        done = apply(root, state)
        after = picture(tree)
        taken = undo_change(root, state, None)
        again = undo_change(root, state, taken.id)
        assert picture(tree) == after
        entries = {entry.id: entry for entry in Changelog(state).entries()}
        assert entries[done].undone_by == ""
        assert entries[taken.id].undone_by == again.id
        assert Changelog(state).last().id == done


def test_undo_walks_back_through_the_changes(tree: Path, state: TreeState) -> None:
    before = picture(tree)
    with Root(tree) as root:
        first = apply(root, state)
        second = apply(
            root, state, Plan((change("a.txt", RegularFile(b"A\n"), RegularFile(b"B\n")),))
        )
        with pytest.raises(UndoRefused, match=r"a\.txt"):
            undo_change(root, state, first)
        assert undo_change(root, state, None).undoes == (second,)
        assert undo_change(root, state, None).undoes == (first,)
        assert picture(tree) == before
        with pytest.raises(UsageError, match="no change"):
            undo_change(root, state, None)


def test_a_change_is_taken_back_once(tree: Path, state: TreeState) -> None:
    with Root(tree) as root:
        done = apply(root, state)
        undo_change(root, state, done)
        with pytest.raises(UndoRefused, match="taken back already"):
            undo_change(root, state, done)


def test_ids_are_found_by_prefix_and_unknown_ones_are_not(tree: Path, state: TreeState) -> None:
    with Root(tree) as root:
        done = apply(root, state)
        with pytest.raises(UsageError, match="'zzz' is not a change"):
            undo_change(root, state, "zzz")
        with pytest.raises(UsageError):
            undo_change(root, state, "../../etc")
        assert undo_change(root, state, done[:-2]).undoes == (done,)


def test_an_ambiguous_prefix_is_refused(tree: Path, state: TreeState) -> None:
    with Root(tree) as root:
        one = apply(root, state)
        apply(root, state, Plan((change("x", None, RegularFile(b"")),)))
        with pytest.raises(UsageError, match="fits 2 changes"):
            undo_change(root, state, one[:4])


def test_a_run_is_taken_back_at_once_and_brought_back_at_once(tree: Path, state: TreeState) -> None:
    before = picture(tree)
    with Root(tree) as root:
        first = apply(root, state)
        again = Plan((change("a.txt", RegularFile(b"A\n"), RegularFile(b"B\n")),))
        second = apply(root, state, again)
        other = Writer(root, state).apply(
            Plan((change("z", None, RegularFile(b"z")),)), Purpose("apply")
        )
        after = picture(tree)
        taken = undo_group(root, state, first)
        assert taken.undoes == (first, second)
        assert picture(tree) == {**before, "z": ("file", b"z", 0o644)}
        with pytest.raises(UndoRefused, match="taken back already"):
            undo_group(root, state, first)
        with pytest.raises(UsageError, match="part of no run"):
            undo_group(root, state, other.id)
        undo_change(root, state, taken.id)
        assert picture(tree) == after
        assert [entry.id for entry in Changelog(state).group("g")] == [first, second]


def test_a_run_is_refused_whole_when_one_file_changed_since(tree: Path, state: TreeState) -> None:
    with Root(tree) as root:
        apply(root, state)
        apply(root, state, Plan((change("x", None, RegularFile(b"")),)))
        (tree / "a.txt").write_bytes(b"mine\n")
        now = picture(tree)
        with pytest.raises(UndoRefused, match=r"the 2 changes of run g .*a\.txt"):
            undo_group(root, state, None)
    assert picture(tree) == now


def test_bits_of_files_and_directories_come_back(tree: Path, state: TreeState) -> None:
    make(tree, {"p/s": (b"secret", 0o600)})
    (tree / "p").chmod(0o700)
    before = {name: (tree / name).stat().st_mode for name in ("p", "p/s")}
    with Root(tree) as root:
        done = apply(root, state, Plan((change("p/s", RegularFile(b"secret"), None),)))
        assert not (tree / "p").exists()
        undo_change(root, state, done)
    assert {name: (tree / name).stat().st_mode for name in before} == before


def test_what_stands_is_right_however_deep_the_undoing_goes(tree: Path, state: TreeState) -> None:
    with Root(tree) as root:
        first = apply(root, state, Plan((change("x", None, RegularFile(b"x")),)))
        second = apply(root, state, Plan((change("y", None, RegularFile(b"y")),)))
        undone = undo_change(root, state, second)
        for stands in (True, False, True, False):
            undone = undo_change(root, state, undone.id)
            entries = {entry.id: entry for entry in Changelog(state).entries()}
            assert (entries[second].undone_by == "") is stands
            assert (tree / "y").exists() is stands
            assert Changelog(state).last().id == (second if stands else first)


def test_an_empty_id_names_no_change(tree: Path, state: TreeState) -> None:
    with Root(tree) as root:
        apply(root, state)
        with pytest.raises(UsageError):
            undo_change(root, state, "")
