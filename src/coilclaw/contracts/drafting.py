"""Making a complete contract from what somebody wants: bound, resolved, with least privilege."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coilclaw.contracts import binding, rolecontract
from coilclaw.contracts.roles import PLANNERS
from coilclaw.contracts.taskcontract import (
    AcceptanceTest,
    Agent,
    Inputs,
    LogPaths,
    LogRefs,
    RequiredOutput,
    Rollback,
    TaskContract,
    TimeoutRetry,
    ToolPermissions,
)
from coilclaw.domain.freeform import hashed
from coilclaw.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coilclaw.contracts.policyset import PolicySet
    from coilclaw.contracts.registry import RegisteredAgent
    from coilclaw.contracts.roles import Role
    from coilclaw.contracts.taskcontract import (
        ExpectedBaseline,
        Filesystem,
        InputArtifact,
        PackName,
        RuntimeOptions,
        SetupCommand,
        TaskType,
    )

OWN_TOOLS: Final = "coilclaw"
"""Our own MCP server, which a task gets when nothing else is asked for."""
TIMEOUT_SEC: Final = 1800
MAX_RETRIES: Final = 2
_TYPES: Final[Mapping[Role, TaskType]] = {
    "PM": "PLAN",
    "TECH_LEAD": "PLAN",
    "REVIEWER": "REVIEW",
    "TEST_RUNNER": "TEST",
    "SEARCHER": "SEARCH",
    "RESEARCHER": "SEARCH",
}
_PATCH: Final = RequiredOutput(
    name="patch.diff", type="patch", acceptance="Every acceptance test that must pass does."
)
_REPORT: Final = RequiredOutput(
    name="report", type="report", acceptance="The summary of the result answers the question."
)


def draft(
    spec: str,
    allowed_paths: Sequence[str],
    tests: Sequence[str | AcceptanceTest],
    *,
    policies: PolicySet,
    task_id: str | None = None,
    parent_task_id: str | None = None,
    role: Role = "WORKER",
    owner_role: Role = "PM",
    read_only: bool = False,
    outputs: Sequence[RequiredOutput] | None = None,
    forbidden_actions: Sequence[str] = (),
    artifacts: Sequence[InputArtifact] = (),
    policy_pack: PackName | None = None,
    timeout_sec: int = TIMEOUT_SEC,
    max_retries: int = MAX_RETRIES,
    baseline_ref: str = "HEAD",
    runtime_options: RuntimeOptions | None = None,
    setup: Sequence[SetupCommand] | None = None,
    expected_baseline: ExpectedBaseline | None = None,
) -> TaskContract:
    """Return a contract that its schema accepts; whether the rules hold is asked of ``rules``.

    Without a pack it is the default of those who write code, whom a Tech Lead's work is for.
    """
    assigned = _agent(policies, role)
    owner = _agent(policies, owner_role)
    # The patch of a planner is that of the contracts which it makes.
    reading = read_only or (assigned.defaults.sandbox == "read-only" and role not in PLANNERS)
    chosen = outputs if outputs is not None else ((_REPORT if reading else _PATCH),)
    contract = TaskContract(
        task_id=task_id or _task_id(spec, allowed_paths),
        task_type=_TYPES.get(role, "IMPLEMENT"),
        parent_task_id=parent_task_id,
        owner_agent=Agent(role=owner.role, agent_id=owner.agent_id),
        assigned_agent=Agent(role=assigned.role, agent_id=assigned.agent_id),
        inputs=Inputs(spec=spec, artifacts=tuple(artifacts)),
        required_outputs=tuple(chosen),
        allowed_paths=tuple(allowed_paths),
        forbidden_actions=tuple(dict.fromkeys((*policies.forbidden_actions, *forbidden_actions))),
        acceptance_tests=tuple(_test(index, test) for index, test in enumerate(tests, 1)),
        tool_permissions=_permissions(policies, assigned, read_only=read_only),
        policy_pack=policy_pack or policies.under(None, "WORKER").pack.pack,
        timeout_retry=TimeoutRetry(
            timeout_sec=timeout_sec, max_retries=max_retries, retry_backoff_sec=0
        ),
        rollback=Rollback(strategy="worktree_drop", baseline_ref=baseline_ref),
        evidence_links=(),
        log_refs=LogRefs(run_id="", paths=LogPaths()),
        mcp_tool_set=_tools(policies, assigned) or (OWN_TOOLS,),
        audit_only=True if reading else None,
        runtime_options=runtime_options,
        setup=None if setup is None else tuple(setup),
        expected_baseline=expected_baseline,
    )
    return TaskContract.of(completed(contract, policies).json())


def completed(contract: TaskContract, policies: PolicySet) -> TaskContract:
    """Return a contract with its output schema bound and its role contract compiled anew."""
    return rolecontract.with_role_contract(binding.bound(contract), policies.registry)


def _agent(policies: PolicySet, role: Role) -> RegisteredAgent:
    found = policies.registry.first(role)
    if found is None:
        raise UsageError(
            f"the agent registry has no agent in the role {role}", rule="contract.agent"
        )
    return found


def _task_id(spec: str, allowed_paths: Sequence[str]) -> str:
    return "task-" + hashed([spec, *allowed_paths])[:12]


def _test(index: int, test: str | AcceptanceTest) -> AcceptanceTest:
    if isinstance(test, AcceptanceTest):
        return test
    return AcceptanceTest(name=f"acceptance-{index}", cmd=test, must_pass=True)


def _permissions(
    policies: PolicySet, agent: RegisteredAgent, *, read_only: bool
) -> ToolPermissions:
    filesystem: Filesystem = "workspace-write"
    if read_only or agent.defaults.sandbox == "read-only":
        filesystem = "read-only"
    return ToolPermissions.of(
        {
            "filesystem": filesystem,
            "shell": agent.defaults.approval_policy,
            "network": agent.defaults.network,
            "mcp_tools": [*_tools(policies, agent)],
        }
    )


def _tools(policies: PolicySet, agent: RegisteredAgent) -> tuple[str, ...]:
    """Our own tools, where the agent may have them: whoever needs more says so."""
    return (
        (OWN_TOOLS,) if OWN_TOOLS in agent.mcp_tools and OWN_TOOLS in policies.mcp_allowed else ()
    )
