"""Structured patches: what is rendered reads back; damaged ones never read as something else."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from coilclaw.changes import answer
from coilclaw.changes.operations import (
    ChangeSet,
    EditText,
    Format,
    NoChanges,
    Operation,
    Replacement,
)
from coilclaw.kernel.errors import AnswerError, PathRefused
from coilclaw.kernel.tree_path import TreePath
from tests.support.answer_rendering import render_structured

TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
REPLACEMENTS = st.lists(
    st.builds(Replacement, TEXT.filter(bool), TEXT, st.sampled_from(["once", "all"])),
    min_size=1,
    max_size=3,
).map(tuple)
PATHS = st.sampled_from(["a", "b/c", "é", "my file", "x.json"]).map(TreePath.parse)
MANY: st.SearchStrategy[tuple[Operation, ...]] = st.lists(
    st.builds(EditText, PATHS, REPLACEMENTS), min_size=1, max_size=3
).map(tuple)


@given(MANY)
@settings(deadline=None)
def test_what_is_rendered_reads_back(operations: tuple[Operation, ...]) -> None:
    text = render_structured(operations)
    assert answer.parse_answer(text) == ChangeSet(operations)
    assert answer.parse_answer(text, format=Format.PATCH) == ChangeSet(operations)
    assert answer.parse_answer(text, format=Format.BUNDLE) == NoChanges()


@given(MANY, st.data())
@settings(deadline=None)
def test_a_patch_that_is_cut_off_is_never_applied_in_part(
    operations: tuple[Operation, ...], data: st.DataObject
) -> None:
    text = render_structured(operations)
    # Without its last line the block is not closed; with less, the JSON is not.
    cut = text[: data.draw(st.integers(0, len(text.rstrip("`\n"))))]
    try:
        found = answer.parse_answer(cut)
    except (AnswerError, PathRefused):
        return
    assert found == NoChanges()
    assert '"patches"' not in cut
