"""Reviews by a model, or by an agent in a read-only sandbox, as the reports that gates judge.

The reviewer says what it thinks of the change: verdict, summary, scope and findings. Everything
else is filled in here: what was reviewed, when, by whom, and that the reviewer changed nothing,
which the orchestrator proves by snapshots. What rules found is part of every report.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import SchemaProblem, UsageError, schemas, valid_text
from coilclaw.runs.contracts.records import Finding, Reviewer, ReviewReport, ScopeCheck
from coilclaw.runs.roles import prompts, rule_review
from coilclaw.runs.roles.model_questions import BoundSchema, ModelPlane, ModelQuestion, fits

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TypeAlias

    from coilclaw.kernel import Json
    from coilclaw.runs.roles.rule_review import ReviewEvidence

    Outcome: TypeAlias = "ReviewReport | tuple[SchemaProblem, ...]"

ANSWER: Final = "review_answer.v1"
REPORT: Final = "review_report.v1"
MAX_PATCH_CHARS: Final = 400_000
"""What a model reads of one change; it never judges a part of one."""
MAX_FILES: Final = 2_000
_JUDGED: Final = ("verdict", "summary", "scope_check", "findings")


def review_by_model(plane: ModelPlane, evidence: ReviewEvidence, agent_id: str) -> Outcome:
    """Ask a model what it thinks of a change; problems are those of its answer."""
    reviewer = _make_reviewer(agent_id, evidence)
    large = len(evidence.patch) > MAX_PATCH_CHARS or len(evidence.changes) > MAX_FILES
    if large or not fits(told := payload(evidence)):
        message = (
            f"the change is too large for a model to read as a whole: {len(evidence.patch):,} "
            f"characters in {len(evidence.changes):,} files; {MAX_PATCH_CHARS:,} and "
            f"{MAX_FILES:,} are the limits"
        )
        found = (*rule_review.findings(evidence), Finding(severity="blocking", message=message))
        summary = f"No model was asked: {message}."
        return rule_review.make_report(evidence, reviewer, "BLOCKED", summary, found)
    answer = plane.ask(
        ModelQuestion("REVIEWER", prompts.MODEL_REVIEWER, told, BoundSchema.of(ANSWER))
    )
    if answer.value is None:
        return answer.problems
    return _make_report(evidence, reviewer, answer.value)


def review_by_runner(
    result: Mapping[str, Json] | None,
    evidence: ReviewEvidence,
    agent_id: str,
    *,
    thread_id: str = "",
) -> Outcome:
    """Make the report of what an agent answered, as a review report or as a review answer."""
    reviewer = _make_reviewer(agent_id, evidence, thread_id)
    if result is None:
        return (SchemaProblem("/", "the reviewer gave no structured answer"),)
    full = result.keys() - frozenset(_JUDGED)
    problems = schemas.find_schema_problems(REPORT if full else ANSWER, dict(result))
    return problems or _make_report(evidence, reviewer, result)


def payload(evidence: ReviewEvidence) -> dict[str, Json]:
    """Return what a reviewing model is told; all of it is data."""
    return {
        "contract": evidence.contract.json(),
        "changed": [change.name for change in evidence.changes],
        "patch": valid_text(evidence.patch),
        "gates": [
            {"gate": one.gate, "passed": one.passed, "violations": [*map(str, one.violations)]}
            for one in evidence.gates
        ],
        "facts": [finding.json() for finding in rule_review.findings(evidence)],
    }


def _make_reviewer(agent_id: str, evidence: ReviewEvidence, thread_id: str = "") -> Reviewer:
    """Return the reviewer; raise if this agent worked on the change."""
    if agent_id in evidence.workers:
        raise UsageError(
            f"{agent_id!r} worked on this change, and cannot review it",
            rule="review.identity",
            hint="name another agent of the role REVIEWER",
        )
    return Reviewer(role="REVIEWER", agent_id=agent_id, codex_thread_id=thread_id or None)


def _make_report(evidence: ReviewEvidence, reviewer: Reviewer, said: Mapping[str, Json]) -> Outcome:
    """Put together what the reviewer and the rules say, unless the former contradicts itself."""
    listed = said["findings"] if isinstance(said["findings"], list) else []
    # In an answer, no path is an empty one, and no line is 0.
    findings: list[Json] = [
        {key: value for key, value in each.items() if value not in ("", 0)}
        for each in listed
        if isinstance(each, dict)
    ]
    # No reviewer can choose the other fields.
    bound = rule_review.make_report(evidence, reviewer, "BLOCKED", "", ()).json()
    judged = {key: said[key] for key in _JUDGED}
    read = ReviewReport.of({**bound, **judged, "findings": findings})
    problems = _find_contradictions(read)
    if problems:
        return problems
    known = rule_review.scope_check(evidence)
    scope = ScopeCheck(
        passed=read.scope_check.passed and known.passed,
        violations=tuple(dict.fromkeys((*known.violations, *read.scope_check.violations))),
    )
    rules = rule_review.findings(evidence)
    blocked = any(each.severity == "blocking" for each in rules) or not known.passed
    return replace(
        read,
        verdict="FAIL" if blocked and read.verdict == "PASS" else read.verdict,
        scope_check=scope,
        findings=(*rules, *read.findings),
        notes=f"{len(rules)} of the findings were made by rules, before those of the reviewer.",
    )


def _find_contradictions(report: ReviewReport) -> tuple[SchemaProblem, ...]:
    """Return where a verdict does not follow from what stands beside it."""
    blocking = any(finding.severity == "blocking" for finding in report.findings)
    verdict, scope = report.verdict, report.scope_check
    found = {
        "PASS stands beside a blocking finding": verdict == "PASS" and blocking,
        "PASS stands beside a scope check that did not pass": verdict == "PASS"
        and not scope.passed,
        "FAIL stands without any blocking finding": verdict == "FAIL"
        and not blocking
        and scope.passed,
    }
    problems = [SchemaProblem("/verdict", said) for said, applies in found.items() if applies]
    if scope.passed and scope.violations:
        problems.append(SchemaProblem("/scope_check", "it passed, and has violations"))
    return tuple(problems)
