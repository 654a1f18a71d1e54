"""``ExploringAuthor``: a PM that looks at the baseline before it plans.

It is our own agent in a worktree of the baseline, read-only and without shell and network; every
call goes through the guard and leaves a receipt. All its turns are one conversation and share one
budget, and what it did is in the bundle as ``codex/plan-N``.
"""

from __future__ import annotations

import itertools
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from coilclaw.agent import (
    AgentLimits,
    Estop,
    FileSearch,
    ReadyCall,
    Tool,
    ToolLimits,
    failure,
    integer_argument,
    object_schema,
    output,
    success,
    text_argument,
)
from coilclaw.kernel import (
    Budget,
    DeniedError,
    External,
    ProviderError,
    Risk,
    SchemaProblem,
    schemas,
)
from coilclaw.runners import (
    Assignment,
    BuiltinRunner,
    Ending,
    Means,
    ask_nobody,
    environ_of,
    make_home,
    sandbox_of,
)
from coilclaw.runs.contracts.draft import TIMEOUT_SEC as TIMEOUT_SETUP_SEC
from coilclaw.runs.contracts.event_types import EventType
from coilclaw.runs.contracts.task_contract import AcceptanceTest
from coilclaw.runs.engine.agent_record import AgentRecorder, follow_performance, keep_receipts
from coilclaw.runs.engine.commands import Commands
from coilclaw.runs.engine.contract_checks import Baseline, setup_without_contract
from coilclaw.runs.engine.inspection import Inspection
from coilclaw.runs.engine.ready_worktree import hidden_places
from coilclaw.runs.engine.worktree_setup import SetupTerms, prepare_worktree, provide_setup
from coilclaw.runs.gates.command_line import parse_command
from coilclaw.runs.roles import prompts
from coilclaw.runs.roles.model_questions import (
    BoundSchema,
    ModelAnswer,
    ModelPlane,
    ModelQuestion,
    parse_answer,
)
from coilclaw.runs.roles.planner import SCHEMA, PlanTerms, SeenPaths
from coilclaw.workspace import new_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from coilclaw.agent import Arguments, ToolContext
    from coilclaw.kernel import Effect, Json, Part, ToolResult
    from coilclaw.runs.engine.run import Run, RunDependencies
    from coilclaw.runs.evidence.event_log import Level
    from coilclaw.workspace import Cancellation, Worktree


MAX_TRIALS: Final = 6
"""Of one run, also after it was resumed."""
TIMEOUT_SEC: Final = 300
MAX_COMMAND: Final = 4096
MAX_TOLD_BYTES: Final = 8_000
"""Of each stream, what the model is told; the evidence has all of it."""
FOLDER: Final = "artifacts/trials"
WHERE: Final = "plan"
"""Tells these commands from the tests of a contract."""
WHO: Final = "sandbox:baseline"
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


@dataclass(frozen=True)
class BaselineTrial(Tool):
    """Runs a proposed test command on the baseline."""

    name = "try_test"
    description = (
        "Run one test command (program and arguments, no shell syntax) on a copy of the baseline, "
        "without the network, and answer with its exit code and the end of its output. A command "
        "that the command gate refuses is not run."
    )
    parameters_schema = object_schema(
        {
            "cmd": {
                "type": "string",
                "minLength": 1,
                "maxLength": MAX_COMMAND,
                "description": "the command as an acceptance test would name it",
            },
            "timeout_sec": {
                "type": "integer",
                "minimum": 1,
                "maximum": TIMEOUT_SEC,
                "description": f"how long it may take (default {TIMEOUT_SEC})",
            },
        },
        "cmd",
    )

    run: Run
    inspection: Inspection
    setup: SetupTerms
    find_refusals: Callable[[AcceptanceTest], tuple[str, ...]]

    def effects(self, args: Arguments) -> tuple[Effect, ...]:
        text_argument(args, "cmd")
        return (External(WHO, Risk.LOW),)

    def prepare(self, args: Arguments, context: ToolContext) -> ReadyCall:
        limit = min(max(integer_argument(args, "timeout_sec", TIMEOUT_SEC), 1), TIMEOUT_SEC)
        test = AcceptanceTest(
            name="trial", cmd=text_argument(args, "cmd"), must_pass=True, timeout_sec=limit
        )
        refused = self.find_refusals(test)
        if refused:
            raise DeniedError("; ".join(refused), rule="command.refused")
        return ReadyCall((f"run {test.cmd}",), lambda: self._try(test, limit, context.cancel))

    def _try(self, test: AcceptanceTest, limit: int, cancel: Cancellation) -> ToolResult:
        run, bundle = self.run, self.run.bundle
        place = bundle.directory / FOLDER
        number = 1 + (sum(1 for _ in place.iterdir()) if place.is_dir() else 0)
        if number > MAX_TRIALS:
            return failure(f"{MAX_TRIALS} commands were tried already", rule="budget.trials")
        about = {"name": f"trial-{number}", "where": WHERE}
        words = list(parse_command(test.cmd).argv)
        run.emit(EventType.COMMAND_STARTED, {**about, "argv": words})
        commit, equipment = self.inspection.baseline, self.inspection.equipment
        inspection = replace(self.inspection, equipment=replace(equipment, cancel=cancel))
        path, home = run.places.own_worktree(run.id, "trial"), run.places.own_home(run.id, "trial")
        with (
            equipment.open_worktree(path, commit) as worktree,
            prepare_worktree(run, inspection, "trial", worktree, commit, terms=self.setup) as made,
        ):
            done = Commands(made, home, "deny").run(test, limit)
        said: dict[str, Json] = {"exit_code": done.exit_code, "outcome": done.outcome}
        told = [f"exit code {done.exit_code} ({done.outcome}) after {done.duration_sec:.1f} s"]
        for name, data in (("stdout", done.stdout), ("stderr", done.stderr)):
            bundle.write_bytes(f"{FOLDER}/{number}/{name}.log", data)
            if data:
                text_of = data.decode("utf-8", "replace")
                told.append(f"{name}:\n{output.middle_cut(text_of, MAX_TOLD_BYTES)}")
        facts: dict[str, Json] = {
            "baseline_commit": commit,
            "cmd_argv": list(done.argv),
            "timeout_sec": done.timeout_sec,
            **said,
            "duration_sec": round(done.duration_sec, 3),
        }
        bundle.write_json(f"{FOLDER}/{number}/command.json", facts)
        level: Level = "INFO" if done.green else "WARN"
        run.emit(EventType.COMMAND_FINISHED, {**about, **said}, level=level)
        return success("\n".join(told), said)


