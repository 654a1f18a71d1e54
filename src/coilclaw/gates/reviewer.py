"""The reviewer gate: a review by somebody else, of this work, that changed nothing and says yes.

``review.isolation`` the tree is not what it was · ``review.missing`` there is no report ·
``review.run``, ``review.task`` it is about something else · ``review.role``, ``review.self`` the
reviewer is none, or did the work · ``review.produced_diff`` · ``review.blocking`` a finding that
blocks · ``review.scope`` the scope check failed · ``review.verdict`` it is no PASS ·
``review.inconsistent`` a PASS that its own findings deny
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coilclaw.domain.treepath import shown
from coilclaw.gates.result import GateResult, Violation
from coilclaw.gates.scope import legible

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from coilclaw.domain.messages import Json
    from coilclaw.domain.treediff import TreeDiff

MAX_LISTED: Final = 200


def judge(
    report: Mapping[str, Json] | None,
    *,
    run_id: str,
    task_id: str,
    workers: Collection[str],
    before: str,
    after: str,
    diff: TreeDiff,
) -> GateResult:
    """Judge a report whose schema holds, and the snapshots of the tree before and after it."""
    found = [*_isolation(before, after, diff)]
    if report is None:
        found.append(Violation("review.missing", "there is no review report"))
    else:
        found += _identity(report, run_id, task_id, workers)
        found += _verdict(report)
    verdict = "" if report is None else str(report.get("verdict"))
    facts: dict[str, Json] = {"verdict": verdict, "before": before, "after": after}
    return GateResult("reviewer_gate", tuple(found), facts)


def _isolation(before: str, after: str, diff: TreeDiff) -> Iterator[Violation]:
    if not before or before != after:
        yield Violation("review.isolation", "the tree after the review is not the tree before it")
    for change in diff.changes[:MAX_LISTED]:
        message = f"{shown(change.path)} was {change.kind} during the review"
        yield Violation("review.isolation", message, legible(change.path))
    for part in diff.git_changes:
        yield Violation("review.isolation", f"'{part}' of .git changed during the review", ".git")


def _identity(
    report: Mapping[str, Json], run_id: str, task_id: str, workers: Collection[str]
) -> Iterator[Violation]:
    if report.get("run_id") != run_id:
        yield Violation("review.run", "the report is about another run", "run_id")
    if report.get("task_id") != task_id:
        yield Violation("review.task", "the report is about another task", "task_id")
    reviewer = report.get("reviewer")
    name = reviewer.get("agent_id") if isinstance(reviewer, dict) else None
    if not isinstance(reviewer, dict) or reviewer.get("role") != "REVIEWER" or not name:
        yield Violation("review.role", "the report names no reviewer", "reviewer")
    if name in workers:
        yield Violation("review.self", f"{shown(str(name))} reviewed its own work", "reviewer")
    if report.get("produced_diff") is not False:
        yield Violation("review.produced_diff", "the reviewer made a change", "produced_diff")


def _verdict(report: Mapping[str, Json]) -> Iterator[Violation]:
    verdict = report.get("verdict")
    blocking = 0
    findings = report.get("findings")
    for finding in findings if isinstance(findings, list) else [findings]:
        # What is not plainly harmless blocks.
        known = finding if isinstance(finding, dict) else {}
        if known.get("severity") != "non_blocking":
            blocking += 1
            message = str(known.get("message") or "a finding that cannot be read")
            yield Violation("review.blocking", message, str(known.get("path") or ""))
    scope = report.get("scope_check")
    known = scope if isinstance(scope, dict) else {}
    if known.get("passed") is not True or known.get("violations"):
        blocking += 1
        yield Violation("review.scope", "the reviewer found work outside of its scope")
    if verdict == "PASS" and blocking:
        yield Violation("review.inconsistent", "the verdict is PASS, and the findings deny it")
    elif verdict != "PASS":
        yield Violation("review.verdict", f"the verdict is {shown(str(verdict))}", "verdict")
