"""The engine: it moves a run from state to state, as the table says, until it ends or has to wait.

Everything it knows it reads from the run's events, so that a process which opens the run after a
kill resumes it where it was. What is finished is never done again.
"""

from __future__ import annotations

import os
import platform
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from coilclaw import __version__
from coilclaw.kernel import (
    CoilClawError,
    DeniedError,
    EnvironmentFault,
    PlanRefused,
    ProviderError,
    Stopped,
    explain_os_errors,
    schemas,
    sync_directory,
)
from coilclaw.runs.contracts import role_contract
from coilclaw.runs.contracts.event_types import EventType
from coilclaw.runs.contracts.records import Failure, GitState, NextActions, ProducedBy, TaskResult
from coilclaw.runs.engine import candidate as candidates
from coilclaw.runs.engine.candidate import TestStage, try_baseline
from coilclaw.runs.engine.contract_stage import ContractStage, RunRequest, RunWaiting
from coilclaw.runs.engine.inspection import Inspection
from coilclaw.runs.engine.merge_stage import MergeStage
from coilclaw.runs.engine.review_stage import ReviewStage
from coilclaw.runs.engine.task_stage import TaskStage
from coilclaw.runs.evidence import layout
from coilclaw.runs.evidence.audits import make_checkpoint
from coilclaw.runs.evidence.event_index import EventIndex
from coilclaw.runs.evidence.progress import RunState, Trigger
from coilclaw.runs.evidence.seal import seal_bundle
from coilclaw.runs.roles.tech_lead import count_repairs_left, write_repairs
from coilclaw.workspace import remove_tree, sweep_remainders

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from coilclaw.kernel import Json
    from coilclaw.runs.contracts.manifest import RunManifest
    from coilclaw.runs.engine.run import Run, RunDependencies
    from coilclaw.workspace import Snapshot


ORCHESTRATOR: Final = "orchestrator"


def finish(run: Run, equipment: RunDependencies, reason: str) -> RunManifest:
    """Record how the run ended, release what it held, and seal it. It can be repeated."""
    passed = run.progress.state is RunState.DONE
    if not run.progress.finished:
        # A kill may have come between the event that moved the baseline and the file.
        run.bundle.write_text(layout.GIT_BASELINE, f"{run.baseline}\n")
        _write_result(run, reason, passed=passed)
        status = "SUCCESS" if passed else "FAILURE"
        ended = {"status": status, "reason": reason, "merge": run.progress.merge}
        run.emit(EventType.RUN_FINISHED, ended, level="INFO" if passed else "ERROR")
    _let_go(run, equipment)
    if not run.bundle.has(layout.CONTRACT):
        # A run that never had a valid contract keeps what it was given instead, or nothing.
        given = run.bundle.find(layout.GIVEN)
        run.bundle.write_bytes(layout.CONTRACT, b"{}\n" if given is None else given)
    manifest = seal_bundle(
        run.bundle, run.log, _gather_facts(run), signing_key=equipment.signing_key
    )
    checkpoint = make_checkpoint(manifest)
    if checkpoint is not None:
        equipment.keep_checkpoint(checkpoint)
    return manifest


def _let_go(run: Run, equipment: RunDependencies) -> None:
    """Locks, homes and the active contract; worktrees went with the work in them."""
    paths: tuple[str, ...] = ()
    if run.held is not None:
        paths = equipment.locks.release(run.held)
        run.held = None
    elif not run.progress.sealed:
        # A run that was killed after its end does not lock again, only to let go.
        paths = tuple(lock.path for lock in equipment.locks.reclaim(run.id, owned=True))
    equipment.locks.leave(run.id)
    if paths:
        run.emit(EventType.LOCKS_RELEASED, {"paths": list(paths)})
    for place in (run.places.homes / run.id, run.places.active(run.id).parent):
        remove_tree(place)
        sweep_remainders(place.parent)
    remove_tree(run.places.worktrees / run.id)


