"""Search-and-replace blocks: read strictly, written back exactly."""

from __future__ import annotations

import pytest

from coilclaw.changes import line_edits
from coilclaw.changes.formats import blocks
from coilclaw.changes.operations import (
    AnswerSource,
    DeleteFile,
    EditText,
    Format,
    Hunk,
    HunkLine,
    Operation,
    PatchBinary,
    PatchFile,
    WriteFile,
    WriteLink,
)
from coilclaw.kernel.errors import AnswerError, PathRefused, UsageError
from coilclaw.kernel.tree_path import TreePath
from tests.support.answer_rendering import render_blocks

SEARCH, DIVIDER, REPLACE = "<<<<<<< SEARCH", "=======", ">>>>>>> REPLACE"
BLOCK = (SEARCH, "x", DIVIDER, "y", REPLACE)


def parse(*rows: str, first_line: int = 1) -> tuple[Operation, ...]:
    text = "".join(f"{row}\n" for row in rows)
    return blocks.parse(text, first_line=first_line)


def told(*rows: str) -> tuple[str, int]:
    """Return rule and line of the refusal."""
    with pytest.raises(AnswerError) as caught:
        blocks.parse("\n".join(rows), first_line=11)
    assert caught.value.message.startswith(f"line {caught.value.line}: ")
    return caught.value.rule, (caught.value.line or 0) - 10


def path(text: str) -> TreePath:
    return TreePath.parse(text)


def swap(old: tuple[str, ...], new: tuple[str, ...]) -> Hunk:
    return Hunk(
        (
            *(HunkLine("-", line.encode()) for line in old),
            *(HunkLine("+", line.encode()) for line in new),
        )
    )


X_TO_Y = swap(("x",), ("y",))


@pytest.mark.parametrize(
    ("rows", "rule", "line"),
    [
        (("",), "blocks.empty", 1),
        (("f", "prose"), "blocks.empty", 1),
        (BLOCK, "blocks.path", 1),
        (("", "```python", *BLOCK), "blocks.path", 3),
        (("Change this line:", *BLOCK), "blocks.path", 1),
        (("f", *BLOCK, "and then", *BLOCK), "blocks.path", 7),
        (("f", SEARCH, "x"), "blocks.unclosed", 2),
        (("f", SEARCH, "x", DIVIDER, "y"), "blocks.unclosed", 2),
        (("f", SEARCH, "x", REPLACE), "blocks.marker", 4),
        (("f", SEARCH, "x", SEARCH), "blocks.marker", 4),
        (("f", SEARCH, "x", DIVIDER, "y", DIVIDER, "z", REPLACE), "blocks.marker", 6),
        (("f", SEARCH, "x", DIVIDER, "y", SEARCH, "z"), "blocks.marker", 6),
        (("f", DIVIDER, *BLOCK), "blocks.marker", 2),
        (("f", REPLACE, *BLOCK), "blocks.marker", 2),
        (("f", *BLOCK, REPLACE), "blocks.marker", 7),
        (("f", "<<<<<< SEARCH", "x", DIVIDER, "y", REPLACE), "blocks.marker", 2),
        (("f", "<<<<<<<< SEARCH", "x", DIVIDER, "y", REPLACE), "blocks.marker", 2),
        (("f", " <<<<<<< SEARCH", "x", DIVIDER, "y", REPLACE), "blocks.marker", 2),
        (("f", "<<<<<<< SEARCH x", "x", DIVIDER, "y", REPLACE), "blocks.marker", 4),
        (("f", "<<<<<<<SEARCH", "x", DIVIDER, "y", REPLACE), "blocks.marker", 2),
        (("f", SEARCH, "x", "======", "y", REPLACE), "blocks.marker", 6),
        (("f", SEARCH, "x", "========", "y", REPLACE), "blocks.marker", 6),
        (("f", SEARCH, "x", DIVIDER, "y", ">>>>>> REPLACE"), "blocks.marker", 6),
        (("f", SEARCH, "x", DIVIDER, "y", ">>>>>>> REPLACE x"), "blocks.unclosed", 2),
        (("f", SEARCH, "x", "======= ", "y", "=======\t", REPLACE), "blocks.marker", 6),
        (("- f", *BLOCK), "blocks.path", 1),
        (("1. Change f", *BLOCK), "blocks.path", 1),
        (("```python:", *BLOCK), "blocks.path", 2),
        (("```https://x", *BLOCK), "blocks.path", 2),
        (("f", SEARCH, "x", DIVIDER, "y\ud800", REPLACE), "blocks.encoding", 5),
        (("f", SEARCH, DIVIDER, "y", REPLACE, *BLOCK), "blocks.empty_search", 2),
        (("f", *BLOCK, SEARCH, DIVIDER, "y", REPLACE), "blocks.empty_search", 7),
        (("f", SEARCH, DIVIDER, REPLACE, SEARCH, DIVIDER, REPLACE), "blocks.empty_search", 2),
        (("x" * 20_000, *BLOCK), "blocks.path", 1),
    ],
)
def test_anything_else_is_refused_with_its_line(
    rows: tuple[str, ...], rule: str, line: int
) -> None:
    assert told(*rows) == (rule, line)


