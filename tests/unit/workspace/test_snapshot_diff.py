"""What lies between two snapshots."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from coilclaw.kernel.errors import UsageError
from coilclaw.kernel.tree_files import ChangeKind, EntryType, TreeChange, TreeDiff
from coilclaw.workspace.git.object_format import object_id
from coilclaw.workspace.snapshot.store import SnapshotStore
from tests.support.snapshot_trees import Content, Empty, Link, Program, build, git

FILE, LINK = EntryType.FILE, EntryType.SYMLINK
DIRECTORY, OPAQUE, PROGRAM = EntryType.DIRECTORY, EntryType.OPAQUE, EntryType.EXECUTABLE
TEXT = b"".join(b"line %d\n" % number for number in range(40))


def blob(data: bytes) -> str:
    return object_id(b"blob", data).hex()


def compare(
    tmp_path: Path, old: Mapping[str, Content], new: Mapping[str, Content], *, copies: bool = False
) -> TreeDiff:
    store = SnapshotStore(tmp_path / "store")
    a = store.take(build(tmp_path / "old", old))
    b = store.take(build(tmp_path / "new", new))
    there, back = store.diff(a.id, b.id, copies=copies), store.diff(b.id, a.id)
    assert [change.path for change in there] == sorted(change.path for change in there)
    if not copies:
        assert both_ends(there) == both_ends(back)
    return there


def both_ends(difference: TreeDiff) -> set[str]:
    return {path for change in difference for path in change.paths}


def test_an_unknown_snapshot_is_a_usage_error(tmp_path: Path) -> None:
    store = SnapshotStore(tmp_path / "store")
    known = store.take(build(tmp_path / "tree", {})).id
    for wrong in ("0" * 40, "", "HEAD", "../../config", known[:10], known.upper()):
        if wrong == known:
            continue
        with pytest.raises(UsageError) as caught:
            store.diff(known, wrong)
        assert caught.value.rule == "snapshot.unknown"
    assert store.diff(known, known) == TreeDiff(())


def test_added_removed_and_modified(tmp_path: Path) -> None:
    found = compare(
        tmp_path,
        {"gone": b"1", "same": b"2", "d/edited": b"3"},
        {"same": b"2", "d/edited": b"4", "come": b"5", "l": Link("x")},
    )
    assert found == TreeDiff(
        (
            TreeChange(ChangeKind.ADDED, "come", new_type=FILE, new_id=blob(b"5")),
            TreeChange(
                ChangeKind.MODIFIED,
                "d/edited",
                old_type=FILE,
                new_type=FILE,
                old_id=blob(b"3"),
                new_id=blob(b"4"),
            ),
            TreeChange(ChangeKind.REMOVED, "gone", old_type=FILE, old_id=blob(b"1")),
            TreeChange(ChangeKind.ADDED, "l", new_type=LINK, new_id=blob(b"x")),
        )
    )


def test_a_changed_link_is_modified(tmp_path: Path) -> None:
    (change,) = compare(tmp_path, {"l": Link("a")}, {"l": Link("b")})
    assert (change.kind, change.old_type, change.new_type) == (ChangeKind.MODIFIED, LINK, LINK)


def test_modes(tmp_path: Path) -> None:
    found = compare(
        tmp_path,
        {"only": b"1", "too": b"1", "off": Program(b"1")},
        {"only": Program(b"1"), "too": Program(b"2"), "off": b"1"},
    )
    assert [(c.path, c.kind, c.old_type, c.new_type) for c in found] == [
        ("off", ChangeKind.MODE, PROGRAM, FILE),
        ("only", ChangeKind.MODE, FILE, PROGRAM),
        ("too", ChangeKind.MODIFIED, FILE, PROGRAM),
    ]


def test_renames_show_both_ends(tmp_path: Path) -> None:
    edited = TEXT.replace(b"line 7\n", b"line seven\n")
    found = compare(
        tmp_path,
        {"exact": b"unique content", "inexact": TEXT, "in/scope": b"another"},
        {"moved/exact": b"unique content", "renamed": edited, "out/of/scope": Program(b"another")},
    )
    assert found == TreeDiff(
        (
            TreeChange(
                ChangeKind.RENAMED,
                "moved/exact",
                old_path="exact",
                old_type=FILE,
                new_type=FILE,
                old_id=blob(b"unique content"),
                new_id=blob(b"unique content"),
            ),
            TreeChange(
                ChangeKind.RENAMED,
                "out/of/scope",
                old_path="in/scope",
                old_type=FILE,
                new_type=PROGRAM,
                old_id=blob(b"another"),
                new_id=blob(b"another"),
            ),
            TreeChange(
                ChangeKind.RENAMED,
                "renamed",
                old_path="inexact",
                old_type=FILE,
                new_type=FILE,
                old_id=blob(TEXT),
                new_id=blob(edited),
            ),
        )
    )


def test_files_less_than_half_alike_are_no_rename(tmp_path: Path) -> None:
    half = b"".join(b"other %d\n" % number for number in range(60)) + TEXT[:100]
    found = compare(tmp_path, {"a": TEXT}, {"b": half})
    assert [(c.kind, c.path) for c in found] == [
        (ChangeKind.REMOVED, "a"),
        (ChangeKind.ADDED, "b"),
    ]


def test_exact_renames_win_over_similar_ones(tmp_path: Path) -> None:
    found = compare(tmp_path, {"a": TEXT, "z": TEXT + b"x\n"}, {"b": TEXT + b"x\n", "c": TEXT})
    assert [(c.old_path, c.path) for c in found] == [("z", "b"), ("a", "c")]


def test_case_only_renames(tmp_path: Path) -> None:
    (change,) = compare(tmp_path, {"Read.me": TEXT}, {"READ.ME": TEXT})
    assert (change.kind, change.paths) == (ChangeKind.RENAMED, ("Read.me", "READ.ME"))


def test_a_renamed_directory_is_renames_of_its_files(tmp_path: Path) -> None:
    old = {f"d/{name}": b"content of " + name.encode() * 9 for name in ("a", "b/c", "b/d")}
    new: dict[str, Content] = {name.replace("d/", "e/f/", 1): data for name, data in old.items()}
    found = compare(tmp_path, {**old, "d/empty": Empty()}, {**new, "e/f/empty": Empty()})
    assert [(c.kind, c.paths) for c in found] == [
        (ChangeKind.REMOVED, ("d/empty",)),
        (ChangeKind.RENAMED, ("d/a", "e/f/a")),
        (ChangeKind.RENAMED, ("d/b/c", "e/f/b/c")),
        (ChangeKind.RENAMED, ("d/b/d", "e/f/b/d")),
        (ChangeKind.ADDED, ("e/f/empty",)),
    ]


def test_very_many_exact_renames_are_found(tmp_path: Path) -> None:
    names = range(3000)
    old: dict[str, Content] = {f"old/{n}": b"content %d" % n for n in names}
    new: dict[str, Content] = {f"new/{n}": b"content %d" % n for n in names}
    found = compare(tmp_path, old, new)
    assert {c.kind for c in found} == {ChangeKind.RENAMED}
    assert len(found) == 3000


def test_copies_are_found_when_asked_for(tmp_path: Path) -> None:
    old = {"source": TEXT}
    new = {"source": TEXT, "copy": TEXT, "near": TEXT + b"more\n"}
    assert [(c.kind, c.paths) for c in compare(tmp_path, old, new)] == [
        (ChangeKind.ADDED, ("copy",)),
        (ChangeKind.ADDED, ("near",)),
    ]
    shutil.rmtree(tmp_path)
    assert [(c.kind, c.paths) for c in compare(tmp_path, old, new, copies=True)] == [
        (ChangeKind.COPIED, ("source", "copy")),
        (ChangeKind.COPIED, ("source", "near")),
    ]


EMPTY: dict[str, Content] = {}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (EMPTY, {"d": Empty()}, [(ChangeKind.ADDED, "d", None, DIRECTORY)]),
        (EMPTY, {"d/e/f": Empty()}, [(ChangeKind.ADDED, "d/e/f", None, DIRECTORY)]),
        ({"d": Empty()}, EMPTY, [(ChangeKind.REMOVED, "d", DIRECTORY, None)]),
        ({"d": Empty()}, {"d/f": b""}, [(ChangeKind.ADDED, "d/f", None, FILE)]),
        ({"d/f": b""}, {"d": Empty()}, [(ChangeKind.REMOVED, "d/f", FILE, None)]),
        ({"d": Empty()}, {"d/e": Empty()}, [(ChangeKind.ADDED, "d/e", None, DIRECTORY)]),
        ({"d/e": Empty()}, {"d": Empty()}, [(ChangeKind.REMOVED, "d/e", DIRECTORY, None)]),
        ({"d": Empty()}, {"d": Empty()}, []),
    ],
)
def test_empty_directories_come_and_go(
    tmp_path: Path,
    old: dict[str, Content],
    new: dict[str, Content],
    expected: list[tuple[ChangeKind, str, EntryType | None, EntryType | None]],
) -> None:
    found = compare(tmp_path, old, new)
    assert [(c.kind, c.path, c.old_type, c.new_type) for c in found] == expected


CONTENTS: dict[EntryType, Content] = {
    FILE: b"file",
    PROGRAM: Program(b"program"),
    LINK: Link("target"),
    DIRECTORY: Empty(),
}


@pytest.mark.parametrize("old", CONTENTS)
@pytest.mark.parametrize("new", CONTENTS)
def test_a_change_of_type_is_one_change(tmp_path: Path, old: EntryType, new: EntryType) -> None:
    found = compare(tmp_path, {"x": CONTENTS[old]}, {"x": CONTENTS[new]})
    if old is new:
        assert found.empty
        return
    (change,) = found
    kind = ChangeKind.MODIFIED if {old, new} == {FILE, PROGRAM} else ChangeKind.TYPE
    assert (change.kind, change.path, change.old_type, change.new_type) == (kind, "x", old, new)


def test_a_file_that_becomes_a_full_directory_and_back(tmp_path: Path) -> None:
    there = compare(tmp_path, {"x": b"1"}, {"x/a": b"2", "x/b/c": b"3"})
    assert [(c.kind, c.path, c.old_type, c.new_type) for c in there] == [
        (ChangeKind.TYPE, "x", FILE, DIRECTORY),
        (ChangeKind.ADDED, "x/a", None, FILE),
        (ChangeKind.ADDED, "x/b/c", None, FILE),
    ]
    store = SnapshotStore(tmp_path / "store")
    b, a = store.take(tmp_path / "new").id, store.take(tmp_path / "old").id
    assert [(c.kind, c.path, c.old_type, c.new_type) for c in store.diff(b, a)] == [
        (ChangeKind.TYPE, "x", DIRECTORY, FILE),
        (ChangeKind.REMOVED, "x/a", FILE, None),
        (ChangeKind.REMOVED, "x/b/c", FILE, None),
    ]


def test_a_path_that_stays_something_is_no_end_of_a_rename(tmp_path: Path) -> None:
    found = compare(tmp_path, {"x": TEXT, "y": Empty()}, {"x/inner": TEXT, "y": b"other"})
    assert [(c.kind, c.path, c.old_type, c.new_type) for c in found] == [
        (ChangeKind.TYPE, "x", FILE, DIRECTORY),
        (ChangeKind.ADDED, "x/inner", None, FILE),
        (ChangeKind.TYPE, "y", DIRECTORY, FILE),
    ]


def test_a_rename_onto_what_was_a_directory_is_a_change_of_type(tmp_path: Path) -> None:
    found = compare(tmp_path, {"x": TEXT, "y/z": b"1"}, {"y": TEXT})
    assert [(c.kind, c.path, c.old_type, c.new_type) for c in found] == [
        (ChangeKind.REMOVED, "x", FILE, None),
        (ChangeKind.TYPE, "y", DIRECTORY, FILE),
        (ChangeKind.REMOVED, "y/z", FILE, None),
    ]


def test_opaque_entries_come_go_and_change_type(tmp_path: Path) -> None:
    store = SnapshotStore(tmp_path / "store")
    root = build(tmp_path / "tree", {"f": b"x", "n/f": b"", "n/.git": b"gitdir: x\n"})
    first = store.take(root)
    os.unlink(root / "f")
    os.mkfifo(root / "f")
    os.unlink(root / "n/.git")
    git(root / "n", "init", "-q")
    second = store.take(root)
    assert [(c.kind, c.path, c.old_type, c.new_type) for c in store.diff(first.id, second.id)] == [
        (ChangeKind.TYPE, "f", FILE, OPAQUE),
        (ChangeKind.TYPE, "n/.git", FILE, OPAQUE),
    ]
    os.unlink(root / "f")
    os.mknod(root / "f", 0o140600)
    shutil.rmtree(root / "n/.git")
    third = store.take(root)
    assert [(c.kind, c.path, c.old_type, c.new_type) for c in store.diff(second.id, third.id)] == [
        (ChangeKind.TYPE, "f", OPAQUE, OPAQUE),
        (ChangeKind.REMOVED, "n/.git", OPAQUE, None),
    ]


def test_a_file_renamed_onto_a_fifo_is_a_change_of_type(tmp_path: Path) -> None:
    store = SnapshotStore(tmp_path / "store")
    root = build(tmp_path / "tree", {"x": TEXT})
    os.mkfifo(root / "y")
    first = store.take(root)
    os.replace(root / "x", root / "y")
    found = store.diff(first.id, store.take(root).id)
    assert [(c.kind, c.path, c.old_type, c.new_type) for c in found] == [
        (ChangeKind.REMOVED, "x", FILE, None),
        (ChangeKind.TYPE, "y", OPAQUE, FILE),
    ]


def test_odd_names(tmp_path: Path) -> None:
    odd = [os.fsdecode(b"a\nb"), os.fsdecode(b"\xff/\xfe"), "tab\there", ":(exclude)x"]
    found = compare(
        tmp_path, {odd[0]: TEXT, odd[2]: b"1"}, {odd[1]: TEXT, odd[2]: b"2", odd[3]: b"3"}
    )
    assert both_ends(found) == set(odd)
    assert {c.paths for c in found} == {(odd[0], odd[1]), (odd[2],), (odd[3],)}
