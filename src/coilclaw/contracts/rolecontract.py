"""The role contract: compiled from a contract and the registry, compared, and summed up.

It is a view. Where it differs from the fields that it was compiled from, the contract is invalid.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from coilclaw.contracts import permissions, reference
from coilclaw.contracts.manifest import (
    BindingCapability,
    BindingValues,
    McpBinding,
    RoleBindingSummary,
    RuntimeBindingSummary,
    SkillsBinding,
)
from coilclaw.contracts.schemas import Problem
from coilclaw.contracts.taskcontract import (
    RoleContract,
    RoleHandoff,
    RoleIdentity,
    RuntimeBinding,
)
from coilclaw.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from coilclaw.contracts.manifest import BindingStatus
    from coilclaw.contracts.registry import AgentRegistry
    from coilclaw.contracts.roles import Role
    from coilclaw.contracts.taskcontract import TaskContract
    from coilclaw.domain.messages import Json

_REFS: Final = ("system_prompt_ref", "skills_bundle_ref", "mcp_bundle_ref")
_KEYS: Final = ("runner", "provider", "model")
_DERIVED: Final = (
    "identity",
    "runtime_binding",
    "tool_permissions",
    "resolved_mcp_tool_set",
    "handoff",
)
"""What is decided elsewhere; the purpose and the conditions may be said in other words."""


def compiled(contract: TaskContract, registry: AgentRegistry) -> RoleContract:
    """Return the role contract of a contract's assigned agent."""
    role = contract.assigned_agent.role
    definition = registry.definition(role)
    if definition is None:
        raise UsageError(f"the registry does not define the role {role}", rule="contract.role")
    return RoleContract(
        identity=RoleIdentity(role=role, agent_id=contract.assigned_agent.agent_id),
        purpose=definition.purpose,
        system_prompt_ref=definition.system_prompt_ref,
        skills_bundle_ref=definition.skills_bundle_ref,
        mcp_bundle_ref=definition.mcp_bundle_ref,
        runtime_binding=_runtime(contract),
        tool_permissions=permissions.effective(contract.tool_permissions),
        resolved_mcp_tool_set=contract.mcp_tool_set,
        handoff=RoleHandoff(
            eligible=definition.handoff_eligible,
            required_downstream_roles=definition.required_downstream_roles,
            chain_roles=_chain(contract),
            max_handoffs=contract.handoff_chain.max_handoffs if contract.handoff_chain else None,
        ),
        fail_closed_conditions=definition.fail_closed_conditions,
    )


def with_role_contract(contract: TaskContract, registry: AgentRegistry) -> TaskContract:
    """Return the contract with its role contract compiled anew."""
    return replace(contract, role_contract=compiled(contract, registry))


def problems(
    contract: TaskContract, registry: AgentRegistry, read: Callable[[str], bytes | None]
) -> tuple[Problem, ...]:
    """Return where the role contract is not what the contract and the registry say."""
    given = contract.role_contract
    if given is None:
        return ()
    found = []
    try:
        expected = compiled(contract, registry).json()
    except UsageError as problem:
        return (Problem("/role_contract", problem.message),)
    view = given.json()
    for key in _DERIVED:
        found += _differences(f"/role_contract/{key}", view[key], expected[key])
    for kind in _REFS:
        text = getattr(given, kind)
        wrong = None if text is None else reference.flaw(kind, text, read)
        if wrong:
            found.append(Problem(f"/role_contract/{kind}", wrong))
    return tuple(found)


def summary(contract: TaskContract) -> dict[str, Json]:
    """The ``role_contract_summary``: what somebody sees before the contract is carried out."""
    given = contract.role_contract
    tools = contract.tool_permissions
    view: dict[str, Json] = {
        "authority": "contract-derived-read-model",
        "execution_authority": "task_contract",
        "task_id": contract.task_id,
        "role": contract.assigned_agent.role,
        "agent_id": contract.assigned_agent.agent_id,
        "purpose": given.purpose if given else None,
        "system_prompt_ref": given.system_prompt_ref if given else None,
        "skills_bundle_ref": given.skills_bundle_ref if given else None,
        "mcp_bundle_ref": given.mcp_bundle_ref if given else None,
        "runtime_binding": dict(_runtime(contract).json()),
        "tool_permissions": dict(permissions.effective(tools).json()),
        "mcp_tools": list(tools.mcp_tools),
        "resolved_mcp_tool_set": list(contract.mcp_tool_set),
        "allowed_paths": list(contract.allowed_paths),
        "acceptance_tests": [test.cmd for test in contract.acceptance_tests],
        "handoff": dict(given.handoff.json()) if given else None,
        "fail_closed_conditions": list(given.fail_closed_conditions) if given else [],
    }
    return view


def binding_summary(contract: TaskContract) -> dict[str, Json]:
    """The ``role_binding_summary`` of a manifest: a read model that nothing is executed by."""
    given = contract.role_contract
    skills = given.skills_bundle_ref if given else None
    bundle = given.mcp_bundle_ref if given else None
    values = _runtime(contract)
    chosen = [getattr(values, key) is not None for key in _KEYS]
    status: BindingStatus = "partially-resolved" if any(chosen) else "unresolved"
    tools = permissions.effective(contract.tool_permissions)
    return RoleBindingSummary(
        authority="contract-derived-read-model",
        source="role_contract" if given else "task_contract",
        execution_authority="task_contract",
        skills_bundle_ref=SkillsBinding(
            status="registry-backed" if skills else "unresolved",
            ref=skills,
            bundle_id=skills.partition("#")[2] or None if skills else None,
            resolved_skill_set=(),
            validation="fail-closed",
        ),
        mcp_bundle_ref=McpBinding(
            status="registry-backed" if bundle else "resolved",
            ref=bundle,
            bundle_id=bundle.partition("#")[2] or None if bundle else None,
            resolved_mcp_tool_set=contract.mcp_tool_set,
            validation="fail-closed",
        ),
        runtime_binding=RuntimeBindingSummary(
            status="contract-derived" if all(chosen) else status,
            authority_scope="contract-derived-read-model",
            source=BindingValues(
                runner="runtime_options.runner" if values.runner else None,
                provider="runtime_options.provider" if values.provider else None,
                model="runtime_options.model" if values.model else None,
            ),
            summary=BindingValues(
                runner=values.runner, provider=values.provider, model=values.model
            ),
            capability=BindingCapability.of(tools.json()),
        ),
    ).json()


def _runtime(contract: TaskContract) -> RuntimeBinding:
    chosen = contract.runtime_options
    return RuntimeBinding(
        runner=chosen.runner if chosen else None,
        provider=chosen.provider if chosen else None,
        model=chosen.model if chosen else None,
    )


def _chain(contract: TaskContract) -> tuple[Role, ...]:
    chain = contract.handoff_chain
    return (chain.roles if chain else None) or ()


def _differences(where: str, given: Json, expected: Json) -> list[Problem]:
    if isinstance(given, dict) and isinstance(expected, dict):
        return [
            problem
            for key in expected
            for problem in _differences(f"{where}/{key}", given.get(key), expected[key])
        ]
    if given == expected:
        return []
    return [Problem(where, "is not what the contract and the registry say")]
