"""Headers of git patches: names, modes and ids that must all agree."""

from __future__ import annotations

import pytest

from coilclaw.changes.formats import git_patch
from coilclaw.changes.operations import (
    AnswerOptions,
    AnswerSource,
    DeleteFile,
    Format,
    Hunk,
    HunkLine,
    Operation,
    PatchFile,
    WriteFile,
    WriteLink,
)
from coilclaw.kernel.errors import AnswerError, PathRefused
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


def test_a_link_whose_target_is_not_one_line_is_refused() -> None:
    text = "diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n"
    assert told(text + "@@ -0,0 +1 @@\n+t\n", EVERYTHING) == ("git.link", 1)
    two = "@@ -0,0 +1,2 @@\n+t\n+u\n\\ No newline at end of file\n"
    assert told(text + two, EVERYTHING) == ("git.link", 1)
    one = "@@ -0,0 +1 @@\n+t\n\\ No newline at end of file\n"
    assert parse(text + one, EVERYTHING) == (WriteLink(path("l"), b"t"),)
    empty = "diff --git a/l b/l\nnew file mode 120000\nindex 0000000..e69de29\n"
    assert told(empty, EVERYTHING) == ("git.link", 1)


def test_submodules_are_always_refused() -> None:
    sha = "1" * 40
    new = f"--- /dev/null\n+++ b/m\n@@ -0,0 +1 @@\n+Subproject commit {sha}\n"
    modes = f"diff --git a/m b/m\nnew file mode 160000\n{new}"
    assert told(modes, EVERYTHING) == ("git.submodule", 1)
    assert told(new, EVERYTHING) == ("git.submodule", 1)
    body = f"@@ -1 +1 @@\n-Subproject commit {sha}\n+Subproject commit {sha}-dirty\n"
    index = f"diff --git a/m b/m\nindex 1..2 160000\n--- a/m\n+++ b/m\n{body}"
    assert told(index, EVERYTHING) == ("git.submodule", 1)
    plain = f"--- a/m\n+++ b/m\n{body}"
    assert told(plain, EVERYTHING) == ("git.submodule", 1)
    prose = f"--- a/m\n+++ b/m\n@@ -1,2 +1,2 @@\n about\n-Subproject commit {sha}\n+gone\n"
    assert len(parse(prose)) == 1


def test_lines_and_positions_are_those_of_the_whole_answer() -> None:
    text = f"\ndiff --git a/f b/f\n--- a/f\n+++ b/f\n{EDIT}{EDIT}--- a/g\n+++ b/g\n{EDIT}"
    first, second = parse(text, first_line=50)
    assert (first.source, second.source) == (
        AnswerSource(Format.GIT, 51, 0),
        AnswerSource(Format.GIT, 60, 1),
    )
    assert isinstance(first, PatchFile)
    assert [hunk.source for hunk in first.hunks] == [
        AnswerSource(Format.GIT, 54, 0),
        AnswerSource(Format.GIT, 57, 1),
    ]


