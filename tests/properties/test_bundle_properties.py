"""Bundles: what is rendered reads back, whatever the content is."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from coilclaw.changes import answer
from coilclaw.changes.operations import (
    ChangeSet,
    DeleteFile,
    EditText,
    Format,
    NoChanges,
    Operation,
    Replacement,
    WriteFile,
)
from coilclaw.kernel.errors import AnswerError, PathRefused
from coilclaw.kernel.tree_path import TreePath
from tests.support.answer_rendering import render_bundle


def accepted(text: str) -> bool:
    try:
        TreePath.parse(text)
    except PathRefused:
        return False
    return True


TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
NASTY = st.lists(
    st.sampled_from(
        ["```", "\n", "\r\n", "^^^a", "^^^end", "{", '"files": [', "\0", "\ufeff", "\\"]
    )
).map("".join)
CONTENTS = TEXT | NASTY
PATHS = (
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
    .filter(accepted)
    .map(TreePath.parse)
)
REPLACEMENTS = st.lists(
    st.builds(Replacement, CONTENTS.filter(bool), CONTENTS, st.sampled_from(["once", "all"])),
    min_size=1,
    max_size=3,
).map(tuple)
OPERATIONS: st.SearchStrategy[Operation] = (
    st.builds(WriteFile, PATHS, CONTENTS.map(str.encode), st.booleans())
    | st.builds(DeleteFile, PATHS)
    | st.builds(EditText, PATHS, REPLACEMENTS)
)


@given(st.lists(OPERATIONS, min_size=1, max_size=4).map(tuple))
@settings(deadline=None)
def test_what_is_rendered_reads_back(operations: tuple[Operation, ...]) -> None:
    text = render_bundle(operations)
    assert answer.parse_answer(text) == ChangeSet(operations)
    assert answer.parse_answer(text, format=Format.BUNDLE) == ChangeSet(operations)
    assert answer.parse_answer(text, format=Format.PATCH) == NoChanges()


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats(allow_nan=False)
    | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "root",
                    "files",
                    "patches",
                    "path",
                    "content",
                    "operation",
                    "replacements",
                    "find",
                    "x",
                ]
            ),
            inner | st.sampled_from([".", "a", "delete", "patch", "gitPatch", "create"]),
            max_size=5,
        )
    ),
    max_leaves=12,
)


@given(JSON)
@settings(deadline=None)
def test_any_json_is_read_or_refused(value: object) -> None:
    text = json.dumps(value)
    try:
        found = answer.parse_answer(f"```json\n{text}\n```\n")
    except (AnswerError, PathRefused):
        return
    assert isinstance(found, ChangeSet | NoChanges)
    try:
        assert answer.parse_answer(text) == found
    except AnswerError:
        # Alone on its line a list is prose, in a JSON block it may be refused.
        assert not text.startswith("{")
