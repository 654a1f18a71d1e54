"""Settle attempts that were started and never ended, by evidence or by a person's decision.

Without evidence, a person decides that the attempt is redone, accepted or skipped, and the run
records who decided.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from coilclaw.agent.sop import references, stage_attempt
from coilclaw.agent.sop.document import StageOutcome
from coilclaw.agent.sop.stage_attempt import drop_long_output
from coilclaw.kernel import DeniedError, UsageError

if TYPE_CHECKING:
    from coilclaw.agent.sop.document import Sop, SopStage
    from coilclaw.agent.sop.run_journal import Decision, RunFile, StageAttempt
    from coilclaw.agent.sop.stage_attempt import SopDependencies

UNKNOWN: Final = "whether it had an effect is unknown"


@dataclass(frozen=True, slots=True)
class Resolution:
    """The decision of a person about an interrupted stage."""

    how: Decision
    by: str
    note: str = ""
    stage: str = ""
    """The stage, if several were interrupted; by default all of them."""


@dataclass(frozen=True, slots=True)
class _Open:
    """An interrupted attempt that evidence does not settle."""

    stage: SopStage
    attempt: StageAttempt
    reason: str


class Interruptions:
    """Settles the attempts that a crash left open in one run."""

    def __init__(self, sop: Sop, file: RunFile, dependencies: SopDependencies) -> None:
        self._sop = sop
        self._file = file
        self._dependencies = dependencies

    def settle(self, resolution: Resolution | None) -> dict[str, StageOutcome]:
        """Return the outcomes of settled attempts by stage; the others can be repeated.

        Raise ``DeniedError`` with the stages that a person has to decide about.
        """
        found: dict[str, StageOutcome | _Open | None] = {}
        run = self._file.run
        for name, attempt in run.attempts.items():
            stage = self._stage(name)
            # An approval waits again: nothing else replaces an answer.
            if name not in run.waits and stage.kind != "approval":
                found[name] = self._recover_attempt(stage, attempt)
        if resolution is not None:
            self._resolve(found, resolution)
        unknown = [one for one in found.values() if isinstance(one, _Open)]
        if unknown:
            raise self._undecided_error(unknown)
        return {name: one for name, one in found.items() if isinstance(one, StageOutcome)}

    def _resolve(self, found: dict[str, StageOutcome | _Open | None], said: Resolution) -> None:
        """Apply the decision of a person to the interrupted attempts that it names."""
        unknown = [name for name, one in found.items() if isinstance(one, _Open)]
        wanted = [
            name for name in unknown or found if said.stage in {"", name, name.partition(".")[0]}
        ]
        if not wanted:
            about = f" inside stage {said.stage!r}" if said.stage else " inside a stage"
            raise UsageError(
                f"the run {self._file.run.id} was not interrupted{about}",
                rule="sop.not_interrupted",
                hint=f"'coilclaw sop status {self._file.run.id}' says how far it is",
            )
        for name in wanted:
            del found[name]
            attempt = self._file.run.attempts[name]
            self._file.settle(attempt, said.how, said.by, said.note)
            for outcome in self._file.run.settlements[-1].outcomes:
                self._file.record_outcome(outcome)

    def _stage(self, name: str) -> SopStage:
        """Return the stage, or the round of a loop, with this name."""
        run = self._file.run
        base, _, index = name.partition(".")
        stage = next(one for one in self._sop.stages if one.id == base)
        if not index:
            return stage
        items = references.items(stage, run.outcomes, run.inputs)
        return stage.round(int(index), items[int(index)])

    def _recover_attempt(
        self, stage: SopStage, attempt: StageAttempt
    ) -> StageOutcome | _Open | None:
        """Return the outcome of an interrupted attempt; ``None`` if it can be repeated."""
        name = stage_attempt.conversation(self._file.run.id, stage.id, attempt.number)
        found = stage_attempt.trace(self._dependencies.book, name)
        if stage.kind == "tool":
            return self._recovered_tool(stage, attempt, found)
        records = self._dependencies.said(name)
        text = stage_attempt.final_text(records)
        if text is not None:
            return drop_long_output(StageOutcome(stage.id, "done", attempt.number, text))
        if not found.intents or stage_attempt.only_looked(records, self._dependencies.tools):
            return None
        return _Open(stage, attempt, f"the agent had called tools; {UNKNOWN}")

    def _recovered_tool(
        self, stage: SopStage, attempt: StageAttempt, found: stage_attempt.SopTrace
    ) -> StageOutcome | _Open | None:
        if not found.intents:
            return None
        run = self._file.run
        tool = self._dependencies.tools[stage.tool]
        args = references.arguments(stage, tool.parameters_schema, run.outcomes, run.inputs)
        if stage_attempt.read_only(tool, args):
            return None
        if found.receipts:
            outcome = stage_attempt.outcome_of_receipt(attempt, found.receipts[-1])
            # The run resumes by itself if this failed stage may be retried or passed over.
            left = run.failures.get(stage.id, 0) < stage.retries
            if outcome.status != "failed" or left or stage.on_failure.what == "continue":
                return outcome
            # The end of the run may have caused the failure.
            return _Open(stage, attempt, f"{outcome.receipt} says that {stage.tool} failed")
        in_place = self._dependencies.in_place(stage.tool, args)
        if in_place is None:
            return _Open(stage, attempt, f"{stage.tool} was started; {UNKNOWN}")
        return (
            StageOutcome(stage.id, "done", attempt.number, output_known=False) if in_place else None
        )

    def _undecided_error(self, unknown: list[_Open]) -> DeniedError:
        run = self._file.run
        said = "; ".join(
            f"stage {one.stage.id!r} (attempt {one.attempt.number}): {one.reason}"
            for one in unknown
        )
        return DeniedError(
            f"the run {run.id} was interrupted inside {said}",
            rule=stage_attempt.UNKNOWN_RULE,
            hint=f"find out what happened, then run 'coilclaw sop resume {run.id}' with --redo (do "
            "it again), --accept (it is done) or --skip (leave it out), and --note to say why",
        )


def rounds_outcome(stage: SopStage, rounds: list[StageOutcome]) -> StageOutcome:
    """Return the outcome of a loop: failed if a round failed, with the output of all rounds."""
    output = "\n".join(one.output for one in rounds if one.output)
    outcome = StageOutcome(
        stage.id, "done", 1, output, output_known=all(one.output_known for one in rounds)
    )
    bad = next((one for one in rounds if one.failure), None)
    if bad is not None:
        error = f"{bad.stage}: {bad.error}"
        outcome = replace(outcome, status=bad.status, error=error, rule=bad.rule)
    return drop_long_output(outcome)
