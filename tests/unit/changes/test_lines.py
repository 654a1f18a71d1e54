"""The line engine: exact, unique, whole or nothing."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Literal

import pytest

from coilclaw.changes import line_edits
from coilclaw.changes.operations import AnswerSource, Format, Hunk, HunkLine, Work
from coilclaw.kernel.errors import NearLine, PlanRefused
from tests.support.children import PATIENCE_S

BOM = b"\xef\xbb\xbf"


def hunk(
    body: str,
    at: int | None = None,
    *,
    heading: bytes = b"",
    at_end: bool = False,
    line: int | None = None,
) -> Hunk:
    """Build a hunk from marked lines; a line ``\\`` takes the newline off the one before it."""
    out: list[HunkLine] = []
    marks: dict[str, Literal[" ", "-", "+"]] = {" ": " ", "-": "-", "+": "+"}
    for text in body.split("\n"):
        if text == "\\":
            out[-1] = HunkLine(out[-1].mark, out[-1].text, newline=False)
        else:
            out.append(HunkLine(marks[text[0]], text[1:].encode()))
    source = None if line is None else AnswerSource(Format.GIT, line)
    return Hunk(tuple(out), old_start=at, heading=heading, at_end=at_end, source=source)


def put(content: bytes, *hunks: Hunk) -> bytes:
    return line_edits.apply_hunks(content, hunks, path="f.txt")


def refusal(content: bytes, *hunks: Hunk) -> PlanRefused:
    """Return the refusal, which must be the same whatever the options."""
    with pytest.raises(PlanRefused) as strict:
        put(content, *hunks)
    with pytest.raises(PlanRefused) as lenient:
        line_edits.apply_hunks(content, hunks, path="f.txt")
    assert lenient.value.message == strict.value.message
    assert strict.value.path == "f.txt"
    return strict.value


# Numbered hunks (git).


def test_a_numbered_hunk_that_matches_nowhere_is_refused_and_says_what_differs() -> None:
    error = refusal(b"a\nb\nc\n", hunk(" a\n-x\n+y\n c", 1, line=14))
    assert (error.rule, error.line) == ("lines.missing", 14)
    assert error.message == "hunk 1 of 'f.txt' (line 14 of the answer) matches no place"
    assert error.hint == "line 2 of the file is 'b', but the hunk has 'x'"


def test_a_numbered_hunk_goes_to_its_line_even_if_it_matches_elsewhere() -> None:
    content = b"a\nb\na\nb\na\n"
    assert put(content, hunk("-b\n+c\n a", 2)) == b"a\nc\na\nb\na\n"
    assert put(content, hunk("-b\n+c\n a", 4)) == b"a\nb\na\nc\na\n"


def test_a_wrong_number_is_refused_when_several_places_match() -> None:
    error = refusal(b"a\nb\na\nb\na\n", hunk("-b\n+c\n a", 3))
    assert (error.rule, "2 places" in error.message) == ("lines.ambiguous", True)


def test_a_wrong_number_is_forgiven_when_one_place_matches() -> None:
    for number in (3, 4, 99):
        assert put(b"a\nb\nc\nd\n", hunk("-b\n+x\n c", number)) == b"a\nx\nc\nd\n"


@pytest.mark.parametrize("number", [0, 1])
def test_a_hunk_of_the_first_line_matches_at_the_start_only(number: int) -> None:
    error = refusal(b"a\nb\nc\n", hunk("-b\n+x\n c", number))
    assert (error.rule, error.message) == (
        "lines.anchor",
        f"hunk 1 of 'f.txt' has line number {number}, but does not match at the start of the file",
    )
    assert error.nearest == (NearLine(2, "b"), NearLine(3, "c"))
    assert put(b"b\nc\n", hunk("-b\n+x\n c", number)) == b"x\nc\n"


def test_a_hunk_without_context_at_its_end_matches_at_the_end_only() -> None:
    error = refusal(b"a\nb\nc\n", hunk(" a\n-b\n+x", 2))
    assert (error.rule, error.message) == (
        "lines.anchor",
        (
            "hunk 1 of 'f.txt' has no context lines at its end, but does not match at the end "
            "of the file"
        ),
    )
    assert put(b"c\na\nb\n", hunk(" a\n-b\n+x", 9)) == b"c\na\nx\n"


def applied(content: bytes, *hunks: Hunk) -> PlanRefused:
    """Return the refusal of hunks that stand in a patch of one file."""
    return refusal(put(content, *hunks), *hunks)


def test_a_hunk_that_is_applied_already_is_refused_as_such() -> None:
    at_start = replace(hunk("+x\n a\n b", 1), new_start=1)
    at_end = replace(hunk(" a\n b\n+x", 1), new_start=1)
    inside = replace(hunk(" a\n-b\n+x\n c", 1), new_start=1)
    for content, each in ((b"a\nb\n", at_start), (b"a\nb\n", at_end), (b"a\nb\nc\n", inside)):
        error = applied(content, each)
        assert (error.rule, "is already applied" in error.message) == ("lines.applied", True)
    emptied = replace(hunk("-a", 1), new_start=0)
    assert applied(b"a\n", emptied).rule == "lines.applied"
    # Neither the old lines nor the new ones are there: that is another file.
    assert refusal(b"q\nb\n", at_start).rule == "lines.missing"


def test_every_hunk_that_fails_is_named() -> None:
    content = b"".join(b"%d\n" % number for number in range(1, 13))
    error = refusal(
        content, hunk("-1\n+x\n 2", 1), hunk("-4\n+y\n 7", 4), hunk(" 10\n-eleven\n 12", 10)
    )
    found = [(each.rule, each.index) for each in error.failures if isinstance(each, PlanRefused)]
    assert found == [("lines.missing", 2), ("lines.missing", 3)]
    assert error.failures[0] is error


def test_no_fuzz_a_single_context_line_that_differs_refuses() -> None:
    body = b"1\n2\n3\n4\n5\n6\n7\n"
    assert refusal(body, hunk(" 1\n 2\n 3\n-4\n+x\n 5\n 6\n 8", 1)).rule == "lines.missing"
    assert refusal(body, hunk(" 1\n 2\n 3 \n-4\n+x", 1)).rule == "lines.missing"
    assert put(body, hunk(" 1\n 2\n 3\n-4\n+x\n 5\n 6\n 7", 1)) == b"1\n2\n3\nx\n5\n6\n7\n"


def test_a_hunk_never_matches_a_part_of_a_line() -> None:
    assert refusal(b"xab\n", hunk("-ab\n+c", 1)).rule == "lines.missing"
    assert refusal(b"xab\n", hunk("-ab\n+c")).rule == "lines.missing"
    assert refusal(b"abx\n", hunk("-ab\n+c", 1)).rule == "lines.missing"
    assert refusal(b"abx", hunk("-ab\n+c\n\\", 1)).rule == "lines.missing"


def test_numbers_refer_to_the_old_file_so_earlier_hunks_shift_later_ones() -> None:
    content = b"".join(b"%d\n" % number for number in range(1, 13))
    changed = put(
        content, hunk(" 1\n+new\n+new\n 2", 1), hunk(" 6\n-7\n 8", 6), hunk("-12\n+twelve", 12)
    )
    assert changed == b"1\nnew\nnew\n2\n3\n4\n5\n6\n8\n9\n10\n11\ntwelve\n"


def test_hunks_out_of_order_or_overlapping_are_refused() -> None:
    content = b"a\nb\nc\nd\n"
    error = refusal(content, hunk("-c\n+x", 3), hunk("-a\n+y", 1, line=9))
    assert (error.rule, error.line) == ("lines.order", 9)
    overlap = refusal(content, hunk(" a\n-b\n+x\n c", 1), hunk(" c\n-d\n+y", 3))
    assert overlap.rule == "lines.order"
    assert put(content, hunk("-a\n+x\n b", 1), hunk(" c\n-d\n+y", 3)) == b"x\nb\nc\ny\n"


def test_a_later_hunk_is_not_looked_for_before_an_earlier_one() -> None:
    # The first hunk has moved down, past the only place of the second.
    error = refusal(b"b\nx\na\ny\n", hunk("-a\n+A\n y", 2), hunk("-b\n+B\n x", 4))
    assert (error.rule, "after the hunk before it" in error.message) == ("lines.missing", True)


def test_a_later_hunk_does_not_match_what_an_earlier_one_put_there() -> None:
    error = refusal(b"a\nb\n", hunk("-a\n+q\n b", 1), hunk("-q\n+r\n b", 3))
    assert error.rule == "lines.missing"


def test_a_place_before_an_earlier_hunk_makes_a_later_one_ambiguous() -> None:
    # git takes the place that is nearest to the number, and that may be the one above.
    content = b"b\nx\na\ny\nb\nx\n"
    error = refusal(content, hunk("-a\n+A\n y", 3), hunk("-b\n+B\n x", 6))
    assert (error.rule, "2 places" in error.message) == ("lines.ambiguous", True)
    assert put(content[4:], hunk("-a\n+A\n y", 3), hunk("-b\n+B\n x", 6)) == b"A\ny\nB\nx\n"


def test_numbered_and_unnumbered_hunks_do_not_mix() -> None:
    assert refusal(b"a\nb\n", hunk("-a\n+x", 1), hunk(" b\n+c")).rule == "lines.order"


def test_a_numbered_hunk_without_old_lines_fits_an_empty_file_only() -> None:
    assert refusal(b"a\n", hunk("+x", 0)).rule == "lines.no_context"
    assert refusal(b"a\n", hunk("+x", 1)).rule == "lines.no_context"
    assert put(b"", hunk("+x\n+y", 0)) == b"x\ny\n"
    assert put(b"", hunk("+x\n\\", 0)) == b"x"


def test_newline_at_the_end_must_be_as_a_git_patch_says() -> None:
    missing = refusal(b"a\nb", hunk(" a\n-b\n+c", 1))
    assert (missing.rule, missing.hint) == ("lines.missing", "line 2 of the file has no newline")
    there = refusal(b"a\nb\n", hunk(" a\n-b\n\\\n+c", 1))
    assert (there.rule, there.hint) == ("lines.missing", "line 2 of the file has a newline")
    assert put(b"a\nb", hunk(" a\n-b\n\\\n+c\n\\", 1)) == b"a\nc"
    assert put(b"a\nb", hunk(" a\n-b\n\\\n+c", 1)) == b"a\nc\n"
    assert put(b"a\nb\n", hunk(" a\n-b\n+c\n\\", 1)) == b"a\nc"
    assert put(b"a\nb", hunk("-a\n+x\n b\n\\", 1)) == b"x\nb"


def test_a_line_without_newline_that_is_not_last_in_the_file_is_refused() -> None:
    assert refusal(b"b\nb", hunk("-b\n\\\n+c", 1), hunk("-b\n+c", 2)).rule == "lines.anchor"
    assert refusal(b"a\nb\n", hunk("-a\n+x\n\\")).rule == "lines.newline"
    lone = Hunk((HunkLine("-", b"a", newline=False), HunkLine("-", b"b")), old_start=1)
    assert refusal(b"a\nb\n", lone).rule == "lines.newline"
    assert put(b"a\nb\n", hunk("-a\n-b\n+x\n\\", 1)) == b"x"


def test_a_file_can_be_emptied() -> None:
    assert put(b"a\nb\n", hunk("-a\n-b", 1)) == b""
    assert put(b"a", hunk("-a\n\\", 1)) == b""


# Unnumbered hunks (envelope).


def test_a_hunk_without_number_must_match_exactly_once() -> None:
    twice = b"a\nb\nx\na\nb\n"
    error = refusal(twice, hunk(" a\n-b\n+c", line=7))
    assert (error.rule, error.line) == ("lines.ambiguous", 7)
    assert error.message == "hunk 1 of 'f.txt' (line 7 of the answer) matches 2 places"
    assert refusal(b"x\n", hunk(" a\n-b\n+c")).rule == "lines.missing"
    assert put(twice, hunk(" a\n-b\n+c\n x")) == b"a\nc\nx\na\nb\n"


def test_overlapping_matches_are_counted_and_counting_stops() -> None:
    assert "matches 2 places" in refusal(b"a\na\na\n", hunk(" a\n-a")).message
    assert "more than 20 places" in refusal(b"a\n" * 99, hunk(" a\n-a")).message


def test_a_later_hunk_must_match_after_the_earlier_one_and_only_there_counts() -> None:
    content = b"q\na\nq\nb\nq\n"
    assert put(content, hunk(" a\n-q"), hunk(" b\n-q\n+z")) == b"q\na\nb\nz\n"
    error = refusal(content, hunk(" b\n-q\n+z"), hunk(" a\n-q"))
    assert error.rule == "lines.missing"


def test_a_hunk_of_replaced_lines_only_must_be_unique_in_the_whole_text() -> None:
    assert refusal(b"q\na\nq\n", hunk(" a\n+x"), hunk("-q\n+r")).rule == "lines.ambiguous"
    # It may come in any order, and sees what the hunks before it left.
    assert put(b"a\nb\n", hunk("-b\n+B"), hunk("-a\n+A")) == b"A\nB\n"
    assert put(b"a\nb\n", hunk("-a\n+m\n+n"), hunk("-n\n-b\n+z")) == b"m\nz\n"
    assert refusal(b"a\nb\n", hunk("-a\n+b"), hunk("-b\n+c")).rule == "lines.ambiguous"
    assert refusal(b"a\nb\n", hunk("-a\n+A"), hunk("-a\n+B")).rule == "lines.missing"
    # A hunk with context goes on from where the last one ended.
    assert put(b"a\nb\nc\nb\n", hunk("-c\n+C"), hunk(" b\n+d")) == b"a\nb\nC\nb\nd\n"


def test_a_heading_must_stand_exactly_once_and_before_the_hunk() -> None:
    content = b"class A:\n    x = 1\nclass B:\n    x = 1\n"
    assert put(content, hunk("-    x = 1\n+    x = 2", heading=b"class B:")) == (
        b"class A:\n    x = 1\nclass B:\n    x = 2\n"
    )
    assert refusal(content, hunk("-    x = 1\n+    y", heading=b"class A:")).rule == (
        "lines.ambiguous"
    )
    assert refusal(content, hunk("-    x = 1", heading=b"class C:")).rule == "lines.missing"
    several = refusal(content * 2, hunk("-    x = 1", heading=b"class B:"))
    assert (several.rule, "stands 2 times" in several.message) == ("lines.ambiguous", True)
    before = refusal(b"x\nhead\n", hunk("-x", heading=b"head"))
    assert before.rule == "lines.missing"


def test_a_heading_is_a_whole_line_but_for_the_space_around_it() -> None:
    content = b"  def f():  \n\tpass\n"
    assert put(content, hunk("-\tpass\n+\treturn", heading=b"def f():")) == (
        b"  def f():  \n\treturn\n"
    )
    assert refusal(content, hunk("-\tpass", heading=b"def f()")).rule == "lines.missing"


def test_headings_narrow_down_one_after_the_other() -> None:
    content = b"def f():\n    1\nclass B:\n    def f():\n    1\n"
    both = b"class B:\n    def f():"
    assert refusal(content, hunk("-    1\n+    2", heading=b"def f():")).rule == "lines.ambiguous"
    assert put(content, hunk("-    1\n+    2", heading=both)) == (
        b"def f():\n    1\nclass B:\n    def f():\n    2\n"
    )


def test_an_insertion_needs_a_heading_or_the_end() -> None:
    for content in (b"a\nb\n", b""):
        assert refusal(content, hunk("+x")).rule == "lines.no_context"
    assert put(b"a\nb\n", hunk("+x", heading=b"a")) == b"a\nx\nb\n"
    assert put(b"a\nb\n", hunk("+x", at_end=True)) == b"a\nb\nx\n"
    assert put(b"", hunk("+x", at_end=True)) == b"x\n"


def test_at_end_matches_the_last_lines_only() -> None:
    content = b"a\nb\na\nb\n"
    assert put(content, hunk(" a\n-b\n+c", at_end=True)) == b"a\nb\na\nc\n"
    assert refusal(content, hunk(" b\n-a\n+c", at_end=True)).rule == "lines.missing"
    assert refusal(b"xa\n", hunk("-a\n+c", at_end=True)).rule == "lines.missing"
    assert refusal(b"a\nb\n", hunk(" a\n-b", heading=b"b", at_end=True)).rule == "lines.missing"


@pytest.mark.parametrize(
    ("content", "body", "expected"),
    [
        (b"a\nb", " a\n-b\n+c", b"a\nc"),
        (b"a\nb", "-a\n+x", b"x\nb"),
        (b"a\nb", " b\n+c", b"a\nb\nc"),
        (b"a\nb", "-b\n+b\n+c", b"a\nb\nc"),
        (b"a\nb", " a\n-b", b"a"),
        (b"a", "-a", b""),
        (b"a\n\nb", "-b", b"a\n\n"),
        (b"\nb", "-b", b"\n"),
        (b"a\nb\n", " b\n+c", b"a\nb\nc\n"),
    ],
)
def test_formats_that_cannot_say_it_never_change_how_the_file_ends(
    content: bytes, body: str, expected: bytes
) -> None:
    assert put(content, hunk(body)) == expected


# What survives.


def test_crlf_survives_hunks_without_it() -> None:
    content = b"a\r\nb\r\nc\r\n"
    assert put(content, hunk(" a\n-b\n+x\n+y\n c", 1)) == b"a\r\nx\r\ny\r\nc\r\n"
    assert put(content, hunk("-b\n+x")) == b"a\r\nx\r\nc\r\n"
    assert put(b"a\r\nb", hunk(" b\n+c\n+d")) == b"a\r\nb\r\nc\r\nd"
    assert put(b"a\r\nb", hunk("-b\n\\\n+c", 2)) == b"a\r\nc\r\n"
    assert put(b"a\r\r\nb\r\n", hunk("-b\n+c")) == b"a\r\r\nc\r\n"


def test_hunks_with_carriage_returns_are_compared_as_they_are() -> None:
    content = b"a\r\nb\r\n"
    assert put(content, hunk(" a\r\n-b\r\n+c\r", 1)) == b"a\r\nc\r\n"
    assert put(content, hunk(" a\r\n-b\r\n+c", 1)) == b"a\r\nc\n"
    assert refusal(content, hunk(" a\r\n-b\n+c", 1)).rule == "lines.missing"
    assert refusal(b"a\nb\n", hunk("-a\r\n+c\r", 1)).rule == "lines.missing"


def test_a_file_of_mixed_line_endings_is_compared_as_it_is() -> None:
    content = b"a\r\nb\nc\r\n"
    assert refusal(content, hunk("-a\n+x\n b", 1)).rule == "lines.missing"
    assert put(content, hunk("-b\n+x\n c\r", 2)) == b"a\r\nx\nc\r\n"


def test_a_byte_order_mark_survives_and_may_be_named() -> None:
    content = BOM + b"a\nb\n"
    assert put(content, hunk("-a\n+x\n b", 1)) == BOM + b"x\nb\n"
    assert put(content, hunk("-a\n+x")) == BOM + b"x\nb\n"
    assert put(content, hunk("+x\n a", 1)) == BOM + b"x\na\nb\n"
    assert put(content, hunk("-a\n+\ufeffx\n b", 1)) == BOM + b"x\nb\n"
    assert put(content, hunk("-\ufeffa\n+\ufeffx\n b", 1)) == BOM + b"x\nb\n"
    assert put(content, hunk("-\ufeffa\n+x\n b", 1)) == b"x\nb\n"
    assert put(content, hunk("-b\n+c", heading=b"a")) == BOM + b"a\nc\n"
    assert put(BOM + b"a\n", hunk("-a\n+b", at_end=True)) == BOM + b"b\n"
    assert put(BOM + b"a\r\nb\r\n", hunk("-a\n+x")) == BOM + b"x\r\nb\r\n"


def test_the_first_line_counts_as_a_match_with_a_byte_order_mark() -> None:
    assert refusal(BOM + b"a\nb\na\n", hunk("-a\n+x")).rule == "lines.ambiguous"
    assert refusal(b"a\n", hunk("-\ufeffa\n+x")).rule == "lines.missing"


def test_bytes_that_are_no_text_are_compared_as_bytes() -> None:
    odd = Hunk(
        (HunkLine("-", b"\xff\0"), HunkLine("+", b"\xfe"), HunkLine(" ", b"\xff")), old_start=2
    )
    assert put(b"\0\n\xff\0\n\xff\n", odd) == b"\0\n\xfe\n\xff\n"


# Size.


def big_hunk(number: int, at: int | None) -> Hunk:
    return hunk(f" line {number}\n-line {number + 1}\n+changed {number}\n line {number + 2}", at)


@pytest.mark.parametrize("kind", ["numbered", "moved", "unnumbered", "bare"])
def test_many_hunks_in_a_large_file(kind: str) -> None:
    count, apart = 100_000, 100
    content = b"".join(b"line %d\n" % number for number in range(1, count + 1))
    numbers = range(1, count - 2, apart)
    if kind == "bare":
        hunks = [hunk(f"-line {number + 1}\n+changed {number}") for number in reversed(numbers)]
    else:
        shift = {"numbered": 0, "moved": 7, "unnumbered": None}[kind]
        hunks = [big_hunk(number, None if shift is None else number + shift) for number in numbers]
    times = {"numbered": 0, "moved": 2, "unnumbered": 1, "bare": 3}[kind]
    work = Work(times * len(hunks) * len(content))  # what is gone through for each hunk, at most
    result = line_edits.apply_hunks(content, hunks, path="f.txt", work=work)
    assert result.count(b"changed") == len(hunks) == 1000
    assert result.count(b"\n") == count


def test_repetitive_text_is_not_a_trap() -> None:
    lines_of = 300_000  # a search that begins again at each line takes minutes
    content = b"a\n" * lines_of + b"b\n"
    taken = tuple(HunkLine("-", b"a") for _ in range(lines_of // 2))
    body = Hunk((*taken, HunkLine(" ", b"a")), old_start=2)
    started = time.perf_counter()
    assert put(content, body) == b"a\n" * (lines_of // 2) + b"b\n"
    unnumbered = Hunk((*(HunkLine(" ", b"a") for _ in range(lines_of // 2)), HunkLine("-", b"c")))
    assert refusal(content, unnumbered).rule == "lines.missing"
    assert time.perf_counter() - started < PATIENCE_S
