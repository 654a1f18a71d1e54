"""How much an answer may have us search through."""

from __future__ import annotations

import pytest

from coilclaw.changes import line_edits, text_edits
from coilclaw.changes.operations import AnswerOptions, Hunk, HunkLine, Replacement, Work
from coilclaw.kernel.errors import PlanRefused

OPTIONS = AnswerOptions()


def test_work_is_refused_when_it_is_used_up() -> None:
    work = Work(10)
    work.spend(4, path="a")
    work.spend(6, path="a")
    with pytest.raises(PlanRefused) as caught:
        work.spend(1, path="b", line=3)
    assert (caught.value.rule, caught.value.path, caught.value.line) == ("plan.bounds", "b", 3)
    assert "10 bytes" in caught.value.message


@pytest.mark.parametrize(
    ("content", "replacement", "cost"),
    [
        (b"a\nb\n", Replacement("a", "c"), 4),
        (b"a\nb\n", Replacement("a", "c", "all"), 14),
        (b"a\r\nb\r\n", Replacement("a\n", "c\n"), 12),
        (b"a\r\nb\n", Replacement("a\n", "c\n"), 85),
        (b"a\r\nb\n", Replacement("b", "c\n", "all"), 1005),
    ],
)
def test_a_replacement_goes_through_its_file(
    content: bytes, replacement: Replacement, cost: int
) -> None:
    text_edits.apply_replacements(
        content, [replacement], path="f", options=OPTIONS, work=Work(cost)
    )
    with pytest.raises(PlanRefused) as caught:
        text_edits.apply_replacements(
            content, [replacement], path="f", options=OPTIONS, work=Work(cost - 1)
        )
    assert caught.value.rule == "plan.bounds"


def hunk(old: bytes, new: bytes, after: bytes | None = None, **where: int) -> Hunk:
    context = () if after is None else (HunkLine(" ", after),)
    return Hunk((HunkLine("-", old), HunkLine("+", new), *context), old_start=where.get("line"))


@pytest.mark.parametrize(
    ("hunks", "cost"),
    [
        ([hunk(b"a", b"x")], 16),
        ([hunk(b"a", b"x"), hunk(b"b", b"y")], 32),
        ([hunk(b"a", b"x", b"b", line=1)], 0),
        ([hunk(b"b", b"x", b"c", line=3)], 8),
    ],
)
def test_a_hunk_goes_through_what_is_searched_for_it(hunks: list[Hunk], cost: int) -> None:
    content = b"a\nb\nc\nd\n"
    assert line_edits.apply_hunks(content, hunks, path="f", work=Work(cost)) != content
    if cost:
        with pytest.raises(PlanRefused) as caught:
            line_edits.apply_hunks(content, hunks, path="f", work=Work(cost - 1))
        assert caught.value.rule == "plan.bounds"
