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
from coilclaw.changes.render import render
from coilclaw.domain.treepath import TreePath
from coilclaw.errors import AnswerError, PathRefused, UsageError
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
    ]
)  # fmt: skip
LINES = st.lists(FRAGMENTS | st.text(max_size=4), max_size=14)
HOSTILE = st.builds(lambda lines, end: end.join(lines), LINES, st.sampled_from(["\n", "\r\n", ""]))


def attempt(text: str, form: Format | None = None) -> Answer | AnswerError | PathRefused:
    try:
        return answer.parse(text, format=form)
    except (AnswerError, PathRefused) as problem:
        return problem


@given(HOSTILE, st.none() | st.sampled_from(list(Format)))
@settings(max_examples=scaled(full=5000, default=500), deadline=None)
def test_any_text_is_read_or_refused(text: str, form: Format | None) -> None:
    found = attempt(text, form)
    if isinstance(found, AnswerError):
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
        text = answer.decode(raw)
    except AnswerError as problem:
        text = problem.rule
    assert text == "answer.encoding" or raw.removeprefix(b"\xef\xbb\xbf") == text.encode()


PATHS = st.sampled_from(["a", "b/c.py", "d-e", "é"]).map(TreePath.parse)
TEXTS = st.lists(FRAGMENTS.filter(lambda text: "\0" not in text), max_size=5)
CONTENTS = TEXTS.map(lambda lines: "".join(f"{line}\n" for line in lines).encode())
HUNK_LINES = st.builds(
    HunkLine, st.sampled_from([CONTEXT, REMOVED, ADDED]), st.sampled_from([b"x", b"```", b"{", b""])
)


def hunk(lines: list[HunkLine], start: int | None) -> Hunk:
    return Hunk(tuple(lines), old_start=start, new_start=start)


HUNKS = st.builds(hunk, st.lists(HUNK_LINES, min_size=1, max_size=4), st.sampled_from([None, 1, 7]))
OPERATIONS: st.SearchStrategy[Operation] = (
    st.builds(WriteFile, PATHS, CONTENTS, st.booleans())
    | st.builds(DeleteFile, PATHS)
    | st.builds(
        EditText,
        PATHS,
        st.tuples(st.builds(Replacement, st.text(min_size=1, max_size=4), st.text(max_size=4))),
    )
    | st.builds(PatchFile, PATHS, st.lists(HUNKS, min_size=1, max_size=2).map(tuple))
)


@given(
    st.lists(OPERATIONS, min_size=1, max_size=3, unique_by=lambda operation: operation.path),
    st.sampled_from(list(Format)),
)
@settings(max_examples=scaled(full=5000, default=600), deadline=None)
def test_what_a_format_can_say_reads_back_wherever_it_stands(
    operations: list[Operation], form: Format
) -> None:
    wanted = ChangeSet(tuple(operations))
    try:
        text = render(wanted, form)
    except UsageError as problem:
        text = problem.rule
    if text == "render.inexpressible":
        return
    assert answer.parse(text) == wanted
    assert answer.parse(text, format=form) == wanted
    assert answer.parse(f"Hello,\nhere it is:\n\n{text}\nThat was all.\n") == wanted
    assert answer.parse(f"````markdown\n{text}````\n") == wanted
    assert answer.parse(answer.decode(b"\xef\xbb\xbf" + text.encode())) == wanted
    crlf = text.replace("\n", "\r\n")
    assert answer.parse(crlf) == wanted
    assert answer.parse(f"Hello,\r\n\r\n{crlf}\r\nBye.") == wanted


SIZE = scaled(full=5_000_000, default=500_000)
SECONDS = 20


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
        "A patch cannot be safely generated with the information",
    ],
)  # fmt: skip
def test_hostile_lines_are_read_or_refused_in_time(line: str) -> None:
    line += "\n"
    text = (line * (SIZE // len(line) + 1))[:SIZE]
    started = time.monotonic()
    attempt(text)
    assert time.monotonic() - started < SECONDS


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
    started = time.monotonic()
    attempt(text)
    assert time.monotonic() - started < SECONDS
