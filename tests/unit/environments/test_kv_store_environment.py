"""The kv_store environment: a right store passes, a wrong one fails exactly where it is wrong."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from coilclaw.traces.environments import catalogue
from coilclaw.traces.environments.judge import Judge
from coilclaw.workspace.process.confinement import SandboxSupport
from coilclaw.workspace.process.sandbox import probe_sandboxes
from tests.support.environments import BUILD, VARIANTS, Variant, submit
from tests.support.scale import scaled

SUITES = ("basics", "protocol", "durability", "edge_cases", "load")


@pytest.fixture(scope="module")
def support() -> SandboxSupport:
    return probe_sandboxes()


@pytest.fixture
def judge(tmp_path: Path, support: SandboxSupport) -> Judge:
    place = catalogue.find_environment("kv_store")
    return Judge(
        place, support=support, home=tmp_path / "home", environ=os.environ, jobs=3, timeout_s=120
    )


def test_what_a_run_starts_from_does_not_build(judge: Judge, tmp_path: Path) -> None:
    assert judge.place.workspace is not None
    start = tmp_path / "start"
    shutil.copytree(judge.place.workspace, start)
    result = judge.test(start)
    assert (result.passed, result.failed) == (0, result.total)
    assert "there is nothing to build yet" in (result.error or "")


def test_a_right_store_passes_everything(judge: Judge, tmp_path: Path) -> None:
    result = judge.test(submit(tmp_path / "right"))
    assert {case.id: case.log for case in result.every_case() if not case.passed} == {}
    assert result.solved
    assert tuple(result.children) == SUITES
    assert result.total >= 50


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_a_wrong_store_fails_where_it_is_wrong(
    judge: Judge, tmp_path: Path, variant: Variant
) -> None:
    place = submit(tmp_path / "wrong", variant.source())
    suites = {name.partition("/")[0] for name in variant.failing}
    # All suites of all variants take a while.
    paths = ("",) if scaled(full=1, default=0) else sorted(suites)
    results = [judge.test(place, path) for path in paths]
    failing = {one.id for result in results for one in result.every_case() if not one.passed}
    assert failing == variant.failing


def test_a_store_that_keeps_nothing_fails_what_has_to_survive(judge: Judge, tmp_path: Path) -> None:
    forgetful = Variant("", "        self.file.write(record)\n", "", frozenset())
    result = judge.test(submit(tmp_path / "wrong", forgetful.source()), "durability")
    assert result.passed <= 1
    assert judge.test(submit(tmp_path / "wrong", forgetful.source()), "basics").solved


def test_a_store_cannot_lead_the_tests_to_other_files(judge: Judge, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("x" * 1000, encoding="utf-8")
    elsewhere = (
        "#!/usr/bin/env python3\nimport os, sys\n"
        f"for name in ('', '.tmp'):\n    os.symlink({str(precious)!r}, sys.argv[1] + name)\n"
        "for line in sys.stdin:\n    print('OK')\n"
    )
    place = submit(tmp_path / "wrong", elsewhere)
    expected = {"torn_tail_1": "missing", "leftover_file_is_ignored": "wrong_output"}
    for name, kind in expected.items():
        (case,) = judge.test(place, f"durability/{name}").every_case()
        assert case.failure_kind == kind
    assert precious.read_text(encoding="utf-8") == "x" * 1000


@pytest.mark.parametrize(
    ("build", "said"),
    [
        ("exit 4\n", "exit code 4"),
        ("true\n", "no executable file kv"),
        ("cp kv.py kv\n", "no executable file kv"),
        (None, "there is no build.sh"),
    ],
)
def test_a_build_that_makes_no_store_is_told(
    judge: Judge, tmp_path: Path, build: str | None, said: str
) -> None:
    place = submit(tmp_path / "wrong", build=build or BUILD)
    if build is None:
        (place / "build.sh").unlink()
    result = judge.test(place, "basics/set_then_get")
    assert [case.failure_kind for case in result.every_case()] == ["build"]
    assert said in (result.error or "")


def test_the_task_says_what_is_tested(judge: Judge) -> None:
    for word in (*SUITES, "build.sh", "ERROR not an integer", "kill -9", "COMPACT", "run_tests"):
        assert word in judge.place.task
