"""Patches between snapshots: git applies them, and what comes out is the other tree."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from coilclaw.workspace.snapshot.store import SnapshotStore
from tests.support.snapshot_trees import Content, Empty, Link, Program, build, contents, git

TEXT = b"".join(b"line %d\n" % number for number in range(40))
BINARY = bytes(range(256)) * 20


def patched(tmp_path: Path, old: Mapping[str, Content], new: Mapping[str, Content]) -> bytes:
    """Make a patch, apply it to a copy of the old tree, and check what comes out."""
    store = SnapshotStore(tmp_path / "store")
    a = store.take(build(tmp_path / "old", old))
    b = store.take(build(tmp_path / "new", new))
    patch = store.patch(a.id, b.id)
    if patch:
        (tmp_path / "patch").write_bytes(patch)
        shutil.copytree(tmp_path / "old", tmp_path / "copy", symlinks=True)
        git(tmp_path / "copy", "apply", "--whitespace=nowarn", str(tmp_path / "patch"))
        assert files(contents(tmp_path / "copy")) == files(new)
    return patch


def files(tree: Mapping[str, Content]) -> dict[str, Content]:
    return {path: content for path, content in tree.items() if not isinstance(content, Empty)}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"a": b"1\n"}, {"a": b"2\n", "b/c": b"new\n"}),
        ({"a": b"1\n", "b": b"2\n"}, {"b": b"2\n"}),
        ({"a": b"no newline"}, {"a": b"still no newline"}),
        ({"a": b"one\r\ntwo\r\n"}, {"a": b"one\r\n2\r\n"}),
        ({"a": b"\xff\xfe text\n"}, {"a": b"\xff\xfe other\n"}),
        ({"a": BINARY}, {"a": BINARY + b"\0more"}),
        ({}, {"a": BINARY, "empty": b""}),
        ({"a": BINARY, "empty": b""}, {}),
        ({"a": TEXT}, {"b/c/d": TEXT.replace(b"7", b"seven")}),
        ({"a": BINARY}, {"b": b"\0" + BINARY}),
        ({"a": TEXT}, {"a": Program(TEXT)}),
        ({"a": Program(TEXT)}, {"a": TEXT + b"x\n"}),
        ({"a": TEXT}, {"b": Program(TEXT)}),
        ({"l": Link("a")}, {"l": Link("b/c")}),
        ({"x": TEXT}, {"x": Link("y")}),
        ({"x": Link("y")}, {"x": TEXT}),
        ({"x": TEXT}, {"x/y": TEXT}),
        ({"x/y": TEXT, "x/z": b"1\n"}, {"x": TEXT}),
        ({"x/y": TEXT}, {"x": Link("z")}),
        ({"x": Link("z"), "z": Empty()}, {"x/y": TEXT}),
        ({"x": Link("z")}, {"x/y": Link("z")}),
        ({"d/a": TEXT, "d/b": BINARY}, {"e/a": TEXT, "e/b": BINARY}),
        ({"a": TEXT, "b": BINARY}, {"a": BINARY, "b": TEXT}),
        ({"sp ace\ttab": TEXT, "new\nline": b"1\n"}, {"ü": TEXT, '"q"\\': b"1\n"}),
        (
            {"x / /y": b"", " /b": b"1\n"},
            {"x / /y": Program(b""), " /c /d": BINARY, "z / b/z ": b""},
        ),
        ({"e": Empty(), "a": b"1\n"}, {"f": Empty(), "a": b"2\n"}),
    ],
)
def test_git_turns_one_tree_into_the_other(
    tmp_path: Path, old: dict[str, Content], new: dict[str, Content]
) -> None:
    assert patched(tmp_path, old, new)


def test_names_that_are_not_utf_8(tmp_path: Path) -> None:
    assert patched(tmp_path, {os.fsdecode(b"\xff"): TEXT}, {os.fsdecode(b"\xfe\n"): TEXT})


def test_nothing_changed_is_no_patch(tmp_path: Path) -> None:
    assert patched(tmp_path, {"a": b"1", "d": Empty()}, {"a": b"1", "e": Empty()}) == b""


def test_opaque_entries_and_git_are_not_in_it(tmp_path: Path) -> None:
    store = SnapshotStore(tmp_path / "store")
    root = build(tmp_path / "tree", {"x": b"1\n", "n/f": b"1\n", "m/.git": b"gitdir: a\n"})
    first = store.take(root)
    git(root / "n", "init", "-q")
    build(root, {"m/.git": b"gitdir: b\n", "m/k/.git": b"gitdir: c\n", "m/.gitx": b"in\n"})
    os.unlink(root / "x")
    os.mkfifo(root / "x")
    patch = store.patch(first.id, store.take(root).id)
    heads = [line for line in patch.splitlines() if line.startswith(b"diff --git")]
    assert heads == [b"diff --git a/m/.gitx b/m/.gitx", b"diff --git a/x b/x"]
    assert b"deleted file mode 100644" in patch


def test_the_exact_bytes_of_a_patch(tmp_path: Path) -> None:
    old: dict[str, Content] = {"a": b"1\n", "b": TEXT, "x": b"x"}
    new: dict[str, Content] = {"a": b"2\n", "B": Program(TEXT), "x": b"x"}
    assert patched(tmp_path, old, new).decode() == (
        "diff --git a/b b/B\n"
        "old mode 100644\n"
        "new mode 100755\n"
        "similarity index 100%\n"
        "rename from b\n"
        "rename to B\n"
        "diff --git a/a b/a\n"
        "index d00491fd7e5bb6fa28c517a0bb32b8b506539d4d"
        "..0cfbf08886fca9a91cb753ec8734c84fcbe52c9f 100644\n"
        "--- a/a\n"
        "+++ b/a\n"
        "@@ -1 +1 @@\n"
        "-1\n"
        "+2\n"
    )
