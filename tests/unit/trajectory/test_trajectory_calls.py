"""Which part a call of the tests belongs to, while the agent goes on."""

from __future__ import annotations

import threading
from collections.abc import Generator
from pathlib import Path

import pytest

from coilclaw.kernel.messages import Part
from coilclaw.runners.runner import Assignment, Ending, Means
from coilclaw.traces.environments.results import Result
from coilclaw.traces.trajectory.test_harness import SuiteHarness, SuiteStanding
from coilclaw.traces.trajectory.verification import verify_trajectory
from coilclaw.workspace.process.cancellation import Cancellation
from tests.support.children import PATIENCE_S
from tests.support.trajectories import FileTests, Saying, opened


@pytest.fixture
def bench(tmp_path: Path) -> SuiteHarness:
    made = SuiteHarness(
        FileTests(),
        lambda _: tmp_path,
        tmp_path / "results",
        standing=SuiteStanding(("basics", "extra")),
        tree=lambda: "a" * 40,
        stamp=lambda: "2026-11-15T10:00:00.000000Z",
        cancel=Cancellation(),
        redact=str,
    )
    assert made.run_tests is not None
    for path in ("basics", "", "extra/three", "basics"):
        made.run_tests(path)
    return made


def test_a_part_shows_the_call_that_it_names_and_the_turn_has_the_rest(bench: SuiteHarness) -> None:
    shown = [
        bench.shown_by(tool, given)
        for tool, given in (
            ("shell", '{"command": "run_tests"}'),
            ("", ""),
            ("coilclaw/run_tests", '{"test_path": " extra/three/ "}'),
            ("run_tests", '{"path": ""}'),
        )
    ]
    assert [[call.path for call in calls] for calls in shown] == [[], [], ["extra/three"], [""]]
    assert [call.path for call in bench.drain()] == ["basics", "basics"]
    assert bench.shown_by("run_tests", "") == ()


@pytest.mark.parametrize("given", ["", "{", "7", "[]", "null", '{"test_path": 7}', "[" * 100_000])
def test_an_input_that_names_nothing_shows_the_first(bench: SuiteHarness, given: str) -> None:
    (call,) = bench.shown_by("coilclaw_run_tests", given)
    assert call.path == "basics"
    assert len(bench.drain()) == 3


class Slow(FileTests):
    """Tests that take until somebody lets them go."""

    begun = threading.Event()
    go = threading.Event()

    def test(self, submission: Path, path: str = "", *, cancel: Cancellation) -> Result:
        self.begun.set()
        assert self.go.wait(PATIENCE_S)
        return super().test(submission, path, cancel=cancel)


def test_a_part_is_recorded_while_tests_run_and_does_not_take_them() -> None:
    judge = Slow()

    def tests_meanwhile(_: Assignment, means: Means) -> Generator[Part, None, Ending]:
        assert means.run_tests is not None
        thread = threading.Thread(target=means.run_tests, args=("basics",))
        thread.start()
        assert judge.begun.wait(PATIENCE_S)
        yield Part("text", text="I run the tests.")
        # It is recorded now, and they still run.
        judge.go.set()
        thread.join()
        yield Part("text", text="They ran.")
        yield Part("tool", tool="coilclaw/run_tests", input='{"test_path":"basics"}')
        return Ending("done")

    with opened(judge) as world:
        world.run(lambda _: Saying(tests_meanwhile), max_turns=1)
        calls = [[call.path for call in part.envoi_calls] for part in world.trace().parts]
        assert calls == [[], [], ["basics"]]
        assert verify_trajectory(world.places).problems == ()
