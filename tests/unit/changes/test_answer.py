"""Whole answers: mixed formats, refusals, bounds, transport."""

from __future__ import annotations

import json

import pytest

from coilclaw.changes import answer
from coilclaw.changes.operations import (
    ADDED,
    REMOVED,
    AnswerLimits,
    AnswerOptions,
    ChangeSet,
    DeleteFile,
    EditText,
    Format,
    Hunk,
    HunkLine,
    NoChanges,
    PatchFile,
    Refusal,
    Replacement,
    WriteFile,
)
from coilclaw.kernel.errors import AnswerError, PathRefused
from coilclaw.kernel.tree_path import TreePath

BUNDLE = '```json\n{"files": [{"path": "a", "content": "x"}]}\n```\n'
BLOCK = "<<<<<<< SEARCH\n{}\n=======\n{}\n>>>>>>> REPLACE\n"


def path(text: str) -> TreePath:
    return TreePath.parse(text)


# Bytes and text.


@pytest.mark.parametrize(
    ("raw", "line"),
    [
        (b"\xff", 1),
        (b"a\nb\n\xe9t\xe9\n", 3),
        (b"\xed\xa0\x80", 1),
        (b"a\n\0", 2),
        ("a".encode("utf-16"), 1),
    ],
)
def test_bytes_that_are_no_text_refuse(raw: bytes, line: int) -> None:
    with pytest.raises(AnswerError) as caught:
        answer.decode_answer(raw)
    assert (caught.value.rule, caught.value.line) == ("answer.encoding", line)


def test_a_byte_order_mark_is_dropped_once() -> None:
    assert answer.decode_answer(b"\xef\xbb\xbfa") == "a"
    assert answer.decode_answer(b"\xef\xbb\xbf\xef\xbb\xbfa") == "\ufeffa"
    assert answer.decode_answer("é\r\n".encode()) == "é\r\n"


@pytest.mark.parametrize(("text", "line"), [("a\n\ud800", 2), ("a\n\n\0", 3)])
def test_text_that_is_no_text_refuses(text: str, line: int) -> None:
    with pytest.raises(AnswerError) as caught:
        answer.parse_answer(text)
    assert (caught.value.rule, caught.value.line) == ("answer.encoding", line)


# Bounds.


def test_an_answer_beyond_its_bound_refuses() -> None:
    assert answer.parse_answer("é" * 5, limits=AnswerLimits(answer_bytes=10)) == NoChanges()
    with pytest.raises(AnswerError) as caught:
        answer.parse_answer("é" * 5 + "x", limits=AnswerLimits(answer_bytes=10))
    assert caught.value.rule == "answer.bounds"
    assert caught.value.message == "the answer has 11 bytes, more than the bound of 10"


@pytest.mark.parametrize(
    "text",
    [
        '{"files": [{"path": "a", "content": ""}, {"path": "b", "content": ""}]}',
        '{"patches": [{"path": "a", "replacements": ['
        + ", ".join(f'{{"find": "{find}", "replace": ""}}' for find in "xy")
        + "]}]}",
        "^^^a\n^^^end\n^^^b\n^^^end\n",
        "*** Begin Patch\n*** Delete File: a\n*** Delete File: b\n*** End Patch\n",
    ],
)
def test_more_operations_than_their_bound_refuse(text: str) -> None:
    assert isinstance(answer.parse_answer(text, limits=AnswerLimits(operations=2)), ChangeSet)
    with pytest.raises(AnswerError) as caught:
        answer.parse_answer(text, limits=AnswerLimits(operations=1))
    assert caught.value.rule == "answer.bounds"
    assert "bound of 1 " in caught.value.message


def test_the_lines_of_all_patches_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer, "MAX_LINES", 9)
    envelope = "*** Begin Patch\n*** Delete File: {}\n*** End Patch\n"
    text = "".join(envelope.format(name) for name in "abc")
    assert isinstance(answer.parse_answer(text), ChangeSet)
    with pytest.raises(AnswerError) as caught:
        answer.parse_answer(text + envelope.format("d"))
    assert (caught.value.rule, caught.value.line) == ("answer.bounds", 10)


# Refusals.


@pytest.mark.parametrize("sentence", answer.SENTENCES)
@pytest.mark.parametrize("form", [None, *Format])
def test_a_refusal_is_a_refusal_in_every_format(sentence: str, form: Format | None) -> None:
    assert answer.parse_answer(f"I looked.\n\n{sentence}\n", format=form) == Refusal(sentence, 3)


