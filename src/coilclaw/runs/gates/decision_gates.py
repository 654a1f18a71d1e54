"""Judge what people and other runs decide: approvals, the review, the merge, locks.

The approval gate: what needs a person's yes has one, for exactly this, unused and in time.

``approval.missing`` no approval was asked for · ``approval.pending``, ``approval.rejected``,
``approval.withdrawn`` not given · ``approval.expired``, ``approval.time`` · ``approval.used``
· ``approval.kind``, ``approval.run``, ``approval.task``, ``approval.policy`` it was given for
something else · ``approval.nobody`` it does not say by whom

The reviewer gate: a review by another agent, of this work, that changed nothing and says yes.

``review.isolation`` the tree is not what it was · ``review.missing`` the report is missing ·
``review.run``, ``review.task`` it is about something else · ``review.role``, ``review.self`` the
reviewer is none, or did the work · ``review.produced_diff`` · ``review.blocking`` a finding that
blocks · ``review.scope`` the scope check failed · ``review.verdict`` it is not PASS ·
``review.inconsistent`` a PASS that its own findings deny

The merge gate: what comes into the target branch is the accepted work, and it is green there.

``merge.conflict`` · ``merge.out_of_scope`` a name that no task may change · ``merge.protected`` ·
``merge.tests`` the tests are not green on the merged tree

The lock gate: no task may write where another one writes at the same time.

``lock.siblings`` two tasks of a run overlap and do not both declare the lock for it ·
``lock.held`` another run holds a path that overlaps · ``lock.undeclared`` a declared lock lies
outside of what its task may change
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import quote_text, valid_text
from coilclaw.runs.contracts.paths import contains, overlap
from coilclaw.runs.gates.result import GateResult, Violation
from coilclaw.runs.gates.scope import ScopePlaces, find_reason

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from coilclaw.kernel import Json, TreeDiff
    from coilclaw.runs.contracts.records import ApprovalKind, ApprovalRecord

APPROVAL: Final = "human_approval_gate"
_TIME: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?Z")


@dataclass(frozen=True, slots=True)
class Need:
    """Something that a person has to approve."""

    kind: ApprovalKind
    digest: str
    """SHA-256 of what would happen."""
    reason: str
    task_id: str | None = None


def judge_approvals(
    needs: Sequence[Need],
    records: Sequence[ApprovalRecord],
    *,
    run_id: str,
    policy_sha256: str,
    now: str,
    used: Collection[str] = (),
) -> GateResult:
    """Judge all needs; ``used`` are the ids of approvals that were used up before."""
    found: list[Violation] = []
    spent = set(used)
    taken = []
    for need in needs:
        fitting = [record for record in records if record.digest == need.digest]
        if not fitting:
            found.append(Violation("approval.missing", f"{need.reason}: no approval was requested"))
            continue
        judged = [
            (record, [*_faults(record, need, run_id, policy_sha256, now, spent)])
            for record in fitting
        ]
        record, faults = min(judged, key=lambda pair: len(pair[1]))
        found += faults
        if not faults:
            # One yes is for one thing, also within a run.
            spent.add(record.approval_id)
            taken.append(record.approval_id)
    return GateResult(APPROVAL, tuple(found), {"needed": len(needs), "approvals": [*taken]})


def _faults(
    record: ApprovalRecord,
    need: Need,
    run_id: str,
    policy_sha256: str,
    now: str,
    spent: Collection[str],
) -> Iterator[Violation]:
    name = record.approval_id
    if record.state != "approved":
        yield Violation(f"approval.{record.state}", f"{need.reason}: it is {record.state}", name)
    if record.state != "used" and (record.used_at is not None or name in spent):
        yield Violation("approval.used", f"{quote_text(name)} was used before", name)
    if not record.decided_by or record.decided_at is None:
        yield Violation("approval.nobody", f"{quote_text(name)} does not say by whom or when", name)
    for rule, same in (
        ("kind", record.kind == need.kind),
        ("run", record.run_id == run_id),
        ("task", record.task_id == need.task_id),
        ("policy", record.policy_sha256 == policy_sha256),
    ):
        if not same:
            yield Violation(f"approval.{rule}", f"{quote_text(name)} is for another {rule}", name)
    yield from _times(record, now)


def _times(record: ApprovalRecord, now: str) -> Iterator[Violation]:
    name = record.approval_id
    given = (record.requested_at, record.decided_at or now, now, record.expires_at)
    moments = [_moment(text) for text in given]
    if any(moment is None for moment in moments):
        yield Violation("approval.time", f"{quote_text(name)} has a time that cannot be read", name)
        return
    requested, decided, moment, expires = (moment or ("", "") for moment in moments)
    if not requested <= decided <= moment:
        yield Violation("approval.time", f"{quote_text(name)} has times out of order", name)
    if not moment < expires:
        yield Violation(
            "approval.expired", f"{quote_text(name)} ended at {record.expires_at}", name
        )


def _moment(text: str) -> tuple[str, str] | None:
    found = _TIME.fullmatch(text)
    return None if found is None else (found[1], (found[2] or "").ljust(9, "0"))


REVIEW: Final = "reviewer_gate"
MAX_CHANGES: Final = 200


def judge_review(
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
        found.append(Violation("review.missing", "the review report is missing"))
    else:
        found += _identity(report, run_id, task_id, workers)
        found += _verdict(report)
    verdict = "" if report is None else str(report.get("verdict"))
    facts: dict[str, Json] = {"verdict": verdict, "before": before, "after": after}
    return GateResult(REVIEW, tuple(found), facts)


def _isolation(before: str, after: str, diff: TreeDiff) -> Iterator[Violation]:
    if not before or before != after:
        yield Violation("review.isolation", "the tree after the review is not the tree before it")
    for change in diff.changes[:MAX_CHANGES]:
        message = f"{quote_text(change.path)} was {change.kind} during the review"
        yield Violation("review.isolation", message, valid_text(change.path))
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
        yield Violation("review.self", f"{quote_text(str(name))} reviewed its own work", "reviewer")
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
        yield Violation("review.verdict", f"the verdict is {quote_text(str(verdict))}", "verdict")


MERGE: Final = "merge_gate"
MAX_LISTED: Final = 500


def judge_merge(
    *,
    names: Collection[str],
    allowed_paths: Sequence[str],
    tests_passed: bool,
    conflicts: Sequence[str],
) -> GateResult:
    """Judge a merge: ``names`` are all paths in which the merged tree differs from the target."""
    found = [
        Violation("merge.conflict", f"{quote_text(path)} is in conflict", valid_text(path))
        for path in conflicts[:MAX_LISTED]
    ]
    allowed = ScopePlaces.of(allowed_paths)
    for path in sorted(names):
        if not allowed.cover(path):
            message = f"{quote_text(path)} would change, and no task may change it"
            found.append(Violation("merge.out_of_scope", message, valid_text(path)))
        reason = find_reason(path)
        if reason is not None:
            message = f"{quote_text(path)} may not change: it {reason}"
            found.append(Violation("merge.protected", message, valid_text(path)))
    if not tests_passed:
        found.append(Violation("merge.tests", "the tests are not green on the merged tree"))
    listed = [valid_text(path) for path in sorted(names)[:MAX_LISTED]]
    facts: dict[str, Json] = {"names": len(names), "paths": [*listed], "tests_passed": tests_passed}
    return GateResult(MERGE, tuple(found[:MAX_LISTED]), facts)


def refuse_merge(rule: str, reason: str) -> GateResult:
    """Return the result of a merge that failed before it could be judged."""
    return GateResult(MERGE, (Violation(rule, reason),))


LOCK: Final = "lock_gate"


@dataclass(frozen=True, slots=True)
class LockClaim:
    """What one task wants to write."""

    task_id: str
    allowed_paths: tuple[str, ...]
    locks: tuple[str, ...] = ()
    """Paths that it shares with siblings; only one of them works there at a time."""


def judge_locks(claims: Sequence[LockClaim], *, held: Mapping[str, str]) -> GateResult:
    """Judge tasks that would run at once; ``held`` maps paths to who holds or waits for them."""
    found = [*_find_undeclared(claims), *_siblings(claims), *_find_held(claims, held)]
    paths = sorted({path for claim in claims for path in claim.allowed_paths})
    return GateResult(LOCK, tuple(found), {"paths": [*paths], "tasks": len(claims)})


def _find_undeclared(claims: Sequence[LockClaim]) -> Iterator[Violation]:
    for claim in claims:
        for lock in claim.locks:
            if not any(contains(path, lock) for path in claim.allowed_paths):
                message = (
                    f"{claim.task_id} declares a lock on {quote_text(lock)} and may not write it"
                )
                yield Violation("lock.undeclared", message, lock)


def _siblings(claims: Sequence[LockClaim]) -> Iterator[Violation]:
    for one, other in combinations(claims, 2):
        for mine in one.allowed_paths:
            for theirs in other.allowed_paths:
                if overlap(mine, theirs) and not _is_locked(_narrower(mine, theirs), one, other):
                    message = (
                        f"{one.task_id} and {other.task_id} may both write "
                        f"{quote_text(_narrower(mine, theirs))}, "
                        "and do not both declare a lock for it"
                    )
                    yield Violation("lock.siblings", message, _narrower(mine, theirs))


def _narrower(one: str, other: str) -> str:
    """Return, of two paths that overlap, the one inside the other."""
    return max(one, other, key=lambda path: len(path.rstrip("/").split("/")))


def _is_locked(path: str, one: LockClaim, other: LockClaim) -> bool:
    return all(any(contains(lock, path) for lock in claim.locks) for claim in (one, other))


def _find_held(claims: Sequence[LockClaim], held: Mapping[str, str]) -> Iterator[Violation]:
    for claim in claims:
        for path in claim.allowed_paths:
            for place, holder in held.items():
                if overlap(path, place):
                    message = f"{quote_text(path)} overlaps {quote_text(place)}, which {holder}"
                    yield Violation("lock.held", message, path)
