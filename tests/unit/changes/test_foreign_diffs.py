"""Diffs of other programs, read as git reads them."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from coilclaw.changes import answer
from coilclaw.changes.formats import git_patch
from coilclaw.changes.operations import (
    AnswerOptions,
    ChangeSet,
    DeleteFile,
    Operation,
    PatchFile,
    WriteFile,
)
from coilclaw.kernel.errors import AnswerError
from coilclaw.kernel.tree_path import TreePath

EPOCH = "1970-01-01 00:00:00.000000000 +0000"
NOW = "2024-05-06 07:08:09.123456789 +0200"
CHANGE = "@@ -1,2 +1,2 @@\n one\n-two\n+2\n"


def read(text: str) -> tuple[Operation, ...]:
    return git_patch.parse(text, first_line=1, options=AnswerOptions())


def path(name: str) -> TreePath:
    return TreePath.parse(name)


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("x.orig", "x", "x"),
        ("x", "x.new", "x"),
        ("x~", "x", "x"),
        ("a/d/x.orig", "b/d/x", "d/x"),
        (f"x.orig\t{NOW}", f"x\t{NOW}", "x"),
        (f"old/d/x\t{NOW}", f"new/d/x\t{NOW}", "d/x"),
        ("project-1.0/x", "project-1.1/x", "x"),
        ('"old/n w"', '"new/n w"', "n w"),
        ('"old/q\\"\\303\\274"', '"new/q\\"\\303\\274"', 'q"ü'),
        ("src/x", "src/x", "src/x"),
    ],
)
def test_the_name_of_a_plain_diff(old: str, new: str, name: str) -> None:
    (operation,) = read(f"--- {old}\n+++ {new}\n{CHANGE}")
    assert isinstance(operation, PatchFile)
    assert operation.path == path(name)


@pytest.mark.parametrize(("old", "new"), [("x", "y"), ("x", "x1"), ("d/x", "e/y"), ("x", "d/x")])
def test_names_that_are_two_files_are_refused(old: str, new: str) -> None:
    with pytest.raises(AnswerError) as caught:
        read(f"--- {old}\n+++ {new}\n{CHANGE}")
    assert caught.value.rule == "git.names"


@pytest.mark.parametrize(
    "stamp",
    [
        EPOCH,
        "1970-01-01 00:00:00 +0000",
        "1970-01-01 01:00:00.000000000 +0100",
        "1969-12-31 19:00:00.000000000 -0500",
        "1970-01-01 05:30:00 +05:30",
    ],
)
def test_the_epoch_says_that_a_file_is_not_there(stamp: str) -> None:
    gone = read(f"--- old/x\t{NOW}\n+++ new/x\t{stamp}\n@@ -1 +0,0 @@\n-one\n")
    assert gone == (DeleteFile(path("x"), b"one\n"),)
    made = read(f"--- old/x\t{stamp}\n+++ new/x\t{NOW}\n@@ -0,0 +1 @@\n+one\n")
    assert made == (WriteFile(path("x"), b"one\n", new=True),)


def test_an_archive_may_date_every_file_at_the_epoch() -> None:
    changed = read(f"--- old/x\t{EPOCH}\n+++ new/x\t{EPOCH}\n@@ -1 +1 @@\n-one\n+two\n")
    assert isinstance(changed[0], PatchFile)
    made = read(f"--- old/x\t{EPOCH}\n+++ new/x\t{EPOCH}\n@@ -0,0 +1 @@\n+one\n")
    assert made == (WriteFile(path("x"), b"one\n", new=True),)
    gone = read(f"--- old/x\t{EPOCH}\n+++ new/x\t{EPOCH}\n@@ -1 +0,0 @@\n-one\n")
    assert gone == (DeleteFile(path("x"), b"one\n"),)


@pytest.mark.parametrize("stamp", [NOW, "1970-01-01 00:00:01 +0000", "1970-01-01 00:00:00 +0100"])
def test_another_time_does_not(stamp: str) -> None:
    (operation,) = read(f"--- old/x\t{NOW}\n+++ new/x\t{stamp}\n@@ -1 +0,0 @@\n-one\n")
    assert isinstance(operation, PatchFile)


def test_what_stands_above_the_names_is_passed_over() -> None:
    text = (
        f"diff -ruN old/x new/x\n--- old/x\n+++ new/x\n{CHANGE}"
        f"diff -ruN old/y new/y\n--- old/y\n+++ new/y\n{CHANGE}"
        f"Index: z\n{'=' * 67}\n--- z\t(revision 1)\n+++ z\t(working copy)\n{CHANGE}"
    )
    assert [str(each.path) for each in read(text)] == ["x", "y", "z"]
    with pytest.raises(AnswerError) as caught:
        read(f"--- old/x\n+++ new/x\n{CHANGE}Only in new: y\n")
    assert caught.value.rule == "git.garbage"


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("diff --git i/d/x w/d/x\n--- i/d/x\n+++ w/d/x\n", "d/x"),
        ("diff --git a/n w b/n w\n--- a/n w\t\n+++ b/n w\t\n", "n w"),
        ("diff --git old/n w x new/n w x\n--- old/n w x\n+++ new/n w x\n", "n w x"),
        ('diff --git "a/\\303\\274" "b/\\303\\274"\n--- "a/\\303\\274"\n+++ "b/\\303\\274"\n', "ü"),
    ],
)
def test_prefixes_of_a_git_header(header: str, name: str) -> None:
    (operation,) = read(header + CHANGE)
    assert operation.path == path(name)


def test_a_git_header_without_prefixes_is_refused() -> None:
    with pytest.raises(AnswerError) as caught:
        read(f"diff --git src/x src/x\n--- src/x\n+++ src/x\n{CHANGE}")
    assert caught.value.rule == "git.prefix"


TREES = {
    "same": (b"s\n", b"s\n"),
    "changed": (b"one\ntwo\nthree\n", b"one\n2\nthree\n"),
    "gone": (b"gone\nfor good\n", None),
    "new": (None, b"new\n"),
    "with space": (b"a\n", b"b\n"),
    "new with space": (None, b"n\n"),
    'quo"te': (b"q\n", b"Q\n"),
    "ümlaut/ñ": (b"u\n", b"U"),
    "no newline": (b"x", b"y"),
    "d/deep/er": (
        b"".join(b"%d\n" % n for n in range(40)),
        b"".join(b"%d\n" % n for n in range(1, 40)),
    ),
}


@pytest.mark.parametrize(
    "command",
    [
        ["diff", "-ruN", "a", "b"],
        ["diff", "-ruN", "-U0", "a", "b"],
        ["git", "diff", "--no-index", "--no-prefix", "a", "b"],
        ["git", "-c", "core.quotePath=false", "diff", "--no-index", "--no-prefix", "a", "b"],
    ],
    ids=["diff", "diff -U0", "git", "git unquoted"],
)
def test_real_diffs_name_every_file_and_how_it_changes(tmp_path: Path, command: list[str]) -> None:
    for side, at in (("a", 0), ("b", 1)):
        for name, contents in TREES.items():
            if (content := contents[at]) is not None:
                place = tmp_path / side / name
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(content)
    env = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": "/dev/null", "TZ": "Asia/Kolkata"}
    made = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, check=False)
    parsed = answer.parse_answer(f"Here it is:\n\n```diff\n{made.stdout.decode()}```\n")
    assert isinstance(parsed, ChangeSet)
    kinds = {str(each.path): type(each) for each in parsed.operations}
    assert kinds == {
        name: WriteFile if old is None else DeleteFile if new is None else PatchFile
        for name, (old, new) in TREES.items()
        if old != new
    }


SPECIFICATION = """\
```patch
diff --git a/src/Foo.cs b/src/Foo.cs
index 1234567..89abcde 100644
--- a/src/Foo.cs
+++ b/src/Foo.cs
@@ -10,7 +10,7 @@ public class Foo
 {
-    public int Count;
+    public int TotalCount;
 }
```
"""


def test_wrong_counts_of_a_complete_diff_are_counted_anew_when_lenient() -> None:
    """The text is the example of the specification, whose counts are wrong."""
    parsed = answer.parse_answer(SPECIFICATION, options=AnswerOptions(lenient=True))
    assert isinstance(parsed, ChangeSet)
    (operation,) = parsed.operations
    assert isinstance(operation, PatchFile)
    (hunk,) = operation.hunks
    assert (hunk.old_start, len(hunk.old), len(hunk.new)) == (10, 3, 3)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (SPECIFICATION, "git.corrupt"),
        (SPECIFICATION.removesuffix("```\n"), "answer.unclosed"),
        (SPECIFICATION.replace("```patch\n", "").replace("```\n", ""), "git.corrupt"),
        (SPECIFICATION + "+more\n", "git.corrupt"),
    ],
    ids=["strict", "not closed", "bare", "goes on"],
)
def test_wrong_counts_are_refused_otherwise(text: str, rule: str) -> None:
    strict = text == SPECIFICATION
    with pytest.raises(AnswerError) as caught:
        answer.parse_answer(text, options=AnswerOptions(lenient=not strict))
    assert caught.value.rule == rule
    if strict:
        assert re.search(r"'@@ -10,3 \+10,3 @@'", caught.value.hint or "")
