"""Literal replacements against a model that only knows lines ending in LF."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from coilclaw.changes import text_edits
from coilclaw.changes.operations import AnswerOptions, Replacement
from coilclaw.kernel.errors import PlanRefused

STRICT = AnswerOptions()
PIECES = st.lists(st.sampled_from(["a", "b", "é", "\n", "\r\n"]), max_size=14).map("".join)
NEEDLES = st.lists(st.sampled_from(["a", "b", "\n"]), min_size=1, max_size=3).map("".join)
PUTS = st.lists(st.sampled_from(["a", "x", "\n"]), max_size=4).map("".join)
# A text that no file of PIECES holds, with line breaks at any place in it.
UNIQUE = st.builds(lambda head, tail: f"{head}§{tail}", *[st.sampled_from(["", "\n", "a\n"])] * 2)
MARKS = st.sampled_from(["", "\ufeff"])


def apply(content: str, *replacements: Replacement, options: AnswerOptions = STRICT) -> str:
    result, _ = text_edits.apply_replacements(
        content.encode(), replacements, path="a", options=options
    )
    return result.decode()


def unified(text: str) -> str:
    return text.replace("\r\n", "\n")


def overlapping(text: str, find: str) -> int:
    return sum(text.startswith(find, at) for at in range(len(text)))


@given(MARKS, PIECES, NEEDLES, PUTS)
@settings(deadline=None)
def test_by_its_lines_the_result_is_the_plain_replacement(
    mark: str, content: str, find: str, put: str
) -> None:
    literal = overlapping(content, find)
    folded = overlapping(unified(content), find)
    replacement = Replacement(find, put)
    if folded == 1:
        result = apply(mark + content, replacement)
        assert unified(result) == mark + unified(content).replace(find, put)
    elif folded == 0 or literal != 1:
        with pytest.raises(PlanRefused) as caught:
            apply(mark + content, replacement)
        assert caught.value.rule == ("patch.ambiguous" if folded else "patch.missing")


@given(MARKS, PIECES, NEEDLES, PUTS)
@settings(deadline=None)
def test_all_replaces_every_match_by_its_lines(
    mark: str, content: str, find: str, put: str
) -> None:
    assume(find in unified(content))
    result = apply(mark + content, Replacement(find, put, "all"))
    assert unified(result) == mark + unified(content).replace(find, put)


@given(PIECES, PIECES, UNIQUE, PUTS)
@settings(deadline=None)
def test_what_stands_around_a_match_stays_byte_for_byte(
    before: str, after: str, find: str, put: str
) -> None:
    for text in (find, find.replace("\n", "\r\n")):
        result = apply(before + text + after, Replacement(find, put))
        assert result.startswith(before)
        assert result[len(before) :].endswith(after)


@given(PIECES, PIECES, UNIQUE, PUTS)
@settings(deadline=None)
def test_a_file_of_crlf_lines_stays_one(before: str, after: str, find: str, put: str) -> None:
    plain = unified(f"first\n{before}{find}{after}")
    expected = apply(plain, Replacement(find, put)).replace("\n", "\r\n")
    assert apply(plain.replace("\n", "\r\n"), Replacement(find, put)) == expected


@given(PIECES, st.lists(st.builds(Replacement, NEEDLES, PUTS), min_size=1, max_size=4))
@settings(deadline=None)
def test_several_replacements_are_one_after_the_other(
    content: str, replacements: list[Replacement]
) -> None:
    lenient = AnswerOptions(lenient=True)
    expected = content
    for replacement in replacements:
        expected = apply(expected, replacement, options=lenient)
    assert apply(content, *replacements, options=lenient) == expected


@given(st.binary(max_size=30), NEEDLES, PUTS)
@settings(deadline=None)
def test_any_bytes_are_edited_or_refused(content: bytes, find: str, put: str) -> None:
    rule = ""
    try:
        text_edits.apply_replacements(content, [Replacement(find, put)], path="a", options=STRICT)
    except PlanRefused as error:
        rule = error.rule
    assert rule in {"", "patch.missing", "patch.ambiguous", "patch.binary"}
