"""The self-check of the C-compiler environment with real compilers, on what fixtures there are."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from coilclaw.traces.environments import catalogue, fixtures
from tests.support.command import Command
from tests.support.cprograms import (
    ctestsuite_files,
    real_fixtures,
    torture_files,
    wacct_files,
    write,
)
from tests.support.scale import scaled

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc")

FULL = scaled(full=1, default=0)


@pytest.fixture
def coilclaw(tmp_path: Path) -> Command:
    (tmp_path / "user").mkdir()
    return Command(tmp_path / "user" / ".coilclaw")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Fixtures that look like the real ones."""
    place = tmp_path / "fixtures"
    write(place / "wacct", wacct_files())
    write(place / "c-testsuite", ctestsuite_files())
    write(place / "torture", torture_files())
    return place


def selfcheck(coilclaw: Command, root: Path, *arguments: str) -> tuple[int, Any]:
    done = coilclaw(
        "env", "selfcheck", "c_compiler", "--cc", "gcc", "--fixtures", str(root), "--jobs", "2",
        "--json", *arguments,
    )  # fmt: skip
    assert done.stdout, done.stderr.decode()
    return done.returncode, json.loads(done.stdout)


def states(told: Any) -> dict[str, tuple[str, int, int]]:
    return {one["suite"]: (one["state"], one["passed"], one["total"]) for one in told["suites"]}


def test_look_alikes_are_judged_as_they_are_described(coilclaw: Command, root: Path) -> None:
    chapters = ("wacct/chapter_1", "wacct/chapter_9", "wacct/chapter_18", "wacct/chapter_20")
    wanted = (*chapters, "wacct/chapter_13", "c_testsuite")
    code, told = selfcheck(coilclaw, root, *(f"--suite={name}" for name in wanted))
    assert states(told) == {
        "wacct/chapter_1": ("proved", 4, 4),
        "wacct/chapter_9": ("proved", 3, 3),
        "wacct/chapter_18": ("proved", 3, 3),
        "wacct/chapter_20": ("proved", 2, 2),
        "wacct/chapter_13": ("proved", 3, 3),
        "c_testsuite": ("proved", 2, 2),
    }
    assert code == 0
    assert "in another version" in told["suites"][0]["fixtures"]


def test_an_expectation_that_is_wrong_is_found(coilclaw: Command, root: Path) -> None:
    results = root / "wacct/expected_results.json"
    document = json.loads(results.read_text())
    document["chapter_1/valid/only.c"]["return_code"] = 4
    results.write_text(json.dumps(document))
    write(root / "wacct", {"tests/chapter_1/invalid_lex/at_sign.c": "int main(void) { return 1; }"})
    code, told = selfcheck(coilclaw, root, "--suite=wacct/chapter_1")
    assert (code, states(told)) == (1, {"wacct/chapter_1": ("differs", 2, 4)})
    assert {case["id"]: case["failure_kind"] for case in told["suites"][0]["failed"]} == {
        "wacct/chapter_1/invalid_lex.at_sign": "accepted",
        "wacct/chapter_1/valid.only": "wrong_exit_code",
    }


def test_what_gcc_cannot_do_is_found_out(coilclaw: Command, root: Path, tmp_path: Path) -> None:
    code, told = selfcheck(coilclaw, root, "--suite=torture")
    assert (code, states(told)) == (1, {"torture": ("differs", 3, 5)})
    made = tmp_path / "left_out.json"
    code, told = selfcheck(coilclaw, root, "--derive=torture", f"--output={made}")
    assert (code, told["programs"]) == (0, 5)
    assert told["left_out"] == {
        "loud": "wrong_output: it prints",
        "unlinked": "compile_error: it does not compile or link as one file by itself",
    }
    assert json.loads(made.read_text()) == told


def test_suites_without_fixtures(coilclaw: Command, tmp_path: Path) -> None:
    code, told = selfcheck(coilclaw, tmp_path / "none", "--suite=torture")
    assert (code, states(told)) == (1, {"torture": ("missing", 0, 0)})


def test_basics_are_proved(coilclaw: Command, tmp_path: Path) -> None:
    parts = ["basics"] if FULL else ["basics/smoke", "basics/edge_cases"]
    code, told = selfcheck(coilclaw, tmp_path / "none", *(f"--suite={name}" for name in parts))
    assert [suite["failed"] for suite in told["suites"]] == [[] for _ in parts]
    assert code == 0
    assert sum(suite["passed"] for suite in told["suites"]) >= (60 if FULL else 12)


@pytest.mark.full
def test_real_torture_is_proved(coilclaw: Command) -> None:
    """A fifth of it: all of it takes minutes."""
    sets = {
        one.name: one
        for one in fixtures.read_declared(catalogue.shipped_directory() / "c_compiler")
    }
    found = fixtures.find(sets["torture"], real_fixtures())
    if found.state != "pinned":
        pytest.skip(f"the fixtures torture are {found.state} in {real_fixtures()}")
    status = coilclaw(
        "env", "fixtures", "c_compiler", "status", "--fixtures", str(real_fixtures()), "--json"
    )
    counted = {one["name"]: one["programs"] for one in json.loads(status.stdout)["sets"]}
    assert counted["torture"] == sets["torture"].programs
    parts = ("torture/part_1", "torture/part_6")
    code, told = selfcheck(coilclaw, real_fixtures(), *(f"--suite={name}" for name in parts))
    assert [suite["failed"] for suite in told["suites"]] == [[], []]
    assert code == 0
    assert sum(suite["passed"] for suite in told["suites"]) == 157 + 156


@pytest.mark.full
@pytest.mark.skipif(shutil.which("tcc") is None, reason="there is no tcc")
def test_a_flag_that_a_compiler_does_not_know_earns_it_nothing(
    coilclaw: Command, root: Path
) -> None:
    """tcc ends with an error for that flag, which is not to reject a program."""
    pedantry = "int main(void) { return 0; };\n"
    write(root / "wacct", {"tests/chapter_1/invalid_parse/pedantry.c": pedantry})
    _, told = selfcheck(coilclaw, root, "--suite=wacct/chapter_1")
    assert states(told) == {"wacct/chapter_1": ("proved", 5, 5)}
    code, told = selfcheck(coilclaw, root, "--suite=wacct/chapter_1", "--cc=tcc")
    assert (code, states(told)) == (0, {"wacct/chapter_1": ("scored", 4, 5)})
    (failed,) = told["suites"][0]["failed"]
    assert (failed["id"], failed["failure_kind"]) == (
        "wacct/chapter_1/invalid_parse.pedantry",
        "accepted",
    )
