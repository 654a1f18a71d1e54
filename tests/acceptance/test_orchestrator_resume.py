"""A run that is cut off right after any of its events goes on, and nothing is done twice."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from coilclaw.kernel.errors import ProviderError, Stopped
from coilclaw.runs.engine.contract_stage import RunRequest
from coilclaw.runs.engine.run_engine import RunOutcome
from coilclaw.runs.engine.run_start import RunOptions
from coilclaw.workspace.process.cancellation import Cancellation
from tests.support.runs import ADDS, Answering, World, opened
from tests.support.scale import scaled

WRONG = {"pkg/calc.py": "def add(a, b):\n    return a * b\n"}
ONCE = {"TASK_RESULT_RECORDED", "REVIEW_RESULT", "TEST_RESULT", "CONTRACT_WRITTEN"}
EVERY = scaled(full=1, default=9)
AT_WORK = ("TASK_STARTED", "COMMAND_STARTED")
"""After these a process of somebody else is started."""
SHARES = scaled(full=4, default=1)
"""Parts of the longest test, for as many processes."""


class CutError(BaseException):
    """Nobody catches it: what comes after the event does not take place."""


def cut_after(number: int) -> Callable[[Mapping[str, object]], None]:
    seen = 0

    def watch(_: Mapping[str, object]) -> None:
        nonlocal seen
        seen += 1
        if seen == number:
            raise CutError

    return watch


def stop_after(number: int, cancel: Cancellation) -> Callable[[Mapping[str, object]], None]:
    seen = 0

    def watch(_: Mapping[str, object]) -> None:
        nonlocal seen
        seen += 1
        if seen == number:
            cancel.cancel("enough")

    return watch


def joined(world: World) -> tuple[bytes, RunOptions]:
    """A run with everything in it: a repair, and a branch that moved meanwhile."""
    first = world.git("rev-parse", "HEAD")
    (world.repo / "README.md").write_text("# Sums, and more\n")
    world.git("commit", "-q", "-am", "meanwhile")
    runner = world.script([{"write": WRONG}], [{"write": ADDS}])
    return world.contract(baseline_ref=first), RunOptions(runner, merge=True)


def done(world: World, run_id: str) -> list[tuple[str, str, str]]:
    """What must happen exactly once, with what came of it."""
    return [
        (e["event_type"], str(e["task_id"]), str(e["payload"].get("status") or ""))
        for e in world.recorded(run_id)
        if e["event_type"] in ONCE
    ]


@pytest.mark.parametrize("share", range(SHARES))
def test_cut_off_after_any_event_the_run_comes_to_the_same_end(share: int) -> None:
    with opened() as world:
        contract, options = joined(world)
        outcome = world.orchestrator().start(RunRequest(contract), options, world.events.append)
        assert (outcome.status, outcome.merge) == ("passed", "merged"), outcome.reason
        world.ended(outcome)
        count, wanted = len(world.events), done(world, outcome.run_id)
        tree = world.git("rev-parse", "HEAD^{tree}")
    assert len([each for each in wanted if each[0] == "TEST_RESULT"]) == 3
    # The end of a run has most that can be half done.
    numbers = sorted({*range(1, count + 1, EVERY), *range(count - 2, count + 1)})
    for number in numbers[share::SHARES]:
        with opened() as world:
            contract, options = joined(world)
            with pytest.raises(CutError):
                world.orchestrator().start(RunRequest(contract), options, cut_after(number))
            (run_id,) = [path.name for path in (world.runtime / "runs").iterdir()]
            outcome = world.ended(world.resume(run_id))
            assert (outcome.status, outcome.merge) == ("passed", "merged"), (number, outcome.reason)
            assert done(world, run_id) == wanted, number
            assert world.git("rev-parse", "HEAD^{tree}") == tree, number


@pytest.mark.parametrize("share", range(SHARES))
def test_stopped_after_any_event_the_run_comes_to_the_same_end(share: int) -> None:
    """A stop ends what runs at that moment, and that must not count against the work."""
    with opened() as world:
        contract, options = joined(world)
        outcome = world.orchestrator().start(RunRequest(contract), options, world.events.append)
        kinds = [str(event["event_type"]) for event in world.events]
        wanted, tree = done(world, outcome.run_id), world.git("rev-parse", "HEAD^{tree}")
    at_work = [at for at, kind in enumerate(kinds, 1) if kind in AT_WORK]
    numbers = sorted({*range(1, len(kinds) - 2, 2 * EVERY + 1), *at_work})
    for number in numbers[share::SHARES]:
        with opened() as world:
            contract, options = joined(world)
            orchestrator = world.orchestrator()
            stop = stop_after(number, orchestrator.cancel)
            try:
                outcome = orchestrator.start(RunRequest(contract), options, stop)
                assert number not in at_work
            except Stopped:  # unless it was about to end anyway
                (run_id,) = [path.name for path in (world.runtime / "runs").iterdir()]
                outcome = world.resume(run_id)
            run_id = world.ended(outcome).run_id
            assert (outcome.status, outcome.merge) == ("passed", "merged"), (number, outcome.reason)
            assert done(world, run_id) == wanted, number
            assert world.git("rev-parse", "HEAD^{tree}") == tree, number


@pytest.mark.parametrize("status", ["invalid", "provider", "denied", "failed"])
def test_how_a_run_ended_is_not_forgotten(status: str) -> None:
    """It is cut off between its last move and its seal."""
    with opened() as world:
        outcome = _cut_at_the_end(world, status)
        assert outcome.status == status, outcome.reason
        world.ended(outcome)


def _cut_at_the_end(world: World, status: str) -> RunOutcome:
    contract: bytes | None = world.contract(max_retries=0)
    sentence, runner = "", world.script([{"crash": True}])
    if status == "invalid":
        contract = b"{}"
    elif status == "provider":
        contract, sentence = None, "Make add add."
        world.models["PM"] = Answering(ProviderError("not there", provider="answering"))
    elif status == "denied":
        world.changes["approval_expires_s"] = 0.0
        world.changes["wait_s"] = 1.0
        contract = world.contract(["docs"])

    def watch(event: Mapping[str, object]) -> None:
        payload = event["payload"]
        assert isinstance(payload, dict)
        if event["event_type"] == "STATE_TRANSITION" and payload["to"] == "FAILED":
            raise CutError

    request = RunRequest(contract, sentence)
    with pytest.raises(CutError):
        world.orchestrator().start(request, RunOptions(runner), watch)
    (run_id,) = [path.name for path in (world.runtime / "runs").iterdir()]
    return world.resume(run_id)
