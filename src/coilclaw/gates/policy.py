"""The policy gate: no more than the role needs, and nothing broad without a person's yes.

``policy.agent`` the agent is not registered in its role · ``policy.permission`` more is asked than
the registry or the pack grants · ``policy.danger`` full access to the machine ·
``policy.path`` a path that nobody may be given · ``policy.broad`` a path that needs an override ·
``policy.mcp`` an MCP tool that is not on the allowlist · ``policy.pack`` a pack that is unknown or
weaker than the contract's
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coilclaw.contracts.paths import broad_paths, flaw
from coilclaw.contracts.permissions import exceeding, over_asked
from coilclaw.domain.treepath import shown
from coilclaw.gates import guarded
from coilclaw.gates.result import GateResult, Violation

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from coilclaw.contracts.policyset import PolicySet
    from coilclaw.contracts.taskcontract import TaskContract
    from coilclaw.domain.messages import Json

DANGER: Final = "danger-full-access"


def judge(
    contract: TaskContract,
    policies: PolicySet,
    *,
    directories: Collection[str],
    approved: Collection[str] = (),
) -> GateResult:
    """Judge what a contract asks for.

    ``directories`` are those of the baseline, ``approved`` the broad paths that an override
    allows for this run, where the pack lets one. What still needs one is in the facts as
    ``needs_approval``.
    """
    broad = broad_paths(
        contract.allowed_paths,
        directories=directories,
        segments_at_most=policies.pack.limits.broad_segments,
    )
    counted = approved if policies.pack.override_approvals else ()
    open_paths = [path for path in broad if path not in counted]
    found = [
        *_permissions(contract, policies),
        *_paths(contract),
        *_broad(open_paths, policies),
        *_tools(contract, policies),
    ]
    facts: dict[str, Json] = {
        "pack": str(policies.pack.pack),
        "needs_approval": [*open_paths],
        "broad": [*broad],
    }
    return GateResult("policy_gate", tuple(found), facts)


def _permissions(contract: TaskContract, policies: PolicySet) -> Iterator[Violation]:
    assigned, asked = contract.assigned_agent, contract.tool_permissions
    if DANGER in {str(asked.filesystem), str(asked.shell), str(asked.network)}:
        yield Violation("policy.danger", f"no contract may ask for {DANGER}", "tool_permissions")
    agent = policies.registry.find(assigned.agent_id, assigned.role)
    if agent is None:
        message = f"the registry has no agent {shown(assigned.agent_id)} as {assigned.role}"
        yield Violation("policy.agent", message, "assigned_agent")
    problems = [*over_asked(asked, agent)] if agent is not None else []
    whose = f"the pack {policies.pack.pack}"
    problems += exceeding(asked, policies.pack.ceilings, asked.mcp_tools, whose)
    for item in problems:
        yield Violation("policy.permission", str(item), item.path)
    if not policies.is_stricter(policies.pack_for(contract)):
        message = f"the contract asks for more than {whose}"
        yield Violation("policy.pack", message, "policy_pack")


def _paths(contract: TaskContract) -> Iterator[Violation]:
    if not contract.allowed_paths:
        yield Violation("policy.path", "the contract allows no path", "allowed_paths")
    for path in contract.allowed_paths:
        wrong = flaw(path) or guarded.never(path.removesuffix("/"))
        if wrong is not None:
            yield Violation("policy.path", f"{shown(path)}: {wrong}", "allowed_paths")


def _broad(paths: list[str], policies: PolicySet) -> Iterator[Violation]:
    for path in paths:
        how = (
            "which needs an override"
            if policies.pack.override_approvals
            else f"which the pack {policies.pack.pack} does not let anybody approve"
        )
        message = f"{shown(path)} is a broad directory, {how}"
        yield Violation("policy.broad", message, "allowed_paths")


def _tools(contract: TaskContract, policies: PolicySet) -> Iterator[Violation]:
    for name in dict.fromkeys((*contract.tool_permissions.mcp_tools, *contract.mcp_tool_set)):
        if name not in policies.mcp_allowed:
            yield Violation("policy.mcp", f"{shown(name)} is not on the MCP allowlist", name)
