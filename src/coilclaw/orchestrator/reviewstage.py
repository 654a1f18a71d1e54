"""S3: the accepted work is reviewed on a read-only tree that is proven to stay as it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coilclaw.agents.runner import Assignment, Means, ask_nobody
from coilclaw.contracts import schemas
from coilclaw.contracts.eventtypes import EventType
from coilclaw.contracts.reports import ReviewReport
from coilclaw.domain.budget import Budget
from coilclaw.errors import DeniedError, Stopped, UsageError
from coilclaw.gates import outputschema
from coilclaw.gates import reviewer as reviewer_gate
from coilclaw.orchestrator import reviewing, rulesreviewer
from coilclaw.orchestrator.candidates import MAX_PATCH_BYTES
from coilclaw.orchestrator.exchanges import plane_of
from coilclaw.orchestrator.places import segment
from coilclaw.orchestrator.recording import played
from coilclaw.orchestrator.reviewevidence import ChangedFile, ReviewEvidence
from coilclaw.orchestrator.working import patch_path
from coilclaw.runtime.identity import stamp

if TYPE_CHECKING:
    from coilclaw.agents.runner import Ending
    from coilclaw.contracts.schemas import Problem
    from coilclaw.contracts.taskcontract import TaskContract
    from coilclaw.domain.messages import Json
    from coilclaw.gates.result import Violation
    from coilclaw.orchestrator.candidates import Candidate
    from coilclaw.orchestrator.equipment import Equipment
    from coilclaw.orchestrator.inspection import Inspection
    from coilclaw.orchestrator.progress import TaskProgress
    from coilclaw.orchestrator.run import Run
    from coilclaw.workspace.snapshot import Snapshot

RULES: Final = "rules"
MODEL: Final = "model"
MAX_PARTS: Final = 2000
TIMEOUT_S: Final = 900.0


class ReviewStage:
    """Has each task's work reviewed, once a round."""

    def __init__(self, run: Run, equipment: Equipment, inspection: Inspection) -> None:
        self._run = run
        self._equipment = equipment
        self._inspection = inspection
        self.seen: Snapshot | None = None
        """The tree as it was found to be last."""

    def review(self, candidate: Candidate) -> bool:
        """Review what was not reviewed yet; whether nothing blocks the work.

        ``DeniedError`` with the rule ``review.produced_diff`` is a fault of the system.
        """
        self.seen = candidate.snapshot
        for task in self._run.progress.active:
            if not task.reviewed:
                self.seen = self._one(task, candidate, self.seen)
        active = self._run.progress.active
        self._summed_up()
        return all(task.reviewed == "PASS" for task in active)

    def _one(self, task: TaskProgress, candidate: Candidate, before: Snapshot) -> Snapshot:
        """Have one task reviewed; what the tree is afterwards is what it was, or nothing goes on.

        Every file was read for the snapshot ``before``, and nobody worked in the tree since.
        """
        contract = self._run.contract(task.task_id)
        store, worktree = self._equipment.snapshots, candidate.worktree
        evidence = self._evidence(task, contract)
        outcome = self._outcome(evidence, candidate)
        after = store.take(worktree.directory, reread=True)
        report = outcome if isinstance(outcome, ReviewReport) else None
        problems = () if isinstance(outcome, ReviewReport) else outcome
        answered = self._run.judged(
            outputschema.judge(
                None if report is None else report.json(),
                schema=reviewing.REPORT,
                problems=tuple(str(each) for each in problems),
                task_id=task.task_id,
            ),
            task_id=task.task_id,
        )
        gate = reviewer_gate.judge(
            None if report is None else report.json(),
            run_id=self._run.id,
            task_id=task.task_id,
            workers=evidence.workers,
            before=before.id,
            after=after.id,
            diff=store.diff(before.id, after.id),
        )
        isolated = before.id == after.id
        passed = self._run.judged(gate, task_id=task.task_id)
        if not isolated:
            raise DeniedError(
                f"the reviewer of {task.task_id} changed the tree it reviewed",
                rule="review.produced_diff",
            )
        verdict = "BLOCKED" if report is None else report.verdict
        kept = report or self._unanswered(evidence, problems)
        reference = self._run.bundle.write_json(
            f"reviews/{segment(task.task_id)}.json", kept.json()
        )
        if verdict == "PASS" and not (passed and answered):
            verdict = "FAIL"
        self._run.emit(
            EventType.REVIEW_RESULT,
            {
                "verdict": verdict,
                "path": reference.path,
                "sha256": reference.sha256,
                "reviewer": kept.reviewer.agent_id,
            },
            task_id=task.task_id,
            level="INFO" if verdict == "PASS" else "ERROR",
        )
        return after

    def _outcome(
        self, evidence: ReviewEvidence, candidate: Candidate
    ) -> ReviewReport | tuple[Problem, ...]:
        name = str(self._run.option("reviewer") or RULES)
        if name == RULES:
            return rulesreviewer.review(evidence)
        agent_id = str(self._run.option("reviewer_agent") or "reviewer")
        if name == MODEL:
            plane = plane_of(self._run, self._equipment, "REVIEWER", evidence.task_id)
            return reviewing.review_by_model(plane, evidence, agent_id)
        ending = self._performed(name, evidence, candidate)
        return reviewing.review_by_runner(
            ending.result, evidence, agent_id, thread_id=ending.thread_id
        )

    def _performed(self, name: str, evidence: ReviewEvidence, candidate: Candidate) -> Ending:
        """Let an agent review in a sandbox in which it cannot write anything but its own home."""
        equipment, run = self._equipment, self._run
        home = run.places.own_home(run.id, f"review-{segment(evidence.task_id)}")
        candidate.worktree.make_home(home)
        schema = schemas.document(reviewing.ANSWER)
        assignment = Assignment(  # noqa: S604 - a permission, not a shell
            task_id=evidence.task_id,
            instruction=reviewing.instruction(evidence),
            contract=evidence.contract.json(),
            directory=candidate.worktree.directory,
            home=home,
            sandbox=candidate.worktree.sandbox(home, filesystem="read-only", network="deny"),
            environ={**candidate.worktree.environ(home), **candidate.worktree.mount.environ},
            seen_at=candidate.worktree.seen_at,
            budget=Budget(parts=MAX_PARTS, wall_s=TIMEOUT_S),
            filesystem="read-only",
            shell="never",
            network="deny",
            output_schema=schema,
        )
        means = Means(ask_nobody, equipment.cancel, equipment.support)
        runner = equipment.runner(name, evidence.contract)
        with candidate.worktree.in_use():
            ending = played(runner.perform(assignment, means), lambda _: None)
        if equipment.cancel.cancelled:
            raise Stopped(f"the run was stopped: {equipment.cancel.reason}")
        return ending

    def _evidence(self, task: TaskProgress, contract: TaskContract) -> ReviewEvidence:
        old, new = self._inspection.contents(task.origin, task.snapshot)
        bundle = self._run.bundle
        patch = bundle.read(patch_path(task.task_id), limit=MAX_PATCH_BYTES)
        weakened: tuple[Violation, ...] = ()
        if not contract.may_change_tests:
            weakened = self._inspection.weakened(task.origin, task.snapshot, (old, new))
        return ReviewEvidence(
            run_id=self._run.id,
            task_id=task.task_id,
            attempt=self._run.progress.attempt,
            contract=contract,
            changes=tuple(
                ChangedFile(path, old.get(path), new.get(path)) for path in sorted({*old, *new})
            ),
            patch=patch.decode("utf-8", "replace"),
            reviewed_at=stamp(self._equipment.clock()),
            workers=frozenset(
                self._run.contract(one.task_id).assigned_agent.agent_id
                for one in self._run.progress.working
            ),
            weakened=weakened,
            artifacts=(bundle.artifact(patch_path(task.task_id)),),
        )

    def _unanswered(self, evidence: ReviewEvidence, problems: tuple[Problem, ...]) -> ReviewReport:
        """The report of a reviewer whose answer is of no use: it blocks, and says why."""
        ruled = rulesreviewer.review(evidence).json()
        said = "; ".join(str(each) for each in problems[:10]) or "it gave no answer"
        ruled["verdict"] = "BLOCKED"
        ruled["summary"] = f"The reviewer's answer cannot be used: {said}"
        return ReviewReport.of(ruled)

    def _summed_up(self) -> None:
        """``reports/review_report.json``: the review of the run, from those of its tasks."""
        reports = []
        for task in self._run.progress.active:
            data = self._run.bundle.find(f"reviews/{segment(task.task_id)}.json")
            if data is None:
                raise UsageError(f"the review of {task.task_id} is missing", rule="review.missing")
            reports.append(ReviewReport.of(_parsed(data)))
        self._run.bundle.write_json("reports/review_report.json", summed(reports, self._root()))

    def _root(self) -> str:
        return self._run.root_contract.task_id


def summed(reports: list[ReviewReport], task_id: str) -> dict[str, Json]:
    """One report from several; the worst verdict is the verdict."""
    worst = max(reports, key=lambda report: ("PASS", "FAIL", "BLOCKED").index(report.verdict))
    value = worst.json()
    if len(reports) > 1:
        scopes = [report.scope_check for report in reports]
        value["summary"] = " ".join(f"{one.task_id}: {one.summary}" for one in reports)
        value["findings"] = [finding.json() for one in reports for finding in one.findings]
        value["evidence"] = [ref.json() for one in reports for ref in one.evidence]
        value["scope_check"] = {
            "passed": all(scope.passed for scope in scopes),
            "violations": [said for scope in scopes for said in scope.violations],
        }
    value["task_id"] = task_id
    return value


def _parsed(data: bytes) -> object:
    from coilclaw.contracts.reading import parse

    return parse(data)
