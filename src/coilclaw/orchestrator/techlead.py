"""S1, the Tech Lead: one contract becomes several that can be worked on at the same time.

The model says who does what where. Each task becomes a contract of its own that has never more than
the one it comes from: fewer paths, no looser pack, no wider permissions. Nothing is lowered to fit;
everything that goes too far is listed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, cast

from coilclaw.contracts import binding, paths, permissions, rules
from coilclaw.contracts.drafting import completed
from coilclaw.contracts.schemas import Problem
from coilclaw.contracts.taskcontract import (
    AcceptanceTest,
    Agent,
    RequiredOutput,
    TaskContract,
    ToolPermissions,
)
from coilclaw.domain.treepath import shown
from coilclaw.errors import UsageError
from coilclaw.gates import locks
from coilclaw.gates.locks import Claim
from coilclaw.orchestrator import roleprompts
from coilclaw.orchestrator.plane import BoundSchema, Question

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from coilclaw.contracts.handoff import Handoff
    from coilclaw.contracts.policyset import PolicySet
    from coilclaw.contracts.roles import Role
    from coilclaw.domain.messages import Json
    from coilclaw.orchestrator.baseline import Baseline
    from coilclaw.orchestrator.plane import Plane

SCHEMA: Final = "split.v1"
_REPAIR: Final = re.compile(r"(?:^|-)fix-[0-9]+$")
"""How contracts of the fix loop end; a task that is called so could be taken for one."""
_REPORT: Final = RequiredOutput(
    name="report", type="report", acceptance="The summary says what was found."
)


@dataclass(frozen=True, slots=True)
class Divided:
    """The contracts of a split, each with advice, or everything that is wrong with it."""

    contracts: tuple[TaskContract, ...]
    handoffs: tuple[Handoff, ...]
    problems: tuple[Problem, ...]


def needs_split(contract: TaskContract) -> bool:
    """Whether a Tech Lead is to split a contract; all others are one task as they are."""
    return contract.assigned_agent.role == "TECH_LEAD"


def split(
    plane: Plane, contract: TaskContract, *, baseline: Baseline, policies: PolicySet
) -> Divided:
    """Ask the Tech Lead for a split, and compile it."""
    if not needs_split(contract):
        return Divided((contract,), (), ())
    told: dict[str, Json] = {
        "contract": contract.json(),
        **baseline.told(contract.allowed_paths),
    }
    answer = plane.ask(Question("TECH_LEAD", roleprompts.TECH_LEAD, told, BoundSchema.of(SCHEMA)))
    if answer.value is None:
        return Divided((), (), answer.problems)
    tasks = cast("list[dict[str, Json]]", answer.value["tasks"])
    made, problems = compiled(tasks, contract, policies)
    problems = problems or judged(made, contract, policies, baseline)
    if problems:
        return Divided((), (), problems)
    summary = cast("str", answer.value["summary"])
    risks = cast("list[str]", answer.value["risks"])
    return Divided(made, tuple(roleprompts.handed_on(each, summary, risks) for each in made), ())


def compiled(
    tasks: Sequence[Mapping[str, Json]], parent: TaskContract, policies: PolicySet
) -> tuple[tuple[TaskContract, ...], tuple[Problem, ...]]:
    """Return a contract for each task, and why there is none for some."""
    made: list[TaskContract] = []
    problems: list[Problem] = []
    for index, task in enumerate(tasks):
        try:
            made.append(_child(task, parent, policies))
        except UsageError as problem:
            problems.append(Problem(f"/tasks/{index}", problem.message))
    return tuple(made), tuple(problems)


def judged(
    children: Sequence[TaskContract],
    parent: TaskContract,
    policies: PolicySet,
    baseline: Baseline,
) -> tuple[Problem, ...]:
    """Return everything in which the contracts of a split go too far."""
    under = policies.under(policies.pack_for(parent))
    found: list[Problem] = []
    for index, child in enumerate(children):
        where = f"/tasks/{index}"
        beyond = (
            *_name(child, parent, children[:index]),
            *_scope(child, parent),
            *_permissions(child, parent, policies),
            *_tests(child, parent, under, baseline),
            *rules.problems(child, under, known_files=baseline.read),
        )
        found += [Problem(f"{where}{each.path}", each.message) for each in beyond]
    found += _overlaps(children)
    return tuple(dict.fromkeys(found))


def _child(task: Mapping[str, Json], parent: TaskContract, policies: PolicySet) -> TaskContract:
    role = cast("Role", task["role"])
    agent = policies.registry.first(role)
    if agent is None:
        raise UsageError(f"the registry has no agent in the role {role}", rule="contract.agent")
    asked = ToolPermissions.of(task["tool_permissions"])
    given = [AcceptanceTest.of(test) for test in cast("list[Json]", task["acceptance_tests"])]
    scope = tuple(cast("list[str]", task["allowed_paths"]))
    owner = replace(parent.assigned_agent, codex_thread_id=None)
    artifacts = tuple(each for each in parent.inputs.artifacts if not binding.is_binding(each))
    reading = asked.filesystem == "read-only"
    kept = tuple(each for each in parent.required_outputs if each.type not in rules.CHANGES)
    child = replace(
        parent,
        task_id=f"{parent.task_id}-{task['name']}",
        parent_task_id=parent.task_id,
        task_type="IMPLEMENT",
        owner_agent=owner,
        assigned_agent=Agent(role=role, agent_id=agent.agent_id),
        inputs=replace(parent.inputs, spec=cast("str", task["spec"]), artifacts=artifacts),
        required_outputs=(kept or (_REPORT,)) if reading else parent.required_outputs,
        allowed_paths=scope,
        acceptance_tests=tuple(given) or parent.acceptance_tests,
        tool_permissions=asked,
        policy_pack=policies.pack_for(parent),
        handoff_chain=None,
        audit_only=True if reading else parent.audit_only,
        binary_paths=tuple(each for each in parent.binary_paths or () if paths.within(each, scope))
        or None,
        locks=tuple(cast("list[str]", task["locks"])) or None,
        # It is said of the tests of the whole, and a part has others or needs only some.
        expected_baseline=None,
    )
    return TaskContract.of(completed(child, policies).json())


def _name(
    child: TaskContract, parent: TaskContract, before: Sequence[TaskContract]
) -> Iterator[Problem]:
    name = child.task_id.removeprefix(f"{parent.task_id}-")
    if any(other.task_id == child.task_id for other in before):
        yield Problem("/name", f"{shown(name)} is there twice")
    if _REPAIR.search(name):
        yield Problem("/name", f"{shown(name)} looks like a repair of another task")


def _scope(child: TaskContract, parent: TaskContract) -> Iterator[Problem]:
    for index, path in enumerate(child.allowed_paths):
        # What is malformed is told by the rules.
        if paths.flaw(path) is None and not paths.within(path, parent.allowed_paths):
            yield Problem(
                f"/allowed_paths/{index}",
                f"{shown(path)} is not in the allowed_paths of {parent.task_id}",
            )


def _permissions(
    child: TaskContract, parent: TaskContract, policies: PolicySet
) -> Iterator[Problem]:
    """A Tech Lead writes nothing itself: read-only binds the others if it is more than that."""
    lead = policies.registry.find(parent.assigned_agent.agent_id, parent.assigned_agent.role)
    usual = lead is not None and lead.defaults.sandbox == "read-only"
    has = permissions.effective(parent.tool_permissions)
    if usual and not parent.audit_only:
        has = replace(has, filesystem="workspace-write")
    whose = f"the contract {parent.task_id}"
    yield from permissions.exceeding(child.tool_permissions, has, parent.mcp_tool_set, whose)


def _tests(
    child: TaskContract, parent: TaskContract, policies: PolicySet, baseline: Baseline
) -> Iterator[Problem]:
    known = {test.cmd for test in parent.acceptance_tests}
    for index, test in enumerate(child.acceptance_tests):
        if test.cmd in known:
            continue
        for refused in baseline.refusals(test, child, policies):
            yield Problem(f"/acceptance_tests/{index}/cmd", refused)


def _overlaps(children: Sequence[TaskContract]) -> Iterator[Problem]:
    """Two tasks share a path only if both declare a lock on all that they share."""
    claims = [Claim(each.task_id, each.allowed_paths, each.locks or ()) for each in children]
    for violation in locks.judge(claims, held={}).violations:
        yield Problem("/tasks", violation.message)
