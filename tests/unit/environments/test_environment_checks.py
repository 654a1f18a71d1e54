"""Checks of tests: what fails a case, and how the difference is told."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from coilclaw.kernel.errors import UsageError
from coilclaw.traces.environments import checks
from coilclaw.traces.environments.checks import CaseFailed, CaseSkipped, first_difference
from coilclaw.traces.environments.programs import RunResult

GOOD = RunResult("out\n", "", 0)


@pytest.mark.parametrize(
    ("expected", "actual", "said"),
    [
        ("a", "b", "line 1, column 1:\nexpected 'a'\nactual   'b'"),
        ("a\nbc\n", "a\nbd\n", "line 2, column 2:\nexpected 'bc'\nactual   'bd'"),
        ("a", "a\nb\nc", "2 lines are more than expected from line 2: 'b'"),
        ("a\n", "a", "1 line is missing from line 2: ''"),
        ("ab", "a", "line 1, column 2:\nexpected 'ab'\nactual   'a'"),
        ("\t", " ", "line 1, column 1:\nexpected '\\t'\nactual   ' '"),
    ],
)
def test_the_first_difference_is_told(expected: str, actual: str, said: str) -> None:
    assert first_difference(expected, actual) == said
    assert first_difference(expected, expected) is None


def test_a_difference_far_in_a_long_line_is_shown_and_bounded() -> None:
    said = first_difference("x" * 5000 + "A" + "y" * 5000, "x" * 5000 + "B" + "y" * 5000)
    assert said is not None
    assert "column 5001" in said
    assert "xA" in said
    assert "xB" in said
    assert len(said) < 500


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (lambda: checks.fail("no"), "check"),
        (lambda: checks.check([], "no", kind="empty"), "empty"),
        (lambda: checks.expect("a", "b"), "wrong_output"),
        (lambda: checks.expect(1, 2), "wrong_value"),
        (lambda: checks.expect_success(RunResult("", "", 1)), "wrong_exit_code"),
        (lambda: checks.expect_success(RunResult("", "", 0), exit_code=2), "wrong_exit_code"),
        (lambda: checks.expect_success(RunResult("", "", 139, signal=11)), "crash"),
        (
            lambda: checks.expect_success(RunResult("", "", None, signal=9, timed_out=True)),
            "timeout",
        ),
        (lambda: checks.expect_success(RunResult("", "", 0, truncated=True)), "output_limit"),
        (lambda: checks.expect_output(GOOD, "other\n"), "wrong_output"),
        (lambda: checks.expect_output(GOOD, "out"), "wrong_output"),
        (lambda: checks.expect_output(RunResult("x", "", 1), "out"), "wrong_output"),
        (lambda: checks.expect_output(RunResult("", "", 134, signal=6), "out"), "crash"),
        (lambda: checks.expect_output(RunResult("out", "", 3), "out"), "wrong_exit_code"),
        (lambda: checks.expect_output(RunResult("", "", None, timed_out=True), "out"), "timeout"),
    ],
)
def test_a_check_that_does_not_hold_fails_the_case(call: Callable[[], None], kind: str) -> None:
    with pytest.raises(CaseFailed) as caught:
        call()
    assert caught.value.kind == kind


def test_a_check_that_holds_says_nothing() -> None:
    checks.check(1, "no")
    checks.expect("a", "a")
    checks.expect_success(GOOD)
    checks.expect_success(RunResult("", "", 139, signal=11), exit_code=139)
    checks.expect_output(GOOD, "out\n")


def test_a_case_may_be_skipped() -> None:
    with pytest.raises(CaseSkipped, match="no compiler"):
        checks.skip("no compiler")


def test_a_kind_of_failure_is_a_word() -> None:
    with pytest.raises(UsageError) as caught:
        checks.fail("no", kind="Not A Word")
    assert caught.value.rule == "environment.kind"


def test_a_link_or_a_pipe_is_no_plain_file(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.write_text("x", encoding="utf-8")
    assert checks.plain_file(there) == there
    (tmp_path / "link").symlink_to(there)
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe", "nothing", "."):
        with pytest.raises(CaseFailed) as caught:
            checks.plain_file(tmp_path / name)
        assert caught.value.kind == "missing"


def test_what_a_program_said_last_is_told() -> None:
    with pytest.raises(CaseFailed, match="segmentation") as caught:
        checks.expect_success(RunResult("", "segmentation fault\n", 1), "cc")
    assert caught.value.message == "cc ended with exit code 1, not 0; it said:\nsegmentation fault"
