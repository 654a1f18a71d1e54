"""``when``: what is understood, what is refused, what holds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coilclaw.agent.sop.conditions import (
    MAX_DEPTH,
    Came,
    Not,
    Says,
    Several,
    holds,
    list_sources,
    parse,
)
from coilclaw.agent.sop.document import StageOutcome
from coilclaw.kernel.errors import UsageError

OUTCOMES = {
    "good": StageOutcome("good", "done", output=" all ok\n"),
    "bad": StageOutcome("bad", "failed", output="two errors"),
    "no": StageOutcome("no", "denied"),
    "left": StageOutcome("left", "skipped"),
    "lost": StageOutcome("lost", "done", output_known=False),
}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "good",
        "good.",
        "good.success.more",
        "good.colour",
        "good.output",
        "good.output contains",
        "good.output contains ok",
        "good.output is 'ok'",
        "good.success and",
        "and good.success",
        "good.success bad.success",
        "good.success or or bad.success",
        "(good.success",
        "good.success)",
        "not",
        "__import__('os').system('true')",
        "good.success; bad.success",
        "good.success == True",
        "good.output contains 'ok",
        "1.success",
        "good.successand bad.success",
        "not " * (MAX_DEPTH + 1) + "good.success",
        "(" * (MAX_DEPTH + 1) + "good.success" + ")" * (MAX_DEPTH + 1),
        "good.success or " * 100 + "good.success",
    ],
)
def test_what_is_not_of_the_grammar_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text)
    assert caught.value.rule == "sop.condition"


def test_and_binds_closer_than_or_and_not_closest() -> None:
    a, b, c = (Came(name, "success") for name in "abc")
    assert parse("a.success or b.success and not c.success") == Several(
        "or", (a, Several("and", (b, Not(c))))
    )
    assert parse("(a.success or b.success) and c.success") == Several(
        "and", (Several("or", (a, b)), c)
    )
    assert parse('x-1.output contains "it\'s"') == Says("x-1", "contains", "it's")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("good.success", True),
        ("good.failure", False),
        ("good.skipped", False),
        ("bad.success", False),
        ("bad.failure", True),
        ("no.failure", True),
        ("left.success", False),
        ("left.failure", False),
        ("left.skipped", True),
        ("not good.success", False),
        ("good.output contains 'ok'", True),
        ("good.output equals 'all ok'", True),
        ("good.output equals 'ok'", False),
        ("good.output contains 'OK'", False),
        ("bad.output contains 'error'", True),
        ("left.output equals ''", True),
        ("bad.success or good.success", True),
        ("bad.success and good.success", False),
        ("lost.success", True),
    ],
)
def test_what_holds(text: str, expected: bool) -> None:
    assert holds(parse(text), OUTCOMES) is expected


def test_an_output_that_was_lost_is_not_taken_for_an_empty_one() -> None:
    with pytest.raises(UsageError) as caught:
        holds(parse("lost.output equals ''"), OUTCOMES)
    assert caught.value.rule == "sop.output_lost"


def test_the_stages_it_speaks_of() -> None:
    condition = parse("a.success or not (b.failure and c.output equals 'x')")
    assert [name for name, _ in list_sources(condition)] == [
        "a",
        "b",
        "c",
    ]


@given(
    st.lists(
        st.sampled_from(
            [
                "good.success",
                "bad.output",
                "contains",
                "equals",
                "'ok'",
                "not",
                "and",
                "or",
                "(",
                ")",
            ]
        )
        | st.text(max_size=5),
        max_size=12,
    )
)
def test_any_text_is_a_condition_or_a_problem_and_never_anything_else(words: list[str]) -> None:
    try:
        condition = parse(" ".join(words))
    except UsageError:
        return
    assert {name for name, _ in list_sources(condition)} <= {"good", "bad"}
    assert isinstance(holds(condition, OUTCOMES), bool)
