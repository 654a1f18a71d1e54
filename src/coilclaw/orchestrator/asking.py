"""Approvals of a run: on the one desk, bound to exactly what is asked, used once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from coilclaw.contracts.approval import ApprovalRecord
from coilclaw.contracts.eventtypes import EventType
from coilclaw.contracts.reading import parse
from coilclaw.domain import freeform
from coilclaw.gates import approval
from coilclaw.gates.approval import Need
from coilclaw.orchestrator.places import segment
from coilclaw.runtime.approvals import Question
from coilclaw.runtime.identity import stamp

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from coilclaw.agents.runner import AgentRequest
    from coilclaw.contracts.approval import ApprovalKind
    from coilclaw.domain import toolcalls
    from coilclaw.gates.result import GateResult
    from coilclaw.orchestrator.run import Run
    from coilclaw.runtime.approvals import Approval, Desk
    from coilclaw.workspace.cancel import Cancellation

Answer: TypeAlias = Literal["yes", "no", "waiting"]

FOLDER: Final = "artifacts/approvals"


@dataclass(frozen=True, slots=True)
class Ask:
    """What a person is asked; ``detail`` is exactly what the yes is given for."""

    kind: ApprovalKind
    title: str
    reason: str
    rule: str
    detail: tuple[str, ...]
    task_id: str = ""

    def digest(self, run_id: str, policy_sha256: str) -> str:
        """Names the request: another run, policy or detail needs another approval."""
        return freeform.hashed(
            {
                "run": run_id,
                "task": self.task_id,
                "kind": self.kind,
                "detail": [_valid(line) for line in self.detail],
                "policy": policy_sha256,
            }
        )


class Asking:
    """Puts a run's questions on the desk and picks up the answers."""

    def __init__(
        self,
        run: Run,
        desk: Desk,
        policy_sha256: str,
        clock: Callable[[], datetime],
        cancel: Cancellation,
        *,
        wait_s: float,
        live_wait_s: float,
        expires_s: float,
    ) -> None:
        self._run = run
        self._desk = desk
        self._policy = policy_sha256
        self._clock = clock
        self._cancel = cancel
        self._wait_s = wait_s
        self._live_wait_s = live_wait_s
        self._expires_s = expires_s
        self._records: dict[str, ApprovalRecord] = {}

    def answer(self, ask: Ask) -> Answer:
        """Ask, or look what became of it; ``waiting`` pauses the run."""
        digest = ask.digest(self._run.id, self._policy)
        progress = self._run.progress
        if digest in progress.approvals:
            return "yes" if progress.approvals[digest] else "no"
        asked = (one.approval_id for one in progress.waiting.values() if one.digest == digest)
        approval_id = next(asked, None) or self._put(ask, digest)
        return self._picked_up(approval_id, digest, ask)

    def granted(self, ask: Ask) -> bool:
        """Whether somebody said yes to this, in this run."""
        return self._run.progress.approvals.get(ask.digest(self._run.id, self._policy), False)

    def judged(self, asks: Sequence[Ask]) -> GateResult:
        """Let the gate judge the approvals of what was asked, as they were when they were used."""
        needs = [
            Need(ask.kind, ask.digest(self._run.id, self._policy), ask.reason, ask.task_id or None)
            for ask in asks
        ]
        records = [self._record(need.digest) for need in needs]
        found = [record for record in records if record is not None]
        now = max((record.used_at for record in found if record.used_at), default="")
        return approval.judge(
            needs,
            [
                replace(record, state="approved", used_at=None) if record.used_at else record
                for record in found
            ],
            run_id=self._run.id,
            policy_sha256=self._policy,
            now=now or stamp(self._clock()),
        )

    def _record(self, digest: str) -> ApprovalRecord | None:
        """The record of an approval, also of one that was settled before a kill."""
        if digest not in self._records:
            folder = self._run.bundle.directory / FOLDER
            for place in sorted(folder.glob("*.json")) if folder.is_dir() else ():
                record = ApprovalRecord.of(parse(self._run.bundle.read(f"{FOLDER}/{place.name}")))
                self._records.setdefault(record.digest, record)
        return self._records.get(digest)

    def live(self, request: AgentRequest) -> toolcalls.Answer:
        """Ask while an agent waits; silence is a no."""
        ask = Ask(
            request.kind,
            request.title,
            request.reason,
            "agent.request",
            request.detail,
            request.task_id,
        )
        digest = ask.digest(self._run.id, self._policy)
        approval_id = self._put(ask, digest)
        answer = self._desk.wait_for_answer(
            approval_id,
            digest,
            cancel=self._cancel,
            timeout_s=self._live_wait_s,
            stopping=lambda: self._cancel.reason,
        )
        self._settle(self._desk.find(approval_id), ask, digest, yes=answer.granted)
        return answer

    def _put(self, ask: Ask, digest: str) -> str:
        question = Question(
            kind="override" if ask.kind == "override" else "run",
            origin=self._run.id,
            title=ask.title,
            digest=digest,
            risk="high",
            rule=ask.rule,
            reason=ask.reason,
            detail=ask.detail,
            asker=str(self._run.option("asker") or ""),
        )
        approval_id = self._desk.ask(question, expires_s=self._expires_s)
        self._run.emit(
            EventType.HUMAN_APPROVAL_REQUIRED,
            {
                "approval_id": approval_id,
                "kind": ask.kind,
                "digest": digest,
                "reason": ask.reason,
                "policy_sha256": self._policy,
            },
            task_id=ask.task_id or None,
            level="WARN",
        )
        return approval_id

    def _picked_up(self, approval_id: str, digest: str, ask: Ask) -> Answer:
        given = self._desk.find(approval_id)
        if given.state == "pending":
            if not self._wait_s:
                return "waiting"
            yes = self._waited(approval_id, digest)
            given = self._desk.find(approval_id)
            if given.state == "pending":
                return "waiting"
        else:
            # A kill may have come between taking the yes and writing that down.
            yes = given.state == "approved" and self._desk.use(approval_id, digest)
            yes = yes or (given.state == "used" and given.question.digest == digest)
        self._settle(given, ask, digest, yes=yes)
        return "yes" if yes else "no"

    def _waited(self, approval_id: str, digest: str) -> bool:
        """Wait for a while without taking the question back: the run can be resumed."""
        import time

        from coilclaw.runtime.approvals import LOOK_EVERY_S

        until = time.monotonic() + self._wait_s
        while time.monotonic() < until and not self._cancel.cancelled:
            state = self._desk.find(approval_id).state
            if state == "approved":
                return self._desk.use(approval_id, digest)
            if state != "pending":
                return False
            time.sleep(LOOK_EVERY_S)
        return False

    def _settle(self, given: Approval, ask: Ask, digest: str, *, yes: bool) -> None:
        path = f"{FOLDER}/{segment(given.id)}.json"
        record = ApprovalRecord(
            approval_id=given.id,
            run_id=self._run.id,
            task_id=ask.task_id or None,
            kind=ask.kind,
            title=ask.title,
            detail=tuple(_valid(line) for line in ask.detail),
            digest=digest,
            policy_sha256=self._policy,
            reason=ask.reason,
            requested_at=given.created,
            expires_at=given.expires,
            state="used" if yes else _closed(given),
            decided_by=given.answered_by or None,
            decided_at=given.answered or None,
            used_at=stamp(self._clock()) if yes else None,
        )
        if not self._run.bundle.has(path):
            self._run.bundle.write_json(path, record.json())
        self._records[digest] = record
        if given.state in {"expired", "withdrawn", "pending"}:
            self._run.emit(
                EventType.HUMAN_APPROVAL_TIMEOUT,
                {"approval_id": given.id},
                task_id=ask.task_id or None,
                level="ERROR",
            )
            return
        self._run.emit(
            EventType.HUMAN_APPROVAL_COMPLETED,
            {
                "approval_id": given.id,
                "approved": yes,
                "by": given.answered_by,
                "digest": digest,
                "path": path,
            },
            task_id=ask.task_id or None,
            level="INFO" if yes else "ERROR",
        )


def _closed(given: Approval) -> Literal["rejected", "expired", "withdrawn"]:
    if given.state == "expired":
        return "expired"
    return "withdrawn" if given.state == "withdrawn" else "rejected"


def _valid(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
