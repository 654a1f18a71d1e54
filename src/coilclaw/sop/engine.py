"""The engine: one stage after the other, each on the disk before and after it happens.

A finished stage is never repeated. A stage that was begun and not finished is settled by what it
left behind (``evidence``) before anything else happens.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from coilclaw.domain.messages import ToolCall
from coilclaw.errors import CoilClawError, DeniedError, UsageError
from coilclaw.runtime import estop
from coilclaw.sop import asking, conditions, evidence, references
from coilclaw.sop.asking import DeskApprover
from coilclaw.sop.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coilclaw.domain.toolcalls import ToolResult
    from coilclaw.sop.document import Sop, Stage
    from coilclaw.sop.means import Means
    from coilclaw.sop.outcome import Status
    from coilclaw.sop.runfile import Attempt, Ending, Run, RunFile

_log = logging.getLogger(__name__)

MAX_OUTPUT_CHARS: Final = 2**20
"""Characters of a stage's output that are kept; of more than that, nothing is."""


class Engine:
    """Works on one run until it ends or has to wait."""

    def __init__(self, sop: Sop, file: RunFile, means: Means) -> None:
        self._sop = sop
        self._file = file
        self._means = means

    def go(self) -> Run:
        """Go on from where the run is; a ``DeniedError`` when somebody stopped all tools."""
        for stage in self._sop.stages:
            outcome = self._file.run.outcomes.get(stage.id)
            if outcome is None:
                outcome = self._stage(stage)
            if outcome is None:
                return self._file.run
            ending = _ending(stage, outcome)
            if ending is not None:
                return self._end(ending, f"{stage.id}: {outcome.error or outcome.status}")
        return self._end("done", "")

    def _end(self, ending: Ending, reason: str) -> Run:
        self._file.end(ending, reason)
        _tell("sop_run_ended", self._file.run.id, ending)
        return self._file.run

    def _stage(self, stage: Stage) -> Outcome | None:
        """Bring a stage to its end; ``None`` when it waits for somebody."""
        self._check_stop()
        try:
            skipped = stage.when is not None and not conditions.holds(stage.when, self._outcomes)
        except UsageError as problem:
            return self._finish(stage, _failed(stage, 1, problem))
        if skipped:
            return self._finish(stage, Outcome(stage.id, "skipped", 0))
        outcome = self._recovered(stage) or self._attempt(stage)
        while outcome is not None and self._again(stage, outcome):
            self._file.finished(outcome, again=True)
            self._check_stop()
            outcome = self._attempt(stage)
        return None if outcome is None else self._finish(stage, outcome)

    def _finish(self, stage: Stage, outcome: Outcome) -> Outcome:
        self._file.finished(outcome)
        _tell("sop_stage_finished", stage.id, outcome.status)
        return outcome

    def _again(self, stage: Stage, outcome: Outcome) -> bool:
        """Whether to try once more; what a rule or a person denied would be denied again."""
        return (
            outcome.status == "failed"
            and outcome.repeatable
            and stage.on_failure.what == "retry"
            and self._file.run.failures.get(stage.id, 0) < stage.on_failure.times
        )

    def _recovered(self, stage: Stage) -> Outcome | None:
        """What an interrupted attempt came to; ``None`` when it can be made (again)."""
        attempt = self._file.run.attempt
        if attempt is None or attempt.stage != stage.id or stage.kind == "approval":
            return None
        name = evidence.conversation(self._file.run.id, stage.id, attempt.number)
        found = evidence.trace(self._means.book, name)
        if stage.kind == "tool":
            return self._recovered_tool(stage, attempt, found)
        records = self._means.said(name)
        text = evidence.final_text(records)
        if text is not None:
            return _kept(Outcome(stage.id, "done", attempt.number, text))
        if not found.intents or evidence.only_looked(records, self._means.tools):
            return None
        return evidence.unknown(attempt)

    def _recovered_tool(
        self, stage: Stage, attempt: Attempt, found: evidence.Trace
    ) -> Outcome | None:
        if not found.intents:
            return None
        tool = self._means.tools[stage.tool]
        args = references.arguments(stage, tool.parameters_schema, self._outcomes)
        if evidence.read_only(tool, args):
            return None
        return evidence.tool_outcome(attempt, found)

    def _attempt(self, stage: Stage) -> Outcome | None:
        number = self._number(stage)
        try:
            if stage.kind == "approval":
                return self._approval(stage, number)
            if stage.kind == "agent":
                return self._agent(stage, number)
            return self._tool(stage, number)
        except UsageError as problem:
            # What an earlier stage put out is not there, or is of no use to this one.
            return _failed(stage, number, problem)

    def _number(self, stage: Stage) -> int:
        """The number of the next attempt.

        A tool stage without any intent goes on under its old one, since an approval is bound to it.
        """
        run = self._file.run
        last = run.tried.get(stage.id, 0)
        if run.attempt is not None and run.attempt.stage == stage.id and stage.kind != "agent":
            name = evidence.conversation(run.id, stage.id, last)
            if not evidence.trace(self._means.book, name).intents:
                return last
        return last + 1

    def _tool(self, stage: Stage, number: int) -> Outcome | None:
        run = self._file.run
        schema = self._means.tools[stage.tool].parameters_schema
        args = references.arguments(stage, schema, run.outcomes)
        self._start(stage, number)
        approver = DeskApprover(self._means.desk, run, stage, self._means.approve)
        call = ToolCall(f"{stage.id}-{number}", stage.tool, args)
        name = evidence.conversation(run.id, stage.id, number)
        result = self._means.call(call, name, approver)
        if approver.waits_for:
            self._wait(stage, approver.waits_for)
            return None
        if _status(result) == "denied" and result.metadata.get("rule") == estop.RULE:
            self._check_stop()
        return _of_call(stage, number, result)

    def _agent(self, stage: Stage, number: int) -> Outcome:
        run = self._file.run
        message = references.message(stage, self._sop, run.outcomes)
        self._start(stage, number)
        name = evidence.conversation(run.id, stage.id, number)
        try:
            turn = self._means.turn(message, name)
        except CoilClawError as problem:
            return _failed(stage, number, problem)
        outcome = Outcome(stage.id, "done", number, turn.text)
        if turn.exhausted:
            rule = "limits.max_tool_rounds"
            outcome = replace(outcome, status="failed", error="it used up its rounds", rule=rule)
        return _kept(outcome)

    def _approval(self, stage: Stage, number: int) -> Outcome | None:
        run = self._file.run
        question = asking.stage_question(run, stage, references.shown(stage, run.outcomes))
        if run.attempt is None:
            self._start(stage, number)
        desk = self._means.desk
        approval = asking.settled(desk, question, self._means.confirm)
        if approval.state == "rejected":
            error = f"{approval.answered_by} said no"
            return Outcome(
                stage.id,
                "rejected",
                number,
                error=error,
                rule="approval.rejected",
                approval=approval.id,
            )
        # Used by us before we died, if it is used: nobody else can have this digest.
        if approval.state == "used" or desk.use(approval.id, question.digest):
            return Outcome(stage.id, "done", number, approval=approval.id)
        self._wait(stage, approval.id)
        return None

    def _wait(self, stage: Stage, approval: str) -> None:
        self._file.asked(stage.id, approval)
        _tell("sop_waiting", stage.id, approval)

    def _start(self, stage: Stage, number: int) -> None:
        self._file.started(stage.id, number)
        _tell("sop_stage_started", stage.id, str(number))

    def _check_stop(self) -> None:
        if self._means.estop.set:
            raise DeniedError(
                f"{estop.REASON}; the run {self._file.run.id} can be resumed",
                rule=estop.RULE,
                hint=f"{estop.HINT}; then 'coilclaw sop resume {self._file.run.id}'",
            )

    @property
    def _outcomes(self) -> Mapping[str, Outcome]:
        return self._file.run.outcomes


def _ending(stage: Stage, outcome: Outcome) -> Ending | None:
    """How a run ends after a stage, if it does."""
    if not outcome.failure:
        return None
    if outcome.status == "rejected":
        return "rejected"
    if stage.on_failure.what == "continue":
        return None
    return "denied" if outcome.status == "denied" else "failed"


def _of_call(stage: Stage, number: int, result: ToolResult) -> Outcome:
    return _kept(
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


def _kept(outcome: Outcome) -> Outcome:
    """Output that is too long is not kept at all: half of it could be taken for the whole."""
    if len(outcome.output) <= MAX_OUTPUT_CHARS:
        return outcome
    return replace(outcome, output="", output_known=False)


def _failed(stage: Stage, number: int, problem: CoilClawError) -> Outcome:
    return Outcome(stage.id, "failed", number, error=problem.message, rule=problem.rule)


def _tell(event: str, what: str, how: str) -> None:
    fields = {"stage": what, "what": how}
    words = event.replace("_", " ")
    _log.info("%s: %s (%s)", words, what, how, extra={"event": event, "fields": fields})
