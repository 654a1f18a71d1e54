"""Fences: what is rendered reads back, and every cut-off fence refuses."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coilclaw.changes import answer
from coilclaw.changes.operations import ChangeSet, DeleteFile, Format, Operation, WriteFile
from coilclaw.kernel.errors import AnswerError, PathRefused
from coilclaw.kernel.tree_path import TreePath
from tests.support.answer_rendering import render_fence


def accepted(text: str) -> bool:
    try:
        TreePath.parse(text)
    except PathRefused:
        return False
    return True


NAMES = st.text("ab^ .\u00a0é`end", min_size=1, max_size=6) | st.sampled_from(["end", "delete"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join).filter(accepted).map(TreePath.parse)
LINES = (
    st.text('^`~{}"*<> \t\r\x0c\u2028aé', max_size=8)
    | st.sampled_from(["```json", "```", "*** Begin Patch", "<<<<<<< SEARCH", '{"files": ['])
).filter(lambda line: not line.startswith("^^^"))
CONTENTS = st.lists(LINES, max_size=6).map(
    lambda lines: "".join(f"{line}\n" for line in lines).encode()
)
OPERATIONS: st.SearchStrategy[Operation] = st.builds(WriteFile, PATHS, CONTENTS) | st.builds(
    DeleteFile, PATHS
)
MANY = st.lists(OPERATIONS, min_size=1, max_size=4).map(tuple)


@given(MANY)
@settings(deadline=None)
def test_what_is_rendered_reads_back(operations: tuple[Operation, ...]) -> None:
    text = render_fence(operations)
    assert answer.parse_answer(text) == ChangeSet(operations)
    assert answer.parse_answer(text, format=Format.FENCE) == ChangeSet(operations)


@given(MANY, st.data())
@settings(deadline=None)
def test_a_fence_that_is_cut_off_refuses(
    operations: tuple[Operation, ...], data: st.DataObject
) -> None:
    lines = render_fence(operations).split("\n")
    closers = [at for at, line in enumerate(lines) if line in {"^^^end", "^^^delete"}]
    at = data.draw(st.sampled_from(closers))
    with pytest.raises((AnswerError, PathRefused)):
        answer.parse_answer("\n".join([*lines[:at], *lines[at + 1 :]]), format=Format.FENCE)


@given(MANY, st.data())
@settings(deadline=None)
def test_a_marker_too_many_refuses(operations: tuple[Operation, ...], data: st.DataObject) -> None:
    lines = render_fence(operations).split("\n")
    at = data.draw(st.integers(0, len(lines) - 1))
    marker = data.draw(st.sampled_from(["^^^", "^^^^", "^^^ a", "^^^end", "^^^delete"]))
    # A closing marker before the first content line closes the block early; the second is stray.
    with pytest.raises(AnswerError):
        answer.parse_answer("\n".join([*lines[:at], marker, *lines[at:]]), format=Format.FENCE)
