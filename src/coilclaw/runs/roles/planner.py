"""S0, the PM: one sentence becomes a contract.

The model says what is to be done, where, and how it is tested. Who does it, with which permissions,
bound to which schema and from which commit is compiled here, and rules judge the whole.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol, cast

from coilclaw.kernel import SchemaProblem, UsageError, quote_text
from coilclaw.runs.contracts import paths, rules, task_contract
from coilclaw.runs.contracts.draft import draft_contract
from coilclaw.runs.contracts.policy_set import PACKS
from coilclaw.runs.contracts.task_contract import AcceptanceTest, RequiredOutput, RuntimeOptions
from coilclaw.runs.engine.contract_checks import MAX_TOLD, propose_contract, setup_without_contract
from coilclaw.runs.roles import prompts
from coilclaw.runs.roles.model_questions import BoundSchema, ModelQuestion

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from coilclaw.kernel import Json, Part
    from coilclaw.runs.contracts.policy_set import PolicySet
    from coilclaw.runs.contracts.records import Handoff
    from coilclaw.runs.contracts.task_contract import PackName, SetupCommand, TaskContract
    from coilclaw.runs.engine.contract_checks import Baseline
    from coilclaw.runs.roles.model_questions import ModelAnswer, ModelPlane


MAX_HINTS: Final = 16


def hint_lines(baseline: Baseline, setup: Sequence[SetupCommand] = ()) -> tuple[str, ...]:
    """Return what a planner is told about the project, one sentence a line."""
    profile = baseline.recognise()
    tests = (f"its tests are perhaps run with '{command}'" for command in profile.tests)
    done = (f"'{command.cmd}' has prepared the tree before a test runs" for command in setup)
    return (*map(str, profile.findings), *tests, *done)[:MAX_HINTS]


_LISTED_NAME: Final = 20
"""The column in which a line of ``file_list`` has the name."""


class SeenPaths:
    """The paths of a baseline that a planner has seen."""

    def __init__(self, baseline: Baseline) -> None:
        self._baseline = baseline
        self._names: set[str] = set()

    def add(self, names: Iterable[str]) -> None:
        """Note names; of those that the baseline does not have, nothing was seen."""
        for name in names:
            if self._exists(name):
                self._names.add(name)
                while name := name.rpartition("/")[0]:
                    self._names.add(name)

    def take(self, part: Part) -> None:
        """Note what a tool call showed; one that failed showed nothing."""
        if part.kind != "tool" or part.exit_code != 0:
            return
        # Relative to the top; empty: the top itself.
        given = str(json.loads(part.input or "{}").get("path", "."))
        path = "/".join(name for name in given.split("/") if name not in {"", "."})
        lines = part.output.split("\n")
        if part.tool == "file_read":
            self.add([path])
        elif part.tool == "file_list":
            below = f"{path}/" if path else ""
            names = (line[_LISTED_NAME:].partition(" -> ")[0] for line in lines)
            self.add([path, *(f"{below}{name.rstrip('/')}" for name in names)])
        elif part.tool == "file_search":
            self.add(line.partition(":")[0] for line in lines)

    def problems(self, allowed: Sequence[str], new: Sequence[str]) -> tuple[SchemaProblem, ...]:
        """Say which paths of a plan were not looked at, and which do not exist."""
        found: list[SchemaProblem] = []
        announced = [path for path in new if paths.find_path_flaw(path) is None]
        for index, path in enumerate(allowed):
            name = path.removesuffix("/")
            if paths.find_path_flaw(path) is not None or name in self._names:
                continue
            if self._exists(name):
                said = (
                    f"{quote_text(path)} exists, and you have not seen it: list, search or read it "
                    "first"
                )
            elif paths.is_within(name, announced):
                continue
            else:
                said = (
                    f"{quote_text(path)} does not exist at the baseline: name an existing path, or "
                    "name it in new_paths if the work is to create it"
                )
            found.append(SchemaProblem(f"/allowed_paths/{index}", said))
        for index, path in enumerate(new):
            if self._exists(path.removesuffix("/")):
                said = f"{quote_text(path)} exists already, and is not new"
                found.append(SchemaProblem(f"/new_paths/{index}", said))
        return tuple(found)

    def _exists(self, name: str) -> bool:
        return name in self._baseline.files or name in self._baseline.directories


SCHEMA: Final = "plan.v1"
MAX_REQUEST_CHARS: Final = 20_000
MAX_QUESTION_CHARS: Final = 2_000


@dataclass(frozen=True, slots=True)
class PlanResult:
    """A contract with the advice that goes along with it, a question, or all that is wrong."""

    contract: TaskContract | None
    handoff: Handoff | None
    problems: tuple[SchemaProblem, ...]
    """``/plan`` and below are those of the answer, all others those of the contract made of it."""
    question: str = ""
    """What the user has to answer before there can be a plan."""


class PlanAuthor(Protocol):
    """What is asked for plans."""

    @property
    def sightings(self) -> SeenPaths:
        """What it has seen of the baseline."""

    @property
    def max_names(self) -> int:
        """How many names of the baseline it is told."""

    def ask(self, told: Mapping[str, Json]) -> ModelAnswer:
        """Ask once; ``told`` is data."""


@dataclass(frozen=True, slots=True)
class PlainAuthor:
    """A model without tools, which sees the names that it is told."""

    plane: ModelPlane
    sightings: SeenPaths
    max_names: int = MAX_TOLD

    def ask(self, told: Mapping[str, Json]) -> ModelAnswer:
        """Ask for one JSON object."""
        return self.plane.ask(ModelQuestion("PM", prompts.PM, told, BoundSchema.of(SCHEMA)))


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
) -> PlanResult:
    """Ask the PM for a plan, and compile it.

    ``answers`` is what the user said to earlier questions, ``refused`` why earlier plans were.
    """
    if not request.strip() or len(request) > MAX_REQUEST_CHARS:
        raise UsageError(
            f"a request has 1 to {MAX_REQUEST_CHARS:,} characters", rule="plan.request"
        )
    baseline, policies = terms.baseline, terms.policies
    names = baseline.list_names(baseline.find_mentioned(request), limit=author.max_names)
    for kind in ("files", "directories"):
        author.sightings.add(cast("list[str]", names[kind]))
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
        return PlanResult(None, None, (), question)
    if answer.value is None:
        problems = tuple(
            SchemaProblem(f"/plan{each.path}".rstrip("/"), each.message) for each in answer.problems
        )
        return PlanResult(None, None, problems)
    value = answer.value
    try:
        contract = _make_contract(value, terms)
    except UsageError as problem:
        return PlanResult(None, None, (SchemaProblem("/plan", problem.message),))
    new = cast("list[str]", value.get("new_paths", []))
    problems = (
        *_find_problems(contract, policies, baseline),
        *author.sightings.problems(contract.allowed_paths, new),
    )
    if problems:
        return PlanResult(None, None, problems)
    summary, risks = cast("str", value["summary"]), cast("list[str]", value["risks"])
    return PlanResult(contract, prompts.handed_on(contract, summary, risks), ())


def question_of(text: str) -> str:
    """Return what an answer asks the user; an answer need not hold anything beside it."""
    try:
        value = task_contract.parse_document(text.encode("utf-8"))
    except (UsageError, UnicodeEncodeError):
        return ""
    question = value.get("question")
    return question.strip()[:MAX_QUESTION_CHARS] if isinstance(question, str) else ""


def _make_contract(value: Mapping[str, Json], terms: PlanTerms) -> TaskContract:
    """Return the contract of a plan that its schema accepts."""
    baseline, policies = terms.baseline, terms.policies
    outputs = cast("list[Json]", value["required_outputs"])
    pack = cast("PackName", value["policy_pack"])
    # What runs with the network is chosen by what the project is, never by a model.
    setup = propose_contract(baseline, policies.under(pack)).setup
    contract = draft_contract(
        cast("str", value["spec"]),
        cast("list[str]", value["allowed_paths"]),
        [AcceptanceTest.of(test) for test in cast("list[Json]", value["acceptance_tests"])],
        policies=policies,
        task_id=terms.task_id,
        role="TECH_LEAD" if value["split"] else "WORKER",
        owner_role="PM",
        outputs=[RequiredOutput.of(output) for output in outputs],
        forbidden_actions=cast("list[str]", value["forbidden_actions"]),
        policy_pack=pack,
        timeout_sec=cast("int", value["timeout_sec"]),
        max_retries=cast("int", value["max_retries"]),
        baseline_ref=baseline.commit,
        runtime_options=terms.runtime_options,
        setup=setup or None,
    )
    # The planner cannot allow what protects the plan, nor choose tests that test nothing.
    options = replace(contract.runtime_options or RuntimeOptions(), strict_acceptance=True)
    # Advice names a contract by its hash, so that nothing may change in it afterwards.
    refs = replace(contract.log_refs, run_id=terms.run_id)
    return replace(contract, test_policy="protect", runtime_options=options, log_refs=refs)


def _find_problems(
    contract: TaskContract, policies: PolicySet, baseline: Baseline
) -> tuple[SchemaProblem, ...]:
    """Return everything that is wrong with a contract that was planned."""
    pack, wanted = contract.policy_pack, policies.pack.pack
    if pack is None or PACKS.index(pack) < PACKS.index(wanted):
        said = f"{pack} is looser than {wanted}, which is in force"
        return (SchemaProblem("/policy_pack", said),)
    under = policies.under(pack)
    found = list(rules.find_rule_problems(contract, under, known_files=baseline.read))
    for index, test in enumerate(contract.acceptance_tests):
        refused = baseline.refusals(test, contract, under)
        found += [SchemaProblem(f"/acceptance_tests/{index}/cmd", each) for each in refused]
    return tuple(found)
