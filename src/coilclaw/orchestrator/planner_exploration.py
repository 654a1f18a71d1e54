"""``ExploringAuthor``: a PM that looks at the baseline before it plans.

It is our own agent in a worktree of the baseline, read-only and without shell and network; every
call goes through the guard and leaves a receipt. All its turns are one conversation and share one
budget, and what it did is in the bundle as ``codex/plan-N``.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from coilclaw.agents.builtin import BuiltinRunner
from coilclaw.agents.containment import environ_of, make_home, sandbox_of
from coilclaw.agents.runner import Assignment, Ending, Means, ask_nobody
from coilclaw.contracts import schemas
from coilclaw.contracts.drafting import TIMEOUT_SEC as TIMEOUT_SETUP_SEC
from coilclaw.contracts.schemas import Problem
from coilclaw.domain.budget import Budget
from coilclaw.errors import ProviderError, Stopped
from coilclaw.orchestrator import roleprompts
from coilclaw.orchestrator.baseline_trial import TIMEOUT_SEC, BaselineTrial
from coilclaw.orchestrator.contract_proposal import setup_without_contract
from coilclaw.orchestrator.inspection import Inspection
from coilclaw.orchestrator.plane import Answer, BoundSchema, Question, parse
from coilclaw.orchestrator.planner import SCHEMA
from coilclaw.orchestrator.planner_sightings import Sightings
from coilclaw.orchestrator.ready_worktree import hidden_places
from coilclaw.orchestrator.recording import Recorder, keep_receipts, played
from coilclaw.orchestrator.worktree_setup import SetupTerms, set_up
from coilclaw.runtime.estop import Estop
from coilclaw.runtime.identity import new_id
from coilclaw.runtime.settings import Limits
from coilclaw.tools.contract import ToolLimits
from coilclaw.tools.file_search import FileSearch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from coilclaw.contracts.taskcontract import AcceptanceTest
    from coilclaw.domain.messages import Json
    from coilclaw.domain.parts import Part
    from coilclaw.orchestrator.baseline import Baseline
    from coilclaw.orchestrator.equipment import Equipment
    from coilclaw.orchestrator.plane import Plane
    from coilclaw.orchestrator.planner import PlanTerms
    from coilclaw.orchestrator.run import Run
    from coilclaw.workspace.worktrees import Worktree

MAX_ROUNDS: Final = 32
"""Answers with tool calls, of all plans of a run together, as are the following."""
MAX_PARTS: Final = 200
MAX_RESULT_BYTES: Final = 256 * 2**10
MAX_TOKENS: Final = 1_000_000
MAX_WALL_S: Final = 1800.0
MAX_NAMES: Final = 500
"""Names that it is told; it can list the others."""
RESULT_BYTES: Final = 24 * 2**10
"""Of one result."""
_TOLD_AGAIN: Final = ("answers", "refused")


@contextmanager
def exploring_author(
    run: Run,
    equipment: Equipment,
    plane: Plane,
    terms: PlanTerms,
    refusals: Callable[[AcceptanceTest], tuple[str, ...]],
) -> Iterator[ExploringAuthor]:
    """Open the baseline for a PM; ``refusals`` is the command gate.

    What its trials need is set up first: where that fails no plan could succeed, and no model has
    been asked yet.
    """
    baseline, policies = terms.baseline, terms.policies
    inspection = Inspection(equipment, baseline.commit, lambda: policies)
    setup = SetupTerms(
        setup_without_contract(baseline, policies),
        min(TIMEOUT_SETUP_SEC, policies.pack.limits.max_timeout_sec),
    )
    with set_up(run, inspection, baseline.commit, setup):
        pass
    path = run.places.own_worktree(run.id, "plan")
    worktree = equipment.worktrees.add(path, baseline.commit)
    try:
        trial = BaselineTrial(run, inspection, setup, refusals)
        yield ExploringAuthor(run, equipment, plane, baseline, worktree, trial)
    finally:
        equipment.worktrees.remove(worktree)


class ExploringAuthor:
    """Asks one model that may look around; see ``exploring_author``."""

    def __init__(
        self,
        run: Run,
        equipment: Equipment,
        plane: Plane,
        baseline: Baseline,
        worktree: Worktree,
        trial: BaselineTrial,
    ) -> None:
        self._run = run
        self._equipment = equipment
        self._plane = plane
        self._worktree = worktree
        self._conversation = new_id("conv")
        self._runner = BuiltinRunner(
            provider=plane.provider,
            model=plane.model,
            redactor=equipment.secrets,
            estop=Estop.of(equipment.home),
            key_path=equipment.key_path,
            limits=Limits(
                tools=ToolLimits(tool_timeout_s=TIMEOUT_SEC + 60.0, output_bytes=RESULT_BYTES)
            ),
            now=equipment.clock,
            view=equipment.view,
            # A plan that cannot be read is refused with the reason, and made again.
            reminds=False,
            extra_tools=(FileSearch(), trial),
        )
        self._left = Budget(
            parts=MAX_PARTS,
            tool_rounds=MAX_ROUNDS,
            wall_s=MAX_WALL_S,
            tokens=MAX_TOKENS,
            bytes=MAX_RESULT_BYTES,
        )
        self.sightings = Sightings(baseline)
        self.max_names = MAX_NAMES
        self.asked = 0
        """Turns that came to an end."""
        self.heard = False
        """Whether the model has ever answered."""
        self.spent = False
        """Whether nothing is left to ask with."""

    def ask(self, told: Mapping[str, Json]) -> Answer:
        """Have one turn of the conversation; a provider's error is recorded, and raised."""
        question = Question("PM", roleprompts.EXPLORING_PM, told, BoundSchema.of(SCHEMA))
        request = self._plane.describe(question)
        name = self._free_name()
        recorder = Recorder(self._run, name, "planner", self._equipment.clock, plans=True)
        assignment = self._assignment(name, told)
        started = time.monotonic()
        try:
            ending = self._perform(assignment, recorder)
        except ProviderError as problem:
            said = self._equipment.secrets.redact(problem.message)
            recorder.end(Ending("aborted", said))
            self._plane.keep(question, request, "", error=said)
            raise
        finally:
            keep_receipts(self._run, self._runner, assignment)
        recorder.end(ending)
        self._use_up(recorder, ending, time.monotonic() - started)
        if self._equipment.cancel.cancelled:
            raise Stopped(f"the run was stopped: {self._equipment.cancel.reason}")
        return self._answer(question, request, ending)

    def _perform(self, assignment: Assignment, recorder: Recorder) -> Ending:
        equipment = self._equipment

        def take(part: Part) -> None:
            self.heard = True
            recorder.take(part)
            self.sightings.take(part)

        means = Means(
            ask_nobody,
            equipment.cancel,
            equipment.support,
            on_denied=recorder.deny,
            on_usage=recorder.count,
        )
        return played(self._runner.perform(assignment, means), take)

    def _answer(self, question: Question, request: str, ending: Ending) -> Answer:
        if ending.status in {"exhausted", "aborted"}:
            said = f"{ending.reason}: answer with the plan, and call no more tools"
            problems: tuple[Problem, ...] = (Problem("/", said),)
            value = None
        else:
            value, problems = parse(ending.text, SCHEMA)
        kept = self._plane.keep(question, request, ending.text, problems, ending.usage)
        return Answer(value, problems, ending.text, kept.request_sha256, kept.answer_sha256)

    def _use_up(self, recorder: Recorder, ending: Ending, seconds: float) -> None:
        """Take what a turn used from the budget; without rounds it can still answer."""
        parts = [timed.part for timed in recorder.parts]
        calls = [part for part in parts if part.kind == "tool"]
        usage, left = ending.usage, self._left
        tokens = 0 if usage is None else (usage.input_tokens or 0) + (usage.output_tokens or 0)
        self._left = Budget(
            parts=max((left.parts or 0) - len(parts), 0),
            # A round has at least one call.
            tool_rounds=max((left.tool_rounds or 0) - len(calls), 0),
            wall_s=max((left.wall_s or 0) - seconds, 0.0),
            tokens=max((left.tokens or 0) - tokens, 0),
            bytes=max((left.bytes or 0) - sum(len(part.output) for part in calls), 0),
        )
        self.asked += 1
        halted = ending.status == "aborted" or (
            ending.status == "exhausted" and ending.thread_id == ""
        )
        self.spent = halted or not (self._left.parts and self._left.wall_s and self._left.tokens)

    def _free_name(self) -> str:
        """Name the turn; what a killed run left of its turns stays as it is."""
        number = 1
        while self._run.bundle.has(f"codex/plan-{number:04}/events.jsonl"):
            number += 1
        return f"plan-{number:04}"

    def _assignment(self, name: str, told: Mapping[str, Json]) -> Assignment:
        equipment, worktree = self._equipment, self._worktree
        home = self._run.places.own_home(self._run.id, "plan")
        make_home(home, equipment.environ)
        if self.asked:
            instruction = roleprompts.plan_again({key: told[key] for key in _TOLD_AGAIN})
        else:
            instruction = roleprompts.plan(told, SCHEMA)
        return Assignment(  # noqa: S604 - a permission, not a shell
            task_id=name,
            instruction=instruction,
            contract={},
            directory=worktree.path,
            home=home,
            sandbox=sandbox_of(
                (),
                home,
                filesystem="read-only",
                network="deny",
                hidden=hidden_places(equipment),
                kind=equipment.sandbox,
                shown=(*worktree.writable, equipment.repository.common_dir),
                view=equipment.view,
            ),
            environ={
                **environ_of(home, equipment.environ, kept_out=(worktree.path,)),
                **worktree.environ,
            },
            budget=self._left,
            filesystem="read-only",
            shell="deny",
            network="deny",
            output_schema=schemas.document(SCHEMA),
            thread_id=self._conversation,
        )