@pytest.mark.parametrize(
    "block", [BUNDLE, "^^^a\nx\n^^^end\n", "```patch\nnonsense\n```\n", "p\n" + BLOCK]
)
def test_a_refusal_beside_a_block_wins(block: str) -> None:
    assert answer.parse_answer(block + answer.NO_GIT) == Refusal(
        answer.NO_GIT, block.count("\n") + 1
    )
    assert answer.parse_answer(f"{answer.NO_PATCH}\n{block}") == Refusal(answer.NO_PATCH, 1)


def test_a_refusal_in_a_code_block_that_is_no_delivery_is_one() -> None:
    assert answer.parse_answer(f"```\n{answer.NO_PATCH}\n```\n") == Refusal(answer.NO_PATCH, 2)


@pytest.mark.parametrize(
    "text",
    [
        f"^^^a\n{answer.NO_PATCH}\n^^^end\n",
        f"*** Begin Patch\n*** Add File: a\n+{answer.NO_PATCH}\n*** End Patch\n",
        f"p\n{BLOCK.format(answer.NO_PATCH, answer.NO_GIT)}",
        f'{{"files": [{{"path": "a", "content":\n"{answer.NO_PATCH}"}}]}}',
    ],
)
def test_the_sentence_in_the_content_of_a_file_is_content(text: str) -> None:
    assert isinstance(answer.parse_answer(text), ChangeSet)


# Nothing.


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n",
        "I changed nothing.",
        '{"root": ".", "files": []}',
        '{"root": "x", "patches": []}',
    ],
)
def test_an_answer_without_changes(text: str) -> None:
    assert answer.parse_answer(text) == NoChanges()


@pytest.mark.parametrize("form", [form for form in Format if form is not Format.BUNDLE])
def test_an_answer_without_blocks_of_the_format_asked_for(form: Format) -> None:
    assert answer.parse_answer(BUNDLE, format=form) == NoChanges()


# All or nothing.


@pytest.mark.parametrize(
    "bad",
    [
        "^^^b\nunclosed\n",
        '```json\n{"files": [{"path": "b"}]}\n```\n',
        "```patch\ngarbage\n```\n",
        "*** Begin Patch\n*** End Patch\n",
        "b\n<<<<<<< SEARCH\nx\n",
    ],
)
def test_one_bad_block_refuses_the_whole_answer(bad: str) -> None:
    with pytest.raises(AnswerError):
        answer.parse_answer(BUNDLE + bad)


def test_a_bad_path_refuses_the_whole_answer() -> None:
    with pytest.raises(PathRefused):
        answer.parse_answer(BUNDLE + "^^^../b\nx\n^^^end\n")


DEEP = "d/" * 100 + "d"
CLIMBS = {
    "path": "b",
    "operation": "gitPatch",
    "content": "--- a/../b\n+++ b/../b\n@@ -1 +1 @@\n-x\n+y\n",
}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a\n^^^../b\nx\n^^^end\n", 2),
        ('a\n{"files": [\n{"path": "../b", "content": ""}]}\n', 3),
        ('a\n{"root": "../b",\n"files": [{"path": "b", "content": ""}]}\n', 2),
        (
            'a\n{"files": [\n' + json.dumps(CLIMBS) + "]}\n",
            3,
        ),
        ('a\n{"patches": [\n{"path": "../b", "replacements": []}]}\n', 3),
        ('a\n{"root": "/", "patches": [\n{"path": "b", "replacements": []}]}\n', 2),
        (
            f'a\n{{"root": "{DEEP}", "patches": [\n{{"path": "{DEEP}", "replacements": []}}]}}\n',
            3,
        ),
        ("a\n\n--- a/../b\n+++ b/../b\n@@ -1 +1 @@\n-x\n+y\n", 3),
        ("```diff\ndiff --git a/c b/../b\nrename from c\nrename to ../b\n```\n", 2),
        ("*** Begin Patch\n*** Add File: a\n*** Delete File: ../b\n*** End Patch\n", 3),
        (f"Hello\n`../b`\n\n{BLOCK}", 2),
    ],
)
def test_a_bad_path_is_refused_with_its_line(text: str, line: int) -> None:
    with pytest.raises(PathRefused) as caught:
        answer.parse_answer(text)
    assert caught.value.line == line


# Patches that may be cut off.

