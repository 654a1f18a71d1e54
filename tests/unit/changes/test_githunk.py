"""Hunks of git patches: counts, markers and what may stand around them."""

from __future__ import annotations

import pytest

from coilclaw.changes.formats import git_patch
from coilclaw.changes.operations import AnswerOptions, Hunk, HunkLine, Operation, PatchFile
from coilclaw.kernel.errors import AnswerError
from coilclaw.kernel.tree_path import TreePath

EVERYTHING = AnswerOptions(binary=True, links=True)
EDIT = "@@ -1 +1 @@\n-x\n+y\n"
PATCHED = Hunk((HunkLine("-", b"x"), HunkLine("+", b"y")), old_start=1, new_start=1)


def parse(
    text: str, options: AnswerOptions = AnswerOptions(), first_line: int = 1
) -> tuple[Operation, ...]:
    return git_patch.parse(text, first_line=first_line, options=options)


def refusal(text: str, options: AnswerOptions = AnswerOptions()) -> AnswerError:
    with pytest.raises(AnswerError) as caught:
        parse(text, options, first_line=101)
    assert caught.value.line is not None
    assert caught.value.message.startswith(f"line {caught.value.line}: ")
    return caught.value


def told(text: str, options: AnswerOptions = AnswerOptions()) -> tuple[str, int]:
    """Return rule and line of the refusal, the first line of the text being 1."""
    error = refusal(text, options)
    return error.rule, (error.line or 0) - 100


def path(text: str) -> TreePath:
    return TreePath.parse(text)


def in_file(hunks: str) -> str:
    return f"--- a/f\n+++ b/f\n{hunks}"


def test_counts_must_agree_unless_lenient() -> None:
    lenient = AnswerOptions(lenient=True)
    for hunk in (
        "@@ -1,7 +1,7 @@\n-x\n+y\n",
        "@@ -1,1 +1,2 @@\n-x\n+y\n",
        "@@ -1 +1 @@\n a\n-x\n+y\n",
        "@@ -1 +1 @@\n-x\n+y\n z\n",
        "@@ -1 +1,0 @@\n-x\n+y\n",
        "@@ -1,0 +1 @@\n-x\n+y\n",
    ):
        assert told(in_file(hunk)) == ("git.corrupt", 3)
        (operation,) = parse(in_file(hunk), lenient)
        assert isinstance(operation, PatchFile)
        marked = [line.mark + line.text.decode() for line in operation.hunks[0].lines]
        assert marked == hunk.split("\n")[1:-1]
    error = refusal(in_file("@@ -1,7 +1,7 @@\n-x\n+y\n"))
    assert error.message == (
        "line 103: the hunk header announces 7 old and 7 new lines, "
        "but 1 old and 1 new lines follow"
    )


def test_recounting_ends_where_the_next_part_starts() -> None:
    lenient = AnswerOptions(lenient=True)
    hunk = "@@ -1,9 +1,9 @@\n-x\n+y\n"
    following = (
        "",
        "\n\n",
        "-- \n2.39.5\n\n",
        "@@ -5 +5 @@\n-p\n+q\n",
        f"--- a/g\n+++ b/g\n{EDIT}",
        f"\n--- a/g\n+++ b/g\n{EDIT}",
        f"diff --git a/g b/g\n--- a/g\n+++ b/g\n{EDIT}",
    )
    for rest in following:
        operation = parse(in_file(hunk + rest), lenient)[0]
        assert isinstance(operation, PatchFile)
        assert operation.hunks[0] == PATCHED
    assert refusal(in_file("@@ -1,9 +1,9 @@\nprose\n"), lenient).rule == "git.corrupt"
    assert refusal(in_file(f"{hunk}prose\n"), lenient).rule == "git.garbage"


def test_what_a_hunk_may_hold() -> None:
    assert told(in_file("@@ -1,2 +1,2 @@\n a\n b\n")) == ("git.corrupt", 3)
    assert told(in_file("@@ -0,0 +0,0 @@\n")) == ("git.corrupt", 3)
    assert told(in_file("@@ -1 +1\n-x\n+y\n")) == ("git.corrupt", 3)
    assert told(in_file("@@ ... @@\n-x\n+y\n")) == ("git.corrupt", 3)
    assert told(in_file(f"@@ -{'9' * 5000} +1 @@\n-x\n+y\n")) == ("git.corrupt", 3)
    assert told(in_file("@@ -１ +1 @@\n-x\n+y\n")) == ("git.corrupt", 3)
    assert told(in_file("@@ -1 +1 @@\n\\ No newline at end of file\n-x\n+y\n")) == (
        "git.corrupt",
        4,
    )
    twice = "\\ No newline at end of file\n" * 2
    assert told(in_file(f"@@ -1 +1 @@\n-x\n{twice}+y\n")) == ("git.corrupt", 6)
    middle = "@@ -1,2 +1 @@\n-x\n\\ No newline at end of file\n-z\n+y\n"
    assert told(in_file(middle)) == ("git.corrupt", 6)
    nothing = "@@ -1 +1 @@\n-x\n+\n\\ No newline at end of file\n"
    assert told(in_file(nothing)) == ("git.corrupt", 6)


def test_an_empty_line_in_a_hunk_is_an_empty_context_line() -> None:
    (operation,) = parse(in_file("@@ -1,3 +1,3 @@ def f():\n\n-x\n+y\n\n"))
    assert operation == PatchFile(
        path("f"),
        (
            Hunk(
                (HunkLine(" ", b""), *PATCHED.lines, HunkLine(" ", b"")),
                old_start=1,
                new_start=1,
                heading=b"def f():",
            ),
        ),
    )


@pytest.mark.parametrize(
    "garbage", ["prose", "```", "\tindented", "-- ", "Only in a: f", "index 1..2"]
)
def test_text_between_and_after_sections_is_refused(garbage: str) -> None:
    section = in_file(EDIT)
    assert told(f"{section}\n{garbage}\n{section}") == ("git.garbage", 7)
    if garbage != "-- ":
        assert told(f"{section}{garbage}\n")[0] == "git.garbage"
    assert len(parse(f"{section}\n\n{section}\n\n")) == 2


def test_parts_of_a_section_are_not_passed_over_before_the_first_one() -> None:
    for stray in ("@@ -1 +1 @@", "+++ b/g", "GIT binary patch"):
        assert told(f"prose\n{stray}\n{in_file(EDIT)}") == ("git.header", 2)
    assert told(f"diff --cc g\n{in_file(EDIT)}") == ("git.combined", 1)


def test_text_that_is_no_unicode_is_refused() -> None:
    assert told(in_file("@@ -1 +1 @@\n-x\n+\ud800\n")) == ("git.encoding", 5)
    assert len(parse(in_file("@@ -1 +1 @@\n-x\n+\udcff\n"))) == 1
