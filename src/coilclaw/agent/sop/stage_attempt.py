"""One attempt at a stage: recorded as started, then performed, possibly in a thread."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from coilclaw.agent import estop
from coilclaw.agent.approvals import NO_ANSWERER, ApprovalQuestion
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
    """Takes a call through the guard, which requests approvals from ``approve``."""

    def __call__(self, call: ToolCall, conversation_id: str, approve: Approve) -> ToolResult: ...


@dataclass(frozen=True, slots=True)
class SopDependencies:
    """The operations that the engine uses."""

    tools: Mapping[str, Tool]
    call: SopCall
    turn: Callable[[str, str], TurnOutcome]
    """Runs one turn with a message in a conversation."""
    said: Callable[[str], Sequence[TurnRecord]]
    """Returns the records of a conversation."""
    in_place: Callable[[str, Mapping[str, Json]], bool | None]
    """Returns whether a call of a tool had its effect; ``None`` if that is unknown."""
    book: ReceiptBook | None
    estop: Estop
    approvals: ApprovalStore
    approve: Approve | None
    """Asks the user at the terminal about a call; ``None`` without a terminal."""
    confirm: Callable[[ApprovalQuestion], bool | None] | None
    """Asks the user about an approval stage; the answer ``None`` postpones the decision."""
    halt: Callable[[str], None] = field(default=lambda _: None)
    """Ends every running call."""
    stopped: Callable[[], str | None] = field(default=lambda: None)
    """Returns why the run has to stop, or ``None``."""
    pause: Callable[[float], None] = field(default=time.sleep)
    """Waits for a number of seconds."""


UNKNOWN_RULE: Final = "sop.interrupted"


@dataclass(frozen=True, slots=True)
class SopTrace:
    """The evidence of one attempt."""

    intents: tuple[str, ...] = ()
    """Hashes of the intents; without any, the attempt had no effect."""
    receipts: tuple[Mapping[str, object], ...] = ()
    """Receipts of those intents."""


def conversation(run_id: str, stage: str, number: int) -> str:
    """Return the conversation of an attempt, which its receipts name."""
    return f"{run_id}.{stage}.{number}"


def trace(book: ReceiptBook | None, conversation_id: str) -> SopTrace:
    """Return the intents and receipts of a conversation."""
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
    """Return whether a call only reads, so that it can be repeated safely."""
    try:
        effects = tool.effects(args)
    except UsageError:
        return False
    return bool(effects) and all(isinstance(effect, Reads | Consults) for effect in effects)


def outcome_of_receipt(attempt: StageAttempt, receipt: Mapping[str, object]) -> StageOutcome:
    """Return the outcome of an interrupted call according to its receipt."""
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
    """Return the answer that ended a turn, or ``None`` if it did not end."""
    if not records:
        return None
    last = records[-1]
    ended = last.role == "assistant" and not last.tool_calls
    return last.content if ended and f"({ROUNDS_RULE})" not in last.content else None


def only_looked(records: Sequence[TurnRecord], tools: Mapping[str, Tool]) -> bool:
    """Return whether all calls of a model in a turn only read."""
    called = [call for record in records for call in record.tool_calls]
    return bool(called) and all(
        call.name in tools and read_only(tools[call.name], call.arguments) for call in called
    )


def stage_question(run: SopRun, stage: SopStage, prompt: str) -> ApprovalQuestion:
    """Return the request of an approval stage; the user is shown the prompt."""
    bound = canonical_json.hash_json(
        {"run": run.id, "stage": stage.id, "prompt": valid_text(prompt), "sop": run.sop_hash}
    )
    return ApprovalQuestion(
        kind="sop",
        origin=run.id,
        title=f"{run.sop}: {stage.id}",
        digest=bound,
        rule="sop.approval",
        reason=f"the run continues after stage {stage.id} only with an approval",
        detail=tuple(prompt.split("\n")),
    )


def call_question(run: SopRun, stage: SopStage, request: ApprovalRequest) -> ApprovalQuestion:
    """Return the guard's request about a tool stage, to store it for a later answer."""
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


def latest(approvals: ApprovalStore, question: ApprovalQuestion) -> Approval | None:
    """Return the newest approval with this digest for this run, or ``None``."""
    found = [
        one
        for one in approvals.list(pending_only=False)
        if (one.question.origin, one.question.digest) == (question.origin, question.digest)
    ]
    return found[-1] if found else None


