"""Approvals of a run: they lie on the desk, bound to what they are given for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coilclaw.domain import freeform
from coilclaw.domain.toolcalls import Answer, Reply
from coilclaw.errors import UsageError
from coilclaw.runtime.approvals import Question
from coilclaw.runtime.identity import this_person
from coilclaw.sop.runfile import valid

if TYPE_CHECKING:
    from collections.abc import Callable

    from coilclaw.domain.toolcalls import ApprovalRequest, Approve
    from coilclaw.runtime.approvals import Approval, Desk
    from coilclaw.sop.document import Stage
    from coilclaw.sop.runfile import Run


def stage_question(run: Run, stage: Stage, prompt: str) -> Question:
    """The question of an approval stage; the prompt is what a person is shown."""
    bound = freeform.hashed(
        {"run": run.id, "stage": stage.id, "prompt": valid(prompt), "sop": run.sop_hash}
    )
    return Question(
        kind="sop",
        origin=run.id,
        title=f"{run.sop}: {stage.id}",
        digest=bound,
        rule="sop.approval",
        reason=f"the run goes on after stage {stage.id} only when somebody approves",
        detail=tuple(prompt.split("\n")),
    )


def call_question(run: Run, stage: Stage, request: ApprovalRequest) -> Question:
    """The question of the guard about a tool stage, for somebody who is not here."""
    return Question(
        kind="sop",
        origin=run.id,
        title=f"{run.sop}: {stage.id}",
        digest=request.digest,
        tool=request.tool,
        arguments=request.arguments,
        risk=str(request.verdict.risk),
        rule=request.verdict.rule,
        reason=request.verdict.reason,
        detail=request.detail,
    )


def latest(desk: Desk, question: Question) -> Approval | None:
    """The newest approval of exactly this, for exactly this run."""
    found = [
        one
        for one in desk.list(pending_only=False)
        if (one.question.origin, one.question.digest) == (question.origin, question.digest)
    ]
    return found[-1] if found else None


def settled(
    desk: Desk, question: Question, confirm: Callable[[Question], bool | None] | None
) -> Approval:
    """The approval of a question: an earlier one, or one that is put on the desk now.

    Where there is a person at the terminal, that one is asked at once.
    """
    approval = latest(desk, question)
    if approval is None or approval.state in {"expired", "withdrawn"}:
        approval = desk.find(desk.ask(question))
    if approval.state == "pending" and confirm is not None:
        answer = confirm(question)
        if answer is not None:
            approval = _answered(desk, approval, approved=answer)
    return approval


def _answered(desk: Desk, approval: Approval, *, approved: bool) -> Approval:
    try:
        return desk.answer(approval.id, approved=approved, by=this_person())
    except UsageError:
        return desk.find(approval.id)  # somebody else was faster, and that answer counts


class DeskApprover:
    """Says yes to a call that was approved on the desk; asks a person here, or there."""

    def __init__(self, desk: Desk, run: Run, stage: Stage, attended: Approve | None) -> None:
        self._desk = desk
        self._attended = attended
        self._run = run
        self._stage = stage
        self.waits_for: str = ""
        """The approval that has to be answered before the call can be made."""

    def __call__(self, request: ApprovalRequest) -> Answer:
        question = call_question(self._run, self._stage, request)
        approval = latest(self._desk, question)
        if approval is not None and self._desk.use(approval.id, question.digest):
            return Answer(Reply.YES, approval.answered_by)
        if approval is not None and approval.state == "rejected":
            return Answer(Reply.NO, approval.answered_by)
        if self._attended is not None:
            self._withdraw()
            return self._attended(request)
        if approval is None or approval.state != "pending":
            self._withdraw()
            approval = self._desk.find(self._desk.ask(question))
        self.waits_for = approval.id
        return Answer(Reply.NO, "nobody", f"the request waits for an answer: {approval.id}")

    def _withdraw(self) -> None:
        """Take back what was asked when the call, the tree or the policy was another."""
        asked = self._run.waits.get(self._stage.id)
        if asked:
            self._desk.withdraw(asked)
