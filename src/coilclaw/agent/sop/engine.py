"""``SopEngine``: runs the stages in order, each recorded before and after it runs.

A finished stage is never repeated. A stage that was started and not finished is settled by its
evidence first. Parallel stages are recorded in the order of the file, whichever is faster.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from coilclaw.agent.sop import conditions, references
from coilclaw.agent.sop.document import StageOutcome
from coilclaw.agent.sop.interruption import Interruptions, rounds_outcome
from coilclaw.agent.sop.stage_attempt import (
    AttemptMaker,
    Begun,
    Waiting,
    check_stop,
    failed_outcome,
    tell,
)
from coilclaw.kernel import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from coilclaw.agent.sop.document import Sop, SopStage
    from coilclaw.agent.sop.interruption import Resolution
    from coilclaw.agent.sop.run_journal import Ending, RunFile, SopRun
    from coilclaw.agent.sop.stage_attempt import Result, SopDependencies

MAX_PARALLEL: Final = 4
"""Stages and rounds of loops that run at the same time."""
LOOK_EVERY_S: Final = 0.2
"""Interval at which a stop is checked during the pause before a retry."""


class SopEngine:
    """Executes one run until it ends or has to wait."""

    def __init__(self, sop: Sop, file: RunFile, dependencies: SopDependencies) -> None:
        self._sop = sop
        self._file = file
        self._dependencies = dependencies
        self._maker = AttemptMaker(sop, file, dependencies)
        self._recovered: dict[str, StageOutcome] = {}

    def settle(self, resolution: Resolution | None) -> None:
        """Settle interrupted stages; raise ``DeniedError`` if a person has to decide first."""
        self._recovered = Interruptions(self._sop, self._file, self._dependencies).settle(
            resolution
        )

    def go(self) -> SopRun:
        """Continue the run; raise ``DeniedError`` if the emergency stop is set."""
        for group in self._sop.groups:
            self._work_on(group)
            found = [(stage, self._file.run.outcomes.get(stage.id)) for stage in group]
            for stage, outcome in found:
                ending = None if outcome is None else _ending(stage, outcome)
                if outcome is not None and ending is not None:
                    return self._end(ending, f"{stage.id}: {outcome.error or outcome.status}")
            if any(outcome is None for _, outcome in found):
                return self._file.run
        return self._end("done", "")

    def _end(self, ending: Ending, reason: str) -> SopRun:
        for approval in self._file.run.waits.values():
            self._dependencies.approvals.withdraw(approval)
        self._file.end(ending, reason)
        tell("sop_run_ended", self._file.run.id, ending)
        return self._file.run

    def _work_on(self, group: Sequence[SopStage]) -> None:
        """Execute the stages of a group until all have ended or wait."""
        units: dict[str, tuple[SopStage, ...]] = {}
        for stage in group:
            if stage.id not in self._file.run.outcomes:
                check_stop(self._dependencies, self._file.run)
                units[stage.id] = self._units(stage)
        every = [unit for found in units.values() for unit in found]
        self._run_all(every, MAX_PARALLEL if group[0].parallel else 1)
        for stage in group:
            outcomes = self._file.run.outcomes
            if stage.for_each is not None and stage.id not in outcomes:
                # A loop ends when all of its rounds have ended or one of them aborts it.
                done = [outcomes[one.id] for one in units[stage.id] if one.id in outcomes]
                if len(done) == len(units[stage.id]) or any(_ending(stage, one) for one in done):
                    self._finish(rounds_outcome(stage, done))

    def _units(self, stage: SopStage) -> tuple[SopStage, ...]:
        """Return the units of a stage: itself, the rounds of its loop, or none if skipped."""
        run = self._file.run
        try:
            if stage.when is not None and not conditions.holds(
                stage.when, run.outcomes, run.inputs
            ):
                self._finish(StageOutcome(stage.id, "skipped", 0))
                return ()
            if stage.for_each is None:
                return (stage,)
            items = references.items(stage, run.outcomes, run.inputs)
        except UsageError as problem:
            self._finish(failed_outcome(stage, 1, problem))
            return ()
        return tuple(stage.round(index, item) for index, item in enumerate(items))

    def _run_all(self, units: Iterable[SopStage], width: int) -> None:
        """Execute the units in groups of ``width``; stop after a failure that aborts."""
        left = iter([unit for unit in units if unit.id not in self._file.run.outcomes])
        while wave := list(islice(left, width)):
            check_stop(self._dependencies, self._file.run)
            self._wave(wave)
            found = [(unit, self._file.run.outcomes.get(unit.id)) for unit in wave]
            if any(one is not None and _ending(unit, one) for unit, one in found):
                return
            if width == 1 and found[0][1] is None:
                return

    def _wave(self, units: Sequence[SopStage]) -> None:
        """Execute units in parallel, with retries, until each has ended or waits."""
        pending = list(units)
        while pending:
            again = []
            results = list(self._perform_units(pending))
            for unit, result in zip(pending, results, strict=True):
                if isinstance(result, Waiting):
                    self._file.record_question(unit.id, result.approval)
                    tell("sop_waiting", unit.id, result.approval)
                elif isinstance(result, StageOutcome):
                    # A denial by a rule or a person would be repeated, so it is not retried.
                    tried = self._file.run.failures.get(unit.id, 0)
                    if result.status == "failed" and tried < unit.retries:
                        self._file.record_outcome(result, again=True)
                        again.append(unit)
                    else:
                        self._finish(result)
            for result in results:
                if isinstance(result, BaseException):
                    raise result
            pending = again
            if again:
                self._pause(max(unit.retry_delay_s for unit in again))

    def _perform_units(self, units: Sequence[SopStage]) -> Iterator[Result | BaseException]:
        """Start all units in order, perform them, and yield their results in order."""
        begun = [
            self._recovered.pop(one.id) if one.id in self._recovered else self._maker.begin(one)
            for one in units
        ]
        acting = [one for one in begun if isinstance(one, Begun) and one.stage.kind != "approval"]
        if len(acting) < 2:
            for one in begun:
                yield self._maker.perform(one) if isinstance(one, Begun) else one
            return
        # Approvals are requested first, in order.
        asked = {
            one.stage.id: self._maker.perform(one)
            for one in begun
            if isinstance(one, Begun) and one.stage.kind == "approval"
        }
        performed = self._side_by_side(acting)
        for each in begun:
            yield {**asked, **performed}[each.stage.id] if isinstance(each, Begun) else each

    def _side_by_side(self, begun: Sequence[Begun]) -> dict[str, Result | BaseException]:
        from concurrent.futures import ThreadPoolExecutor, wait

        with ThreadPoolExecutor(len(begun), thread_name_prefix="sop") as pool:
            futures = {one.stage.id: pool.submit(self._maker.perform, one) for one in begun}
            try:
                wait(futures.values())
            except BaseException:
                # After Ctrl-C no call may continue in the background.
                self._dependencies.halt("it was interrupted")
                raise
        return {name: one.exception() or one.result() for name, one in futures.items()}

    def _finish(self, outcome: StageOutcome) -> None:
        self._file.record_outcome(outcome)
        tell("sop_stage_finished", outcome.stage, outcome.status)

    def _pause(self, seconds: float) -> None:
        """Wait before a retry; a stop during the wait leaves a run that can be resumed."""
        check_stop(self._dependencies, self._file.run)
        while seconds > 0:
            self._dependencies.pause(min(seconds, LOOK_EVERY_S))
            seconds -= LOOK_EVERY_S
            check_stop(self._dependencies, self._file.run)


def _ending(stage: SopStage, outcome: StageOutcome) -> Ending | None:
    """Return how a run ends after a stage, or ``None`` if it continues."""
    if not outcome.failure:
        return None
    if outcome.status == "rejected":
        return "rejected"
    if stage.on_failure.what == "continue":
        return None
    return "denied" if outcome.status == "denied" else "failed"
