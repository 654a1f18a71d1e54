"""A contract whose test is ``make -C DIR``: a real make in a subdirectory judges the work."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tests.support.runs import World, opened
from tests.support.snapshot_trees import Content, Link

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")

FILES: dict[str, Content] = {
    "Makefile": b"test:\n\t@echo the wrong directory; exit 1\n",
    "lib/Makefile": b"test:\n\t@grep -qx 'sum 3' sum.txt\n",
    "lib/unit.mk": b"unit:\n\t@grep -q sum sum.txt\n",
    "lib/sum.txt": b"sum 4\n",
    "away": Link("/usr"),
}
TESTS = ("make -C lib test", "make -C lib -f unit.mk unit")


@pytest.fixture
def world() -> Iterator[World]:
    with opened(FILES) as made:
        yield made


@pytest.mark.parametrize(("text", "merged"), [("sum 3\n", True), ("sum 5\n", False)])
def test_make_in_a_subdirectory_judges_the_work(world: World, text: str, merged: bool) -> None:
    contract = world.contract(("lib/sum.txt",), TESTS, policy_pack="low", max_retries=0)
    agent = world.script([{"write": {"lib/sum.txt": text}}])
    outcome = world.ended(world.run(contract, agent, merge=True, baseline=True))
    assert (outcome.status == "passed", outcome.merge == "merged") == (merged, merged)
    report = world.read(outcome.run_id, "reports/test_report.json")
    assert report["commands"][0]["cmd_argv"] == ["make", "-C", "lib", "test"]
    assert (report["commands"][0]["exit_code"] == 0) is merged


@pytest.mark.parametrize("place", ["..", "/tmp", "away", "lib/../../x"])
def test_a_run_that_would_test_elsewhere_never_starts(world: World, place: str) -> None:
    contract = world.contract(("lib/sum.txt",), (f"make -C {place} test",))
    outcome = world.ended(world.run(contract))
    assert outcome.status == "failed"
    assert world.gates(outcome.run_id)["tool_gate"] is False
    assert "COMMAND_STARTED" not in world.kinds(outcome.run_id)