def _write_result(run: Run, reason: str, *, passed: bool) -> None:
    """``reports/task_result.json``: the result of the run's own contract."""
    bundle, progress = run.bundle, run.progress
    if progress.root is None or bundle.has(layout.TASK_RESULT):
        return
    for path in (layout.PATCH, layout.NAMES):
        if not bundle.has(path):
            bundle.write_bytes(path, b"", redact=False)
    patch, names = bundle.artifact(layout.PATCH), bundle.artifact(layout.NAMES)
    head = str(progress.candidate.get("commit") or run.baseline)
    summary = f"{len(progress.working)} tasks, {progress.attempt} repairs, merge: {progress.merge}."
    action = "nothing is left to do"
    if not passed:
        summary = f"{summary} {reason}"
        action = f"look at what failed: coilclaw runs show {run.id}"
    else:
        head = str(progress.merging.get("commit") or head)
        if progress.merge == "pending":
            action = f"merge it: coilclaw runs apply {run.id}"
    events = EventIndex(run.log.read())
    times = [event.ts for event in events]
    result = TaskResult(
        run_id=run.id,
        task_id=run.root_contract.task_id,
        producer=ProducedBy(role="ORCHESTRATOR", agent_id=ORCHESTRATOR),
        status="SUCCESS" if passed else "FAILED",
        started_at=times[0],
        finished_at=times[-1],
        summary=summary,
        artifacts=(patch, names),
        git=GitState(baseline_ref=run.baseline, head_ref=head, changed_files=names, patch=patch),
        gates=events.gates,
        next_actions=NextActions(suggested_action=action, notes=reason),
        attempt=progress.attempt,
        failure=None if passed else Failure(message=reason or "the run failed"),
    )
    bundle.write_json(layout.TASK_RESULT, result.json())


def _gather_facts(run: Run) -> Mapping[str, Json]:
    """The manifest, but for what the seal computes."""
    progress, created = run.progress, run.progress.created
    contract = None if progress.root is None else run.root_contract
    passed = progress.finished["status"] == "SUCCESS"
    merge: dict[str, Json] = {"status": progress.merge}
    for name in ("branch", "commit"):
        if isinstance(progress.merging.get(name), str) and progress.merging[name]:
            merge[name] = str(progress.merging[name])
    facts: dict[str, Json] = {
        "run_id": run.id,
        "created_at": str(created["created_at"]),
        "status": "SUCCESS" if passed else "FAILURE",
        "user_request": str(created["request"]) or "no request was recorded",
        "trace_id": run.log.trace_id,
        "repo": {
            "root": str(run.places.repository),
            "baseline_ref": run.baseline,
            **({"branch": run.branch} if run.branch else {}),
            **({"final_ref": merge["commit"]} if merge["status"] == "merged" else {}),
        },
        "versions": {
            "contracts_schema": schemas.registry_sha256(),
            "orchestrator": __version__,
            "python": platform.python_version(),
        },
        "tasks": [_describe_task(run, name) for name in progress.tasks],
        "merge": merge,
        "runner": {"name": run.runner},
    }
    if contract is not None:
        facts["task_id"] = contract.task_id
        facts["role_binding_summary"] = role_contract.binding_summary(contract)
        if contract.policy_pack:
            facts["policy_pack"] = contract.policy_pack
    if not passed:
        facts["failure_reason"] = str(progress.finished["reason"])
    return facts


_STATES: Final = {
    "pending": "PENDING",
    "started": "BLOCKED",
    "accepted": "SUCCESS",
    "rejected": "FAILED",
    "superseded": "FAILED",
}


def _describe_task(run: Run, task_id: str) -> dict[str, Json]:
    task, agent = run.progress.tasks[task_id], run.contract(task_id).assigned_agent
    name = layout.make_segment(task_id)
    files = {
        "contract": task.path,
        "result": f"results/{name}/result.json",
        "review_report": f"reviews/{name}.json",
    }
    return {
        "task_id": task_id,
        "role": agent.role,
        "assigned_agent_id": agent.agent_id,
        "status": _STATES[task.state],
        **{
            key: run.bundle.artifact(path).json()
            for key, path in files.items()
            if run.bundle.has(path)
        },
    }


INTERRUPTED: Final = "artifacts/interrupted"
MAX_INTERRUPTIONS: Final = 10_000
FailureStatus: TypeAlias = Literal["failed", "invalid", "denied", "provider"]
Status: TypeAlias = Literal["passed", "paused", "stopped"] | FailureStatus
_RESULTS: Final = frozenset(
    {EventType.SETUP_RESULT, EventType.BASELINE_RESULT, EventType.TEST_RESULT}
)
"""What tells the result of commands, with the report in their folder."""


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """How far a run came."""

    run_id: str
    status: Status
    state: RunState
    reason: str
    merge: str
    manifest: RunManifest | None = None
    """The seal; ``None`` while the run can still be resumed."""
    waiting: tuple[str, ...] = ()
    """Approvals that it waits for."""
    question: str = ""
    """What the user has to answer before it is resumed."""


