from __future__ import annotations

from coilclaw.changes import unified_diff
from coilclaw.changes.operations import PathChange, Plan
from coilclaw.kernel.tree_files import FileState, RegularFile, Symlink
from coilclaw.kernel.tree_path import TreePath


def plan(before: FileState, after: FileState) -> Plan:
    return Plan((PathChange(TreePath.parse("d/f.txt"), before, after),))


def text(content: str, *, executable: bool = False) -> RegularFile:
    return RegularFile(content.encode(), executable)


def lines(before: FileState, after: FileState) -> list[str]:
    return list(unified_diff.diff_plan(plan(before, after)))


def test_a_modified_file_shows_its_hunks_with_context() -> None:
    old = "".join(f"{n}\n" for n in range(1, 21))
    new = old.replace("5\n", "five\n", 1).replace("18\n", "")
    assert lines(text(old), text(new)) == [
        "diff --git a/d/f.txt b/d/f.txt",
        "--- a/d/f.txt",
        "+++ b/d/f.txt",
        "@@ -2,7 +2,7 @@",
        " 2",
        " 3",
        " 4",
        "-5",
        "+five",
        " 6",
        " 7",
        " 8",
        "@@ -15,6 +15,5 @@",
        " 15",
        " 16",
        " 17",
        "-18",
        " 19",
        " 20",
    ]


def test_new_deleted_and_empty_files() -> None:
    assert lines(None, text("x\n", executable=True)) == [
        "diff --git a/d/f.txt b/d/f.txt",
        "new file mode 100755",
        "--- /dev/null",
        "+++ b/d/f.txt",
        "@@ -0,0 +1 @@",
        "+x",
    ]
    assert lines(text("x\n"), None)[1:] == [
        "deleted file mode 100644",
        "--- a/d/f.txt",
        "+++ /dev/null",
        "@@ -1 +0,0 @@",
        "-x",
    ]
    assert lines(None, text("")) == ["diff --git a/d/f.txt b/d/f.txt", "new file mode 100644"]


def test_a_missing_final_newline_shows() -> None:
    assert lines(text("a\nb"), text("a\nb\n"))[3:] == [
        "@@ -1,2 +1,2 @@",
        " a",
        "-b",
        "\\ No newline at end of file",
        "+b",
    ]


def test_modes_links_and_binary_contents() -> None:
    assert lines(text("x"), text("x", executable=True)) == [
        "diff --git a/d/f.txt b/d/f.txt",
        "old mode 100644",
        "new mode 100755",
    ]
    assert "new file mode 120000" in lines(None, Symlink(b"target"))
    assert lines(RegularFile(b"\0"), RegularFile(b"\xff"))[-1] == (
        "Binary files a/d/f.txt and b/d/f.txt differ"
    )


def test_a_huge_rewrite_is_shown_whole_and_quickly() -> None:
    old = "".join(f"a{n}\n" for n in range(60_000))
    new = "".join(f"b{n}\n" for n in range(60_000))
    shown = lines(text("head\n" + old), text("head\n" + new))
    assert shown[3] == "@@ -1,60001 +1,60001 @@"
    assert len(shown) == 120_005


def test_summaries_count_lines_and_name_actions() -> None:
    rows = [
        unified_diff.summarise_plan(plan(before, after))[0]
        for before, after in (
            (None, text("a\nb\n")),
            (text("a\nb\n"), text("a\nc\nd\n")),
            (text("a\n"), None),
            (text("a\n"), text("a\n", executable=True)),
            (RegularFile(b"\0"), RegularFile(b"\0\0")),
            (text("a"), Symlink(b"a")),
        )
    ]
    assert [(row.action, row.added, row.removed, row.binary) for row in rows] == [
        ("create", 2, 0, False),
        ("modify", 2, 1, False),
        ("delete", 0, 1, False),
        ("mode", 0, 0, False),
        ("modify", 0, 0, True),
        ("modify", 0, 0, False),
    ]
