"""The reviewer that is no model: it looks for what rules can find, and says that it is no more.

Its findings are part of every review: a model can add to them, and takes none away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coilclaw.contracts.reports import Finding, Reviewer, ReviewReport, ScopeCheck
from coilclaw.gates.scope import Places
from coilclaw.orchestrator import reviewrules

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coilclaw.orchestrator.reviewevidence import ReviewEvidence

AGENT_ID: Final = "rules"
MAX_FINDINGS: Final = 200
LARGE_CHANGE_LINES: Final = 2_000
_OF_A_CHANGE: Final = frozenset({"patch", "commit"})


def review(evidence: ReviewEvidence) -> ReviewReport:
    """Judge a change by rules alone."""
    found = findings(evidence)
    scope = scope_check(evidence)
    blocking = sum(finding.severity == "blocking" for finding in found)
    return ReviewReport(
        run_id=evidence.run_id,
        task_id=evidence.task_id,
        attempt=evidence.attempt,
        reviewer=Reviewer(role="REVIEWER", agent_id=AGENT_ID),
        reviewed_at=evidence.reviewed_at,
        verdict="FAIL" if blocking or not scope.passed else "PASS",
        summary=(
            "Checked by rules; no model and nobody else read this change. "
            f"{len(evidence.changes)} changed files, {blocking} blocking findings, "
            f"{len(found) - blocking} others."
        ),
        scope_check=scope,
        evidence=evidence.artifacts,
        produced_diff=False,
        findings=found,
    )


def findings(evidence: ReviewEvidence) -> tuple[Finding, ...]:
    """Return what the rules find, blocking ones first, up to ``MAX_FINDINGS``."""
    found = sorted(_all(evidence), key=lambda finding: finding.severity != "blocking")
    if len(found) <= MAX_FINDINGS:
        return tuple(found)
    left = len(found) - MAX_FINDINGS + 1
    severity = found[MAX_FINDINGS - 1].severity
    more = Finding(severity=severity, message=f"{left} more findings are not listed")
    return (*found[: MAX_FINDINGS - 1], more)


def scope_check(evidence: ReviewEvidence) -> ScopeCheck:
    """Tell whether all changed files are allowed ones."""
    outside = _outside(evidence)
    return ScopeCheck(passed=not outside, violations=tuple(outside[:MAX_FINDINGS]))


def _all(evidence: ReviewEvidence) -> Iterator[Finding]:
    yield from _of_the_whole(evidence)
    for path in _outside(evidence):
        yield Finding(severity="blocking", message="it is outside of allowed_paths", path=path)
    if not evidence.contract.may_change_tests:
        for violation in evidence.weakened:
            yield Finding(
                severity="blocking", message=str(violation)[:1000], path=violation.path or None
            )
    for change in evidence.changes:
        yield from reviewrules.findings(change)


def _of_the_whole(evidence: ReviewEvidence) -> Iterator[Finding]:
    contract = evidence.contract
    wanted = {output.type for output in contract.required_outputs} & _OF_A_CHANGE
    audit = contract.audit_only or contract.tool_permissions.filesystem == "read-only"
    if not evidence.changes and wanted and not audit:
        yield Finding(severity="blocking", message="nothing changed, though a change is required")
    if evidence.changes and audit:
        yield Finding(severity="blocking", message="something changed, though nothing may")
    for gate in evidence.gates:
        if not gate.passed:
            yield Finding(severity="blocking", message=f"{gate.gate} did not pass")
    lines = sum(sum(1 for _ in change.added()) for change in evidence.changes)
    if lines > LARGE_CHANGE_LINES:
        yield Finding(severity="non_blocking", message=f"a large change: {lines:,} lines are new")


def _outside(evidence: ReviewEvidence) -> list[str]:
    allowed = Places.of(evidence.contract.allowed_paths)
    return [change.name for change in evidence.changes if not allowed.cover(change.path)]
