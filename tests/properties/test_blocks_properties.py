"""Search-and-replace blocks under random operations, files and noise."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from coilclaw.changes import line_edits
from coilclaw.changes.formats import blocks
from coilclaw.changes.operations import Hunk, HunkLine, Operation, PatchFile, WriteFile
from coilclaw.kernel.errors import AnswerError, PathRefused, UsageError
from coilclaw.kernel.tree_path import TreePath
from tests.support.answer_rendering import render_blocks
from tests.support.scale import scaled

names = st.text("ab .*#`:=ä", min_size=1, max_size=5).filter(
    lambda text: not text.endswith((".", " ")) and text.strip(".") != ""
)
paths = st.lists(names, min_size=1, max_size=2).map(lambda parts: TreePath(tuple(parts)))
text_line = st.sampled_from(
    [b"", b"x", b"=======", b"<<<<<<< SEARCH", b">>>>>>> REPLACE", b"```", b"======", b"\r"]
) | st.binary(max_size=8).map(lambda data: data.replace(b"\n", b""))


def swap(old: list[bytes], new: list[bytes]) -> Hunk:
    removed = (HunkLine("-", text) for text in old)
    return Hunk((*removed, *(HunkLine("+", text) for text in new)))


hunks = st.builds(swap, st.lists(text_line, max_size=3), st.lists(text_line, max_size=3))
operations = st.one_of(
    st.builds(WriteFile, paths, st.binary(max_size=30), new=st.booleans()),
    st.builds(
        WriteFile,
        paths,
        st.lists(text_line, max_size=4).map(lambda rows: b"".join(row + b"\n" for row in rows)),
        new=st.just(value=True),
    ),
    st.builds(PatchFile, paths, st.lists(hunks, max_size=3).map(tuple)),
)


def attempt(text: str) -> tuple[Operation, ...] | AnswerError | PathRefused:
    try:
        return blocks.parse(text, first_line=7)
    except (AnswerError, PathRefused) as problem:
        return problem


def parse(text: str) -> tuple[Operation, ...]:
    return blocks.parse(text, first_line=1)


@settings(max_examples=scaled(full=600, default=300), deadline=None)
@given(st.lists(operations, min_size=1, max_size=3))
def test_what_is_rendered_is_read_back_as_it_was(wanted: list[Operation]) -> None:
    try:
        text = render_blocks(wanted)
    except UsageError as problem:
        text = problem.rule
    assert text == "render.inexpressible" or parse(text) == tuple(wanted)


# Hypothesis takes constants out of our own sources, markers among them.
unmarked = st.binary(max_size=9).filter(
    lambda data: not any(mark in data for mark in (b"<<<<<<<", b"=======", b">>>>>>>"))
)


@settings(max_examples=scaled(full=1000, default=300), deadline=None)
@given(st.lists(st.tuples(unmarked, unmarked), min_size=1, max_size=3))
def test_every_edit_without_markers_has_a_spelling(edits: list[tuple[bytes, bytes]]) -> None:
    made = tuple(swap(old.split(b"\n"), new.split(b"\n")) for old, new in edits)
    operation = PatchFile(TreePath(("the file",)), made)
    assert parse(render_blocks([operation])) == (operation,)


@settings(max_examples=scaled(full=1000, default=300), deadline=None)
@given(st.data(), st.integers(3, 30), st.booleans(), st.sampled_from([b"\n", b"\r\n"]))
def test_an_edit_written_as_blocks_gives_the_edited_file_in_any_order(
    data: st.DataObject, size: int, ended: bool, newline: bytes
) -> None:
    rows = [b"row %d" % number for number in range(size)]
    chosen = data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=4, unique=True))
    expected = [b"new %d" % at if at in chosen else row for at, row in enumerate(rows)]
    made = tuple(swap([rows[at]], [b"new %d" % at]) for at in chosen)
    (operation,) = parse(render_blocks([PatchFile(TreePath(("f",)), made)]))
    assert isinstance(operation, PatchFile)
    tail = newline if ended else b""
    result = line_edits.apply_hunks(newline.join(rows) + tail, operation.hunks, path="f")
    assert result == newline.join(expected) + tail


fragment = st.sampled_from(
    [
        "f",
        "`g h`:",
        "<<<<<<< SEARCH",
        "=======",
        ">>>>>>> REPLACE",
        "<<<<<< SEARCH",
        "```py",
        "",
        "some prose",
        "x",
    ]
)
block = st.lists(fragment, max_size=2).map(
    lambda rows: "\n".join(["f", "<<<<<<< SEARCH", *rows, "=======", *rows, ">>>>>>> REPLACE"])
)


@settings(max_examples=scaled(full=1000, default=700), deadline=None)
@given(st.lists(fragment | block | st.text(max_size=8), max_size=10).map("\n".join) | st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    found = attempt(text)
    if isinstance(found, AnswerError):
        assert found.rule.startswith("blocks.")
        assert found.line is not None
        assert 7 <= found.line <= 8 + text.count("\n")
    elif not isinstance(found, PathRefused):
        assert found
        assert parse(render_blocks(found)) == found
