"""Whole answers: hostile text is read or refused in time, and its surroundings do not matter."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coilclaw.changes import answer
from coilclaw.changes.operations import (
    ADDED,
    CONTEXT,
    REMOVED,
    Answer,
    ChangeSet,
    DeleteFile,
    EditText,
    Format,
    Hunk,
    HunkLine,
    Operation,
    PatchFile,
    Replacement,
    WriteFile,
)
from coilclaw.kernel.errors import AnswerError, PathRefused, UsageError
from coilclaw.kernel.tree_path import TreePath
from tests.support.answer_rendering import render
from tests.support.children import PATIENCE_S
from tests.support.scale import scaled

FRAGMENTS = st.sampled_from(
    [
        "^^^", "^^^a", "^^^end", "^^^delete", "^^^../a", "```", "````", "```json", "```patch",
        "~~~", "  ```diff", "```x", "{", "}", '{"files": [', '"patches":', '{"path": "a"}', "]}",
        '{"root": ".", "files": [{"path": "a", "content": "x"}]}', '{"a": 1}', '{"', "[", "\\",
        "*** Begin Patch", "*** Add File: a", "*** Delete File: b", "*** End Patch", "+x", " x",
        "-x", "<<<<<<< SEARCH", "=======", ">>>>>>> REPLACE", "diff --git a/a b/a", "--- a/a",
        "+++ b/a", "@@ -1 +1 @@", "a", "`a`:", "", " ", "\r", "\u2028", "\ufeff", "\0",
        "A patch cannot be safely generated with", "the information provided.", "> **Unable",
        "  ^^^a", "  x", "  ^^^end", " <<<<<<< SEARCH", " =======", " >>>>>>> REPLACE",
        "\t*** Begin Patch", "````markdown", "```md", "```js", "```python:a", "  --- a/a",
        "  +++ b/a", "  @@ -1 +1 @@", "@@ -1,3 +1,2 @@", "GIT binary patch", "File: a", "- `a`",
    ]
)  # fmt: skip
LINES = st.lists(FRAGMENTS | st.text(max_size=4), max_size=14)
HOSTILE = st.builds(lambda lines, end: end.join(lines), LINES, st.sampled_from(["\n", "\r\n", ""]))


def attempt(text: str, form: Format | None = None) -> Answer | AnswerError | PathRefused:
    try:
        return answer.parse_answer(text, format=form)
    except (AnswerError, PathRefused) as problem:
        return problem


@given(HOSTILE, st.none() | st.sampled_from(list(Format)))
@settings(max_examples=scaled(full=5000, default=500), deadline=None)
def test_any_text_is_read_or_refused(text: str, form: Format | None) -> None:
    found = attempt(text, form)
    if isinstance(found, PathRefused):
        assert found.line is not None
    if isinstance(found, AnswerError | PathRefused):
        assert found.line is None or 1 <= found.line <= text.count("\n") + 1
        assert found.rule.partition(".")[2]
    if isinstance(found, ChangeSet):
        assert found.operations
        for operation in found.operations:
            assert operation.source is not None
            assert 1 <= operation.source.line <= text.count("\n") + 1


@given(st.binary(max_size=40))
@settings(deadline=None)
def test_any_bytes_are_decoded_or_refused(raw: bytes) -> None:
    try:
        text = answer.decode_answer(raw)
    except AnswerError as problem:
        text = problem.rule
    assert text == "answer.encoding" or raw.removeprefix(b"\xef\xbb\xbf") == text.encode()


PATHS = st.sampled_from(["a", "b/c.py", "d-e", "é"]).map(TreePath.parse)
TEXTS = st.lists(FRAGMENTS.filter(lambda text: "\0" not in text), max_size=5)
CONTENTS = TEXTS.map(lambda lines: "".join(f"{line}\n" for line in lines).encode())
ROWS = st.lists(st.sampled_from([b"x", b"y", b"```", b"{", b"", b"^^^a"]), min_size=1, max_size=3)


def swap(context: list[bytes], old: list[bytes], new: list[bytes], start: int | None) -> Hunk:
    lines = (
        *(HunkLine(CONTEXT, row) for row in context),
        *(HunkLine(REMOVED, row) for row in old),
        *(HunkLine(ADDED, row) for row in new),
    )
    return Hunk(lines, old_start=start, new_start=start)


def patches(
    context: st.SearchStrategy[list[bytes]], start: int | None
) -> st.SearchStrategy[Operation]:
    hunks = st.builds(swap, context, ROWS, ROWS, st.just(start))
    return st.builds(PatchFile, PATHS, st.tuples(hunks))


WRITES = st.builds(WriteFile, PATHS, CONTENTS)
CREATIONS = st.builds(WriteFile, PATHS, CONTENTS, st.just(value=True))
DELETIONS = st.builds(DeleteFile, PATHS)
EDITS = st.builds(
    EditText,
    PATHS,
    st.tuples(st.builds(Replacement, st.text(min_size=1, max_size=4), st.text(max_size=4))),
)
NONE: st.SearchStrategy[list[bytes]] = st.just([])
OPERATIONS: dict[Format, st.SearchStrategy[Operation]] = {
    Format.FENCE: WRITES | DELETIONS,
    Format.BUNDLE: WRITES | CREATIONS | DELETIONS | EDITS | patches(ROWS, 3),
    Format.PATCH: EDITS,
    Format.GIT: CREATIONS | patches(ROWS, 3),
    Format.ENVELOPE: CREATIONS | DELETIONS | patches(ROWS, None),
    Format.BLOCKS: CREATIONS | patches(NONE, None),
}
CASES = st.sampled_from(list(Format)).flatmap(
    lambda form: st.tuples(
        st.just(form),
        st.lists(OPERATIONS[form], min_size=1, max_size=3, unique_by=lambda found: found.path),
    )
)


@given(CASES)
@settings(max_examples=scaled(full=5000, default=600), deadline=None)
def test_what_a_format_can_say_reads_back_wherever_it_stands(
    case: tuple[Format, list[Operation]],
) -> None:
    form, operations = case
    wanted = ChangeSet(tuple(operations))
    try:
        text = render(wanted, form)
    except UsageError as problem:
        text = problem.rule
    if text == "render.inexpressible":
        return
    assert answer.parse_answer(text) == wanted
    assert answer.parse_answer(text, format=form) == wanted
    assert answer.parse_answer(f"Hello,\nhere it is:\n\n{text}\nThat was all.\n") == wanted
    assert answer.parse_answer(f"````markdown\n{text}````\n") == wanted
    if form is Format.GIT:
        bare = text[text.index("\n") + 1 : text.rindex("\n", 0, -1) + 1]
        assert answer.parse_answer(f"Hello.\n\n{bare}\nThat was all.\n") == wanted
    assert answer.parse_answer(answer.decode_answer(b"\xef\xbb\xbf" + text.encode())) == wanted
    crlf = text.replace("\n", "\r\n")
    assert answer.parse_answer(crlf) == wanted
    assert answer.parse_answer(f"Hello,\r\n\r\n{crlf}\r\nBye.") == wanted


SIZE = scaled(full=5_000_000, default=500_000)


@pytest.mark.parametrize(
    "line",
    [
        "{", "}", '{"', '{"a":', '{"a":[', '{"\\"', '{"k":1}', '{"a":[\n{"k":1},', "{ [],",
        '{"files":', '"files":\n{', "[[[[[[", "```", "````json\n```", "```json", "```json\n{",
        "```patch", "```patch\n```", '```json\n{"a":1}\nx\n```', "~~~x", "^^^", "^^^a",
        "^^^a\n^^^end", "*** Begin Patch", "*** Begin Patch\n*** End Patch", "*** End Patch",
        "<<<<<<< SEARCH", "p\n<<<<<<< SEARCH\n>>>>>>> REPLACE",
        "p\n<<<<<<< SEARCH\na\n=======\nb\n>>>>>>> REPLACE", ">>>>>>> REPLACE", "", " " * 1000,
        "`" * 1000, "> " * 1000, "--- a", "diff --git a/a b/a",
        "A patch cannot be safely generated with the information", " ^^^a", " ^^^a\n ^^^end",
        " *** Begin Patch", " <<<<<<< SEARCH", "````md", "````md\n```json\n```\n````", "~~~text",
        "diff --git a/a b/a\nx", "--- a\n+++ b\n@@", "--- a\n+++ b\n@@ -1 +1 @@\n-x\n+y\nx",
        "A patch", '"A patch cannot be safely generated with the information provided" is',
    ],
)  # fmt: skip
def test_hostile_lines_are_read_or_refused_in_time(line: str) -> None:
    line += "\n"
    text = (line * (SIZE // len(line) + 1))[:SIZE]
    started = time.process_time()
    attempt(text)
    assert time.process_time() - started < PATIENCE_S


@pytest.mark.parametrize(
    "text",
    [
        '{"files": ' + "[" * SIZE,
        '{"files": [' + "[]," * (SIZE // 3),
        '{"files": "' + '\\"' * (SIZE // 2),
        '{"files": "' + "\\\\" * (SIZE // 2) + '"',
        '{"files": ' + "9" * SIZE,
        "`" * SIZE + "json\n{",
        "^^^" + "a" * SIZE + "\n^^^end\n",
        "{" + " \n" * (SIZE // 2) + "x",
        "```diff\n" + "\n" * SIZE,
        "A patch" + " " * SIZE + "cannot",
    ],
    ids=lambda text: text[:12],
)
def test_one_hostile_text_is_read_or_refused_in_time(text: str) -> None:
    started = time.process_time()
    attempt(text)
    assert time.process_time() - started < PATIENCE_S
