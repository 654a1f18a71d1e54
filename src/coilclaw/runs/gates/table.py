"""``GATES``: every gate by its name, in the order in which a run asks them.

A gate with a ``judge`` here looks at a contract alone: a run asks it before work starts, and
``contract validate`` asks it as well. The others need evidence of a later stage, which calls them.

A gate is one module, which has its name and its function, and one entry. Events, ``contract
validate`` and the schemas (``scripts/schemas.py``) read the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.runs.contracts.event_types import EventType
from coilclaw.runs.gates import command, contract_gates, decision_gates, diff, tests
from coilclaw.runs.gates.result import GateResult

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from coilclaw.kernel import Json
    from coilclaw.runs.gates.result import ContractCase, GateName


@dataclass(frozen=True, slots=True)
class Gate:
    """What the run has to know of a gate beside its name."""

    event: EventType = EventType.GATE_RESULT
    """The type of the event with its result."""
    judge: Callable[[ContractCase], GateResult] | None = None
    place: str = "/"
    """The part of a contract that the gate looks at."""
    blames_agent: bool = False
    """Whether a failure is an agent's doing, not only a result that is not good enough."""


def _judge_policy(case: ContractCase) -> GateResult:
    approved = "override" in case.approved or case.is_part
    return contract_gates.judge_policy(
        case.contract,
        case.policies,
        directories=case.directories,
        approved=case.contract.allowed_paths if approved else (),
    )


def _judge_network(case: ContractCase) -> GateResult:
    network = case.contract.tool_permissions.network
    return contract_gates.judge_network(
        network,
        needed_by=("tool_permissions.network",) if network != "deny" else (),
        approved="network" in case.approved,
    )


def _judge_mcp_tools(case: ContractCase) -> GateResult:
    return contract_gates.judge_mcp_tools(
        case.contract.tool_permissions.mcp_tools,
        servers=case.contract.mcp_tool_set,
        allow=case.policies.mcp.allow,
        deny=case.policies.mcp.deny,
    )


def _judge_integrated(case: ContractCase) -> GateResult:
    return contract_gates.judge_integrated(case.runners, integrated=case.policies.tools.integrated)


def _judge_sampling(case: ContractCase) -> GateResult:
    contract = case.contract
    tools = (*contract.tool_permissions.mcp_tools, *contract.mcp_tool_set)
    return contract_gates.judge_sampling(tools, approved="sampling" in case.approved)


def _judge_commands(case: ContractCase) -> GateResult:
    """Return the results of all commands as one."""
    setup = case.policies.setup_for(case.contract)
    facts: dict[str, Json] = {"commands": [test.cmd for test in case.contract.acceptance_tests]}
    if setup:
        facts["setup"] = [each.cmd for each in setup]
    refused = (violation for result in case.commands for violation in result.violations)
    return GateResult(command.NAME, tuple(refused), facts)


_MCP_TOOLS: Final = "/tool_permissions/mcp_tools"
GATES: Final[Mapping[GateName, Gate]] = {
    contract_gates.SCHEMA: Gate(EventType.SCHEMA_GATE_RESULT),
    decision_gates.APPROVAL: Gate(EventType.HUMAN_APPROVAL_GATE_RESULT),
    contract_gates.POLICY: Gate(
        EventType.POLICY_GATE_RESULT, _judge_policy, "/allowed_paths", blames_agent=True
    ),
    contract_gates.NETWORK: Gate(
        EventType.NETWORK_GATE_RESULT, _judge_network, "/tool_permissions/network"
    ),
    contract_gates.MCP: Gate(EventType.MCP_TOOL_GATE_RESULT, _judge_mcp_tools, _MCP_TOOLS),
    contract_gates.INTEGRATED: Gate(
        EventType.INTEGRATED_GATE_RESULT, _judge_integrated, "/runtime_options"
    ),
    contract_gates.SAMPLING_GATE: Gate(
        EventType.MCP_SAMPLING_GATE_RESULT, _judge_sampling, _MCP_TOOLS
    ),
    command.NAME: Gate(EventType.TOOL_GATE_RESULT, _judge_commands, blames_agent=True),
    decision_gates.LOCK: Gate(EventType.LOCK_GATE_RESULT),
    diff.NAME: Gate(EventType.DIFF_GATE_RESULT, blames_agent=True),
    contract_gates.OUTPUT_SCHEMA: Gate(EventType.OUTPUT_SCHEMA_ENFORCED),
    decision_gates.REVIEW: Gate(EventType.REVIEWER_GATE_RESULT),
    tests.NAME: Gate(EventType.TESTS_GATE_RESULT),
    decision_gates.MERGE: Gate(EventType.MERGE_GATE_RESULT),
}
