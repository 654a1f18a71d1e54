"""The engine: it moves a run from state to state, as the table says, until it ends or has to wait.

Everything it knows it reads from the run's events, so that whoever opens the run after a kill goes
on where it was. What is finished is never done again.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from coilclaw.contracts.eventtypes import EventType
from coilclaw.errors import CoilClawError, DeniedError, PlanRefused, ProviderError, Stopped
from coilclaw.orchestrator import candidates, interrupted
from coilclaw.orchestrator.asking import Asking
from coilclaw.orchestrator.baseline_stage import try_baseline
from coilclaw.orchestrator.finishing import finish
from coilclaw.orchestrator.fixing import Fixing
from coilclaw.orchestrator.inspection import Inspection
from coilclaw.orchestrator.mergestage import MergeStage
from coilclaw.orchestrator.planning import Planning, Waiting
from coilclaw.orchestrator.reviewstage import ReviewStage
from coilclaw.orchestrator.states import State, Trigger
from coilclaw.orchestrator.teststage import TestStage
from coilclaw.orchestrator.working import Working

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from coilclaw.contracts.manifest import RunManifest
    from coilclaw.orchestrator.equipment import Equipment
    from coilclaw.orchestrator.planning import Request
    from coilclaw.orchestrator.run import Run
    from coilclaw.workspace.snapshot import Snapshot

_log = logging.getLogger(__name__)

Status: TypeAlias = Literal[
    "passed", "failed", "paused", "invalid", "denied", "provider", "stopped"
]
_FAILURES: Final[tuple[Status, ...]] = ("failed", "invalid", "denied", "provider")


@dataclass(frozen=True, slots=True)
class Outcome:
    """How far a run came."""

    run_id: str
    status: Status
    state: State
    reason: str
    merge: str
    manifest: RunManifest | None = None
    """The seal; ``None`` while the run can still go on."""
    waiting: tuple[str, ...] = ()
    """Approvals that it waits for."""
    question: str = ""
    """What the user has to answer before it goes on."""


class Engine:
    """Carries out one run."""

    def __init__(self, run: Run, equipment: Equipment, request: Request) -> None:
        self._run = run
        self._equipment = equipment
        self._inspected: Inspection | None = None
        self._planning = Planning(run, equipment, request, self._asking)
        self._blamed: tuple[str, ...] = ()
        self._reason = ""
        self._status: Status = "failed"

    def go(self) -> Outcome:
        """Go on until the run ends, waits or is stopped."""
        interrupted.set_aside(self._run)
        self._equipment.worktrees.sweep()
        if self._run.progress.locked and not self._run.progress.finished:
            self._planning.relock()
        stages: Mapping[State, Callable[[], Trigger]] = {
            State.PM: self._planning.contract,
            State.TECH_LEAD: self._planning.split,
            State.WORKER: self._work,
            State.REVIEWER: self._review,
            State.TEST: self._test,
            State.FIX: self._fix,
        }
        while not self._run.progress.state.ended:
            try:
                self._check_cancelled()
                trigger = stages[self._run.progress.state]()
            except Waiting:
                return self._paused()
            except CoilClawError as problem:
                trigger = self._failed(problem)
            self._move(trigger)
        if self._run.progress.state is State.DONE and not self._run.progress.finished:
            self._merge()
        return self._ended()

    def abandon(self) -> Outcome:
        """Give the run up: it ends as it is, with its evidence, and lets go of what it held."""
        interrupted.set_aside(self._run)
        self._equipment.worktrees.sweep()
        if not self._run.progress.state.ended:
            self._reason, self._status = "the user gave the run up", "denied"
            self._move(Trigger.DENIED)
        return self._ended()

    def _move(self, trigger: Trigger) -> None:
        reason = self._planning.reason or self._reason
        failures = (reason,) if reason else ()
        status = self._planning.status or self._status
        self._run.move(trigger, failures=failures, blamed=self._blamed, outcome=status)

    @property
    def _inspection(self) -> Inspection:
        """What looks at trees; the baseline of a run that waits may move before its work begins."""
        baseline = str(self._run.option("baseline_commit"))
        if self._inspected is None or self._inspected.baseline != baseline:
            self._inspected = Inspection(self._equipment, baseline, lambda: self._planning.policies)
        return self._inspected

    def _asking(self) -> Asking:
        equipment = self._equipment
        return Asking(
            self._run,
            equipment.desk,
            self._planning.policies.sha256,
            equipment.clock,
            equipment.cancel,
            wait_s=equipment.wait_s,
            live_wait_s=equipment.live_wait_s,
            expires_s=equipment.approval_expires_s,
        )

    def _work(self) -> Trigger:
        try_baseline(self._run, self._inspection)
        working = Working(self._run, self._equipment, self._inspection, self._asking())
        if working.perform():
            return Trigger.WORK_ACCEPTED
        rejected = [task for task in self._run.progress.active if task.state == "rejected"]
        self._blamed = tuple(task.task_id for task in rejected)
        self._reason = "; ".join(f"{task.task_id}: {task.reason}" for task in rejected)
        return Trigger.WORK_REJECTED

    def _review(self) -> Trigger:
        """Review and, in the same worktree, test: what is reviewed is what is tested."""
        with candidates.opened(self._run, self._inspection) as candidate:
            stage = ReviewStage(self._run, self._equipment, self._inspection)
            if not stage.review(candidate):
                blocked = [task for task in self._run.progress.active if task.reviewed != "PASS"]
                self._blamed = tuple(task.task_id for task in blocked)
                self._reason = "; ".join(
                    f"{task.task_id}: the review says {task.reviewed}" for task in blocked
                )
                return Trigger.REVIEW_BLOCKED
            self._reason, self._blamed = "", ()
            self._move(Trigger.REVIEW_PASSED)
            return self._tested(candidate, stage.seen)

    def _test(self) -> Trigger:
        with candidates.opened(self._run, self._inspection) as candidate:
            return self._tested(candidate)

    def _tested(self, candidate: candidates.Candidate, seen: Snapshot | None = None) -> Trigger:
        stage = TestStage(self._run, self._equipment, self._inspection)
        tested = stage.test(candidate, seen=seen)
        if tested.passed:
            self._reason, self._blamed = "", ()
            return Trigger.TESTS_PASSED
        self._blamed = tested.blamed
        self._reason = tested.reason
        return Trigger.TESTS_FAILED

    def _fix(self) -> Trigger:
        run = self._run
        fixing = Fixing(run, self._planning.policies)
        reason = self._reason or " ".join(run.progress.failures) or "the work was not accepted"
        if fixing.left <= 0:
            run.emit(EventType.FIX_LOOP_EXHAUSTED, {"reason": reason}, level="ERROR")
            self._reason = reason
            return Trigger.FIX_EXHAUSTED
        self._back_off()
        fixing.contracts(run.progress.blamed, reason)
        self._reason, self._blamed = "", ()
        return Trigger.FIX_CONTRACTED

    def _back_off(self) -> None:
        until = time.monotonic() + self._run.root_contract.timeout_retry.retry_backoff_sec
        while time.monotonic() < until:
            self._check_cancelled()
            time.sleep(min(0.2, max(0.0, until - time.monotonic())))

    def _merge(self) -> None:
        stage = MergeStage(self._run, self._equipment, self._inspection)
        if self._run.option("merge") is not True:
            stage.pending()
            return
        try:
            outcome = stage.merge()
        except CoilClawError as problem:
            self._move(self._failed(problem))
            return
        if not outcome.merged:
            self._reason = outcome.reason
            if not outcome.pending:
                self._move(Trigger.GATE_FAILED)

    def _failed(self, problem: CoilClawError) -> Trigger:
        """An error ends the run, but for those after which it can be resumed."""
        if isinstance(problem, Stopped) and self._equipment.cancel.cancelled:
            raise problem
        self._reason = problem.message if not problem.hint else f"{problem.message}; {problem.hint}"
        if isinstance(problem, DeniedError) and problem.rule == "review.produced_diff":
            return Trigger.FAULT
        if isinstance(problem, PlanRefused):
            return Trigger.GATE_FAILED
        if isinstance(problem, ProviderError):
            self._status = "provider"
            return Trigger.FAULT
        if isinstance(problem, DeniedError):
            self._status = "denied"
            return Trigger.DENIED
        raise problem

    def _paused(self) -> Outcome:
        waiting = tuple(self._run.progress.waiting)
        question = self._run.progress.question
        reason = f"the planner asks: {question}" if question else f"waits for {', '.join(waiting)}"
        self._run.emit(EventType.RUN_PAUSED, {"reason": reason}, level="WARN")
        self._run.log.close()
        return self._outcome("paused", reason, None, waiting)

    def _ended(self) -> Outcome:
        progress = self._run.progress
        reason = self._planning.reason or self._reason or " ".join(progress.failures)
        if progress.finished:
            reason = str(progress.finished["reason"])
        manifest = finish(self._run, self._equipment, reason)
        passed = manifest.status == "SUCCESS"
        return self._outcome("passed" if passed else _status(progress.outcome), reason, manifest)

    def _outcome(
        self,
        status: Status,
        reason: str,
        manifest: RunManifest | None,
        waiting: tuple[str, ...] = (),
    ) -> Outcome:
        progress = self._run.progress
        return Outcome(
            self._run.id,
            status,
            progress.state,
            reason,
            progress.merge,
            manifest,
            waiting,
            progress.question if status == "paused" else "",
        )

    def _check_cancelled(self) -> None:
        cancel = self._equipment.cancel
        if cancel.cancelled:
            raise Stopped(f"the run was stopped: {cancel.reason}")


def _status(recorded: str) -> Status:
    """How a run that failed ended, as the move to its end has it: a kill does not forget why."""
    for status in _FAILURES:
        if status == recorded:
            return status
    return "failed"