@pytest.mark.parametrize(
    "name",
    ["/etc/passwd", "../f", "`../f`", "**.git/config**", "a\\b", "# dir/", "nul:", "~/f", "`a\tb`"],
)
def test_paths_are_refused_however_they_are_dressed(name: str) -> None:
    with pytest.raises(PathRefused):
        parse(name, *BLOCK)


@pytest.mark.parametrize(
    "dressed",
    [
        "src/f.py",
        "  src/f.py  ",
        "`src/f.py`",
        "**src/f.py**",
        "src/f.py:",
        "`src/f.py`:",
        "**`src/f.py`**:",
        "**src/f.py:**",
        "# src/f.py",
        "### `src/f.py`",
        "###### src/f.py:",
        "./src/f.py",
        "File: src/f.py",
        "**File: `src/f.py`**",
        "**File:** `src/f.py`",
        "### File: src/f.py:",
        "path: `src/f.py`",
        "1. `src/f.py`",
        "12) **src/f.py**:",
        "- `src/f.py`",
        "* File: src/f.py",
        "```python:src/f.py",
    ],
)
def test_paths_are_read_however_they_are_dressed(dressed: str) -> None:
    expected = (PatchFile(path("src/f.py"), (X_TO_Y,)),)
    assert parse(dressed, *BLOCK) == expected
    assert parse(dressed, "```python", *BLOCK, "```") == expected
    assert (
        parse("Some prose.", "", dressed, "", "~~~", *BLOCK, "~~~", "", "More prose.") == expected
    )


def test_blanks_after_markers_do_not_matter() -> None:
    found = parse("f", SEARCH + "  ", "x", DIVIDER + "\t", "y", REPLACE + " \t")
    assert found == (PatchFile(path("f"), (X_TO_Y,)),)


def test_the_path_of_a_code_fence_is_nearer_than_the_line_before_it() -> None:
    assert parse("Change this:", "```python:f", *BLOCK, "```") == (PatchFile(path("f"), (X_TO_Y,)),)


def test_a_path_with_spaces_needs_backticks() -> None:
    assert told("my file.txt", *BLOCK) == ("blocks.path", 1)
    assert parse("`my file.txt`:", *BLOCK) == (PatchFile(path("my file.txt"), (X_TO_Y,)),)


def test_blocks_of_one_path_become_one_operation_in_their_order() -> None:
    other = (SEARCH, "p", "q", DIVIDER, REPLACE)
    found = parse(
        "f", *BLOCK, *other, "```", "", "g", *BLOCK, "./f", SEARCH, "r", DIVIDER, "s", REPLACE
    )
    assert found == (
        PatchFile(path("f"), (X_TO_Y, swap(("p", "q"), ()), swap(("r",), ("s",)))),
        PatchFile(path("g"), (X_TO_Y,)),
    )


def test_fences_between_blocks_keep_the_path() -> None:
    found = parse("f", "```", *BLOCK, "```", "", "```py", *BLOCK, "```")
    assert found == (PatchFile(path("f"), (X_TO_Y, X_TO_Y)),)


def test_an_empty_search_makes_a_new_file() -> None:
    assert parse("f", SEARCH, DIVIDER, "a", "", REPLACE) == (
        WriteFile(path("f"), b"a\n\n", new=True),
    )
    assert parse("f", SEARCH, DIVIDER, REPLACE) == (WriteFile(path("f"), b"", new=True),)


