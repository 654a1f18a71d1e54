"""What is solved, what is not any more, and what an agent is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coilclaw.kernel.canonical_json import digest_bytes
from coilclaw.traces.trajectory import test_harness, trace
from coilclaw.traces.trajectory.test_harness import EnvoiFailed, SuiteHarness, SuiteStanding
from coilclaw.traces.trajectory.trace import CallResult, CaseStatus, EnvoiCall
from coilclaw.workspace.process.cancellation import Cancellation
from tests.support.trajectories import FileTests

A, B = "a" * 40, "b" * 40


def call(path: str, tree: str = A, error: str | None = None, **cases: str) -> EnvoiCall:
    named = {name.replace("__", "/"): status for name, status in cases.items()}
    passed = sum(status == "passed" for status in named.values())
    failed = sum(status not in {"passed", "skipped"} for status in named.values())
    tests = tuple(CaseStatus(id=name, status=status) for name, status in named.items())
    return EnvoiCall(
        path=path,
        timestamp="2026-11-15T10:00:00.000000Z",
        duration_ms=1,
        status_code=200,
        error=error,
        result=CallResult(passed=passed, failed=failed, total=passed + failed, tests=tests),
        call_id="call-1",
        tree=tree,
        newly_broken=(),
        newly_fixed=(),
    )


def standing(*calls: EnvoiCall, required: tuple[str, ...] = ("x", "y")) -> SuiteStanding:
    made = SuiteStanding(required)
    for one in calls:
        made.take(one)
    return made


@pytest.mark.parametrize(
    "calls",
    [
        (),
        (call("x", x__1="passed"),),
        (call("x", x__1="passed"), call("y", y__1="failed")),
        (call("x", x__1="passed"), call("y", B, y__1="passed")),
        (call("", x__1="passed", y__1="timeout"),),
        (call("", x__1="passed", y__1="skipped"),),
        (call("", x__1="passed"),),
        (call("", error="it did not build", x__1="passed", y__1="passed"),),
        (call("", x__1="passed", y__1="passed"), call("y/1", y__1="failed")),
        (call("", x__1="passed", y__1="passed"), call("y", y__1="error")),
        (call("x/1", x__1="passed"), call("y/1", y__1="passed")),
    ],
)
def test_this_is_not_solved(calls: tuple[EnvoiCall, ...]) -> None:
    assert not standing(*calls).is_solved(A)


@pytest.mark.parametrize(
    "calls",
    [
        (call("", x__1="passed", y__1="passed"),),
        (call("x", x__1="passed"), call("y", y__1="passed", y__2="skipped")),
        (call("", x__1="failed", y__1="passed"), call("x", x__1="passed")),
        (call("", B, x__1="passed", y__1="passed"), call("", x__1="passed", y__1="passed")),
    ],
)
def test_this_is_solved_on_its_tree_and_on_no_other(calls: tuple[EnvoiCall, ...]) -> None:
    found = standing(*calls)
    assert found.is_solved(A)
    assert not found.is_solved(B)


def test_where_nothing_is_required_nothing_is_solved() -> None:
    assert not standing(call("", x__1="passed"), required=()).is_solved(A)


def test_a_regression_takes_back_what_was_solved_and_remembers_that_it_was() -> None:
    found = standing(call("", x__1="passed", y__1="passed"), call("x", B, x__1="failed"))
    assert found.state() == trace.TestingState(
        solved_paths=1,
        total_paths=2,
        ever_solved_paths=2,
        latest_path="x",
        latest_passed=0,
        latest_total=1,
        latest_status_code=200,
        latest_error=None,
    )
    assert found.unknown(B) == ("y",)


def bench(tmp_path: Path, judge: FileTests | None, secret: str = "secret") -> SuiteHarness:
    (tmp_path / "workspace").mkdir(exist_ok=True)
    return SuiteHarness(
        judge,
        lambda _: tmp_path / "workspace",
        tmp_path / "results",
        standing=SuiteStanding(("basics", "extra") if judge else ()),
        tree=lambda: A,
        stamp=lambda: "2026-11-15T10:00:00.000000Z",
        cancel=Cancellation(),
        redact=lambda text: text.replace(secret, "[redacted]"),
    )


def test_a_call_is_kept_whole_on_disk_and_named_in_the_answer(tmp_path: Path) -> None:
    tested = bench(tmp_path, FileTests())
    (tmp_path / "workspace" / "one.txt").write_text("ok")
    assert tested.run_tests is not None
    answer = tested.run_tests(" basics/ ")
    (made,) = tested.drain()
    assert made.path == "basics"
    assert answer.splitlines()[0] == "passed 1 of 2, failed 1"
    assert answer.endswith(f"full result: {made.call_id}")
    data = (tmp_path / "results" / f"{made.call_id}.json").read_bytes()
    assert digest_bytes(data) == made.result_sha256
    assert json.loads(data)["result"]["passed"] == 1
    assert tested.drain() == ()


def test_what_broke_and_what_was_fixed_is_told(tmp_path: Path) -> None:
    tested = bench(tmp_path, FileTests())
    assert tested.run_tests is not None
    (tmp_path / "workspace" / "one.txt").write_text("ok")
    tested.run_tests("")
    (tmp_path / "workspace" / "one.txt").unlink()
    (tmp_path / "workspace" / "two.txt").write_text("ok")
    answer = tested.run_tests("")
    last = tested.drain()[1]
    assert (last.newly_broken, last.newly_fixed) == (("basics/one",), ("basics/two",))
    assert "newly broken: basics/one\nnewly fixed: basics/two" in answer
    told = test_harness.render_later_prompt(tested.standing, [last])
    assert told.splitlines()[1:] == [
        "",
        "Current test status:",
        "- basics: 1/2",
        "- extra: 0/1",
        "",
        "Newly broken: basics/one",
        "",
        "Newly fixed: basics/two",
    ]


def test_tests_that_cannot_run_are_told_to_the_agent_and_raise_for_us(tmp_path: Path) -> None:
    tested = bench(tmp_path, FileTests(broken="the secret machine is gone"))
    assert tested.run_tests is not None
    assert tested.run_tests("") == "the tests could not be run: the [redacted] machine is gone"
    (made,) = tested.drain()
    assert (made.status_code, made.error, made.result) == (
        500,
        "the [redacted] machine is gone",
        None,
    )
    with pytest.raises(EnvoiFailed, match="the tests at the top could not be run") as caught:
        tested.evaluate(A)
    assert [each.path for each in caught.value.calls] == [""]


def test_a_path_that_does_not_exist_is_answered_with_a_hint(tmp_path: Path) -> None:
    tested = bench(tmp_path, FileTests())
    assert tested.run_tests is not None
    assert tested.run_tests("nowhere").splitlines() == [
        "the tests could not be run: there are no tests at nowhere",
        "basics, extra",
    ]


def test_only_what_was_not_tested_on_a_tree_is_evaluated(tmp_path: Path) -> None:
    judge = FileTests()
    tested = bench(tmp_path, judge)
    assert tested.run_tests is not None
    tested.run_tests("basics")
    assert [each.path for each in tested.evaluate(A)] == ["extra"]
    assert tested.evaluate(A) == ()
    assert [each.path for each in tested.evaluate(B)] == [""]
    assert tested.evaluate(B) == ()


def test_without_an_environment_there_is_nothing_to_run(tmp_path: Path) -> None:
    tested = bench(tmp_path, None)
    assert tested.run_tests is None
    assert tested.state() is None
    assert test_harness.render_later_prompt(tested.standing, []) == test_harness.CONTINUE
