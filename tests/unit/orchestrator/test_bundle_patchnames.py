"""The names in a patch, as real git writes them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from coilclaw.kernel.errors import UsageError
from coilclaw.runs.evidence.patch_names import name_only, read_patch_names
from coilclaw.workspace.snapshot.store import SnapshotStore


@pytest.mark.parametrize(
    "header",
    [
        b"diff --git a/x b/y",
        b"diff --git x x",
        b"diff --git a/ b/",
        b'diff --git "a/x b/x',
        b'diff --git "a/x" b/y',
        b'diff --git "a/x"b/x"',
        b"diff --git ",
    ],
)
def test_a_header_that_cannot_be_read_is_refused(header: bytes) -> None:
    with pytest.raises(UsageError) as caught:
        read_patch_names(header + b"\n")
    assert caught.value.rule == "patch.names"


def test_nothing_is_in_an_empty_patch() -> None:
    assert (read_patch_names(b"").changed, name_only(b"")) == ((), b"")


def _tree(root: Path) -> None:
    for name in ("plain.py", "with blank.py", "ümlaut.py", "moved.py", "gone.py", "mode.sh"):
        (root / name).write_text(f"{name}\n" * 20)
    (root / "deep" / "er").mkdir(parents=True)
    (root / "deep" / "er" / "file").write_text("x\n")
    (root / "binary").write_bytes(bytes(range(256)))


def test_what_a_snapshot_says_changed_is_what_its_patch_names(tmp_path: Path) -> None:
    root = tmp_path / "tree"
    root.mkdir()
    _tree(root)
    store = SnapshotStore(tmp_path / "store")
    before = store.take(root)
    (root / "plain.py").write_text("-- a/x\n++ b/x\ndiff --git a/fake b/fake\nrename from x\n")
    (root / "with blank.py").write_text("changed\n")
    (root / "ümlaut.py").write_text("changed\n")
    (root / "moved.py").rename(root / "deep" / "moved again.py")
    (root / "gone.py").unlink()
    (root / "mode.sh").chmod(0o755)
    (root / "binary").write_bytes(bytes(reversed(range(256))))
    for odd in ('quo"te', "back\\slash", "tab\tname", "new\nline", "deep /blank", "a b/a b"):
        (root / odd).parent.mkdir(exist_ok=True)
        (root / odd).write_text("odd\n")
    (root / os.fsdecode(b"not-\xff-utf8")).write_text("odd\n")
    after = store.take(root)
    patch = store.patch(before.id, after.id)
    diff = store.diff(before.id, after.id)
    expected = {os.fsencode(path) for change in diff for path in change.paths}
    assert set(read_patch_names(patch).changed) == expected
    assert set(read_patch_names(patch).touched) == expected
    assert name_only(patch).decode().splitlines() == [
        "a b/a b",
        '"back\\\\slash"',
        "binary",
        "deep /blank",
        "deep/moved again.py",
        "gone.py",
        "mode.sh",
        "moved.py",
        '"new\\nline"',
        '"not-\\377-utf8"',
        "plain.py",
        '"quo\\"te"',
        '"tab\\tname"',
        "with blank.py",
        "ümlaut.py",
    ]


def test_a_copy_touches_its_source_and_changes_its_target() -> None:
    patch = (
        b"diff --git a/one b/two\nsimilarity index 90%\ncopy from one\ncopy to two\n"
        b"index 1..2 100644\n--- a/one\n+++ b/two\n@@ -1 +1 @@\n-x\n+rename from three\n"
    )
    assert read_patch_names(patch).changed == (b"two",)
    assert read_patch_names(patch).touched == (b"one", b"two")


def test_content_that_looks_like_a_header_names_nothing() -> None:
    patch = (
        b"diff --git a/x b/x\nindex 1..2 100644\n--- a/x\n+++ b/x\n@@ -1,3 +1,3 @@\n"
        b" diff --git a/y b/y\n-rename from z\n+copy to z\n"
    )
    assert read_patch_names(patch).touched == (b"x",)
