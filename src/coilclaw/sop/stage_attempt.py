"""One attempt at a stage: begun on the disk, then performed, which may happen in a thread."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from coilclaw.domain.messages import ToolCall
from coilclaw.errors import CoilClawError, DeniedError, Stopped, UsageError
from coilclaw.runtime import estop
from coilclaw.sop import asking, evidence, references
from coilclaw.sop.asking import DeskApprover
from coilclaw.sop.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coilclaw.domain.messages import Json
    from coilclaw.domain.toolcalls import ToolResult
    from coilclaw.sop.document import Sop, Stage
    from coilclaw.sop.means import Means
    from coilclaw.sop.outcome import Status
    from coilclaw.sop.runfile import Run, RunFile

_log = logging.getLogger(__name__)

MAX_OUTPUT_CHARS: Final = 2**20
"""Characters of a stage's output that are kept; of more than that, nothing is."""


@dataclass(frozen=True, slots=True)
class Begun:
    """An attempt that is on the disk as begun, with everything that it needs."""

    stage: Stage
    number: int
    run: Run
    """The run as it was then."""
    args: Mapping[str, Json] = field(default_factory=dict)
    prompt: str = ""


@dataclass(frozen=True, slots=True)
class Waiting:
    """An attempt that can go on only when an approval is answered."""

    approval: str


Result: TypeAlias = Outcome | Waiting


class AttemptMaker:
    """Makes attempts at the stages of one run."""

    def __init__(self, sop: Sop, file: RunFile, means: Means) -> None:
        self._sop = sop
        self._file = file
        self._means = means

    def begin(self, stage: Stage) -> Begun | Outcome:
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
        if isinstance(outcome, Outcome) and outcome.failure:
            check_stop(self._means, begun.run)
        return outcome

    def _prepared(self, stage: Stage, number: int, run: Run) -> Begun:
        if stage.kind == "tool":
            schema = self._means.tools[stage.tool].parameters_schema
            args = references.arguments(stage, schema, run.outcomes, run.inputs)
            return Begun(stage, number, run, args)
        if stage.kind == "agent":
            prompt = references.message(stage, self._sop, run.outcomes, run.inputs)
        else:
            prompt = references.shown(stage, run.outcomes, run.inputs)
        return Begun(stage, number, run, prompt=prompt)

    def _number(self, stage: Stage) -> int:
        """The number of the next attempt.

        A tool stage without any intent goes on under its old one, since an approval is bound to it.
        """
        run = self._file.run
        last = run.tried.get(stage.id, 0)
        if stage.id in run.attempts and stage.kind != "agent":
            name = evidence.conversation(run.id, stage.id, last)
            if not evidence.trace(self._means.book, name).intents:
                return last
        return last + 1

    def _tool(self, begun: Begun) -> Result:
        stage, number, run = begun.stage, begun.number, begun.run
        approver = DeskApprover(self._means.desk, run, stage, self._means.approve)
        call = ToolCall(f"{stage.id}-{number}", stage.tool, begun.args)
        name = evidence.conversation(run.id, stage.id, number)
        result = self._means.call(call, name, approver)
        if approver.waits_for:
            return Waiting(approver.waits_for)
        return _of_call(stage, number, result)

    def _agent(self, begun: Begun) -> Outcome:
        stage, number = begun.stage, begun.number
        name = evidence.conversation(begun.run.id, stage.id, number)
        try:
            turn = self._means.turn(begun.prompt, name)
        except Stopped:
            raise
        except CoilClawError as problem:
            return failed(stage, number, problem)
        outcome = Outcome(stage.id, "done", number, turn.text)
        if turn.exhausted:
            rule = "limits.max_tool_rounds"
            outcome = replace(outcome, status="failed", error="it used up its rounds", rule=rule)
        return kept(outcome)

    def _approval(self, begun: Begun) -> Result:
        stage, desk = begun.stage, self._means.desk
        question = asking.stage_question(begun.run, stage, begun.prompt)
        approval = asking.settled(desk, question, self._means.confirm)
        if approval.state == "rejected":
            return Outcome(
                stage.id,
                "rejected",
                begun.number,
                error=f"{approval.answered_by} said no",
                rule="approval.rejected",
                approval=approval.id,
            )
        # Used by us before we died, if it is used: nobody else can have this digest.
        if approval.state == "used" or desk.use(approval.id, question.digest):
            return Outcome(stage.id, "done", begun.number, approval=approval.id)
        return Waiting(approval.id)


def check_stop(means: Means, run: Run) -> None:
    """Refuse to go on while all tools are stopped, or this run is.

    What was cut short is no failure of a stage: the run stays as it is, and can be resumed.
    """
    if means.estop.set:
        raise DeniedError(
            f"{estop.REASON}; the run {run.id} can be resumed",
            rule=estop.RULE,
            hint=f"{estop.HINT}; then 'coilclaw sop resume {run.id}'",
        )
    reason = means.stopped()
    if reason is not None:
        raise Stopped(
            f"the run {run.id} was stopped: {reason}",
            rule="sop.stopped",
            hint=f"it can be resumed: 'coilclaw sop resume {run.id}'",
        )


def kept(outcome: Outcome) -> Outcome:
    """Output that is too long is not kept at all: half of it could be taken for the whole."""
    if len(outcome.output) <= MAX_OUTPUT_CHARS:
        return outcome
    return replace(outcome, output="", output_known=False)


def failed(stage: Stage, number: int, problem: CoilClawError) -> Outcome:
    """The outcome of a stage that an error ended."""
    return Outcome(stage.id, "failed", number, error=problem.message, rule=problem.rule)


def tell(event: str, what: str, how: str) -> None:
    """Log an event of a run."""
    fields = {"stage": what, "what": how}
    words = event.replace("_", " ")
    _log.info("%s: %s (%s)", words, what, how, extra={"event": event, "fields": fields})


def _of_call(stage: Stage, number: int, result: ToolResult) -> Outcome:
    return kept(
        Outcome(
            stage.id,
            _status(result),
            number,
            result.output,
            error=result.error or "",
            rule="" if result.success else str(result.metadata.get("rule", "tool.failed")),
            receipt=result.receipt_id or "",
        )
    )


def _status(result: ToolResult) -> Status:
    if result.success:
        return "done"
    # Without receipts there is no status, and everything is denied.
    return "failed" if result.metadata.get("status") == "failed" else "denied"
