"""Draft a complete contract from a request: bound, resolved, with least privilege."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coilclaw.kernel import UsageError, hash_json
from coilclaw.runs.contracts import role_contract
from coilclaw.runs.contracts.roles import PLANNERS
from coilclaw.runs.contracts.task_contract import (
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

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coilclaw.runs.contracts.policy_files import RegisteredAgent
    from coilclaw.runs.contracts.policy_set import PolicySet
    from coilclaw.runs.contracts.roles import Role
    from coilclaw.runs.contracts.task_contract import (
        ExpectedBaseline,
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


def draft_contract(
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
    reading_only = read_only or assigned.defaults.sandbox == "read-only"
    reading = read_only or (reading_only and role not in PLANNERS)
    chosen = outputs if outputs is not None else ((_REPORT if reading else _PATCH),)
    contract = TaskContract(
        task_id=task_id or "task-" + hash_json([spec, *allowed_paths])[:12],
        task_type=_TYPES.get(role, "IMPLEMENT"),
        parent_task_id=parent_task_id,
        owner_agent=Agent(role=owner.role, agent_id=owner.agent_id),
        assigned_agent=Agent(role=assigned.role, agent_id=assigned.agent_id),
        inputs=Inputs(spec=spec, artifacts=tuple(artifacts)),
        required_outputs=tuple(chosen),
        allowed_paths=tuple(allowed_paths),
        forbidden_actions=tuple(dict.fromkeys((*policies.forbidden_actions, *forbidden_actions))),
        acceptance_tests=tuple(_make_test(index, test) for index, test in enumerate(tests, 1)),
        tool_permissions=_grant(policies, assigned, read_only=reading_only),
        policy_pack=policy_pack or policies.under(None, "WORKER").pack.pack,
        timeout_retry=TimeoutRetry(
            timeout_sec=timeout_sec, max_retries=max_retries, retry_backoff_sec=0
        ),
        rollback=Rollback(strategy="worktree_drop", baseline_ref=baseline_ref),
        evidence_links=(),
        log_refs=LogRefs(run_id="", paths=LogPaths()),
        mcp_tool_set=(OWN_TOOLS,),
        audit_only=True if reading else None,
        runtime_options=runtime_options,
        setup=None if setup is None else tuple(setup),
        expected_baseline=expected_baseline,
    )
    return TaskContract.of(complete_contract(contract, policies).json())


def complete_contract(contract: TaskContract, policies: PolicySet) -> TaskContract:
    """Return a contract with its output schema bound and its role contract compiled anew."""
    return role_contract.with_role_contract(
        role_contract.bind_output_schema(contract), policies.registry
    )


def _agent(policies: PolicySet, role: Role) -> RegisteredAgent:
    found = policies.registry.first(role)
    if found is None:
        raise UsageError(
            f"the agent registry has no agent in the role {role}", rule="contract.agent"
        )
    return found


def _make_test(index: int, test: str | AcceptanceTest) -> AcceptanceTest:
    if isinstance(test, AcceptanceTest):
        return test
    return AcceptanceTest(name=f"acceptance-{index}", cmd=test, must_pass=True)


def _grant(policies: PolicySet, agent: RegisteredAgent, *, read_only: bool) -> ToolPermissions:
    # Our own tools, where the agent may have them: a contract that needs more says so.
    own = OWN_TOOLS in agent.mcp_tools and OWN_TOOLS in policies.mcp_allowed
    return ToolPermissions.of(
        {
            "filesystem": "read-only" if read_only else "workspace-write",
            "shell": agent.defaults.approval_policy,
            "network": agent.defaults.network,
            "mcp_tools": [OWN_TOOLS] if own else [],
        }
    )
