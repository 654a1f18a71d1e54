"""S1, the Tech Lead: one contract becomes several that can be worked on at the same time.

The model says who does what where. Each task becomes a contract of its own that has never more than
the one it comes from: fewer paths, no looser pack, no wider permissions. Nothing is lowered to fit;
everything that goes too far is listed.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, cast

from coilclaw.kernel import SchemaProblem, UsageError, quote_text
from coilclaw.runs.contracts import paths, permissions, role_contract, rules
from coilclaw.runs.contracts.draft import complete_contract
from coilclaw.runs.contracts.event_types import EventType
from coilclaw.runs.contracts.task_contract import (
    AcceptanceTest,
    Agent,
    InputArtifact,
    RequiredOutput,
    TaskContract,
    ToolPermissions,
)
from coilclaw.runs.evidence.layout import make_segment
from coilclaw.runs.gates import decision_gates
from coilclaw.runs.gates.decision_gates import LockClaim
from coilclaw.runs.roles import prompts
from coilclaw.runs.roles.model_questions import BoundSchema, ModelPlane, ModelQuestion

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from coilclaw.kernel import Json
    from coilclaw.runs.contracts.policy_set import PolicySet
    from coilclaw.runs.contracts.records import Handoff
    from coilclaw.runs.contracts.roles import Role
    from coilclaw.runs.engine.contract_checks import Baseline
    from coilclaw.runs.engine.run import Run
    from coilclaw.runs.evidence.progress import TaskProgress


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
    problems: tuple[SchemaProblem, ...]


def needs_split(contract: TaskContract) -> bool:
    """Return whether a Tech Lead has to split a contract; all others are one task."""
    return contract.assigned_agent.role == "TECH_LEAD"


def split(
    plane: ModelPlane, contract: TaskContract, *, baseline: Baseline, policies: PolicySet
) -> Divided:
    """Ask the Tech Lead for a split, and compile it."""
    if not needs_split(contract):
        return Divided((contract,), (), ())
    told: dict[str, Json] = {
        "contract": contract.json(),
        **baseline.list_names(contract.allowed_paths),
    }
    answer = plane.ask(ModelQuestion("TECH_LEAD", prompts.TECH_LEAD, told, BoundSchema.of(SCHEMA)))
    if answer.value is None:
        return Divided((), (), answer.problems)
    tasks = cast("list[dict[str, Json]]", answer.value["tasks"])
    made: list[TaskContract] = []
    problems: list[SchemaProblem] = []
    for index, task in enumerate(tasks):
        try:
            made.append(_make_child(task, contract, policies))
        except UsageError as problem:
            problems.append(SchemaProblem(f"/tasks/{index}", problem.message))
    problems = problems or [*dict.fromkeys(_find_excesses(made, contract, policies, baseline))]
    if problems:
        return Divided((), (), tuple(problems))
    summary = cast("str", answer.value["summary"])
    risks = cast("list[str]", answer.value["risks"])
    handoffs = tuple(prompts.handed_on(each, summary, risks) for each in made)
    return Divided(tuple(made), handoffs, ())


def _find_excesses(
    children: Sequence[TaskContract], parent: TaskContract, policies: PolicySet, baseline: Baseline
) -> Iterator[SchemaProblem]:
    """Find everything in which the contracts of a split go too far."""
    under = policies.under(policies.pack_for(parent))
    known = {test.cmd for test in parent.acceptance_tests}
    for index, child in enumerate(children):
        beyond = (
            *_check_scope(child, parent, children[:index]),
            *_check_permissions(child, parent, policies),
            *(
                SchemaProblem(f"/acceptance_tests/{number}/cmd", refused)
                for number, test in enumerate(child.acceptance_tests)
                if test.cmd not in known
                for refused in baseline.refusals(test, child, under)
            ),
            *rules.find_rule_problems(child, under, known_files=baseline.read),
        )
        for each in beyond:
            yield SchemaProblem(f"/tasks/{index}{each.path}", each.message)
    # Two tasks share a path only if both declare a lock on all that they share.
    claims = [LockClaim(each.task_id, each.allowed_paths, each.locks or ()) for each in children]
    for violation in decision_gates.judge_locks(claims, held={}).violations:
        yield SchemaProblem("/tasks", violation.message)


def _make_child(
    task: Mapping[str, Json], parent: TaskContract, policies: PolicySet
) -> TaskContract:
    role = cast("Role", task["role"])
    agent = policies.registry.first(role)
    if agent is None:
        raise UsageError(f"the registry has no agent in the role {role}", rule="contract.agent")
    asked = ToolPermissions.of(task["tool_permissions"])
    given = [AcceptanceTest.of(test) for test in cast("list[Json]", task["acceptance_tests"])]
    scope = tuple(cast("list[str]", task["allowed_paths"]))
    owner = replace(parent.assigned_agent, codex_thread_id=None)
    artifacts = tuple(
        each for each in parent.inputs.artifacts if not role_contract.is_binding(each)
    )
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
        binary_paths=tuple(
            each for each in parent.binary_paths or () if paths.is_within(each, scope)
        )
        or None,
        locks=tuple(cast("list[str]", task["locks"])) or None,
        # It is said of the tests of the whole, and a part has others or needs only some.
        expected_baseline=None,
    )
    return TaskContract.of(complete_contract(child, policies).json())


def _check_scope(
    child: TaskContract, parent: TaskContract, before: Sequence[TaskContract]
) -> Iterator[SchemaProblem]:
    name = child.task_id.removeprefix(f"{parent.task_id}-")
    if any(other.task_id == child.task_id for other in before):
        yield SchemaProblem("/name", f"{quote_text(name)} is there twice")
    if _REPAIR.search(name):
        yield SchemaProblem("/name", f"{quote_text(name)} looks like a repair of another task")
    for index, path in enumerate(child.allowed_paths):
        # What is malformed is told by the rules.
        if paths.find_path_flaw(path) is None and not paths.is_within(path, parent.allowed_paths):
            said = f"{quote_text(path)} is not in the allowed_paths of {parent.task_id}"
            yield SchemaProblem(f"/allowed_paths/{index}", said)


def _check_permissions(
    child: TaskContract, parent: TaskContract, policies: PolicySet
) -> Iterator[SchemaProblem]:
    """A Tech Lead writes nothing itself: read-only binds the others if it is more than that."""
    lead = policies.registry.find(parent.assigned_agent.agent_id, parent.assigned_agent.role)
    usual = lead is not None and lead.defaults.sandbox == "read-only"
    has = permissions.effective(parent.tool_permissions)
    if usual and not parent.audit_only:
        has = replace(has, filesystem="workspace-write")
    whose = f"the contract {parent.task_id}"
    yield from permissions.find_exceeding(child.tool_permissions, has, parent.mcp_tool_set, whose)


MAX_ARTIFACTS: Final = 20
_REPAIR_SUFFIX: Final = re.compile(r"(?:-fix-[0-9]+)+\Z")


def evidence_prefix(run_id: str) -> str:
    """Return how a contract names a file of its own run's bundle."""
    return f"runs/{run_id}/"


