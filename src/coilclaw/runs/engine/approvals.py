"""Approvals of a run: bound to exactly what is asked, and used once."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from coilclaw.agent import LOOK_EVERY_S, ApprovalQuestion
from coilclaw.kernel import canonical_json, valid_text
from coilclaw.runs.contracts.event_types import EventType
from coilclaw.runs.contracts.records import ApprovalKind, ApprovalRecord, ApprovalState
from coilclaw.runs.contracts.task_contract import parse_document
from coilclaw.runs.evidence.layout import make_segment
from coilclaw.runs.gates import decision_gates
from coilclaw.runs.gates.decision_gates import Need

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coilclaw.agent import Approval
    from coilclaw.kernel import messages
    from coilclaw.runners import AgentRequest
    from coilclaw.runs.engine.run import Run, RunDependencies
    from coilclaw.runs.gates.result import GateResult

ApprovalAnswer: TypeAlias = Literal["yes", "no", "waiting"]

FOLDER: Final = "artifacts/approvals"


@dataclass(frozen=True, slots=True)
class RunApprovalRequest:
    """What a person is asked; ``detail`` is exactly what the yes is given for."""

    kind: ApprovalKind
    title: str
    reason: str
    rule: str
    detail: tuple[str, ...]
    task_id: str = ""


@dataclass(frozen=True, slots=True)
class RunApprovals:
    """Asks the user for the approvals of a run and reads the answers."""

    run: Run
    equipment: RunDependencies
    policy_sha256: str
    _records: dict[str, ApprovalRecord] = field(default_factory=dict)

    def _digest(self, ask: RunApprovalRequest) -> str:
        """Name a request: another run, policy or detail needs another approval."""
        return canonical_json.hash_json(
            {
                "run": self.run.id,
                "task": ask.task_id,
                "kind": ask.kind,
                "detail": [valid_text(line) for line in ask.detail],
                "policy": self.policy_sha256,
            }
        )

    def answer(self, ask: RunApprovalRequest) -> ApprovalAnswer:
        """Ask, or return the answer to an earlier question; ``waiting`` pauses the run."""
        digest, progress = self._digest(ask), self.run.progress
        if digest in progress.approvals:
            return "yes" if progress.approvals[digest] else "no"
        asked = (one.approval_id for one in progress.waiting.values() if one.digest == digest)
        approval_id = next(asked, None) or self._put(ask, digest)
        given = self.equipment.desk.find(approval_id)
        # The question is not taken back: the run can be resumed.
        until = time.monotonic() + self.equipment.wait_s
        while given.state == "pending":
            if time.monotonic() >= until or self.equipment.cancel.cancelled:
                return "waiting"
            time.sleep(LOOK_EVERY_S)
            given = self.equipment.desk.find(approval_id)
        # A kill may have come between taking the yes and writing that down.
        yes = given.state == "approved" and self.equipment.desk.use(approval_id, digest)
        yes = yes or (given.state == "used" and given.question.digest == digest)
        self._settle(given, ask, digest, yes=yes)
        return "yes" if yes else "no"

    def is_granted(self, ask: RunApprovalRequest) -> bool:
        """Return whether the user approved this request in this run."""
        return self.run.progress.approvals.get(self._digest(ask), False)

    def judge_asked(self, asks: Sequence[RunApprovalRequest]) -> GateResult:
        """Let the gate judge the approvals as they were when they were used."""
        needs = [Need(ask.kind, self._digest(ask), ask.reason, ask.task_id or None) for ask in asks]
        # Also those that were settled before a kill.
        bundle = self.run.bundle
        for place in sorted((bundle.directory / FOLDER).glob("*.json")):
            record = ApprovalRecord.of(parse_document(bundle.read(f"{FOLDER}/{place.name}")))
            self._records.setdefault(record.digest, record)
        found = [self._records[need.digest] for need in needs if need.digest in self._records]
        now = max((record.used_at for record in found if record.used_at), default="")
        unused = [
            replace(record, state="approved", used_at=None) if record.used_at else record
            for record in found
        ]
        return decision_gates.judge_approvals(
            needs,
            unused,
            run_id=self.run.id,
            policy_sha256=self.policy_sha256,
            now=now or self.equipment.now(),
        )

    def live(self, request: AgentRequest) -> messages.ApprovalAnswer:
        """Ask while an agent waits; without an answer the request is denied."""
        about = (request.title, request.reason, "agent.request", request.detail, request.task_id)
        ask = RunApprovalRequest(request.kind, *about)
        digest, cancel = self._digest(ask), self.equipment.cancel
        approval_id = self._put(ask, digest)
        answer = self.equipment.desk.wait_for_answer(
            approval_id,
            digest,
            cancel=cancel,
            timeout_s=self.equipment.live_wait_s,
            stopping=lambda: cancel.reason,
        )
        self._settle(self.equipment.desk.find(approval_id), ask, digest, yes=answer.granted)
        return answer

    def _put(self, ask: RunApprovalRequest, digest: str) -> str:
        question = ApprovalQuestion(
            kind="override" if ask.kind == "override" else "run",
            origin=self.run.id,
            title=ask.title,
            digest=digest,
            risk="high",
            rule=ask.rule,
            reason=ask.reason,
            detail=ask.detail,
            asker=str(self.run.option("asker") or ""),
        )
        approval_id = self.equipment.desk.ask(question, expires_s=self.equipment.approval_expires_s)
        self.run.emit(
            EventType.HUMAN_APPROVAL_REQUIRED,
            {
                "approval_id": approval_id,
                "kind": ask.kind,
                "digest": digest,
                "reason": ask.reason,
                "policy_sha256": self.policy_sha256,
            },
            task_id=ask.task_id or None,
            level="WARN",
        )
        return approval_id

    def _settle(self, given: Approval, ask: RunApprovalRequest, digest: str, *, yes: bool) -> None:
        path, task_id = f"{FOLDER}/{make_segment(given.id)}.json", ask.task_id or None
        closed: ApprovalState = "rejected"
        if given.state in {"expired", "withdrawn"}:
            closed = given.state
        record = ApprovalRecord(
            approval_id=given.id,
            run_id=self.run.id,
            task_id=task_id,
            kind=ask.kind,
            title=ask.title,
            detail=tuple(valid_text(line) for line in ask.detail),
            digest=digest,
            policy_sha256=self.policy_sha256,
            reason=ask.reason,
            requested_at=given.created,
            expires_at=given.expires,
            state="used" if yes else closed,
            decided_by=given.answered_by or None,
            decided_at=given.answered or None,
            used_at=self.equipment.now() if yes else None,
        )
        if not self.run.bundle.has(path):
            self.run.bundle.write_json(path, record.json())
        self._records[digest] = record
        if given.state in {"expired", "withdrawn", "pending"}:
            timeout, about = EventType.HUMAN_APPROVAL_TIMEOUT, {"approval_id": given.id}
            self.run.emit(timeout, about, task_id=task_id, level="ERROR")
            return
        self.run.emit(
            EventType.HUMAN_APPROVAL_COMPLETED,
            {
                "approval_id": given.id,
                "approved": yes,
                "by": given.answered_by,
                "digest": digest,
                "path": path,
            },
            task_id=task_id,
            level="INFO" if yes else "ERROR",
        )
