"""S3: the accepted work is reviewed on a read-only tree that is proven to stay as it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import Budget, DeniedError, UsageError, schemas
from coilclaw.runners import Assignment, Means, ask_nobody
from coilclaw.runs.contracts.event_types import EventType
from coilclaw.runs.contracts.records import ReviewReport
from coilclaw.runs.contracts.task_contract import parse_document
from coilclaw.runs.engine.agent_record import follow_performance
from coilclaw.runs.engine.candidate import MAX_PATCH_BYTES, Candidate, patch_path
from coilclaw.runs.engine.inspection import RunStage
from coilclaw.runs.evidence.layout import make_segment
from coilclaw.runs.gates import contract_gates, decision_gates
from coilclaw.runs.roles import prompts, reviewer, rule_review
from coilclaw.runs.roles.model_questions import plane_of

if TYPE_CHECKING:
    from coilclaw.kernel import Json, SchemaProblem
    from coilclaw.runners import Ending
    from coilclaw.runs.evidence.progress import TaskProgress
    from coilclaw.workspace import Snapshot

RULES: Final = "rules"
MODEL: Final = "model"
MAX_PARTS: Final = 2000
TIMEOUT_S: Final = 900.0


@dataclass(slots=True)
class ReviewStage(RunStage):
    """Has each task's work reviewed, once a round."""

    seen: Snapshot | None = None
    """The tree as it was last seen."""

    def review(self, candidate: Candidate) -> bool:
        """Review what was not reviewed yet; return whether the work passed.

        ``DeniedError`` with the rule ``review.produced_diff`` is a fault of the system.
        """
        run = self.run
        self.seen = candidate.snapshot
        for task in run.progress.active:
            if not task.reviewed:
                self.seen = self._review_task(task, candidate, self.seen)
        reports = []
        for task in run.progress.active:
            data = run.bundle.find(f"reviews/{make_segment(task.task_id)}.json")
            if data is None:
                raise UsageError(f"the review of {task.task_id} is missing", rule="review.missing")
            reports.append(ReviewReport.of(parse_document(data)))
        whole = sum_up(reports, run.root_contract.task_id)
        run.bundle.write_json("reports/review_report.json", whole)
        return all(task.reviewed == "PASS" for task in run.progress.active)

    def _review_task(self, task: TaskProgress, candidate: Candidate, before: Snapshot) -> Snapshot:
        """Have one task reviewed; raise if the tree is not the same afterwards.

        Every file was read for the snapshot ``before``, and the tree was left alone since.
        """
        run, store, task_id = self.run, self.equipment.snapshots, task.task_id
        evidence = self._gather_evidence(task)
        outcome = self._ask(evidence, candidate)
        after = store.take(candidate.worktree.directory, reread=True)
        report = outcome if isinstance(outcome, ReviewReport) else None
        problems = () if isinstance(outcome, ReviewReport) else outcome
        said = None if report is None else report.json()
        answer = contract_gates.judge_output(
            said, schema=reviewer.REPORT, problems=tuple(map(str, problems)), task_id=task_id
        )
        answered = run.record_gate(answer, task_id=task_id)
        gate = decision_gates.judge_review(
            said,
            run_id=run.id,
            task_id=task_id,
            workers=evidence.workers,
            before=before.id,
            after=after.id,
            diff=store.diff(before.id, after.id),
        )
        passed = run.record_gate(gate, task_id=task_id)
        if before.id != after.id:
            raise DeniedError(
                f"the reviewer of {task_id} changed the tree it reviewed",
                rule="review.produced_diff",
            )
        if report is None:
            # An answer that is of no use blocks, and the report says why.
            said = rule_review.review(evidence).json()
            why = "; ".join(map(str, problems[:10])) or "it gave no answer"
            said["verdict"] = "BLOCKED"
            said["summary"] = f"The reviewer's answer cannot be used: {why}"
            report = ReviewReport.of(said)
        verdict = report.verdict
        reference = run.bundle.write_json(f"reviews/{make_segment(task_id)}.json", report.json())
        if verdict == "PASS" and not (passed and answered):
            verdict = "FAIL"
        facts, good = {"verdict": verdict, "reviewer": report.reviewer.agent_id}, verdict == "PASS"
        run.record_report(EventType.REVIEW_RESULT, reference, facts, task_id=task_id, good=good)
        return after

    def _ask(
        self, evidence: rule_review.ReviewEvidence, candidate: Candidate
    ) -> ReviewReport | tuple[SchemaProblem, ...]:
        name = str(self.run.option("reviewer") or RULES)
        if name == RULES:
            return rule_review.review(evidence)
        agent_id = str(self.run.option("reviewer_agent") or "reviewer")
        if name == MODEL:
            plane = plane_of(self.run, self.equipment, "REVIEWER", evidence.task_id)
            return reviewer.review_by_model(plane, evidence, agent_id)
        ending = self._perform(name, evidence, candidate)
        return reviewer.review_by_runner(
            ending.result, evidence, agent_id, thread_id=ending.thread_id
        )

    def _perform(
        self, name: str, evidence: rule_review.ReviewEvidence, candidate: Candidate
    ) -> Ending:
        """Let an agent review in a sandbox in which it cannot write anything but its own home."""
        equipment, run, worktree = self.equipment, self.run, candidate.worktree
        home = run.places.own_home(run.id, f"review-{make_segment(evidence.task_id)}")
        worktree.make_home(home)
        assignment = Assignment(  # noqa: S604 - a permission, not a shell
            task_id=evidence.task_id,
            instruction=prompts.review(reviewer.payload(evidence), reviewer.ANSWER),
            contract=evidence.contract.json(),
            directory=worktree.directory,
            home=home,
            sandbox=worktree.sandbox(home, filesystem="read-only", network="deny"),
            environ={**worktree.environ(home), **worktree.mount.environ},
            seen_at=worktree.seen_at,
            budget=Budget(parts=MAX_PARTS, wall_s=TIMEOUT_S),
            filesystem="read-only",
            shell="never",
            network="deny",
            output_schema=schemas.load_schema(reviewer.ANSWER),
        )
        means = Means(ask_nobody, equipment.cancel, equipment.support)
        runner = equipment.runner(name, evidence.contract)
        with worktree.in_use():
            ending = follow_performance(runner.perform(assignment, means), lambda _: None)
        equipment.check_cancelled()
        return ending

    def _gather_evidence(self, task: TaskProgress) -> rule_review.ReviewEvidence:
        run, inspection = self.run, self.inspection
        contract, path = run.contract(task.task_id), patch_path(task.task_id)
        old, new = inspection.contents(task.origin, task.snapshot)
        weakened = inspection.find_weakened(task.origin, task.snapshot, (old, new))
        return rule_review.ReviewEvidence(
            run_id=run.id,
            task_id=task.task_id,
            attempt=run.progress.attempt,
            contract=contract,
            changes=tuple(
                rule_review.ChangedFile(path, old.get(path), new.get(path))
                for path in sorted({*old, *new})
            ),
            patch=run.bundle.read(path, limit=MAX_PATCH_BYTES).decode("utf-8", "replace"),
            reviewed_at=self.equipment.now(),
            workers=frozenset(
                run.contract(one.task_id).assigned_agent.agent_id for one in run.progress.working
            ),
            weakened=() if contract.may_change_tests else weakened,
            artifacts=(run.bundle.artifact(path),),
        )


def sum_up(reports: list[ReviewReport], task_id: str) -> dict[str, Json]:
    """Make one report from several; the worst verdict is the verdict."""
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
