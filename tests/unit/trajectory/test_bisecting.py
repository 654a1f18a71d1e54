"""Bisection: denials, the part that broke a case, the one that fixed it, and how many it takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from coilclaw.kernel.errors import EnvironmentFault, UsageError
from coilclaw.traces.evaluation.bisection import bisect
from coilclaw.traces.evaluation.evaluation import evaluate
from tests.support.recordings import VANISHES, FakeJudge, court, passing, recording

CASE = "basics/get"


def states(*good: bool) -> list[dict[str, str] | None]:
    """Distinct files at each part, with the case passing or not."""
    return [
        passing(str(number), *([CASE] if fine else [])) for number, fine in enumerate(good, start=1)
    ]


def test_ends_that_are_alike_are_refused(tmp_path: Path) -> None:
    recorded = recording(tmp_path, states(True, False, True))
    with pytest.raises(UsageError) as caught:
        bisect(recorded, court(tmp_path, FakeJudge()), CASE, first=1, last=3)
    assert caught.value.rule == "bisect.same"
    found = bisect(recorded, court(tmp_path, FakeJudge()), CASE, first=1, last=2)
    assert (found.outcome, found.part, found.before) == ("broke", 2, 1)


def test_a_range_the_wrong_way_round_and_a_suite_are_refused(tmp_path: Path) -> None:
    recorded = recording(tmp_path, states(True, False))
    with pytest.raises(UsageError) as caught:
        bisect(recorded, court(tmp_path, FakeJudge()), CASE, first=2, last=1)
    assert caught.value.rule == "bisect.range"
    with pytest.raises(UsageError) as caught:
        bisect(recorded, court(tmp_path, FakeJudge()), "basics")
    assert caught.value.rule == "bisect.case"


def test_no_part_at_all_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        bisect(recording(tmp_path, []), court(tmp_path, FakeJudge()), CASE)
    assert caught.value.rule == "bisect.range"


def test_a_state_that_cannot_be_judged_is_said(tmp_path: Path) -> None:
    recorded = recording(tmp_path, [passing(CASE), passing(VANISHES)])
    with pytest.raises(EnvironmentFault) as caught:
        bisect(recorded, court(tmp_path, FakeJudge()), CASE)
    assert caught.value.rule == "bisect.judge"


@pytest.mark.parametrize("broke", [2, 3, 37, 63, 64])
def test_64_states_take_at_most_8_judgements(tmp_path: Path, broke: int) -> None:
    recorded = recording(tmp_path, states(*(number < broke for number in range(1, 65))))
    judge = FakeJudge()
    found = bisect(recorded, court(tmp_path, judge), CASE)
    assert (found.outcome, found.part, found.before) == ("broke", broke, broke - 1)
    assert (found.status_before, found.status_after) == ("passed", "failed")
    assert found.judged == len(judge.asked) <= 8
    assert set(judge.asked) == {CASE}


def test_what_broke_and_was_repaired_is_found_in_the_middle(tmp_path: Path) -> None:
    good = [False] * 4 + [True] * 6 + [False] * 3 + [True] * 3
    recorded = recording(tmp_path, states(*good))
    found = bisect(recorded, court(tmp_path, FakeJudge()), CASE)
    assert (found.outcome, found.part) == ("broke", 11)


def test_even_one_state_among_many_is_found(tmp_path: Path) -> None:
    good = [True] * 6 + [False] + [True] * 9
    found = bisect(recording(tmp_path, states(*good)), court(tmp_path, FakeJudge()), CASE)
    assert (found.outcome, found.part, found.before) == ("broke", 7, 6)


def test_what_never_broke_is_said_by_who_fixed_it(tmp_path: Path) -> None:
    good = [False] * 5 + [True] * 4
    found = bisect(recording(tmp_path, states(*good)), court(tmp_path, FakeJudge()), CASE)
    assert (found.outcome, found.part, found.before) == ("fixed", 6, 5)


@pytest.mark.parametrize(("good", "outcome"), [(True, "always_passed"), (False, "never_passed")])
def test_what_never_changed(tmp_path: Path, good: bool, outcome: str) -> None:
    found = bisect(recording(tmp_path, states(*[good] * 5)), court(tmp_path, FakeJudge()), CASE)
    assert (found.outcome, found.part, found.judged, found.trees) == (outcome, None, 5, 5)


def test_after_an_evaluation_nothing_is_judged_again(tmp_path: Path) -> None:
    recorded = recording(tmp_path, states(True, True, False, False, True))
    judge = FakeJudge()
    evaluate(recorded, court(tmp_path, judge))
    before = len(judge.asked)
    found = bisect(recorded, court(tmp_path, judge), CASE)
    assert (found.outcome, found.part, found.judged) == ("broke", 3, 0)
    assert len(judge.asked) == before


def test_parts_without_a_change_are_not_blamed(tmp_path: Path) -> None:
    parts = [passing(CASE), None, None, passing("nothing"), None]
    found = bisect(recording(tmp_path, parts), court(tmp_path, FakeJudge()), CASE)
    assert (found.part, found.before, found.trees) == (4, 3, 2)
