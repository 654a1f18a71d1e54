"""Attempts that were begun and never ended: what they came to, or who says so.

Evidence decides where there is some. Where nobody can look, a person does: the attempt is redone,
accepted as it is or skipped, and who said so is kept in the run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from coilclaw.errors import DeniedError, UsageError
from coilclaw.sop import evidence, references
from coilclaw.sop.outcome import Outcome
from coilclaw.sop.stage_attempt import kept

if TYPE_CHECKING:
    from coilclaw.sop.document import Sop, Stage
    from coilclaw.sop.means import Means
    from coilclaw.sop.runfile import Attempt, Decision, RunFile

UNKNOWN: Final = "whether it had an effect is unknown"


@dataclass(frozen=True, slots=True)
class Resolution:
    """What a person says about the stage that was interrupted."""

    how: Decision
    by: str
    note: str = ""
    stage: str = ""
    """Which one, where there are several; all of them without it."""


@dataclass(frozen=True, slots=True)
class _Open:
    """An interrupted attempt that evidence does not settle."""

    stage: Stage
    attempt: Attempt
    reason: str


class Interruptions:
    """Settles what a crash left open in one run."""

    def __init__(self, sop: Sop, file: RunFile, means: Means) -> None:
        self._sop = sop
        self._file = file
        self._means = means

    def settle(self, resolution: Resolution | None) -> dict[str, Outcome]:
        """Return what attempts came to, by stage; the rest can be made again.

        A ``DeniedError`` says which stages a person has to decide about.
        """
        found: dict[str, Outcome | _Open | None] = {}
        run = self._file.run
        for name, attempt in run.attempts.items():
            stage = self._stage(name)
            # An approval simply waits again: nothing else may take the place of an answer.
            if name not in run.waits and stage.kind != "approval":
                found[name] = self._recovered(stage, attempt)
        if resolution is not None:
            self._resolve(found, resolution)
        unknown = [one for one in found.values() if isinstance(one, _Open)]
        if unknown:
            raise self._undecided(unknown)
        return {name: one for name, one in found.items() if isinstance(one, Outcome)}

    def _resolve(self, found: dict[str, Outcome | _Open | None], said: Resolution) -> None:
        """Do what a person says about the interrupted attempts that it is about."""
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
                self._file.finished(outcome)

    def _stage(self, name: str) -> Stage:
        """The stage, or the round of a loop, of that name."""
        run = self._file.run
        base, _, index = name.partition(".")
        stage = next(one for one in self._sop.stages if one.id == base)
        if not index:
            return stage
        items = references.items(stage, run.outcomes, run.inputs)
        return stage.round(int(index), items[int(index)])

    def _recovered(self, stage: Stage, attempt: Attempt) -> Outcome | _Open | None:
        """What an interrupted attempt came to; ``None`` when it can be made (again)."""
        name = evidence.conversation(self._file.run.id, stage.id, attempt.number)
        found = evidence.trace(self._means.book, name)
        if stage.kind == "tool":
            return self._recovered_tool(stage, attempt, found)
        records = self._means.said(name)
        text = evidence.final_text(records)
        if text is not None:
            return kept(Outcome(stage.id, "done", attempt.number, text))
        if not found.intents or evidence.only_looked(records, self._means.tools):
            return None
        return _Open(stage, attempt, f"the agent had called tools; {UNKNOWN}")

    def _recovered_tool(
        self, stage: Stage, attempt: Attempt, found: evidence.Trace
    ) -> Outcome | _Open | None:
        if not found.intents:
            return None
        run = self._file.run
        tool = self._means.tools[stage.tool]
        args = references.arguments(stage, tool.parameters_schema, run.outcomes, run.inputs)
        if evidence.read_only(tool, args):
            return None
        if found.receipts:
            outcome = evidence.receipted(attempt, found.receipts[-1])
            if outcome.status != "failed" or self._goes_on(stage):
                return outcome
            # It may have been cut short by what ended the run.
            return _Open(stage, attempt, f"{outcome.receipt} says that {stage.tool} failed")
        in_place = self._means.in_place(stage.tool, args)
        if in_place is None:
            return _Open(stage, attempt, f"{stage.tool} was begun; {UNKNOWN}")
        return Outcome(stage.id, "done", attempt.number, output_known=False) if in_place else None

    def _goes_on(self, stage: Stage) -> bool:
        """Whether the run goes on by itself when this stage has failed."""
        left = self._file.run.failures.get(stage.id, 0) < stage.retries
        return left or stage.on_failure.what == "continue"

    def _undecided(self, unknown: list[_Open]) -> DeniedError:
        run = self._file.run
        said = "; ".join(
            f"stage {one.stage.id!r} (attempt {one.attempt.number}): {one.reason}"
            for one in unknown
        )
        return DeniedError(
            f"the run {run.id} was interrupted inside {said}",
            rule=evidence.UNKNOWN_RULE,
            hint=f"look what happened, then 'coilclaw sop resume {run.id}' with --redo (do it "
            "again), --accept (it is done) or --skip (leave it out), and --note to say why",
        )


def rounds_outcome(stage: Stage, rounds: list[Outcome]) -> Outcome:
    """The outcome of a loop: it failed when a round did, and put out what all of them did."""
    output = "\n".join(one.output for one in rounds if one.output)
    outcome = Outcome(
        stage.id, "done", 1, output, output_known=all(one.output_known for one in rounds)
    )
    bad = next((one for one in rounds if one.failure), None)
    if bad is not None:
        error = f"{bad.stage}: {bad.error}"
        outcome = replace(outcome, status=bad.status, error=error, rule=bad.rule)
    return kept(outcome)
