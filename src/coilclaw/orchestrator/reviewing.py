"""Reviews by a model, or by an agent in a read-only sandbox, as the reports that gates judge.

Whoever reviews says what it thinks of the change: verdict, summary, scope and findings. Everything
else is filled in here: what was reviewed, when, by whom, and that the reviewer changed nothing,
which the orchestrator proves by snapshots. What rules found is part of every report.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coilclaw.contracts import schemas
from coilclaw.contracts.reports import Finding, Reviewer, ReviewReport, ScopeCheck
from coilclaw.contracts.schemas import Problem
from coilclaw.errors import UsageError
from coilclaw.orchestrator import roleprompts, rulesreviewer
from coilclaw.orchestrator.plane import BoundSchema, Question, fits
from coilclaw.orchestrator.reviewevidence import legible

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TypeAlias

    from coilclaw.contracts.reports import Verdict
    from coilclaw.domain.messages import Json
    from coilclaw.orchestrator.plane import Plane
    from coilclaw.orchestrator.reviewevidence import ReviewEvidence

    Outcome: TypeAlias = "ReviewReport | tuple[Problem, ...]"

ANSWER: Final = "review_answer.v1"
REPORT: Final = "review_report.v1"
MAX_PATCH_CHARS: Final = 400_000
"""What a model reads of one change; it never judges a part of one."""
MAX_FILES: Final = 2_000
_JUDGED: Final = ("verdict", "summary", "scope_check", "findings")


def review_by_model(plane: Plane, evidence: ReviewEvidence, agent_id: str) -> Outcome:
    """Ask a model what it thinks of a change; problems are those of its answer."""
    reviewer = _reviewer(agent_id, evidence)
    if len(evidence.patch) > MAX_PATCH_CHARS or len(evidence.changes) > MAX_FILES:
        return _too_large(evidence, reviewer)
    told = payload(evidence)
    if not fits(told):
        return _too_large(evidence, reviewer)
    answer = plane.ask(
        Question("REVIEWER", roleprompts.MODEL_REVIEWER, told, BoundSchema.of(ANSWER))
    )
    if answer.value is None:
        return answer.problems
    return _report(evidence, reviewer, answer.value)


def review_by_runner(
    result: Mapping[str, Json] | None,
    evidence: ReviewEvidence,
    agent_id: str,
    *,
    thread_id: str = "",
) -> Outcome:
    """Make the report of what an agent answered, as a review report or as a review answer."""
    reviewer = _reviewer(agent_id, evidence, thread_id)
    if result is None:
        return (Problem("/", "the reviewer gave no structured answer"),)
    full = result.keys() - frozenset(_JUDGED)
    problems = schemas.problems(REPORT if full else ANSWER, dict(result))
    if problems:
        return problems
    return _report(evidence, reviewer, result)


def instruction(evidence: ReviewEvidence) -> str:
    """Return what an agent is told that reviews in a read-only sandbox."""
    return roleprompts.review(payload(evidence), ANSWER)


def payload(evidence: ReviewEvidence) -> dict[str, Json]:
    """Return what a reviewing model is told; all of it is data."""
    gates: list[Json] = [
        {"gate": gate.gate, "passed": gate.passed, "violations": [str(v) for v in gate.violations]}
        for gate in evidence.gates
    ]
    facts: list[Json] = [finding.json() for finding in rulesreviewer.findings(evidence)]
    return {
        "contract": evidence.contract.json(),
        "changed": [change.name for change in evidence.changes],
        "patch": legible(evidence.patch),
        "gates": gates,
        "facts": facts,
    }


def _reviewer(agent_id: str, evidence: ReviewEvidence, thread_id: str = "") -> Reviewer:
    if agent_id in evidence.workers:
        raise UsageError(
            f"{agent_id!r} worked on this change, and cannot review it",
            rule="review.identity",
            hint="name another agent of the role REVIEWER",
        )
    return Reviewer(role="REVIEWER", agent_id=agent_id, codex_thread_id=thread_id or None)


def _report(evidence: ReviewEvidence, reviewer: Reviewer, said: Mapping[str, Json]) -> Outcome:
    """Put together what the reviewer and the rules say, unless the former contradicts itself."""
    read = ReviewReport.of({**_bound(evidence, reviewer), **_judged(said)})
    problems = contradictions(read)
    if problems:
        return problems
    known = rulesreviewer.scope_check(evidence)
    scope = ScopeCheck(
        passed=read.scope_check.passed and known.passed,
        violations=tuple(dict.fromkeys((*known.violations, *read.scope_check.violations))),
    )
    rules = rulesreviewer.findings(evidence)
    findings = (*rules, *read.findings)
    blocked = any(each.severity == "blocking" for each in rules) or not known.passed
    verdict: Verdict = "FAIL" if blocked and read.verdict == "PASS" else read.verdict
    notes = f"{len(rules)} of the findings were made by rules, before those of the reviewer."
    return ReviewReport(
        run_id=read.run_id,
        task_id=read.task_id,
        attempt=read.attempt,
        reviewer=reviewer,
        reviewed_at=read.reviewed_at,
        verdict=verdict,
        summary=read.summary,
        scope_check=scope,
        evidence=read.evidence,
        produced_diff=False,
        findings=findings,
        notes=notes,
    )


def contradictions(report: ReviewReport) -> tuple[Problem, ...]:
    """Return where a verdict does not follow from what stands beside it."""
    blocking = any(finding.severity == "blocking" for finding in report.findings)
    found: list[Problem] = []
    if report.verdict == "PASS" and blocking:
        found.append(Problem("/verdict", "PASS stands beside a blocking finding"))
    if report.verdict == "PASS" and not report.scope_check.passed:
        found.append(Problem("/verdict", "PASS stands beside a scope check that did not pass"))
    if report.verdict == "FAIL" and not blocking and report.scope_check.passed:
        found.append(Problem("/verdict", "FAIL stands without any blocking finding"))
    if report.scope_check.passed and report.scope_check.violations:
        found.append(Problem("/scope_check", "it passed, and has violations"))
    return tuple(found)


def _bound(evidence: ReviewEvidence, reviewer: Reviewer) -> dict[str, Json]:
    """Return the fields that no reviewer can choose."""
    return {
        "run_id": evidence.run_id,
        "task_id": evidence.task_id,
        "attempt": evidence.attempt,
        "reviewer": reviewer.json(),
        "reviewed_at": evidence.reviewed_at,
        "evidence": [artifact.json() for artifact in evidence.artifacts],
        "produced_diff": False,
    }


def _judged(said: Mapping[str, Json]) -> dict[str, Json]:
    judged = {key: said[key] for key in _JUDGED}
    listed = judged["findings"]
    # In an answer, no path is an empty one, and no line is 0.
    judged["findings"] = [
        {key: value for key, value in each.items() if value not in ("", 0)}
        for each in (listed if isinstance(listed, list) else [])
        if isinstance(each, dict)
    ]
    return judged


def _too_large(evidence: ReviewEvidence, reviewer: Reviewer) -> ReviewReport:
    size, files = len(evidence.patch), len(evidence.changes)
    message = (
        f"the change is too large for a model to read as a whole: {size:,} characters in {files:,} "
        f"files; {MAX_PATCH_CHARS:,} and {MAX_FILES:,} are the limits"
    )
    return ReviewReport(
        run_id=evidence.run_id,
        task_id=evidence.task_id,
        attempt=evidence.attempt,
        reviewer=reviewer,
        reviewed_at=evidence.reviewed_at,
        verdict="BLOCKED",
        summary="No model was asked: " + message + ".",
        scope_check=rulesreviewer.scope_check(evidence),
        evidence=evidence.artifacts,
        produced_diff=False,
        findings=(
            *rulesreviewer.findings(evidence),
            Finding(severity="blocking", message=message),
        ),
    )