SHORT = "--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n-x\n+y\n"
LENIENT = AnswerOptions(lenient=True)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (f"```diff\n{SHORT}```\n+z\n```\n", 8),
        (f"```diff\n{SHORT.replace(',3', '')}```\n+z\n```\n", 8),
        (f"```diff\n{SHORT.replace('+1,3', '+1,2')}```\n\n+z\n```\n", 9),
        (f"{SHORT}z\n+w\n", 3),
    ],
)
def test_a_patch_that_may_be_cut_off_is_not_counted_anew(text: str, line: int) -> None:
    with pytest.raises(AnswerError) as caught:
        answer.parse_answer(text, options=LENIENT)
    assert (caught.value.rule, caught.value.line) == ("git.corrupt", line)


@pytest.mark.parametrize(
    "text",
    [
        f"```diff\n{SHORT}```\n",
        f"```diff\n{SHORT}@@ -9 +9 @@\n-x\n+y\n```\n",
        f"```diff\n{SHORT.replace('+1,3', '+1,1').replace('-1,3', '-1,2')}```\n\n- done\n",
        f"```diff\n{SHORT.replace(',3', ',0')}```\nDone.\n",
    ],
)
def test_other_wrong_counts_are_when_lenient(text: str) -> None:
    assert isinstance(answer.parse_answer(text, options=LENIENT), ChangeSet)
    with pytest.raises(AnswerError) as caught:
        answer.parse_answer(text)
    assert caught.value.rule == "git.corrupt"
    assert "--lenient" in (caught.value.hint or "")


def test_what_follows_a_patch_does_not_matter_when_its_counts_are_right() -> None:
    text = f"```diff\n{SHORT.replace(',3', '')}```\n- done\n"
    assert isinstance(answer.parse_answer(text), ChangeSet)


def test_blocks_of_all_formats_are_one_change_set_in_order() -> None:
    text = (
        "First\n"
        "*** Begin Patch\n*** Delete File: e\n*** End Patch\n"
        f"{BUNDLE}"
        "```patch\n--- a/g\n+++ b/g\n@@ -1 +1 @@\n-x\n+y\n```\n"
        f"s\n{BLOCK.format('x', 'y')}"
        "^^^f\n^^^delete\n"
        '{"patches": [{"path": "p", "replacements": [{"find": "x", "replace": "y"}]}]}\n'
    )
    lines = (HunkLine(REMOVED, b"x"), HunkLine(ADDED, b"y"))
    assert answer.parse_answer(text) == ChangeSet(
        (
            DeleteFile(path("e")),
            WriteFile(path("a"), b"x"),
            PatchFile(path("g"), (Hunk(lines, old_start=1, new_start=1),)),
            PatchFile(path("s"), (Hunk(lines),)),
            DeleteFile(path("f")),
            EditText(path("p"), (Replacement("x", "y"),)),
        )
    )


def test_search_blocks_of_one_file_are_one_operation_wherever_they_stand() -> None:
    text = (
        f"a\n{BLOCK.format('1', '2')}Then:\n\nb\n{BLOCK.format('3', '4')}And again\n\n"
        f"`a`\n{BLOCK.format('5', '6')}{BUNDLE}"
    )

    def hunk(old: bytes, new: bytes) -> Hunk:
        return Hunk((HunkLine(REMOVED, old), HunkLine(ADDED, new)))

    assert answer.parse_answer(text) == ChangeSet(
        (
            PatchFile(path("a"), (hunk(b"1", b"2"), hunk(b"5", b"6"))),
            PatchFile(path("b"), (hunk(b"3", b"4"),)),
            # The same file through another format stays apart: the planner refuses it.
            WriteFile(path("a"), b"x"),
        )
    )


# Transport.


@pytest.mark.parametrize(
    "text",
    [
        "Hi\n^^^a\nx\n^^^end\n",
        f"Hi\n{BUNDLE}",
        f"a\n{BLOCK.format('x', 'y')}",
        "```patch\n--- a/g\n+++ b/g\n@@ -1 +1 @@\n-x\n+y\n```\n",
        "*** Begin Patch\n*** Add File: e\n+x\n*** End Patch",
        f"> {answer.NO_PATCH}\n",
    ],
)
def test_a_clipboard_that_writes_crlf_changes_nothing(text: str) -> None:
    assert answer.parse_answer(text.replace("\n", "\r\n")) == answer.parse_answer(text)
    assert answer.parse_answer("\ufeff" + text.replace("\n", "\r\n")) == answer.parse_answer(text)


def test_crlf_within_a_file_stays_when_the_answer_has_other_lines() -> None:
    assert answer.parse_answer("^^^a\nx\r\ny\r\n^^^end\n") == ChangeSet(
        (WriteFile(path("a"), b"x\r\ny\r\n"),)
    )