@pytest.mark.parametrize(
    ("header", "rule"),
    [
        ("--- a/f\n+++ b/g\n", "git.names"),
        ("--- f\n+++ b/f\n", "git.names"),
        ("--- /dev/null\n+++ /dev/null\n", "git.names"),
        ('--- "a/f\n+++ b/f\n', "git.quoting"),
        ('--- "a/\\q"\n+++ b/f\n', "git.quoting"),
        ("diff --git a/f b/g\n--- a/f\n+++ b/g\n", "git.names"),
        ("diff --git a/f b/f\n--- a/g\n+++ b/g\n", "git.names"),
        ("diff --git a/f b/f\n--- a/f\n+++ b/g\n", "git.names"),
        ("diff --git a/f b/f\n--- /dev/null\n+++ /dev/null\n", "git.names"),
        ("diff --git a/f b/f\n--- f\n+++ b/f\n", "git.prefix"),
        ("diff --git f f\n--- a/f\n+++ b/f\n", "git.names"),
        ("diff --git a/f b/g\nrename from f\nrename to h\n--- a/f\n+++ b/h\n", "git.names"),
        ("diff --git a/f b/g\nrename from f\nrename to g\n--- a/f\n+++ b/f\n", "git.names"),
        ("diff --git a/f b/g\nrename from f\nrename to g\n--- /dev/null\n+++ b/g\n", "git.names"),
        ("diff --git a/f b/f\nrename from f\nrename to f\n--- a/f\n+++ b/f\n", "git.names"),
        ("diff --git a/f b/./f\ncopy from f\ncopy to ./f\n--- a/f\n+++ b/./f\n", "git.names"),
        ("diff --git a/f b/g\nrename from f\n--- a/f\n+++ b/g\n", "git.header"),
        ("diff --git a/f b/g\ncopy to g\n--- a/f\n+++ b/g\n", "git.header"),
        ("diff --git a/f b/g\nrename from f\nrename to g\ncopy from f\ncopy to g\n", "git.header"),
        ("diff --git a/f b/f\nold mode 100644\n--- a/f\n+++ b/f\n", "git.header"),
        (
            "diff --git a/f b/f\nold mode 100644\nnew mode 100644\n--- a/f\n+++ b/f\n",
            "git.header",
        ),
        ("diff --git a/f b/f\nindex 1..2\nindex 1..2\n--- a/f\n+++ b/f\n", "git.header"),
        ("diff --git a/f b/f\nindex 1...2\n--- a/f\n+++ b/f\n", "git.header"),
        ("diff --git a/f b/f\nsimilarity index 101%\n--- a/f\n+++ b/f\n", "git.header"),
        ("diff --git a/f b/f\nnew file mode 100644\n--- a/f\n+++ b/f\n", "git.header"),
        ("diff --git a/f b/f\ndeleted file mode 100644\n--- a/f\n+++ b/f\n", "git.header"),
        ("diff --git a/f b/f\nnew file mode 100644\n--- a/f\n+++ /dev/null\n", "git.header"),
        ("diff --git a/f b/f\nnew file mode 100644\ndeleted file mode 100644\n", "git.header"),
        (
            "diff --git a/f b/f\nold mode 100644\nnew mode 100755\n--- /dev/null\n+++ b/f\n",
            "git.header",
        ),
        ("diff --git a/f b/f\nnew file mode 100664\n--- /dev/null\n+++ b/f\n", "git.mode"),
        ("diff --git a/f b/f\nnew file mode 644\n--- /dev/null\n+++ b/f\n", "git.mode"),
        ("diff --git a/f b/f\nnew file mode 040000\n--- /dev/null\n+++ b/f\n", "git.mode"),
        ("diff --git a/f b/f\nindex 1..2 100600\n--- a/f\n+++ b/f\n", "git.mode"),
        ("diff --git a/f b/f\nrename from\nrename to g\n--- a/f\n+++ b/f\n", "git.garbage"),
        ("diff --git a/f b/f\n", "git.header"),
        ("", "git.header"),
        ("diff --cc f\n--- a/f\n+++ b/f\n", "git.combined"),
    ],
)
def test_headers_that_contradict_themselves_are_refused(header: str, rule: str) -> None:
    assert refusal(header + EDIT).rule == rule


@pytest.mark.parametrize(
    "header",
    [
        "--- a/f\n+++ b/f\n",
        "--- f\n+++ f\n",
        "--- a/f\t2020-01-01 00:00:00 +0000\n+++ b/f\t2020-01-01\n",
        '--- "a/f"\n+++ "b/\\146"\t\n',
        "diff --git a/f b/f\n--- a/f\n+++ b/f\n",
        "diff --git a/f b/f\nindex 1234567..abcdefg 100644\n--- a/f\n+++ b/f\n",
        'diff --git "a/f" b/f\n--- a/f\n+++ b/f\n',
        'diff --git a/f "b/f"\n--- a/f\n+++ "b/f"\n',
        "From 1234\nSubject: x\n\n---\n f | 2 +-\n\ndiff --git a/f b/f\n--- a/f\n+++ b/f\n",
    ],
)
def test_headers_that_agree_with_themselves_are_read(header: str) -> None:
    assert parse(header + EDIT) == (PatchFile(path("f"), (PATCHED,)),)
    crlf = (header + EDIT).replace("\n", "\r\n")
    assert parse(crlf) == (PatchFile(path("f"), (PATCHED,)),)


