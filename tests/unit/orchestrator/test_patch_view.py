"""Patches in two columns."""

from __future__ import annotations

import pytest

from coilclaw.runs.report import patch_view
from coilclaw.runs.report.patch_view import DiffRow, DiffSide, FileDiff, view_patch

PATCH = """\
diff --git a/pkg/calc.py b/pkg/calc.py
index 1111111..2222222 100644
--- a/pkg/calc.py
+++ b/pkg/calc.py
@@ -1,4 +1,5 @@ def add
 one
-two
-three
+2
+3
+more
 four
"""


def test_removed_and_added_lines_stand_beside_each_other() -> None:
    (file,) = view_patch(PATCH).files
    assert file == FileDiff(
        path="pkg/calc.py",
        old_path="pkg/calc.py",
        change="modified",
        added=3,
        removed=2,
        rows=(
            DiffRow(heading="@@ -1,4 +1,5 @@ def add"),
            DiffRow(DiffSide(1, "one"), DiffSide(1, "one")),
            DiffRow(DiffSide(2, "two"), DiffSide(2, "2"), changed=True),
            DiffRow(DiffSide(3, "three"), DiffSide(3, "3"), changed=True),
            DiffRow(DiffSide(), DiffSide(4, "more"), changed=True),
            DiffRow(DiffSide(4, "four"), DiffSide(5, "four")),
        ),
    )


def test_content_that_looks_like_a_header_is_content() -> None:
    text = (
        "diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1,2 +1,2 @@\n"
        "--- a/x\n-diff --git a/y b/y\n+++ b/x\n+@@ -1 +1 @@\n\\ No newline at end of file\n"
    )
    (file,) = view_patch(text).files
    assert [(row.old.text, row.new.text) for row in file.rows[1:]] == [
        ("-- a/x", "++ b/x"),
        ("diff --git a/y b/y", "@@ -1 +1 @@"),
    ]


@pytest.mark.parametrize(
    ("header", "change", "paths"),
    [
        ("new file mode 100644\n--- /dev/null\n+++ b/a\n", "added", ("a", "a")),
        ("deleted file mode 100644\n--- a/a\n+++ /dev/null\n", "deleted", ("a", "a")),
        ("similarity index 90%\nrename from a\nrename to b\n", "renamed", ("a", "b")),
        ("similarity index 90%\ncopy from a\ncopy to b\n", "copied", ("a", "b")),
        ("--- a/a\n+++ b/a\n", "modified", ("a", "a")),
    ],
)
def test_what_happens_to_a_file(header: str, change: str, paths: tuple[str, str]) -> None:
    (file,) = view_patch(f"diff --git a/a b/a\n{header}@@ -1 +1 @@\n-x\n+y\n").files
    assert (file.change, file.old_path, file.path) == (change, *paths)


def test_odd_names_and_binary_content_are_told() -> None:
    text = (
        'diff --git "a/\\342\\200\\256 \\"x\\"" "b/\\342\\200\\256 \\"x\\""\nnew file mode 100755\n'
        "GIT binary patch\nliteral 3\nKcmZQzU|;|M00aO5\n\n"
        "diff --git nonsense\n@@ -1 +1 @@\n-x\n+y\n"
    )
    binary, odd = view_patch(text).files
    assert (binary.path, binary.rows) == ('\u202e "x"', ())
    assert binary.notes == ("new file mode 100755", "binary content, not shown")
    assert odd.path == "nonsense"


def test_what_is_no_patch_has_no_files() -> None:
    assert view_patch("").files == view_patch("hello\n@@ -1 +1 @@\n-x\n").files == ()


def test_everything_is_bounded_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    line = "x" * (patch_view.MAX_LINE_CHARS + 7)
    body = "".join(f"+{line}\n" for _ in range(10))
    file = f"diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -0,0 +1,10 @@\n{body}"
    (long,) = view_patch(file, max_rows=4).files
    assert len(long.rows) == 4
    assert long.added == 10
    assert long.notes == ("7 more lines are left out",)
    assert long.rows[1].new.text.endswith("x… (7 more characters)")
    few = view_patch(file, max_chars=2000).files[0]
    assert len(few.rows) == 4
    assert view_patch(file).files[0].notes == ()
    many = view_patch(file * (patch_view.MAX_FILES + 2), max_rows=5)
    assert (len(many.files), many.note) == (patch_view.MAX_FILES, "2 more files are left out")
    assert many.size[0] == 5
