"""Results have one shape for every path; what changed; what an agent is told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from coilclaw.kernel.errors import UsageError
from coilclaw.traces.environments.results import Case, Delta, Result, Status, compact, delta
from tests.support.repository import ROOT

BASELINE = ROOT / "tests" / "baselines" / "v1" / "environments" / "test_result.v1.json"


def case(name: str, status: Status = "passed", **more: Any) -> Case:
    return Case(id=name, status=status, duration_ms=1, **more)


def of(**statuses: Status) -> Result:
    return Result.build([case(name.replace("__", "/"), s) for name, s in statuses.items()])


def test_cases_stand_in_the_suites_that_their_ids_name() -> None:
    top, one, two = case("top"), case("a/one", "failed"), case("a/b/two", "skipped")
    inner = Result(passed=0, failed=0, total=0, cases=(two,), children={})
    suite = Result(passed=0, failed=1, total=1, cases=(one,), children={"b": inner})
    expected = Result(passed=1, failed=1, total=2, cases=(top,), children={"a": suite})
    assert Result.build([top, one, two]) == expected
    assert Result.build([one, two], "a") == suite
    assert list(expected.every_case()) == [top, one, two]


def test_a_case_alone_has_the_same_shape() -> None:
    only = case("a/one", "timeout")
    assert Result.build([only], "a/one") == Result(
        passed=0, failed=1, total=1, cases=(only,), children={}
    )


@pytest.mark.parametrize("status", ["failed", "error", "timeout"])
def test_everything_but_passed_and_skipped_failed(status: Status) -> None:
    result = of(a="passed", b=status, c="skipped")
    assert (result.passed, result.failed, result.total) == (1, 1, 2)


def test_nothing_passed_is_not_solved() -> None:
    assert not of(a="skipped").solved
    assert not of(a="failed", b="passed").solved
    assert not Result.build([case("a")], error="the teardown failed").solved
    assert of(a="passed", b="skipped").solved


def test_a_result_that_does_not_add_up_is_refused() -> None:
    value = of(s__a="passed", s__b="failed").json()
    assert Result.of(value).json() == value
    for key, number in (("passed", 2), ("failed", 0), ("total", 3)):
        with pytest.raises(UsageError) as caught:
            Result.of({**value, key: number})
        assert caught.value.rule == "environment.result"


@pytest.mark.parametrize(
    "change",
    [
        {"status": "green"},
        {"duration_ms": -1},
        {"id": ""},
        {"failure_kind": "Bad Kind"},
        {"more": 1},
        {"log": "x" * 9000},
    ],
)
def test_a_malformed_case_is_refused(change: dict[str, Any]) -> None:
    value = case("a", "failed", failure_kind="check", log="x").json()
    assert Case.of(value).json() == value
    with pytest.raises(UsageError) as caught:
        Case.of({**value, **change})
    assert caught.value.rule == "contract.schema"


def test_texts_are_bounded_with_both_ends_kept() -> None:
    long = "a" * 10_000 + "z" * 10_000
    bounded = case(
        "a", "failed", expected=long, actual=long, difference=long, log=long
    ).limit_texts()
    for text, limit in (
        (bounded.expected, 4000),
        (bounded.difference, 500),
        (bounded.log, 6000),
    ):
        assert text is not None
        assert len(text) <= limit
        assert (text[0], text[-1]) == ("a", "z")
    Case.of(bounded.json())


def test_what_cannot_be_written_is_shown_in_another_way() -> None:
    strange = case("a", "failed", log="a\udcffb é").limit_texts()
    assert strange.log == "a\\udcffb é"
    assert Result.of(Result.build([strange], error="\ud800").json()).error == "\\ud800"


def test_what_broke_and_what_was_fixed_is_told() -> None:
    before = of(a="passed", b="failed", c="passed", d="skipped", gone="passed", e="timeout")
    after = of(a="error", b="passed", c="passed", d="failed", new="failed", e="failed")
    assert delta(before, after) == Delta(("a",), ("b",))
    assert delta(after, before) == Delta(("b",), ("a",))
    assert delta(None, after) == Delta()


def test_an_agent_is_told_totals_changes_and_the_first_failures() -> None:
    wrong = case("s/b", "failed", failure_kind="wrong_output", difference="line 1, column 1:")
    result = Result.build([case("s/a"), wrong, case("t/c", "error", log="1\n2\n3\nlast")])
    said = compact(result, Delta(("s/b",), ("s/a",)), "results/7.json")
    assert said == (
        "passed 1 of 3, failed 2\n"
        "  s: 1/2\n"
        "  t: 0/1\n"
        "newly broken: s/b\n"
        "newly fixed: s/a\n"
        "failed s/b\n"
        "  wrong_output\n"
        "  line 1, column 1:\n"
        "error t/c\n"
        "  2\n"
        "  3\n"
        "  last\n"
        "full result: results/7.json"
    )


def test_an_agent_is_told_of_a_failed_build_once() -> None:
    cases = [case(f"s/{n}", "failed", failure_kind="build") for n in range(100)]
    said = compact(Result.build(cases, error="the build failed: no main"), Delta(), "7")
    assert said == (
        "passed 0 of 100, failed 100\n\nthe build failed: no main\n\n  s: 0/100\nfull result: 7"
    )


@pytest.mark.parametrize("limit", [200, 300, 1000, 4000])
def test_what_an_agent_is_told_is_bounded(limit: int) -> None:
    cases = [
        case(f"s/{n:040}", "failed", failure_kind="check", difference="x" * 80) for n in range(50)
    ]
    result = Result.build(cases)
    said = compact(result, delta(of(), result), "results/7.json", limit)
    assert len(said) <= limit
    assert said.endswith("full result: results/7.json")
    assert "more failures" in said


def test_the_baseline_is_read_and_written_as_it_was() -> None:
    data = json.loads(BASELINE.read_bytes())
    assert Result.of(data).json() == data
