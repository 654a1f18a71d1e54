"""S0, the PM: one sentence becomes a contract.

The model says what is to be done, where, and how it is tested. Who does it, with which permissions,
bound to which schema and from which commit is compiled here, and rules judge the whole.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, cast

from coilclaw.contracts import rules
from coilclaw.contracts.drafting import draft
from coilclaw.contracts.policyset import PACKS
from coilclaw.contracts.schemas import Problem
from coilclaw.contracts.taskcontract import AcceptanceTest, RequiredOutput, RuntimeOptions
from coilclaw.errors import UsageError
from coilclaw.orchestrator import roleprompts
from coilclaw.orchestrator.plane import BoundSchema, Question

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coilclaw.contracts.handoff import Handoff
    from coilclaw.contracts.policyset import PolicySet
    from coilclaw.contracts.taskcontract import PackName, TaskContract
    from coilclaw.domain.messages import Json
    from coilclaw.orchestrator.baseline import Baseline
    from coilclaw.orchestrator.plane import Plane

SCHEMA: Final = "plan.v1"
MAX_REQUEST_CHARS: Final = 20_000


@dataclass(frozen=True, slots=True)
class Planned:
    """A contract with the advice that goes along with it, or everything that is wrong."""

    contract: TaskContract | None
    handoff: Handoff | None
    problems: tuple[Problem, ...]
    """``/plan`` and below are those of the answer, all others those of the contract made of it."""


def plan(
    plane: Plane,
    request: str,
    *,
    baseline: Baseline,
    policies: PolicySet,
    task_id: str,
    run_id: str = "",
    runtime_options: RuntimeOptions | None = None,
) -> Planned:
    """Ask the PM for a plan, and compile it; ``policies`` are under the loosest pack allowed."""
    if not request.strip() or len(request) > MAX_REQUEST_CHARS:
        raise UsageError(
            f"a request has 1 to {MAX_REQUEST_CHARS:,} characters", rule="plan.request"
        )
    commands: list[Json] = [*sorted({rule.exec for rule in policies.commands})]
    told: dict[str, Json] = {
        "request": request,
        "policy_pack": policies.pack.pack,
        "commands": commands,
        **baseline.told(),
    }
    answer = plane.ask(Question("PM", roleprompts.PM, told, BoundSchema.of(SCHEMA)))
    if answer.value is None:
        return Planned(None, None, _below("/plan", answer.problems))
    value = answer.value
    try:
        contract = compiled(value, baseline, policies, task_id, runtime_options)
        # Advice names a contract by its hash, so that nothing may change in it afterwards.
        contract = replace(contract, log_refs=replace(contract.log_refs, run_id=run_id))
    except UsageError as problem:
        return Planned(None, None, (Problem("/plan", problem.message),))
    problems = judged(contract, policies, baseline)
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
        policy_pack=cast("PackName", value["policy_pack"]),
        timeout_sec=cast("int", value["timeout_sec"]),
        max_retries=cast("int", value["max_retries"]),
        baseline_ref=baseline.commit,
        runtime_options=runtime_options,
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