class RunEngine:
    """Carries out one run."""

    def __init__(self, run: Run, equipment: RunDependencies, request: RunRequest) -> None:
        self._run = run
        self._equipment = equipment
        self._inspected: Inspection | None = None
        self._planning = ContractStage(run, equipment, request)
        self._blamed: tuple[str, ...] = ()
        self._reason = ""
        self._status: FailureStatus = "failed"

    def go(self) -> RunOutcome:
        """Carry out the run until it ends, waits or is stopped."""
        run = self._run
        self._begin()
        if run.progress.locked and not run.progress.finished:
            self._planning.relock()
        stages: Mapping[RunState, Callable[[], Trigger]] = {
            RunState.PM: self._planning.contract,
            RunState.TECH_LEAD: self._planning.split,
            RunState.WORKER: self._work,
            RunState.REVIEWER: self._review,
            RunState.TEST: self._test,
            RunState.FIX: self._fix,
        }
        while not run.progress.state.ended:
            try:
                self._equipment.check_cancelled()
                trigger = stages[run.progress.state]()
            except RunWaiting:
                return self._pause()
            except CoilClawError as problem:
                trigger = self._fail(problem)
            self._move(trigger)
        if run.progress.state is RunState.DONE and not run.progress.finished:
            self._merge()
        return self._end()

    def abandon(self) -> RunOutcome:
        """Abandon the run: seal it as it is, and release what it held."""
        self._begin()
        if not self._run.progress.state.ended:
            self._reason, self._status = "the user gave the run up", "denied"
            self._move(Trigger.DENIED)
        return self._end()

    def _begin(self) -> None:
        set_aside(self._run)
        self._equipment.worktrees.sweep()

    def _move(self, trigger: Trigger) -> None:
        reason = self._planning.reason or self._reason
        failures = (reason,) if reason else ()
        status = self._planning.status or self._status
        self._run.move(trigger, failures=failures, blamed=self._blamed, outcome=status)

    def _continue(
        self, trigger: Trigger, reason: str = "", blamed: tuple[str, ...] = ()
    ) -> Trigger:
        """Remember why the next stage is entered."""
        self._reason, self._blamed = reason, blamed
        return trigger

    @property
    def _inspection(self) -> Inspection:
        """What looks at trees; the baseline of a run that waits may move before its work begins."""
        baseline = self._run.baseline
        if self._inspected is None or self._inspected.baseline != baseline:
            self._inspected = Inspection(self._equipment, baseline, lambda: self._planning.policies)
        return self._inspected

    def _work(self) -> Trigger:
        try_baseline(self._run, self._inspection)
        if TaskStage(self._run, self._inspection, self._planning.asking()).perform():
            return Trigger.WORK_ACCEPTED
        rejected = [task for task in self._run.progress.active if task.state == "rejected"]
        reason = "; ".join(f"{task.task_id}: {task.reason}" for task in rejected)
        blamed = tuple(task.task_id for task in rejected)
        return self._continue(Trigger.WORK_REJECTED, reason, blamed)

    def _review(self) -> Trigger:
        """Review and, in the same worktree, test: what is reviewed is what is tested."""
        with candidates.open_candidate(self._run, self._inspection) as candidate:
            stage = ReviewStage(self._run, self._inspection)
            if stage.review(candidate):
                self._move(self._continue(Trigger.REVIEW_PASSED))
                return self._test_candidate(candidate, stage.seen)
        blocked = [task for task in self._run.progress.active if task.reviewed != "PASS"]
        reason = "; ".join(f"{task.task_id}: the review says {task.reviewed}" for task in blocked)
        blamed = tuple(task.task_id for task in blocked)
        return self._continue(Trigger.REVIEW_BLOCKED, reason, blamed)

    def _test(self) -> Trigger:
        with candidates.open_candidate(self._run, self._inspection) as candidate:
            return self._test_candidate(candidate)

    def _test_candidate(
        self, candidate: candidates.Candidate, seen: Snapshot | None = None
    ) -> Trigger:
        tested = TestStage(self._run, self._inspection).run_tests(candidate, seen=seen)
        if tested.passed:
            return self._continue(Trigger.TESTS_PASSED)
        return self._continue(Trigger.TESTS_FAILED, tested.reason, tested.blamed)

    def _fix(self) -> Trigger:
        run = self._run
        reason = self._reason or " ".join(run.progress.failures) or "the work was not accepted"
        if count_repairs_left(run) <= 0:
            run.emit(EventType.FIX_LOOP_EXHAUSTED, {"reason": reason}, level="ERROR")
            self._reason = reason
            return Trigger.FIX_EXHAUSTED
        until = time.monotonic() + run.root_contract.timeout_retry.retry_backoff_sec
        while (left := until - time.monotonic()) > 0:
            self._equipment.check_cancelled()
            time.sleep(min(0.2, left))
        write_repairs(run, self._planning.policies, run.progress.blamed, reason)
        return self._continue(Trigger.FIX_CONTRACTED)

    def _merge(self) -> None:
        stage = MergeStage(self._run, self._inspection)
        if self._run.option("merge") is not True:
            stage.pending()
            return
        try:
            outcome = stage.merge()
        except CoilClawError as problem:
            self._move(self._fail(problem))
            return
        if not outcome.merged:
            self._reason = outcome.reason
            if not outcome.pending:
                self._move(Trigger.GATE_FAILED)

    def _fail(self, problem: CoilClawError) -> Trigger:
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

    def _pause(self) -> RunOutcome:
        progress = self._run.progress
        waiting, question = tuple(progress.waiting), progress.question
        reason = f"the planner asks: {question}" if question else f"waits for {', '.join(waiting)}"
        self._run.emit(EventType.RUN_PAUSED, {"reason": reason}, level="WARN")
        self._run.log.close()
        about = (progress.state, reason, progress.merge)
        return RunOutcome(self._run.id, "paused", *about, waiting=waiting, question=question)

    def _end(self) -> RunOutcome:
        progress = self._run.progress
        reason = self._planning.reason or self._reason or " ".join(progress.failures)
        if progress.finished:
            reason = str(progress.finished["reason"])
        manifest = finish(self._run, self._equipment, reason)
        # The move to the end has how a run failed: a kill does not forget why.
        known = {status: status for status in get_args(FailureStatus)}
        status: Status = known.get(progress.outcome, "failed")
        if manifest.status == "SUCCESS":
            status = "passed"
        progress = self._run.progress
        return RunOutcome(self._run.id, status, progress.state, reason, progress.merge, manifest)


