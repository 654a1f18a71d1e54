"""One attempt at a stage: begun on the disk, then performed, which may happen in a thread."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from coilclaw.agent import estop
from coilclaw.agent.approvals import ApprovalQuestion
from coilclaw.agent.loop import ROUNDS_RULE
from coilclaw.agent.receipts.book import INTENT_HASH
from coilclaw.agent.sop import references
from coilclaw.agent.sop.document import StageOutcome
from coilclaw.kernel import (
    ApprovalAnswer,
    ApprovalReply,
    CoilClawError,
    Consults,
    DeniedError,
    Reads,
    Stopped,
    ToolCall,
    UsageError,
    canonical_json,
    valid_text,
)
from coilclaw.workspace import this_person

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from coilclaw.agent.approvals import Approval, ApprovalStore
    from coilclaw.agent.estop import Estop
    from coilclaw.agent.handle import TurnOutcome
    from coilclaw.agent.receipts.book import ReceiptBook
    from coilclaw.agent.sop.document import Sop, SopStage, Status
    from coilclaw.agent.sop.run_journal import RunFile, SopRun, StageAttempt
    from coilclaw.agent.tools.contract import Tool
    from coilclaw.kernel import ApprovalRequest, Approve, Json, ToolResult, TurnRecord


class SopCall(Protocol):
    """Takes a call through the guard; ``approve`` is whom the guard asks."""

    def __call__(self, call: ToolCall, conversation_id: str, approve: Approve) -> ToolResult: ...


@dataclass(frozen=True, slots=True)
class SopDependencies:
    """Everything that the engine does goes through one of these."""

    tools: Mapping[str, Tool]
    call: SopCall
    turn: Callable[[str, str], TurnOutcome]
    """Runs one turn: the message, and the conversation that it is said in."""
    said: Callable[[str], Sequence[TurnRecord]]
    """What a conversation holds."""
    in_place: Callable[[str, Mapping[str, Json]], bool | None]
    """Whether a call of a tool has had its effect, where one can look; ``None`` where not."""
    book: ReceiptBook | None
    estop: Estop
    desk: ApprovalStore
    approve: Approve | None
    """Asks the person at the terminal about a call; ``None`` when there is none."""
    confirm: Callable[[ApprovalQuestion], bool | None] | None
    """The same for an approval stage; ``None`` as an answer is: not now."""
    halt: Callable[[str], None] = field(default=lambda _: None)
    """Ends every call that runs."""
    stopped: Callable[[], str | None] = field(default=lambda: None)
    """Why the run has to stop, once it has to."""
    pause: Callable[[float], None] = field(default=time.sleep)
    """Waits between two looks, where something is waited for."""


UNKNOWN_RULE: Final = "sop.interrupted"


@dataclass(frozen=True, slots=True)
class SopTrace:
    """The evidence of one attempt."""

    intents: tuple[str, ...] = ()
    """Hashes of what was intended; without any there was no effect."""
    receipts: tuple[Mapping[str, object], ...] = ()
    """Receipts of those intents."""


def conversation(run_id: str, stage: str, number: int) -> str:
    """The conversation in which an attempt takes place; its receipts name it."""
    return f"{run_id}.{stage}.{number}"


def trace(book: ReceiptBook | None, conversation_id: str) -> SopTrace:
    """Look for everything that was done in a conversation."""
    if book is None:
        return SopTrace()
    intents = tuple(
        str(intent[INTENT_HASH])
        for intent in book.intents()
        if intent["conversation_id"] == conversation_id
    )
    if not intents:
        return SopTrace()
    receipts = tuple(receipt for receipt in book.receipts() if receipt[INTENT_HASH] in intents)
    return SopTrace(intents, receipts)


def read_only(tool: Tool, args: Mapping[str, Json]) -> bool:
    """Whether a call only looks at things, so that repeating it does no harm."""
    try:
        effects = tool.effects(args)
    except UsageError:
        return False
    return bool(effects) and all(isinstance(effect, Reads | Consults) for effect in effects)


def receipted(attempt: StageAttempt, receipt: Mapping[str, object]) -> StageOutcome:
    """What became of an interrupted call, as its receipt tells."""
    name, status = str(receipt["id"]), receipt["status"]
    if status == "allowed":
        return StageOutcome(attempt.stage, "done", attempt.number, output_known=False, receipt=name)
    return StageOutcome(
        attempt.stage,
        "denied" if status == "denied" else "failed",
        attempt.number,
        error=f"the run was interrupted after this; {name} says that it {status}"
        if status == "failed"
        else f"the run was interrupted after this; {name} says that it was denied",
        rule=UNKNOWN_RULE,
        receipt=name,
        output_known=False,
    )


def final_text(records: Sequence[TurnRecord]) -> str | None:
    """The answer that ended a turn, if it came to its end."""
    if not records:
        return None
    last = records[-1]
    ended = last.role == "assistant" and not last.tool_calls
    return last.content if ended and f"({ROUNDS_RULE})" not in last.content else None


def only_looked(records: Sequence[TurnRecord], tools: Mapping[str, Tool]) -> bool:
    """Whether all that a model called in a turn only looks at things."""
    called = [call for record in records for call in record.tool_calls]
    return bool(called) and all(
        call.name in tools and read_only(tools[call.name], call.arguments) for call in called
    )


def stage_question(run: SopRun, stage: SopStage, prompt: str) -> ApprovalQuestion:
    """The question of an approval stage; the prompt is what a person is shown."""
    bound = canonical_json.hash_json(
        {"run": run.id, "stage": stage.id, "prompt": valid_text(prompt), "sop": run.sop_hash}
    )
    return ApprovalQuestion(
        kind="sop",
        origin=run.id,
        title=f"{run.sop}: {stage.id}",
        digest=bound,
        rule="sop.approval",
        reason=f"the run goes on after stage {stage.id} only when somebody approves",
        detail=tuple(prompt.split("\n")),
    )


def call_question(run: SopRun, stage: SopStage, request: ApprovalRequest) -> ApprovalQuestion:
    """The question of the guard about a tool stage, for somebody who is not here."""
    return ApprovalQuestion(
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


def latest(desk: ApprovalStore, question: ApprovalQuestion) -> Approval | None:
    """The newest approval of exactly this, for exactly this run."""
    found = [
        one
        for one in desk.list(pending_only=False)
        if (one.question.origin, one.question.digest) == (question.origin, question.digest)
    ]
    return found[-1] if found else None


def settled(
    desk: ApprovalStore,
    question: ApprovalQuestion,
    confirm: Callable[[ApprovalQuestion], bool | None] | None,
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
            try:
                return desk.answer(approval.id, approved=answer, by=this_person())
            except UsageError:
                return desk.find(approval.id)  # another answer was faster, and counts
    return approval


class DeskApprover:
    """Says yes to a call that was approved on the desk; asks a person here, or there."""

    def __init__(
        self, desk: ApprovalStore, run: SopRun, stage: SopStage, attended: Approve | None
    ) -> None:
        self._desk = desk
        self._attended = attended
        self._run = run
        self._stage = stage
        self.waits_for: str = ""
        """The approval that has to be answered before the call can be made."""

    def __call__(self, request: ApprovalRequest) -> ApprovalAnswer:
        question = call_question(self._run, self._stage, request)
        approval = latest(self._desk, question)
        if approval is not None and self._desk.use(approval.id, question.digest):
            return ApprovalAnswer(ApprovalReply.YES, approval.answered_by)
        if approval is not None and approval.state == "rejected":
            return ApprovalAnswer(ApprovalReply.NO, approval.answered_by)
        if self._attended is not None:
            self._withdraw()
            return self._attended(request)
        if approval is None or approval.state != "pending":
            self._withdraw()
            approval = self._desk.find(self._desk.ask(question))
        self.waits_for = approval.id
        return ApprovalAnswer(
            ApprovalReply.NO, "nobody", f"the request waits for an answer: {approval.id}"
        )

    def _withdraw(self) -> None:
        """Take back what was asked when the call, the tree or the policy was another."""
        asked = self._run.waits.get(self._stage.id)
        if asked:
            self._desk.withdraw(asked)


_log = logging.getLogger(__name__)

MAX_OUTPUT_CHARS: Final = 2**20
"""Characters of a stage's output that are kept; of more than that, nothing is."""