def test_a_directory_called_a_without_prefixes() -> None:
    assert parse(f"--- a/f\n+++ a/f\n{EDIT}") == (PatchFile(path("a/f"), (PATCHED,)),)


def test_sections_that_change_nothing_or_lack_their_content_are_refused() -> None:
    assert told("diff --git a/f b/f\n") == ("git.empty", 1)
    assert told("diff --git a/f b/f\nindex 1..2 100644\n") == ("git.empty", 1)
    assert told("diff --git a/f b/f\n--- a/f\n+++ b/f\n") == ("git.header", 1)
    assert told("--- /dev/null\n+++ b/f\n") == ("git.header", 1)
    new = "diff --git a/f b/f\nnew file mode 100644\n"
    assert told(new + "index 0000000..1234567\n") == ("git.corrupt", 1)
    assert parse(new + "index 0000000..e69de29\n") == parse(new)
    gone = "diff --git a/f b/f\ndeleted file mode 100644\n"
    assert told(gone + "index 1234567..0000000\n") == ("git.corrupt", 1)
    assert parse(gone + "index e69de29..0000000\n") == (DeleteFile(path("f"), b""),)
    assert told("") == ("git.empty", 1)
    assert told("only prose\nand more\n") == ("git.empty", 1)


def test_new_and_deleted_files_are_one_hunk_from_nothing_or_to_nothing() -> None:
    new = "--- /dev/null\n+++ b/f\n"
    assert parse(new + "@@ -0,0 +1,2 @@\n+a\n+b\n") == (WriteFile(path("f"), b"a\nb\n", new=True),)
    assert told(new + "@@ -1,0 +1 @@\n+a\n") == ("git.corrupt", 3)
    assert told(new + "@@ -0,0 +2 @@\n+a\n") == ("git.corrupt", 3)
    assert told(new + "@@ -0,0 +1 @@\n+a\n@@ -0,0 +1 @@\n+a\n") == ("git.corrupt", 3)
    assert told(new + "@@ -0,1 +1,2 @@\n a\n+b\n") == ("git.corrupt", 3)
    gone = "--- a/f\n+++ /dev/null\n"
    assert parse(gone + "@@ -1,2 +0,0 @@\n-a\n-b\n") == (DeleteFile(path("f"), b"a\nb\n"),)
    assert told(gone + "@@ -1,2 +0,1 @@\n-a\n b\n") == ("git.corrupt", 3)
    assert told(gone + "@@ -2 +0,0 @@\n-a\n") == ("git.corrupt", 3)


@pytest.mark.parametrize(
    "name",
    ["../f", "/etc/passwd", ".git/config", "x/.GIT/hooks", "c:/f", "a\x01b", "con", "~/f", "dir/"],
)
def test_paths_are_refused_in_every_header(name: str) -> None:
    texts = [
        f"--- a/{name}\n+++ b/{name}\n{EDIT}",
        f"diff --git a/{name} b/{name}\n--- a/{name}\n+++ b/{name}\n{EDIT}",
        f"diff --git a/{name} b/{name}\nold mode 100644\nnew mode 100755\n",
        f"diff --git a/f b/{name}\nrename from f\nrename to {name}\n",
        f"diff --git a/{name} b/f\ncopy from {name}\ncopy to f\n",
        f"diff --git a/{name} b/{name}\nnew file mode 100644\n",
    ]
    for text in texts:
        with pytest.raises(PathRefused):
            parse(text)


@pytest.mark.parametrize("quoted", ["\\056git/config", "\\056\\056/x", "x\\000y", "\\377", "a\\nb"])
def test_quoting_hides_no_path(quoted: str) -> None:
    with pytest.raises(PathRefused):
        parse(f'--- "a/{quoted}"\n+++ "b/{quoted}"\n{EDIT}')


def test_one_path_twice_stays_two_operations() -> None:
    section = f"--- a/f\n+++ b/f\n{EDIT}"
    assert parse(section * 2) == (PatchFile(path("f"), (PATCHED,)),) * 2
