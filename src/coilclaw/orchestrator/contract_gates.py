"""``ContractGates``: everything that a contract has to pass before an agent works on it.

A run judges by it and records each answer; ``contract validate`` asks the same without a run. A
gate that is added here is added for both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.agents.naming import parse
from coilclaw.contracts import paths, rules
from coilclaw.contracts.schemas import Problem
from coilclaw.errors import UsageError
from coilclaw.gates import integrated, mcp, network, policy, sampling
from coilclaw.gates.result import GateResult
from coilclaw.orchestrator.asking import Ask

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from coilclaw.contracts.policyset import PolicySet
    from coilclaw.contracts.taskcontract import TaskContract
    from coilclaw.domain.messages import Json
    from coilclaw.orchestrator.baseline import Baseline

_PLACES: Final = {
    "policy_gate": "/allowed_paths",
    "network_gate": "/tool_permissions/network",
    "mcp_gate": "/tool_permissions/mcp_tools",
    "sampling_gate": "/tool_permissions/mcp_tools",
    "integrated_gate": "/runtime_options",
}
"""What of a contract a gate looks at above all."""


@dataclass(frozen=True, slots=True)
class ContractGates:
    """The gates, with everything that they look at beside the contract."""

    policies: PolicySet
    """Under the pack that judges."""
    baseline: Baseline
    resolve: Callable[[str], str] | None
    """Finds a commit; ``None`` where there is no repository to look in."""
    control_paths: tuple[str, ...]
    runners: tuple[str, ...]
    """The kinds of agents that take part."""
    is_part: bool = False
    """Whether the contract lies within one that was approved as a whole."""

    def find_problems(self, contract: TaskContract) -> tuple[Problem, ...]:
        """Return what is wrong with a contract in itself, and with what it refers to."""
        return (
            *self._check_baseline(contract),
            *rules.problems(contract, self.policies, known_files=self.baseline.read),
            *self._check_control(contract),
        )

    def find_broad(self, contract: TaskContract) -> tuple[str, ...]:
        """Return the allowed paths that are too much without an override."""
        return paths.broad_paths(
            contract.allowed_paths,
            directories=self.baseline.broad(),
            segments_at_most=self.policies.pack.limits.broad_segments,
        )

    def list_asks(self, contract: TaskContract) -> tuple[Ask, ...]:
        """Return what a person has to approve before this contract may go on."""
        asks: list[Ask] = []
        broad = self.find_broad(contract)
        # Sub-contracts lie within what was approved for the contract that they come from.
        if broad and self.policies.pack.override_approvals and not self.is_part:
            asks.append(override_ask(contract, broad))
        if contract.tool_permissions.network == "on-request":
            asks.append(network_ask(contract))
        wanted = {*contract.tool_permissions.mcp_tools, *contract.mcp_tool_set}
        if {name.casefold() for name in wanted} & sampling.SAMPLING:
            asks.append(sampling_ask(contract))
        return tuple(asks)

    def judge(self, contract: TaskContract, approved: Collection[str]) -> tuple[GateResult, ...]:
        """Let every gate have its say; ``approved`` are the kinds of asks that got a yes."""
        allowed, policies = contract.tool_permissions, self.policies
        whole = "override" in approved or self.is_part
        return (
            policy.judge(
                contract,
                policies,
                directories=self.baseline.broad(),
                approved=self.find_broad(contract) if whole else (),
            ),
            network.judge(
                allowed.network,
                needed_by=("tool_permissions.network",) if allowed.network != "deny" else (),
                approved="network" in approved,
            ),
            mcp.judge(
                allowed.mcp_tools,
                servers=contract.mcp_tool_set,
                allow=policies.mcp.allow,
                deny=policies.mcp.deny,
            ),
            integrated.judge(self.runners, integrated=policies.tools.integrated),
            sampling.judge(
                (*allowed.mcp_tools, *contract.mcp_tool_set), approved="sampling" in approved
            ),
            self._judge_tests(contract),
        )

    def list_refusals(self, contract: TaskContract) -> tuple[Problem, ...]:
        """Return why a run would refuse a contract even if everybody approved it.

        As in a run, the gates look at a contract only when it is valid in itself.
        """
        found = [
            *self.find_problems(contract),
            *(
                Problem(f"/acceptance_tests/{index}/cmd", refused)
                for index, test in enumerate(contract.acceptance_tests)
                for refused in self.baseline.refusals(test, contract, self.policies)
            ),
            *(
                Problem(f"/setup/{index}/cmd", str(violation))
                for index, result in enumerate(self.baseline.judge_setup(contract, self.policies))
                for violation in result.violations
            ),
        ]
        if not found:
            approved = [ask.kind for ask in self.list_asks(contract)]
            found += [
                Problem(_PLACES.get(result.gate, "/"), str(violation))
                for result in self.judge(contract, approved)
                for violation in result.violations
            ]
        return tuple(dict.fromkeys(found))

    def _judge_tests(self, contract: TaskContract) -> GateResult:
        """The command gate over every command of the set-up and acceptance test, as one result."""
        results = [
            *self.baseline.judge_setup(contract, self.policies),
            *(
                self.baseline.judge_test(test, contract, self.policies)
                for test in contract.acceptance_tests
            ),
        ]
        found = tuple(violation for result in results for violation in result.violations)
        facts: dict[str, Json] = {"commands": [test.cmd for test in contract.acceptance_tests]}
        if setup := self.policies.setup_for(contract):
            facts["setup"] = [command.cmd for command in setup]
        return GateResult("tool_gate", found, facts)

    def _check_baseline(self, contract: TaskContract) -> tuple[Problem, ...]:
        """The baseline that a contract names has to be there: another one is not what was meant."""
        if self.resolve is not None:
            try:
                self.resolve(contract.rollback.baseline_ref)
            except UsageError as problem:
                return (Problem("/rollback/baseline_ref", problem.message),)
        return ()

    def _check_control(self, contract: TaskContract) -> tuple[Problem, ...]:
        """What judges the work cannot be part of it."""
        return tuple(
            Problem(f"/allowed_paths/{index}", f"holds {place}, where policies are read from")
            for index, path in enumerate(contract.allowed_paths)
            for place in self.control_paths
            if paths.flaw(path) is None and paths.overlap(path, place)
        )


def runner_kinds(runner: str, reviewer: str) -> tuple[str, ...]:
    """Return the kinds of agents that a run cannot do without: who performs, and who reviews."""
    names = [name for name in (runner, reviewer) if name not in {"", "rules", "model"}]
    return tuple(dict.fromkeys(parse(name).kind for name in names))


def override_ask(contract: TaskContract, broad: tuple[str, ...]) -> Ask:
    """God Mode: the only way to broad paths."""
    return Ask(
        "override",
        f"let {contract.task_id} change everything below {', '.join(broad)}",
        "the contract allows broad paths",
        "policy.broad",
        (*(f"allowed path: {path}" for path in broad), f"contract: {contract.sha256}"),
        contract.task_id,
    )


def network_ask(contract: TaskContract) -> Ask:
    """The network, for this task of this run."""
    return Ask(
        "network",
        f"let {contract.task_id} use the network",
        "the contract asks for the network on request",
        "network.approval",
        ("network: allow", f"contract: {contract.sha256}"),
        contract.task_id,
    )


def sampling_ask(contract: TaskContract) -> Ask:
    """Completions for an MCP server."""
    return Ask(
        "sampling",
        f"let the MCP servers of {contract.task_id} ask for completions",
        "the contract names sampling among its tools",
        "sampling.approval",
        ("sampling: allow", f"contract: {contract.sha256}"),
        contract.task_id,
    )