@dataclass(frozen=True, slots=True)
class Begun:
    """An attempt that is on the disk as begun, with everything that it needs."""

    stage: SopStage
    number: int
    run: SopRun
    """The run as it was then."""
    args: Mapping[str, Json] = field(default_factory=dict)
    prompt: str = ""


@dataclass(frozen=True, slots=True)
class Waiting:
    """An attempt that can go on only when an approval is answered."""

    approval: str


Result: TypeAlias = StageOutcome | Waiting


class AttemptMaker:
    """Makes attempts at the stages of one run."""

    def __init__(self, sop: Sop, file: RunFile, means: SopDependencies) -> None:
        self._sop = sop
        self._file = file
        self._means = means

    def begin(self, stage: SopStage) -> Begun | StageOutcome:
        """Put the beginning on the disk; a stage that lacks what it acts on has failed already."""
        run = self._file.run
        number = self._number(stage)
        try:
            begun = self._prepared(stage, number, run)
        except UsageError as problem:
            # What an earlier stage put out is not there, or is of no use to this one.
            return failed(stage, number, problem)
        if stage.kind != "approval" or stage.id not in run.attempts:
            self._file.started(stage.id, number)
            tell("sop_stage_started", stage.id, str(number))
        return begun

    def perform(self, begun: Begun) -> Result:
        """Do it; nothing of the run is written here, so that several can go on at once."""
        if begun.stage.kind == "approval":
            return self._approval(begun)
        outcome = self._agent(begun) if begun.stage.kind == "agent" else self._tool(begun)
        if isinstance(outcome, StageOutcome) and outcome.failure:
            check_stop(self._means, begun.run)
        return outcome

    def _prepared(self, stage: SopStage, number: int, run: SopRun) -> Begun:
        if stage.kind == "tool":
            schema = self._means.tools[stage.tool].parameters_schema
            args = references.arguments(stage, schema, run.outcomes, run.inputs)
            return Begun(stage, number, run, args)
        if stage.kind == "agent":
            prompt = references.message(stage, self._sop, run.outcomes, run.inputs)
        else:
            prompt = references.shown(stage, run.outcomes, run.inputs)
        return Begun(stage, number, run, prompt=prompt)

    def _number(self, stage: SopStage) -> int:
        """The number of the next attempt.

        A tool stage without any intent goes on under its old one, since an approval is bound to it.
        """
        run = self._file.run
        last = run.tried.get(stage.id, 0)
        if stage.id in run.attempts and stage.kind != "agent":
            name = conversation(run.id, stage.id, last)
            if not trace(self._means.book, name).intents:
                return last
        return last + 1

    def _tool(self, begun: Begun) -> Result:
        stage, number, run = begun.stage, begun.number, begun.run
        approver = DeskApprover(self._means.desk, run, stage, self._means.approve)
        call = ToolCall(f"{stage.id}-{number}", stage.tool, begun.args)
        name = conversation(run.id, stage.id, number)
        result = self._means.call(call, name, approver)
        if approver.waits_for:
            return Waiting(approver.waits_for)
        status: Status = "done" if result.success else "denied"
        # Without receipts there is no status, and everything is denied.
        if not result.success and result.metadata.get("status") == "failed":
            status = "failed"
        rule = "" if result.success else str(result.metadata.get("rule", "tool.failed"))
        error, receipt = result.error or "", result.receipt_id or ""
        output = result.output
        return kept(
            StageOutcome(stage.id, status, number, output, error=error, rule=rule, receipt=receipt)
        )

    def _agent(self, begun: Begun) -> StageOutcome:
        stage, number = begun.stage, begun.number
        name = conversation(begun.run.id, stage.id, number)
        try:
            turn = self._means.turn(begun.prompt, name)
        except Stopped:
            raise
        except CoilClawError as problem:
            return failed(stage, number, problem)
        outcome = StageOutcome(stage.id, "done", number, turn.text)
        if turn.exhausted:
            rule = "limits.max_tool_rounds"
            outcome = replace(outcome, status="failed", error="it used up its rounds", rule=rule)
        return kept(outcome)

    def _approval(self, begun: Begun) -> Result:
        stage, desk = begun.stage, self._means.desk
        question = stage_question(begun.run, stage, begun.prompt)
        approval = settled(desk, question, self._means.confirm)
        if approval.state == "rejected":
            return StageOutcome(
                stage.id,
                "rejected",
                begun.number,
                error=f"{approval.answered_by} said no",
                rule="approval.rejected",
                approval=approval.id,
            )
        # Used by us before we died, if it is used: nobody else can have this digest.
        if approval.state == "used" or desk.use(approval.id, question.digest):
            return StageOutcome(stage.id, "done", begun.number, approval=approval.id)
        return Waiting(approval.id)