def settle_approval(
    approvals: ApprovalStore,
    question: ApprovalQuestion,
    confirm: Callable[[ApprovalQuestion], bool | None] | None,
) -> Approval:
    """Return the earlier approval of a request, or store the request.

    With a terminal, the user is asked at once.
    """
    approval = latest(approvals, question)
    if approval is None or approval.state in {"expired", "withdrawn"}:
        approval = approvals.find(approvals.ask(question))
    if approval.state == "pending" and confirm is not None:
        answer = confirm(question)
        if answer is not None:
            try:
                return approvals.answer(approval.id, approved=answer, by=this_person())
            except UsageError:
                return approvals.find(approval.id)  # another answer was first and counts
    return approval


class StoredApprover:
    """Approves a call by its stored approval, asks at the terminal, or stores a request."""

    def __init__(
        self, approvals: ApprovalStore, run: SopRun, stage: SopStage, attended: Approve | None
    ) -> None:
        self._approvals = approvals
        self._attended = attended
        self._run = run
        self._stage = stage
        self.waits_for: str = ""
        """The approval that has to be answered before the call can be made."""

    def __call__(self, request: ApprovalRequest) -> ApprovalAnswer:
        question = call_question(self._run, self._stage, request)
        approval = latest(self._approvals, question)
        if approval is not None and self._approvals.use(approval.id, question.digest):
            return ApprovalAnswer(ApprovalReply.YES, approval.answered_by)
        if approval is not None and approval.state == "rejected":
            return ApprovalAnswer(ApprovalReply.NO, approval.answered_by)
        if self._attended is not None:
            self._withdraw()
            return self._attended(request)
        if approval is None or approval.state != "pending":
            self._withdraw()
            approval = self._approvals.find(self._approvals.ask(question))
        self.waits_for = approval.id
        return ApprovalAnswer(
            ApprovalReply.NO, NO_ANSWERER, f"the request waits for an answer: {approval.id}"
        )

    def _withdraw(self) -> None:
        """Withdraw a request that was made for another call, tree or policy."""
        asked = self._run.waits.get(self._stage.id)
        if asked:
            self._approvals.withdraw(asked)


_log = logging.getLogger(__name__)

MAX_OUTPUT_CHARS: Final = 2**20
"""Characters of a stage's output that are stored; a longer output is dropped."""


@dataclass(frozen=True, slots=True)
class Begun:
    """A started and recorded attempt, with its arguments."""

    stage: SopStage
    number: int
    run: SopRun
    """The state of the run at the start of the attempt."""
    args: Mapping[str, Json] = field(default_factory=dict)
    prompt: str = ""


@dataclass(frozen=True, slots=True)
class Waiting:
    """An attempt that waits for the answer to an approval."""

    approval: str


Result: TypeAlias = StageOutcome | Waiting


