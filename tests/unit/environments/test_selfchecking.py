"""The self-check: what was found is held to what is known, and every difference counts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coilclaw.kernel.errors import UsageError
from coilclaw.traces.environments import catalogue, self_check
from coilclaw.traces.environments.results import Case, Status
from coilclaw.traces.environments.self_check import Expectation, SuiteCheck, compare, expectation

KNOWN = Expectation("gcc 12", {"s/known": "it is wrong", "other/known": "of another suite"})


def case(name: str, status: Status = "passed", kind: str | None = None) -> Case:
    return Case(id=name, status=status, duration_ms=1, failure_kind=kind)


def test_exactly_as_expected() -> None:
    cases = [case("s/a"), case("s/known", "failed")]
    assert compare("s", cases, KNOWN, expected_total=2, fixtures="f") == SuiteCheck(
        "s",
        "proved",
        passed=1,
        total=2,
        expected_total=2,
        expected_failures=("s/known",),
        fixtures="f",
    )
    assert compare("s", [case("s/a")], KNOWN).state == "proved"


@pytest.mark.parametrize("status", ["failed", "error", "timeout", "skipped"])
def test_a_case_that_should_pass_and_does_not(status: Status) -> None:
    bad = case("s/a", status, "crash")
    found = compare("s", [bad, case("s/b")], KNOWN)
    assert (found.state, found.failed, found.passed, found.total) == ("differs", (bad,), 1, 2)


def test_a_case_that_should_fail_and_does_not() -> None:
    found = compare("s", [case("s/a"), case("s/known")], KNOWN)
    assert (found.state, found.unexpected_passes) == ("differs", ("s/known",))
    assert found.expected_failures == ()


@pytest.mark.parametrize("total", [1, 3])
def test_more_or_fewer_cases_than_there_have_to_be(total: int) -> None:
    assert compare("s", [case("s/a"), case("s/b")], KNOWN, expected_total=2).state == "proved"
    cases = [case(f"s/{n}") for n in range(total)]
    assert compare("s", cases, KNOWN, expected_total=2).state == "differs"


def test_a_compiler_that_nothing_is_known_of_is_scored() -> None:
    bad = case("s/known", "failed")
    found = compare("s", [case("s/a"), bad], None, expected_total=5)
    assert (found.state, found.passed, found.total, found.failed) == ("scored", 1, 2, (bad,))


def test_what_is_derived_names_each_with_a_reason() -> None:
    cases = [
        case("torture/part_2/b", "failed", "compile_error"),
        case("torture/part_1/a", "failed", "wrong_output"),
        case("torture/part_1/c"),
        case("torture/part_2/d", "timeout", None),
        case("torture/part_2/e", "failed", "something_new"),
    ]
    assert self_check.list_left_out("torture", cases, "gcc 12", "ab") == {
        "suite": "torture",
        "compiler": "gcc 12",
        "fixtures_sha256": "ab",
        "programs": 5,
        "left_out": {
            "a": "wrong_output: it prints",
            "b": "compile_error: it does not compile or link as one file by itself",
            "d": "timeout: it takes too long to run",
            "e": "something_new",
        },
    }


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"version": 2, "compilers": []}',
        '{"version": 1, "compilers": {}}',
        '{"version": 1, "compilers": [{}]}',
        '{"version": 1, "compilers": [{"names": [1], "proved_with": "x", "failures": {}}]}',
        '{"version": 1, "compilers": [{"names": [], "proved_with": 1, "failures": {}}]}',
        '{"version": 1, "compilers": [{"names": [], "proved_with": "", "failures": {"a": ""}}]}',
        '{"version": 1, "compilers": [{"names": [], "proved_with": "", "failures": []}]}',
        " " * (self_check.MAX_BYTES + 1),
    ],
)
def test_a_file_of_expectations_that_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / self_check.FILE).write_text(text)
    with pytest.raises(UsageError) as caught:
        expectation(tmp_path, "gcc")
    assert caught.value.rule == "selfcheck.declared"


def test_compilers_are_known_by_their_names(tmp_path: Path) -> None:
    assert expectation(tmp_path, "gcc") is None
    one = {"names": ["gcc", "gcc-*"], "proved_with": "gcc 12", "failures": {"s/a": "why"}}
    (tmp_path / self_check.FILE).write_text(json.dumps({"version": 1, "compilers": [one]}))
    assert expectation(tmp_path, "gcc") == Expectation("gcc 12", {"s/a": "why"})
    assert expectation(tmp_path, "gcc-13") is not None
    assert expectation(tmp_path, "tcc") is None
    assert expectation(tmp_path, "egcc") is None


def test_what_the_c_compiler_environment_knows_of_gcc() -> None:
    known = expectation(catalogue.shipped_directory() / "c_compiler", "gcc")
    assert known is not None
    assert list(known.failures) == ["wacct/chapter_17/invalid_types.void.void_fun_params"]
