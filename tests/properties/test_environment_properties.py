"""Results of any cases add up, come back as they were, and fit into what an agent is told."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from coilclaw.traces.environments.checks import first_difference
from coilclaw.traces.environments.declarations import name_of
from coilclaw.traces.environments.results import Case, Delta, Result, Status, compact, delta
from tests.support.scale import scaled

EXAMPLES = scaled(full=300, default=60)
STATUSES: st.SearchStrategy[Status] = st.sampled_from(
    ("passed", "failed", "error", "timeout", "skipped")
)
NAMES = st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map("/".join)
TEXTS = st.none() | st.text(max_size=30) | st.integers(0, 9000).map(lambda n: "x\n" * n)


def _free_of_twins(names: list[str]) -> list[str]:
    """Leave out what would be a case and a suite at once."""
    kept: list[str] = []
    for name in names:
        if not any(one == name or one.startswith(f"{name}/") for one in kept) and not any(
            name.startswith(f"{one}/") for one in kept
        ):
            kept.append(name)
    return kept


@st.composite
def cases(draw: st.DrawFn) -> list[Case]:
    names = _free_of_twins(draw(st.lists(NAMES, max_size=12)))
    return [
        Case(
            id=name,
            status=draw(STATUSES),
            duration_ms=draw(st.integers(0, 10**6)),
            failure_kind=draw(st.sampled_from((None, "check", "wrong_output"))),
            expected=draw(TEXTS),
            difference=draw(TEXTS),
            log=draw(TEXTS),
        ).limit_texts()
        for name in names
    ]


@settings(max_examples=EXAMPLES)
@given(cases())
def test_a_result_adds_up_and_comes_back_as_it_was(given_cases: list[Case]) -> None:
    result = Result.build(given_cases)
    assert sorted(result.every_case(), key=lambda case: case.id) == sorted(
        given_cases, key=lambda case: case.id
    )
    counted = [case.status for case in given_cases]
    assert result.passed == counted.count("passed")
    assert result.total == len(counted) - counted.count("skipped")
    assert result.failed == result.total - result.passed
    assert Result.of(result.json()) == result


@settings(max_examples=EXAMPLES)
@given(cases(), cases())
def test_what_broke_one_way_was_fixed_the_other_way(old: list[Case], new: list[Case]) -> None:
    before, after = Result.build(old), Result.build(new)
    there, back = delta(before, after), delta(after, before)
    assert sorted(there.newly_broken) == sorted(back.newly_fixed)
    assert sorted(there.newly_fixed) == sorted(back.newly_broken)
    assert delta(after, after) == Delta()


@settings(max_examples=EXAMPLES)
@given(cases(), st.integers(0, 3000), st.none() | st.text(max_size=400), TEXTS)
def test_what_an_agent_is_told_fits(
    given_cases: list[Case], limit: int, error: str | None, name: str | None
) -> None:
    result = Result.build(given_cases, error=error)
    change = delta(Result.build(given_cases[::-1]), result)
    said = compact(result, change, (name or "")[:60], limit)
    assert len(said) <= max(limit, 200)
    assert said.startswith(f"passed {result.passed} of {result.total}")


@settings(max_examples=EXAMPLES)
@given(st.text(max_size=300), st.text(max_size=300))
def test_a_difference_is_told_exactly_when_there_is_one(one: str, other: str) -> None:
    said = first_difference(one, other)
    assert (said is None) == (one == other)
    assert len(said or "") <= 600


@settings(max_examples=EXAMPLES)
@given(
    st.lists(st.integers(-50, 50), min_size=1, max_size=8, unique=True),
    st.lists(st.text("abxyz", min_size=1, max_size=4), min_size=1, max_size=5, unique=True),
)
def test_a_template_stands_for_every_pair_of_its_values(ns: list[int], ms: list[str]) -> None:
    made = dict(name_of("t.{n}.{m}", {"n": ns, "m": ms}).expand())
    assert made == {f"t.{n}.{m}": {"n": n, "m": m} for n in ns for m in ms}