def test_content_is_taken_as_it_stands() -> None:
    rows = ("```", "  <<<<<<< SEARCH", "====", "======= x", ">>>>>>> HEAD", "", "\tä \r")
    found = parse("f", SEARCH, *rows, DIVIDER, *rows[::-1], REPLACE)
    assert found == (PatchFile(path("f"), (swap(rows, rows[::-1]),)),)


def test_blocks_in_crlf_are_read_as_if_they_were_not() -> None:
    text = "".join(f"{row}\r\n" for row in ("f", *BLOCK))
    assert blocks.parse(text, first_line=1) == parse("f", *BLOCK)


def test_lines_are_those_of_the_whole_answer() -> None:
    first, second = parse("f", *BLOCK, *BLOCK, "g", "```", *BLOCK, first_line=31)
    assert (first.source, second.source) == (
        AnswerSource(Format.BLOCKS, 32, 0),
        AnswerSource(Format.BLOCKS, 44, 1),
    )
    assert isinstance(first, PatchFile)
    assert [hunk.source for hunk in first.hunks] == [
        AnswerSource(Format.BLOCKS, 32, 0),
        AnswerSource(Format.BLOCKS, 37, 1),
    ]


def test_blocks_are_put_into_the_file_in_any_order() -> None:
    (operation,) = parse(
        "f", SEARCH, "b", DIVIDER, "B", "C", REPLACE, SEARCH, "a", "B", DIVIDER, "z", REPLACE
    )
    assert isinstance(operation, PatchFile)
    put = line_edits.apply_hunks(b"a\r\nb", operation.hunks, path="f")
    assert put == b"z\r\nC"


@pytest.mark.parametrize(
    "operation",
    [
        WriteFile(path("f"), b"x\n"),
        WriteFile(path("f"), b"x", new=True),
        WriteFile(path("f"), b"=======\n", new=True),
        WriteFile(path("f"), b"x\n", new=True, executable=False),
        WriteFile(path("`" * 7), b"x\n", new=True),
        WriteLink(path("f"), b"x"),
        DeleteFile(path("f")),
        EditText(path("f"), ()),
        PatchBinary(path("f"), "literal", b"", 0, "1" * 40, "2" * 40),
        PatchFile(path("f"), ()),
        PatchFile(path("f"), (X_TO_Y,), target=path("g")),
        PatchFile(path("f"), (X_TO_Y,), executable=True),
        PatchFile(path("f"), (swap((), ("y",)),)),
        PatchFile(path("f"), (swap((">>>>>>> REPLACE",), ("y",)),)),
        PatchFile(path("f"), (swap(("x\ny",), ("y",)),)),
        PatchFile(path("f"), (Hunk(X_TO_Y.lines[::-1]),)),
        PatchFile(path("f"), (Hunk((HunkLine(" ", b"x"), HunkLine("+", b"y"))),)),
        PatchFile(path("f"), (Hunk(X_TO_Y.lines, heading=b"h"),)),
        PatchFile(path("f"), (Hunk(X_TO_Y.lines, at_end=True),)),
        PatchFile(path("f"), (Hunk(X_TO_Y.lines, old_start=3),)),
    ],
)
def test_what_blocks_cannot_say_is_not_rendered(operation: Operation) -> None:
    with pytest.raises(UsageError) as caught:
        render_blocks([operation])
    assert caught.value.rule == "render.inexpressible"


def test_a_path_twice_or_nothing_is_not_rendered() -> None:
    for operations in ([], [PatchFile(path("f"), (X_TO_Y,))] * 2):
        with pytest.raises(UsageError) as caught:
            render_blocks(operations)
        assert caught.value.rule == "render.inexpressible"


def test_everything_else_round_trips() -> None:
    operations = (
        WriteFile(path("n"), b"", new=True),
        WriteFile(path("my file:"), b"```\n\xff\r\n\n", new=True),
        PatchFile(path("# x"), (X_TO_Y, swap(("a", ""), ()))),
        PatchFile(path("======="), (X_TO_Y,)),
        PatchFile(path("ä`ö"), (swap(("",), ("", "")),)),
    )
    assert parse(*render_blocks(operations).split("\n")[:-1]) == operations
