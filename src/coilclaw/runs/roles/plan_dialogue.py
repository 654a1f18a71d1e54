"""``PlanDialogue``: S0 with a model, until a gate accepts its contract.

A plan that is refused goes back with every reason; after ``MAX_REPLANS`` more plans that is enough.
Questions go to the user; without an answer, the run waits for one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import ProviderRejected, SchemaProblem, UsageError
from coilclaw.runs.contracts.event_types import EventType
from coilclaw.runs.gates.command import judge_text
from coilclaw.runs.roles import planner
from coilclaw.runs.roles.model_questions import plane_of
from coilclaw.runs.roles.plan_exploration import ExploringAuthor, exploring_author
from coilclaw.runs.roles.planner import PlainAuthor, PlanAuthor, PlanResult, PlanTerms, SeenPaths

if TYPE_CHECKING:
    from collections.abc import Callable

    from coilclaw.runs.contracts.task_contract import AcceptanceTest, TaskContract
    from coilclaw.runs.engine.run import Run, RunDependencies

MAX_REPLANS: Final = 3
"""How often the PM may plan again after its first plan was refused."""
MAX_QUESTIONS: Final = 5
MAX_REASONS: Final = 50
"""Of one plan, that are told and recorded."""
MAX_ANSWER_CHARS: Final = 4_096


@dataclass(frozen=True, slots=True)
class PlanDialogue:
    """Asks the PM for a plan, and for another one."""

    run: Run
    equipment: RunDependencies
    sentence: str
    terms: PlanTerms
    find_refusals: Callable[[TaskContract], tuple[SchemaProblem, ...]]

    def hold(self) -> PlanResult:
        """Return a plan that gates accept, everything that is wrong with all of them, or a
        question without an answer."""
        pending = self.run.progress.question
        if pending and not self._ask_user(pending):
            return PlanResult(None, None, (), pending)
        plane = plane_of(self.run, self.equipment, "PM", "")
        plain = PlainAuthor(plane, SeenPaths(self.terms.baseline))
        if not plane.provider.capabilities.tools:
            return self._converse(plain)
        try:
            with exploring_author(
                self.run, self.equipment, plane, self.terms, self._command_refusals
            ) as author:
                return self._converse(author)
        except _NoTools:
            return self._converse(plain)

    def _converse(self, author: PlanAuthor) -> PlanResult:
        while True:
            made = self._plan(author)
            if made.question and len(self.run.progress.answers) < MAX_QUESTIONS:
                self.run.emit(EventType.USER_ASKED, {"question": made.question})
                if self._ask_user(made.question):
                    continue
                return made
            if made.question:
                said = f"the user was asked {MAX_QUESTIONS} times already: plan with what you know"
                made = PlanResult(None, None, (SchemaProblem("/plan/question", said),))
            if made.contract is not None:
                made = replace(made, problems=self.find_refusals(made.contract))
            if not made.problems:
                return made
            refused = self.run.progress.refused_plans
            reasons = [str(each) for each in made.problems[:MAX_REASONS]]
            about = {"number": len(refused) + 1, "problems": reasons}
            self.run.emit(EventType.PLAN_REFUSED, about, level="WARN")
            spent = isinstance(author, ExploringAuthor) and author.spent
            refused = self.run.progress.refused_plans
            if spent or len(refused) > MAX_REPLANS:
                # What was wrong with each plan, also with those before a kill.
                problems = (
                    SchemaProblem(f"/plans/{number}", reason)
                    for number, said in enumerate(refused, 1)
                    for reason in said
                )
                return PlanResult(None, None, tuple(problems))

    def _plan(self, author: PlanAuthor) -> PlanResult:
        progress = self.run.progress
        try:
            return planner.plan(
                author,
                self.sentence,
                self.terms,
                answers=progress.answers,
                refused=progress.refused_plans,
            )
        except ProviderRejected as problem:
            # Some services take tools, or tools beside a schema, for a wrong request.
            if isinstance(author, ExploringAuthor) and not author.heard:
                raise _NoTools from problem
            raise

    def _ask_user(self, question: str) -> bool:
        answer = self.equipment.ask_user(question)
        if answer is None or not answer.strip():
            return False
        record_answer(self.run, answer)
        return True

    def _command_refusals(self, test: AcceptanceTest) -> tuple[str, ...]:
        """The command gate, before anything is known of a contract: it allows what is there."""
        terms = self.terms.baseline.terms(self.terms.policies)
        judged = judge_text(test.cmd, terms=terms, timeout_sec=test.timeout_sec)
        return tuple(map(str, judged.violations))


class _NoTools(Exception):
    """The provider does not take a request with tools."""


def asks_nothing(run_id: str) -> UsageError:
    """Return what is wrong with an answer to a run that has no question."""
    return UsageError(
        f"run {run_id} asks nothing", rule="run.answer", hint=f"see 'coilclaw runs show {run_id}'"
    )


def record_answer(run: Run, answer: str) -> None:
    """Record what the user answers to the question of a run."""
    question = run.progress.question
    if not question:
        raise asks_nothing(run.id)
    told = " ".join(answer.split())[:MAX_ANSWER_CHARS]
    run.emit(EventType.USER_ANSWERED, {"question": question, "answer": told})
