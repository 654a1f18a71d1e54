"""Literal replacements: exact, unique, and gentle to everything around them."""

from __future__ import annotations

from typing import Literal

import pytest

from coilclaw.changes import text_edits
from coilclaw.changes.operations import AnswerLimits, AnswerOptions, Replacement
from coilclaw.kernel.errors import PlanRefused

STRICT = AnswerOptions()
LENIENT = AnswerOptions(lenient=True)


def edited(content: bytes, find: str, put: str, limit: Literal["once", "all"] = "once") -> bytes:
    result, warnings = text_edits.apply_replacements(
        content, [Replacement(find, put, limit)], path="a", options=STRICT
    )
    assert warnings == ()
    return result


def refused(content: bytes, *replacements: Replacement) -> PlanRefused:
    with pytest.raises(PlanRefused) as caught:
        text_edits.apply_replacements(content, replacements, path="src/a", options=STRICT)
    assert caught.value.path == "src/a"
    return caught.value


@pytest.mark.parametrize(
    ("content", "find", "rule", "matches"),
    [
        (b"abc", "x", "patch.missing", "0 matches"),
        (b"", "x", "patch.missing", "0 matches"),
        (b"abc", "ABC", "patch.missing", "0 matches"),
        (b"a b", "a  b", "patch.missing", "0 matches"),
        (b"a\rb", "a\nb", "patch.missing", "0 matches"),
        (b"a\r\nb", "a\rb", "patch.missing", "0 matches"),
        (b"a\r\nb", "a\r", "patch.missing", "0 matches"),
        (b"x x", "x", "patch.ambiguous", "2 matches"),
        (b"aaa", "aa", "patch.ambiguous", "2 matches"),
        (b"ababa", "aba", "patch.ambiguous", "2 matches"),
        (b"a\nb\na\nb", "a\nb", "patch.ambiguous", "2 matches"),
        (b"a\r\nb\r\na\r\nb", "a\nb", "patch.ambiguous", "2 matches"),
        (b"x\r\na y\na", "\na", "patch.ambiguous", "2 matches"),
        (b"x" * 5000, "x", "patch.ambiguous", "1000 or more matches"),
    ],
)
def test_missing_and_ambiguous_texts_refuse(
    content: bytes, find: str, rule: str, matches: str
) -> None:
    error = refused(content, Replacement(find, "y"))
    assert error.rule == rule
    assert error.message.startswith(f"replacement 1 of 'src/a' has {matches}")


def test_a_refusal_counts_the_replacements_from_one() -> None:
    error = refused(b"abc", Replacement("a", "A"), Replacement("a", "x"))
    assert error.rule == "patch.missing"
    assert error.message == "replacement 2 of 'src/a' has 0 matches"


def test_an_empty_text_to_find_is_missing() -> None:
    assert refused(b"abc", Replacement("", "x")).rule == "patch.missing"


def test_all_refuses_too_when_there_is_nothing() -> None:
    assert refused(b"abc", Replacement("x", "y", "all")).rule == "patch.missing"


@pytest.mark.parametrize("content", [b"a\xff", b"a\0b", b"\xff\xfea\0"])
def test_what_is_not_text_refuses(content: bytes) -> None:
    assert refused(content, Replacement("a", "b")).rule == "patch.binary"


def test_a_result_beyond_the_bound_refuses_before_it_is_made() -> None:
    bomb = Replacement("a", "a" * 1_000_000, "all")
    assert refused(b"a" * 1_000_000, bomb).rule == "plan.bounds"
    limits = AnswerLimits(file_bytes=4)
    put, _ = text_edits.apply_replacements(
        b"abc", [Replacement("a", "aa")], path="a", options=STRICT, limits=limits
    )
    assert put == b"aabc"
    with pytest.raises(PlanRefused):
        text_edits.apply_replacements(
            b"abc", [Replacement("a", "aaa")], path="a", options=STRICT, limits=limits
        )


@pytest.mark.parametrize(
    ("content", "find", "put", "expected"),
    [
        (b"abc", "b", "x", b"axc"),
        (b"abc", "b", "", b"ac"),
        (b"abc", "abc", "", b""),
        (b"abc", "b", "b", b"abc"),
        (b"a.c", ".", "\\1", b"a\\1c"),
        ("é ü".encode(), "ü", "ö", "é ö".encode()),
    ],
)
def test_one_replacement(content: bytes, find: str, put: str, expected: bytes) -> None:
    assert edited(content, find, put) == expected


def test_replacements_are_made_in_order_on_the_result_of_the_one_before() -> None:
    result = text_edits.apply_replacements(
        b"one", [Replacement("one", "two"), Replacement("two", "three")], path="a", options=STRICT
    )
    assert result == (b"three", ())


@pytest.mark.parametrize(
    ("content", "find", "put", "expected"),
    [
        (b"aXbXc", "X", "-", b"a-b-c"),
        (b"aaa", "aa", "b", b"ba"),
        (b"aXa", "a", "aa", b"aaXaa"),
        (b"a\r\nb\na", "a", "x\ny", b"x\r\ny\r\nb\nx\ny"),
        (b"a\r\nb\na\nb\r\n", "a\nb", "c\nd", b"c\r\nd\nc\nd\r\n"),
        (b"a\nb\r\na\r\nb", "a\r\nb", "c", b"c\r\nc"),
        (b"\r\n\n\r\n", "\n", "", b""),
    ],
)
def test_all_matches(content: bytes, find: str, put: str, expected: bytes) -> None:
    assert edited(content, find, put, "all") == expected


