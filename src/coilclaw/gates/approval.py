"""The approval gate: what needs a person's yes has one, for exactly this, unused and in time.

``approval.missing`` nobody was asked · ``approval.pending``, ``approval.rejected``,
``approval.withdrawn`` there is no yes · ``approval.expired``, ``approval.time`` · ``approval.used``
· ``approval.kind``, ``approval.run``, ``approval.task``, ``approval.policy`` it was given for
something else · ``approval.nobody`` it does not say by whom
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.domain.treepath import shown
from coilclaw.gates.result import GateResult, Violation

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from coilclaw.contracts.approval import ApprovalKind, ApprovalRecord

_TIME: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?Z")


@dataclass(frozen=True, slots=True)
class Need:
    """Something that may not happen unless somebody says yes to exactly this."""

    kind: ApprovalKind
    digest: str
    """SHA-256 of what would happen."""
    reason: str
    task_id: str | None = None


def judge(
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
            found.append(Violation("approval.missing", f"{need.reason}: nobody was asked"))
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
    return GateResult(
        "human_approval_gate", tuple(found), {"needed": len(needs), "approvals": [*taken]}
    )


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
        yield Violation("approval.used", f"{shown(name)} was used before", name)
    if not record.decided_by or record.decided_at is None:
        yield Violation("approval.nobody", f"{shown(name)} does not say by whom or when", name)
    for rule, same in (
        ("kind", record.kind == need.kind),
        ("run", record.run_id == run_id),
        ("task", record.task_id == need.task_id),
        ("policy", record.policy_sha256 == policy_sha256),
    ):
        if not same:
            yield Violation(f"approval.{rule}", f"{shown(name)} is for another {rule}", name)
    yield from _times(record, now)


def _times(record: ApprovalRecord, now: str) -> Iterator[Violation]:
    name = record.approval_id
    given = (record.requested_at, record.decided_at or now, now, record.expires_at)
    moments = [_moment(text) for text in given]
    if any(moment is None for moment in moments):
        yield Violation("approval.time", f"{shown(name)} has a time that cannot be read", name)
        return
    requested, decided, moment, expires = (moment or ("", "") for moment in moments)
    if not requested <= decided <= moment:
        yield Violation("approval.time", f"{shown(name)} has times out of order", name)
    if not moment < expires:
        yield Violation("approval.expired", f"{shown(name)} ended at {record.expires_at}", name)


def _moment(text: str) -> tuple[str, str] | None:
    found = _TIME.fullmatch(text)
    return None if found is None else (found[1], (found[2] or "").ljust(9, "0"))
