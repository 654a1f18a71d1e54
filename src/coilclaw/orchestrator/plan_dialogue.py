"""``PlanDialogue``: S0 with a model, until a gate accepts its contract.

A plan that is refused goes back with every reason; after ``MAX_REPLANS`` more plans that is enough.
Questions go to the user; where nobody answers, the run waits for the answer.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from coilclaw.contracts.eventtypes import EventType
from coilclaw.contracts.schemas import Problem
from coilclaw.errors import ProviderRejected, UsageError
from coilclaw.gates.command import judge_text
from coilclaw.orchestrator import planner
from coilclaw.orchestrator.exchanges import plane_of
from coilclaw.orchestrator.planner import PlainAuthor, Planned
from coilclaw.orchestrator.planner_exploration import ExploringAuthor, exploring_author
from coilclaw.orchestrator.planner_sightings import Sightings

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from coilclaw.contracts.taskcontract import AcceptanceTest, TaskContract
    from coilclaw.orchestrator.equipment import Equipment
    from coilclaw.orchestrator.plane import Plane
    from coilclaw.orchestrator.planner import PlanAuthor, PlanTerms
    from coilclaw.orchestrator.run import Run

MAX_REPLANS: Final = 3
"""How often the PM may plan again after its first plan was refused."""
MAX_QUESTIONS: Final = 5
MAX_REASONS: Final = 50
"""Of one plan, that are told and recorded."""
MAX_ANSWER_CHARS: Final = 4_096


class PlanDialogue:
    """Asks the PM for a plan, and for another one."""

    def __init__(
        self,
        run: Run,
        equipment: Equipment,
        sentence: str,
        terms: PlanTerms,
        refusals: Callable[[TaskContract], tuple[Problem, ...]],
    ) -> None:
        self._run = run
        self._equipment = equipment
        self._sentence = sentence
        self._terms = terms
        self._refusals = refusals

    def hold(self) -> Planned:
        """Return a plan that gates accept, everything that is wrong with all of them, or a
        question that nobody answered."""
        pending = self._run.progress.question
        if pending and not self._ask_user(pending):
            return Planned(None, None, (), pending)
        plane = plane_of(self._run, self._equipment, "PM", "")
        try:
            with self._author(plane) as author:
                return self._converse(author)
        except _NoTools:
            return self._converse(self._plain(plane))

    def _author(self, plane: Plane) -> AbstractContextManager[PlanAuthor]:
        if not plane.provider.capabilities.tools:
            return nullcontext(self._plain(plane))
        return exploring_author(
            self._run, self._equipment, plane, self._terms, self._command_refusals
        )

    def _plain(self, plane: Plane) -> PlanAuthor:
        return PlainAuthor(plane, Sightings(self._terms.baseline))

    def _converse(self, author: PlanAuthor) -> Planned:
        while True:
            made = self._plan(author)
            if made.question and len(self._run.progress.answers) < MAX_QUESTIONS:
                self._run.emit(EventType.USER_ASKED, {"question": made.question})
                if self._ask_user(made.question):
                    continue
                return made
            if made.question:
                said = f"the user was asked {MAX_QUESTIONS} times already: plan with what you know"
                made = Planned(None, None, (Problem("/plan/question", said),))
            if made.contract is not None:
                made = replace(made, problems=self._refusals(made.contract))
            if not made.problems:
                return made
            self._refuse(made)
            spent = isinstance(author, ExploringAuthor) and author.spent
            if spent or len(self._run.progress.refused_plans) > MAX_REPLANS:
                return Planned(None, None, self._all_problems())

    def _plan(self, author: PlanAuthor) -> Planned:
        progress = self._run.progress
        try:
            return planner.plan(
                author,
                self._sentence,
                self._terms,
                answers=progress.answers,
                refused=progress.refused_plans,
            )
        except ProviderRejected as problem:
            # Some services take tools, or tools beside a schema, for a wrong request.
            if isinstance(author, ExploringAuthor) and not author.heard:
                raise _NoTools from problem
            raise

    def _refuse(self, made: Planned) -> None:
        number = len(self._run.progress.refused_plans) + 1
        reasons = [str(each) for each in made.problems[:MAX_REASONS]]
        self._run.emit(
            EventType.PLAN_REFUSED, {"number": number, "problems": reasons}, level="WARN"
        )

    def _all_problems(self) -> tuple[Problem, ...]:
        """What was wrong with each plan, also with those before a kill."""
        refused = self._run.progress.refused_plans
        return tuple(
            Problem(f"/plans/{number}", reason)
            for number, reasons in enumerate(refused, 1)
            for reason in reasons
        )

    def _ask_user(self, question: str) -> bool:
        answer = self._equipment.ask_user(question)
        if answer is None or not answer.strip():
            return False
        record_answer(self._run, answer)
        return True

    def _command_refusals(self, test: AcceptanceTest) -> tuple[str, ...]:
        """The command gate, before anything is known of a contract: it allows what is there."""
        terms = self._terms.baseline.terms(self._terms.policies)
        judged = judge_text(test.cmd, terms=terms, timeout_sec=test.timeout_sec)
        return tuple(map(str, judged.violations))


class _NoTools(Exception):
    """The provider does not take a request with tools."""


def asks_nothing(run_id: str) -> UsageError:
    """Return what is wrong with an answer to a run that has no question."""
    return UsageError(
        f"run {run_id} asks nothing",
        rule="run.answer",
        hint=f"see 'coilclaw runs show {run_id}'",
    )


def record_answer(run: Run, answer: str) -> None:
    """Record what the user answers to the question of a run."""
    question = run.progress.question
    if not question:
        raise asks_nothing(run.id)
    told = " ".join(answer.split())[:MAX_ANSWER_CHARS]
    run.emit(EventType.USER_ANSWERED, {"question": question, "answer": told})
