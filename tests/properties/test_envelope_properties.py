"""Envelopes under random operations, files and noise."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from coilclaw.changes import line_edits
from coilclaw.changes.formats import envelope
from coilclaw.changes.operations import (
    DeleteFile,
    Hunk,
    HunkLine,
    Operation,
    PatchFile,
    WriteFile,
)
from coilclaw.kernel.errors import AnswerError, PathRefused, UsageError
from coilclaw.kernel.tree_path import TreePath
from tests.support.answer_rendering import render_envelope
from tests.support.scale import scaled

names = st.text("ab .*@ä", min_size=1, max_size=5).filter(
    lambda text: not text.endswith((".", " ")) and text.strip(".") != ""
)
paths = st.lists(names, min_size=1, max_size=2).map(lambda parts: TreePath(tuple(parts)))
text_line = st.sampled_from([b"", b"x", b"*** End Patch", b"@@ x", b" ", b"\xff", b"\r"]) | (
    st.binary(max_size=8).map(lambda data: data.replace(b"\n", b""))
)
hunks = st.builds(
    Hunk,
    st.lists(
        st.builds(HunkLine, st.sampled_from([" ", "-", "+"]), text_line), min_size=1, max_size=5
    ).map(tuple),
    heading=st.sampled_from([b"", b"def f():", b"a\n b"]) | text_line,
    at_end=st.booleans(),
)
operations = st.one_of(
    st.builds(WriteFile, paths, st.binary(max_size=30), new=st.booleans()),
    st.builds(
        WriteFile,
        paths,
        st.lists(text_line, max_size=5).map(lambda rows: b"".join(row + b"\n" for row in rows)),
        new=st.just(value=True),
    ),
    st.builds(DeleteFile, paths),
    st.builds(PatchFile, paths, st.lists(hunks, max_size=3).map(tuple), target=st.none() | paths),
)


def attempt(text: str) -> tuple[Operation, ...] | AnswerError | PathRefused:
    try:
        return envelope.parse(text, first_line=7)
    except (AnswerError, PathRefused) as problem:
        return problem


def parse(text: str) -> tuple[Operation, ...]:
    return envelope.parse(text, first_line=1)


@settings(max_examples=scaled(full=600, default=300), deadline=None)
@given(st.lists(operations, min_size=1, max_size=4))
def test_what_is_rendered_is_read_back_as_it_was(wanted: list[Operation]) -> None:
    try:
        text = render_envelope(wanted)
    except UsageError as problem:
        text = problem.rule
    assert text == "render.inexpressible" or parse(text) == tuple(wanted)


@settings(max_examples=scaled(full=1000, default=300), deadline=None)
@given(st.lists(st.lists(text_line, max_size=4), min_size=1, max_size=3), st.none() | paths)
def test_every_proper_edit_has_a_spelling(
    edits: list[list[bytes]], target: TreePath | None
) -> None:
    made = tuple(
        Hunk((HunkLine(" ", b""), *(HunkLine("-", text) for text in edit), HunkLine("+", b"")))
        for edit in edits
    )
    good = target if target is not None and str(target) == str(target).strip() else None
    operation = PatchFile(TreePath(("the file",)), made, target=good)
    assert parse(render_envelope([operation])) == (operation,)


@settings(max_examples=scaled(full=1000, default=300), deadline=None)
@given(st.data(), st.integers(4, 30), st.booleans(), st.sampled_from([b"\n", b"\r\n"]))
def test_an_edit_written_as_an_envelope_gives_the_edited_file(
    data: st.DataObject, size: int, ended: bool, newline: bytes
) -> None:
    rows = [b"row %d" % number for number in range(size)]
    chosen = data.draw(st.sets(st.integers(1, size - 2), min_size=1, max_size=3))
    made: list[Hunk] = []
    expected = list(rows)
    for at in sorted(chosen):
        marked = (HunkLine("-", rows[at]), HunkLine("+", b"new %d" % at))
        before = () if at - 1 in chosen else (HunkLine(" ", rows[at - 1]),)
        made.append(Hunk((*before, *marked)))
        expected[at] = b"new %d" % at
    (operation,) = parse(render_envelope([PatchFile(TreePath(("f",)), tuple(made))]))
    assert isinstance(operation, PatchFile)
    tail = newline if ended else b""
    result = line_edits.apply_hunks(newline.join(rows) + tail, operation.hunks, path="f")
    assert result == newline.join(expected) + tail


fragment = st.sampled_from(
    [
        "*** Begin Patch",
        "*** End Patch",
        "*** Add File: f",
        "*** Update File: f",
        "*** Delete File: g",
        "*** Move to: h",
        "*** End of File",
        "*** Else",
        "@@",
        "@@ head",
        "+x",
        "-y",
        " z",
        "",
    ]
)
inside = st.lists(fragment | st.text(max_size=8), max_size=10).map(
    lambda rows: "\n".join(["*** Begin Patch", *rows, "*** End Patch"])
)


@settings(max_examples=scaled(full=1000, default=700), deadline=None)
@given(inside | st.lists(fragment, max_size=12).map("\n".join) | st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    found = attempt(text)
    if isinstance(found, AnswerError):
        assert found.rule.startswith("envelope.")
        assert found.line is not None
        assert 7 <= found.line <= 8 + text.count("\n")
    elif not isinstance(found, PathRefused):
        assert found
        assert parse(render_envelope(found)) == found
