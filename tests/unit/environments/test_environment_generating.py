"""Functions of cases may take parameters: which cases there are may depend on what is given."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from coilclaw.kernel.errors import UsageError
from coilclaw.kernel.messages import Json
from coilclaw.traces.environments import catalogue
from coilclaw.traces.environments.judge import Judge
from coilclaw.traces.environments.results import Result
from coilclaw.workspace.process.confinement import SandboxSupport
from tests.support.environments import write_environment

HEAD = """\
from __future__ import annotations
from typing import TYPE_CHECKING
from coilclaw.environments.authoring import case, check, suite
if TYPE_CHECKING:
    from collections.abc import Iterator
    from coilclaw.environments.authoring import CaseSpec
def least(share: float = 0.5) -> None:
    check(share >= 0.25, "too little", kind="too_little")
parts = suite("part_{n}", n=(1, 2))
"""
COUNTED = (
    HEAD
    + """\
@parts.cases
def counted(n: int, many: int = 1) -> Iterator[CaseSpec]:
    for number in range(n * many):
        yield case(f"c{number}", least)
"""
)


@pytest.fixture
def judge(tmp_path: Path) -> Judge:
    (tmp_path / "work").mkdir()
    return _judge(tmp_path, COUNTED)


def _judge(tmp_path: Path, source: str) -> Judge:
    write_environment(tmp_path / "environment", source)
    place = catalogue.find_environment(str(tmp_path / "environment"))
    return Judge(
        place, support=SandboxSupport(), home=tmp_path / "home", environ=os.environ, timeout_s=60
    )


def _judged(
    judge: Judge, tmp_path: Path, path: str = "", params: Mapping[str, Json] | None = None
) -> Result:
    return judge.test(tmp_path / "work", path, params=params)


def ids(result: Result) -> list[str]:
    return [case.id for case in result.every_case()]


def test_without_the_parameter_its_default_decides(judge: Judge, tmp_path: Path) -> None:
    assert ids(_judged(judge, tmp_path)) == ["part_1/c0", "part_2/c0", "part_2/c1"]
    assert judge.schema()["cases"] == ["part_1/c0", "part_2/c0", "part_2/c1"]


def test_what_is_given_decides(judge: Judge, tmp_path: Path) -> None:
    assert ids(_judged(judge, tmp_path, "part_1", {"many": 3})) == [
        "part_1/c0",
        "part_1/c1",
        "part_1/c2",
    ]
    assert ids(_judged(judge, tmp_path, "part_2/c5", {"many": 3})) == ["part_2/c5"]
    with pytest.raises(UsageError) as caught:
        _judged(judge, tmp_path, "part_2/c5")
    assert caught.value.rule == "environment.path"


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({"many": "3"}, "environment.parameter.type"),
        ({"many": 1.5}, "environment.parameter.type"),
        ({"share": "half"}, "environment.parameter.type"),
        ({"more": 3}, "environment.parameter.unknown"),
        ({"n": 3}, "environment.parameter.unknown"),
    ],
)
def test_what_does_not_fit_is_refused(
    judge: Judge, tmp_path: Path, given: Mapping[str, Json], rule: str
) -> None:
    with pytest.raises(UsageError) as caught:
        _judged(judge, tmp_path, "", given)
    assert caught.value.rule == rule


def test_a_fraction_may_be_given(judge: Judge, tmp_path: Path) -> None:
    assert _judged(judge, tmp_path, "part_1", {"share": 0.75}).passed == 1
    assert _judged(judge, tmp_path, "part_1", {"share": 0.125}).failed == 1


@pytest.mark.parametrize("parameter", ["many: int", "work: Documents"])
def test_what_cases_depend_on_has_a_default(tmp_path: Path, parameter: str) -> None:
    """Before anything is submitted, it has to be known which cases there are."""
    source = HEAD + (
        "from coilclaw.environments.authoring import Documents\n"
        f"@parts.cases\ndef counted(n: int, {parameter}):\n    yield case('one', least)\n"
    )
    with pytest.raises(UsageError) as caught:
        _judge(tmp_path, source).schema()
    assert caught.value.rule == "environment.parameter"


SKIPPING = """\
from coilclaw.environments.authoring import case, check, setup, skipped_case, suite
@setup
def build(works: bool) -> None:
    check(works, "it does not build")
def fine() -> None: ...
@suite("parts").cases
def parts():
    yield case("there", fine)
    yield skipped_case("missing", "nothing to judge it by")
"""


@pytest.mark.parametrize("works", [True, False])
def test_what_cannot_be_judged_is_skipped_whatever_becomes_of_the_build(
    tmp_path: Path, works: bool
) -> None:
    (tmp_path / "work").mkdir()
    result = _judged(_judge(tmp_path, SKIPPING), tmp_path, params={"works": works})
    assert (result.passed, result.failed, result.total) == (int(works), int(not works), 1)
    there, missing = result.every_case()
    assert there.status == ("passed" if works else "failed")
    assert (missing.status, missing.log) == ("skipped", "nothing to judge it by")