def check_stop(means: SopDependencies, run: SopRun) -> None:
    """Refuse to go on while all tools are stopped, or this run is.

    What was cut short is no failure of a stage: the run stays as it is, and can be resumed.
    """
    if means.estop.set:
        raise DeniedError(
            f"{estop.ESTOP_REASON}; the run {run.id} can be resumed",
            rule=estop.ESTOP_RULE,
            hint=f"{estop.ESTOP_HINT}; then 'coilclaw sop resume {run.id}'",
        )
    reason = means.stopped()
    if reason is not None:
        raise Stopped(
            f"the run {run.id} was stopped: {reason}",
            rule="sop.stopped",
            hint=f"it can be resumed: 'coilclaw sop resume {run.id}'",
        )


def kept(outcome: StageOutcome) -> StageOutcome:
    """Output that is too long is not kept at all: half of it could be taken for the whole."""
    if len(outcome.output) <= MAX_OUTPUT_CHARS:
        return outcome
    return replace(outcome, output="", output_known=False)


def failed(stage: SopStage, number: int, problem: CoilClawError) -> StageOutcome:
    """The outcome of a stage that an error ended."""
    return StageOutcome(stage.id, "failed", number, error=problem.message, rule=problem.rule)


def tell(event: str, what: str, how: str) -> None:
    """Log an event of a run."""
    fields = {"stage": what, "what": how}
    words = event.replace("_", " ")
    _log.info("%s: %s (%s)", words, what, how, extra={"event": event, "fields": fields})