@contextmanager
def exploring_author(
    run: Run,
    equipment: RunDependencies,
    plane: ModelPlane,
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
    with provide_setup(run, inspection, baseline.commit, setup):
        pass
    path = run.places.own_worktree(run.id, "plan")
    with equipment.open_worktree(path, baseline.commit) as worktree:
        trial = BaselineTrial(run, inspection, setup, refusals)
        yield ExploringAuthor(run, equipment, plane, baseline, worktree, trial)


class ExploringAuthor:
    """Asks one model that may look around; see ``exploring_author``."""

    def __init__(
        self,
        run: Run,
        equipment: RunDependencies,
        plane: ModelPlane,
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
            limits=AgentLimits(
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
        self.sightings = SeenPaths(baseline)
        self.max_names = MAX_NAMES
        self.asked = 0
        """Turns that came to an end."""
        self.heard = False
        """Whether the model has ever answered."""
        self.spent = False
        """Whether nothing is left to ask with."""

    def ask(self, told: Mapping[str, Json]) -> ModelAnswer:
        """Have one turn of the conversation; a provider's error is recorded, and raised."""
        question = ModelQuestion("PM", prompts.EXPLORING_PM, told, BoundSchema.of(SCHEMA))
        request = self._plane.describe(question)
        # What a killed run left of its turns stays as it is.
        names = (f"plan-{number:04}" for number in itertools.count(1))
        has = self._run.bundle.has
        name = next(one for one in names if not has(f"codex/{one}/events.jsonl"))
        equipment = self._equipment
        recorder = AgentRecorder(self._run, name, "planner", equipment.clock, plans=True)
        assignment = self._make_assignment(name, told)
        started = time.monotonic()

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
        try:
            ending = follow_performance(self._runner.perform(assignment, means), take)
        except ProviderError as problem:
            said = equipment.secrets.redact(problem.message)
            recorder.end(Ending("aborted", said))
            self._plane.keep(question, request, "", error=said)
            raise
        finally:
            keep_receipts(self._run, self._runner, assignment)
        recorder.end(ending)
        self._use_up(recorder, ending, time.monotonic() - started)
        equipment.check_cancelled()
        if ending.status in {"exhausted", "aborted"}:
            said = f"{ending.reason}: answer with the plan, and call no more tools"
            value = None
            problems: tuple[SchemaProblem, ...] = (SchemaProblem("/", said),)
        else:
            value, problems = parse_answer(ending.text, SCHEMA)
        self._plane.keep(question, request, ending.text, problems, ending.usage)
        return ModelAnswer(value, problems, ending.text)

    def _use_up(self, recorder: AgentRecorder, ending: Ending, seconds: float) -> None:
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

    def _make_assignment(self, name: str, told: Mapping[str, Json]) -> Assignment:
        equipment, worktree = self._equipment, self._worktree
        home = self._run.places.own_home(self._run.id, "plan")
        make_home(home, equipment.environ)
        if self.asked:
            instruction = prompts.plan_again({key: told[key] for key in _TOLD_AGAIN})
        else:
            instruction = prompts.plan(told, SCHEMA)
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
            output_schema=schemas.load_schema(SCHEMA),
            thread_id=self._conversation,
        )