class AttemptMaker:
    """Makes attempts at the stages of one run."""

    def __init__(self, sop: Sop, file: RunFile, dependencies: SopDependencies) -> None:
        self._sop = sop
        self._file = file
        self._dependencies = dependencies

    def begin(self, stage: SopStage) -> Begun | StageOutcome:
        """Record the start of an attempt; return a failure if a reference has no value."""
        run = self._file.run
        number = self._number(stage)
        try:
            begun = self._prepare_stage(stage, number, run)
        except UsageError as problem:
            # The output of an earlier stage is missing or unusable.
            return failed_outcome(stage, number, problem)
        if stage.kind != "approval" or stage.id not in run.attempts:
            self._file.record_start(stage.id, number)
            tell("sop_stage_started", stage.id, str(number))
        return begun

    def perform(self, begun: Begun) -> Result:
        """Perform an attempt, without writing to the run, so that several can run at once."""
        if begun.stage.kind == "approval":
            return self._approval(begun)
        outcome = self._agent(begun) if begun.stage.kind == "agent" else self._tool(begun)
        if isinstance(outcome, StageOutcome) and outcome.failure:
            check_stop(self._dependencies, begun.run)
        return outcome

    def _prepare_stage(self, stage: SopStage, number: int, run: SopRun) -> Begun:
        if stage.kind == "tool":
            schema = self._dependencies.tools[stage.tool].parameters_schema
            args = references.arguments(stage, schema, run.outcomes, run.inputs)
            return Begun(stage, number, run, args)
        if stage.kind == "agent":
            prompt = references.message(stage, self._sop, run.outcomes, run.inputs)
        else:
            prompt = references.render_prompt(stage, run.outcomes, run.inputs)
        return Begun(stage, number, run, prompt=prompt)

    def _number(self, stage: SopStage) -> int:
        """Return the number of the next attempt.

        A tool stage without an intent keeps its number, because an approval is bound to it.
        """
        run = self._file.run
        last = run.tried.get(stage.id, 0)
        if stage.id in run.attempts and stage.kind != "agent":
            name = conversation(run.id, stage.id, last)
            if not trace(self._dependencies.book, name).intents:
                return last
        return last + 1

    def _tool(self, begun: Begun) -> Result:
        stage, number, run = begun.stage, begun.number, begun.run
        approver = StoredApprover(
            self._dependencies.approvals, run, stage, self._dependencies.approve
        )
        call = ToolCall(f"{stage.id}-{number}", stage.tool, begun.args)
        name = conversation(run.id, stage.id, number)
        result = self._dependencies.call(call, name, approver)
        if approver.waits_for:
            return Waiting(approver.waits_for)
        status: Status = "done" if result.success else "denied"
        # If receipts are switched off, a result has no status and every call is denied.
        if not result.success and result.metadata.get("status") == "failed":
            status = "failed"
        rule = "" if result.success else str(result.metadata.get("rule", "tool.failed"))
        error, receipt = result.error or "", result.receipt_id or ""
        output = result.output
        return drop_long_output(
            StageOutcome(stage.id, status, number, output, error=error, rule=rule, receipt=receipt)
        )

    def _agent(self, begun: Begun) -> StageOutcome:
        stage, number = begun.stage, begun.number
        name = conversation(begun.run.id, stage.id, number)
        try:
            turn = self._dependencies.turn(begun.prompt, name)
        except Stopped:
            raise
        except CoilClawError as problem:
            return failed_outcome(stage, number, problem)
        outcome = StageOutcome(stage.id, "done", number, turn.text)
        if turn.exhausted:
            rule = "limits.max_tool_rounds"
            outcome = replace(outcome, status="failed", error="it used up its rounds", rule=rule)
        return drop_long_output(outcome)

    def _approval(self, begun: Begun) -> Result:
        stage, approvals = begun.stage, self._dependencies.approvals
        question = stage_question(begun.run, stage, begun.prompt)
        approval = settle_approval(approvals, question, self._dependencies.confirm)
        if approval.state == "rejected":
            return StageOutcome(
                stage.id,
                "rejected",
                begun.number,
                error=f"{approval.answered_by} said no",
                rule="approval.rejected",
                approval=approval.id,
            )
        # A used approval was used by this run before a crash: the digest is unique to it.
        if approval.state == "used" or approvals.use(approval.id, question.digest):
            return StageOutcome(stage.id, "done", begun.number, approval=approval.id)
        return Waiting(approval.id)


def check_stop(dependencies: SopDependencies, run: SopRun) -> None:
    """Raise an error if the emergency stop is set or this run is stopped.

    A stopped stage does not count as failed: the run can be resumed.
    """
    if dependencies.estop.set:
        raise DeniedError(
            f"{estop.ESTOP_REASON}; the run {run.id} can be resumed",
            rule=estop.ESTOP_RULE,
            hint=f"{estop.ESTOP_HINT}; then 'coilclaw sop resume {run.id}'",
        )
    reason = dependencies.stopped()
    if reason is not None:
        raise Stopped(
            f"the run {run.id} was stopped: {reason}",
            rule="sop.stopped",
            hint=f"it can be resumed: 'coilclaw sop resume {run.id}'",
        )


def drop_long_output(outcome: StageOutcome) -> StageOutcome:
    """Return the outcome without an output that is too long: a part could look complete."""
    if len(outcome.output) <= MAX_OUTPUT_CHARS:
        return outcome
    return replace(outcome, output="", output_known=False)


def failed_outcome(stage: SopStage, number: int, problem: CoilClawError) -> StageOutcome:
    """Return the outcome of a stage that an error ended."""
    return StageOutcome(stage.id, "failed", number, error=problem.message, rule=problem.rule)


def tell(event: str, what: str, how: str) -> None:
    """Log an event of a run."""
    fields = {"stage": what, "what": how}
    words = event.replace("_", " ")
    _log.info("%s: %s (%s)", words, what, how, extra={"event": event, "fields": fields})