def set_aside(run: Run) -> None:
    """Move what no event speaks of yet into ``artifacts/interrupted/<n>/``; nothing is deleted.

    A killed process left it half recorded, so that the work can be done anew.
    """
    root = run.bundle.directory
    run.bundle.sweep()
    found = [path for path in _find_unrecorded(run) if os.path.lexists(root / path)]
    if not found:
        return
    places = (f"{INTERRUPTED}/{number}" for number in range(1, MAX_INTERRUPTIONS))
    place = next((each for each in places if not os.path.lexists(root / each)), None)
    if place is None:
        raise EnvironmentFault(f"run {run.id} was interrupted too often", rule="bundle.io")
    for path in found:
        target = root / place / path
        with explain_os_errors(f"set {root / path} aside", rule="bundle.io"):
            target.parent.mkdir(parents=True, exist_ok=True)
            os.rename(root / path, target)
            sync_directory((root / path).parent)
            sync_directory(target.parent)


def _find_unrecorded(run: Run) -> Iterator[str]:
    for task in run.progress.tasks.values():
        name = layout.make_segment(task.task_id)
        if task.state in {"pending", "started"}:
            yield from (f"codex/{name}", f"results/{name}", f"patches/{name}.diff")
            yield from (f"artifacts/rejected/{name}.diff", f"artifacts/receipts/{name}")
        if not task.reviewed:
            yield f"reviews/{name}.json"
    # The folders of tests that no event tells the result of.
    payloads = [one["payload"] for one in run.log.read() if one["event_type"] in _RESULTS]
    told = {
        str(payload["path"]).rpartition("/")[0] for payload in payloads if isinstance(payload, dict)
    }
    for entry in sorted((run.bundle.directory / "ci").iterdir()):
        if f"ci/{entry.name}" not in told:
            yield f"ci/{entry.name}"