def count_repairs_left(run: Run) -> int:
    """Return how many repairs the run may still make."""
    return run.root_contract.timeout_retry.max_retries - run.progress.attempt


def write_repairs(run: Run, policies: PolicySet, blamed: Sequence[str], reason: str) -> None:
    """Write a child contract for each task that has to be repaired, with evidence of the failure.

    Where no single task is to blame, one contract covers them all.
    """
    active = run.progress.active
    groups: list[tuple[TaskProgress, ...]]
    groups = [(task,) for task in active if task.task_id in set(blamed)]
    # After a kill some of them, or the one for all, may have been written already.
    if not blamed and not any(task.state == "pending" for task in active):
        groups = [active]
    for group in groups:
        child = _make_repair(run, policies, group, reason)
        names = tuple(task.task_id for task in group)
        triggered = {
            "child_task_id": child.task_id,
            "reason": reason,
            "retries_left": count_repairs_left(run) - 1,
            "replaces": list(names),
        }
        run.emit(EventType.FIX_LOOP_TRIGGERED, triggered, task_id=names[0], level="WARN")
        run.write_contract(child, replaces=names)


def _make_repair(
    run: Run, policies: PolicySet, group: tuple[TaskProgress, ...], reason: str
) -> TaskContract:
    several = [run.contract(task.task_id) for task in group]
    first = several[0]
    parent = run.root_contract if len(group) > 1 else first
    name = f"{_REPAIR_SUFFIX.sub('', parent.task_id)}-fix-{run.progress.attempt + 1}"
    # The user may have called a task as repairs are called.
    names = (f"{name}.{number}" if number > 1 else name for number in itertools.count(1))
    prefix = evidence_prefix(run.id)
    kept = (each for each in first.inputs.artifacts if not each.uri.startswith(prefix))
    child = replace(
        first,
        task_id=next(each for each in names if each not in run.progress.tasks),
        parent_task_id=parent.task_id,
        inputs=replace(
            first.inputs, spec=parent.inputs.spec, artifacts=(*kept, *_find_failures(run, group))
        ),
        allowed_paths=tuple(dict.fromkeys(path for one in several for path in one.allowed_paths)),
        acceptance_tests=parent.acceptance_tests,
        evidence_links=tuple(dict.fromkeys((*first.evidence_links, reason[:500]))),
        # The baseline was tried once, for the contract that this one repairs.
        expected_baseline=None,
    )
    bound = role_contract.bind_output_schema(child)
    if bound.role_contract is None:
        return bound
    return role_contract.with_role_contract(bound, policies.registry)


def _find_failures(run: Run, group: tuple[TaskProgress, ...]) -> Iterator[InputArtifact]:
    """What shows the failure: the reviews, the tests, the refused patch; each with its hash."""
    paths: list[str] = []
    for task in group:
        name = make_segment(task.task_id)
        paths += [f"results/{name}/result.json", f"artifacts/rejected/{name}.diff"]
        if task.reviewed and task.reviewed != "PASS":
            paths.append(f"reviews/{name}.json")
    tested = str(run.progress.tested.get("path", ""))
    if tested:
        folder = tested.rpartition("/")[0]
        logs = (run.bundle.directory / folder).glob("*.log")
        paths += [tested, *sorted(f"{folder}/{entry.name}" for entry in logs)]
    for path in list(dict.fromkeys(paths))[:MAX_ARTIFACTS]:
        if run.bundle.has(path):
            yield InputArtifact(
                name=f"failed.{path.replace('/', '.')}",
                uri=f"{evidence_prefix(run.id)}{path}",
                sha256=run.bundle.artifact(path).sha256,
            )
