"""S0, the PM: one sentence becomes a contract.

The model says what is to be done, where, and how it is tested. Who does it, with which permissions,
bound to which schema and from which commit is compiled here, and rules judge the whole.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol, cast

from coilclaw.contracts import reading, rules
from coilclaw.contracts.drafting import draft
from coilclaw.contracts.policyset import PACKS
from coilclaw.contracts.schemas import Problem
from coilclaw.contracts.taskcontract import AcceptanceTest, RequiredOutput, RuntimeOptions
from coilclaw.errors import UsageError
from coilclaw.orchestrator import roleprompts
from coilclaw.orchestrator.baseline import MAX_TOLD
from coilclaw.orchestrator.contract_proposal import propose_contract, setup_without_contract
from coilclaw.orchestrator.plane import BoundSchema, Question
from coilclaw.orchestrator.planner_hints import hint_lines

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coilclaw.contracts.handoff import Handoff
    from coilclaw.contracts.policyset import PolicySet
    from coilclaw.contracts.taskcontract import PackName, TaskContract
    from coilclaw.domain.messages import Json
    from coilclaw.orchestrator.baseline import Baseline
    from coilclaw.orchestrator.plane import Answer, Plane
    from coilclaw.orchestrator.planner_sightings import Sightings

SCHEMA: Final = "plan.v1"
MAX_REQUEST_CHARS: Final = 20_000
MAX_QUESTION_CHARS: Final = 2_000


@dataclass(frozen=True, slots=True)
class Planned:
    """A contract with the advice that goes along with it, a question, or all that is wrong."""

    contract: TaskContract | None
    handoff: Handoff | None
    problems: tuple[Problem, ...]
    """``/plan`` and below are those of the answer, all others those of the contract made of it."""
    question: str = ""
    """What the user has to answer before there can be a plan."""


class PlanAuthor(Protocol):
    """Who is asked for plans."""

    @property
    def sightings(self) -> Sightings:
        """What it has seen of the baseline."""

    @property
    def max_names(self) -> int:
        """How many names of the baseline it is told."""

    def ask(self, told: Mapping[str, Json]) -> Answer:
        """Ask once; ``told`` is data."""


@dataclass(frozen=True, slots=True)
class PlainAuthor:
    """A model without tools, which sees the names that it is told."""

    plane: Plane
    sightings: Sightings
    max_names: int = MAX_TOLD

    def ask(self, told: Mapping[str, Json]) -> Answer:
        """Ask for one JSON object."""
        return self.plane.ask(Question("PM", roleprompts.PM, told, BoundSchema.of(SCHEMA)))


@dataclass(frozen=True, slots=True)
class PlanTerms:
    """What a plan is compiled with; ``policies`` are under the loosest pack allowed."""

    baseline: Baseline
    policies: PolicySet
    task_id: str
    run_id: str = ""
    runtime_options: RuntimeOptions | None = None


def plan(
    author: PlanAuthor,
    request: str,
    terms: PlanTerms,
    *,
    answers: Sequence[tuple[str, str]] = (),
    refused: Sequence[Sequence[str]] = (),
) -> Planned:
    """Ask the PM for a plan, and compile it.

    ``answers`` is what the user said to earlier questions, ``refused`` why earlier plans were.
    """
    if not request.strip() or len(request) > MAX_REQUEST_CHARS:
        raise UsageError(
            f"a request has 1 to {MAX_REQUEST_CHARS:,} characters", rule="plan.request"
        )
    baseline, policies = terms.baseline, terms.policies
    names = baseline.told(baseline.mentioned(request), limit=author.max_names)
    author.sightings.add([*cast("list[str]", names["files"])])
    author.sightings.add([*cast("list[str]", names["directories"])])
    commands: list[Json] = [*sorted({rule.exec for rule in policies.commands})]
    told: dict[str, Json] = {
        "request": request,
        "answers": [{"question": asked, "answer": said} for asked, said in answers],
        "refused": [list(reasons) for reasons in refused],
        "hints": [*hint_lines(baseline, setup_without_contract(baseline, policies))],
        "policy_pack": policies.pack.pack,
        "commands": commands,
        **names,
    }
    answer = author.ask(told)
    question = question_of(answer.text)
    if question:
        return Planned(None, None, (), question)
    if answer.value is None:
        return Planned(None, None, _below("/plan", answer.problems))
    return _compile(answer.value, author, terms)


def question_of(text: str) -> str:
    """Return what an answer asks the user; an answer need not hold anything beside it."""
    try:
        value = reading.parse(text.encode("utf-8"))
    except (UsageError, UnicodeEncodeError):
        return ""
    question = value.get("question")
    return question.strip()[:MAX_QUESTION_CHARS] if isinstance(question, str) else ""


def _compile(value: Mapping[str, Json], author: PlanAuthor, terms: PlanTerms) -> Planned:
    baseline, policies = terms.baseline, terms.policies
    try:
        contract = compiled(value, baseline, policies, terms.task_id, terms.runtime_options)
        # Advice names a contract by its hash, so that nothing may change in it afterwards.
        contract = replace(contract, log_refs=replace(contract.log_refs, run_id=terms.run_id))
    except UsageError as problem:
        return Planned(None, None, (Problem("/plan", problem.message),))
    new = cast("list[str]", value.get("new_paths", []))
    problems = (
        *judged(contract, policies, baseline),
        *author.sightings.problems(contract.allowed_paths, new),
    )
    if problems:
        return Planned(None, None, problems)
    return Planned(contract, roleprompts.handed_on(contract, *_advice(value)), ())


def compiled(
    value: Mapping[str, Json],
    baseline: Baseline,
    policies: PolicySet,
    task_id: str,
    runtime_options: RuntimeOptions | None = None,
) -> TaskContract:
    """Return the contract of a plan that its schema accepts."""
    outputs = cast("list[Json]", value["required_outputs"])
    pack = cast("PackName", value["policy_pack"])
    # What runs with the network is chosen by what the project is, never by a model.
    setup = propose_contract(baseline, policies.under(pack)).setup
    contract = draft(
        cast("str", value["spec"]),
        cast("list[str]", value["allowed_paths"]),
        [AcceptanceTest.of(test) for test in cast("list[Json]", value["acceptance_tests"])],
        policies=policies,
        task_id=task_id,
        role="TECH_LEAD" if value["split"] else "WORKER",
        owner_role="PM",
        outputs=[RequiredOutput.of(output) for output in outputs],
        forbidden_actions=cast("list[str]", value["forbidden_actions"]),
        policy_pack=pack,
        timeout_sec=cast("int", value["timeout_sec"]),
        max_retries=cast("int", value["max_retries"]),
        baseline_ref=baseline.commit,
        runtime_options=runtime_options,
        setup=setup or None,
    )
    # Whoever plans cannot allow what protects the plan, nor choose tests that test nothing.
    options = replace(contract.runtime_options or RuntimeOptions(), strict_acceptance=True)
    return replace(contract, test_policy="protect", runtime_options=options)


def judged(contract: TaskContract, policies: PolicySet, baseline: Baseline) -> tuple[Problem, ...]:
    """Return everything that is wrong with a contract that was planned."""
    pack = contract.policy_pack
    if pack is None or PACKS.index(pack) < PACKS.index(policies.pack.pack):
        wanted = policies.pack.pack
        return (Problem("/policy_pack", f"{pack} is looser than {wanted}, which is in force"),)
    under = policies.under(pack)
    found = list(rules.problems(contract, under, known_files=baseline.read))
    for index, test in enumerate(contract.acceptance_tests):
        refused = baseline.refusals(test, contract, under)
        found += [Problem(f"/acceptance_tests/{index}/cmd", each) for each in refused]
    return tuple(found)


def _advice(value: Mapping[str, Json]) -> tuple[str, list[str]]:
    return cast("str", value["summary"]), cast("list[str]", value["risks"])


def _below(where: str, problems: tuple[Problem, ...]) -> tuple[Problem, ...]:
    return tuple(
        Problem(where if each.path == "/" else f"{where}{each.path}", each.message)
        for each in problems
    )