@pytest.mark.parametrize(
    ("content", "find", "put", "expected"),
    [
        # find with LF matches CRLF; what is inserted takes the ending around it
        (b"a\r\nb\r\nc\r\n", "a\nb", "a\nB", b"a\r\nB\r\nc\r\n"),
        (b"a\r\nb\r\nc\r\n", "b", "x\ny", b"a\r\nx\r\ny\r\nc\r\n"),
        (b"a\r\nb\r\nc\r\n", "b\n", "", b"a\r\nc\r\n"),
        (b"a\r\nb\r\nc\r\n", "\nb", "\nx", b"a\r\nx\r\nc\r\n"),
        (b"a\r\nb\r\nc\r\n", "\nb\n", "\n", b"a\r\nc\r\n"),
        (b"a\r\nb\r\n", "a\r\nb", "a\r\nc", b"a\r\nc\r\n"),
        (b"x\r\ny\r\n", "x\r\ny", "z\ny", b"z\r\ny\r\n"),
        # and the other way round
        (b"a\nb\n", "a\r\nb", "c\r\nd", b"c\nd\n"),
        (b"a\nb\n", "b", "x\r\ny", b"a\nx\ny\n"),
        # mixed endings: nothing that is not replaced changes
        (b"a\r\nb\nc\r\nd\n", "b\nc", "b\nX\nc", b"a\r\nb\nX\nc\r\nd\n"),
        (b"a\r\nb\nc\r\nd\ne\r\n", "a\nb\nc", "a\nB\nc", b"a\r\nB\nc\r\nd\ne\r\n"),
        (b"a\r\nb\nc", "a", "x\ny", b"x\r\ny\r\nb\nc"),
        (b"a\r\nb\nc", "b", "x\ny", b"a\r\nx\ny\nc"),
        (b"a\r\nb\nc", "c", "x\ny", b"a\r\nb\nx\ny"),
        (b"a\nb\r\nc", "c", "x\ny", b"a\nb\r\nx\r\ny"),
        # what matches as it is written wins over what matches by its lines
        (b"a\r\nb\na\nb\n", "a\nb", "X", b"a\r\nb\nX\n"),
        (b"a\nb\r\na\r\nb\n", "a\r\nb", "X", b"a\nb\r\nX\n"),
        # no line break in the file: those of the answer stay
        (b"ab", "b", "\r\nc", b"a\r\nc"),
        (b"ab", "b", "\nc", b"a\nc"),
        # a missing final newline stays missing
        (b"a\nb", "b", "c", b"a\nc"),
        (b"a\r\nb", "a\nb", "b\na", b"b\r\na"),
        # lone carriage returns are no line endings
        (b"a\rb\n", "a\rb", "c\rd", b"c\rd\n"),
    ],
)
def test_line_endings_survive(content: bytes, find: str, put: str, expected: bytes) -> None:
    assert edited(content, find, put) == expected


@pytest.mark.parametrize(
    ("content", "find", "put", "expected"),
    [
        ("\ufeffa\n", "a", "b", "\ufeffb\n"),
        ("\ufeffa\n", "a\n", "", "\ufeff"),
        ("\ufeffa\n", "\ufeffa", "b", "\ufeffb\n"),
        ("\ufeffa\n", "\ufeffa", "\ufeffb", "\ufeffb\n"),
        ("\ufeffa\r\nb", "a\nb", "x\ny", "\ufeffx\r\ny"),
        ("\ufeffa\ufeffa", "\ufeffa", "b", "\ufeffab"),
    ],
)
def test_a_byte_order_mark_survives(content: str, find: str, put: str, expected: str) -> None:
    assert edited(content.encode(), find, put) == expected.encode()


def test_a_byte_order_mark_is_not_found_where_there_is_none() -> None:
    assert refused(b"a", Replacement("\ufeffa", "b")).rule == "patch.missing"
    assert refused(b"\xef\xbb\xbfa", Replacement("\ufeff", "")).rule == "patch.missing"


def test_lenient_skips_what_is_missing_and_takes_the_first_match() -> None:
    replacements = [
        Replacement("none", "x"),
        Replacement("a", "b"),
        Replacement("none", "x", "all"),
        Replacement("c", "d", "all"),
    ]
    assert text_edits.apply_replacements(
        b"a a c c", replacements, path="src/a", options=LENIENT
    ) == (
        b"b a d d",
        (
            "replacement 1 of 'src/a' matches nothing and is skipped",
            "replacement 3 of 'src/a' matches nothing and is skipped",
        ),
    )


def test_lenient_is_not_lenient_about_binary_files() -> None:
    with pytest.raises(PlanRefused) as caught:
        text_edits.apply_replacements(b"\0", [Replacement("a", "b")], path="a", options=LENIENT)
    assert caught.value.rule == "patch.binary"


def test_many_matches_far_from_any_line_break_take_no_longer_than_few() -> None:
    content = b"x\r\n" + b"a" * 200_000
    assert edited(content, "a", "\n", "all") == b"x\r\n" + b"\r\n" * 200_000
