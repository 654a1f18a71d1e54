"""``ApprovalRecord``: what somebody allowed, exactly, and until when; it is used once."""

from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from coilclaw.contracts.record import Record

ApprovalKind: TypeAlias = Literal[
    "command", "change", "permission", "override", "network", "sampling", "merge"
]
"""``override`` is the only way to broad paths, and never lasts."""
ApprovalState: TypeAlias = Literal[
    "pending", "approved", "rejected", "expired", "withdrawn", "used"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRecord(Record):
    """Bound to the run, to what was asked (``digest``), and to the policies (``policy_sha256``)."""

    SCHEMA: ClassVar[str] = "approval.v1"

    approval_id: str
    run_id: str
    task_id: str | None
    kind: ApprovalKind
    title: str
    detail: tuple[str, ...]
    digest: str
    policy_sha256: str
    reason: str
    requested_at: str
    expires_at: str
    state: ApprovalState
    decided_by: str | None
    decided_at: str | None
    used_at: str | None
