"""The gates before the work: each judges the contract, and each leaves its own event."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from coilclaw.agents.naming import parse as parse_runner
from coilclaw.contracts import paths, rules
from coilclaw.contracts.eventtypes import EventType
from coilclaw.contracts.schemas import Problem
from coilclaw.errors import UsageError
from coilclaw.gates import command, integrated, mcp, network, policy, sampling
from coilclaw.gates import locks as lock_gate
from coilclaw.gates import schema as schema_gate
from coilclaw.gates.command import Terms
from coilclaw.gates.result import GateResult
from coilclaw.orchestrator.asking import Ask
from coilclaw.orchestrator.locks import Taken

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coilclaw.contracts.policyset import PolicySet
    from coilclaw.contracts.taskcontract import TaskContract
    from coilclaw.orchestrator.asking import Asking
    from coilclaw.orchestrator.baseline import Baseline
    from coilclaw.orchestrator.equipment import Equipment
    from coilclaw.orchestrator.run import Run

Judged: TypeAlias = Literal["passed", "failed", "invalid", "denied", "waiting"]


class Preflight:
    """Judges contracts before anybody works on them."""

    def __init__(self, run: Run, equipment: Equipment, asking: Asking) -> None:
        self._run = run
        self._equipment = equipment
        self._asking = asking

    def judge(self, contract: TaskContract, policies: PolicySet, baseline: Baseline) -> Judged:
        """Let every gate have its say; the first that fails decides, and the others still speak."""
        task_id = contract.task_id
        problems = (
            *self._unknown_commit(contract),
            *rules.problems(contract, policies, known_files=baseline.read),
            *self._control(contract),
        )
        gate = schema_gate.judge("task_contract.v1", schema_problems=(), rule_problems=problems)
        if not self._run.judged(gate, task_id=task_id):
            return "invalid"
        broad = self._broad(contract, policies, baseline)
        asks = self._asks(contract, policies, broad)
        answers = {ask.kind: self._asking.answer(ask) for ask in asks}
        if "waiting" in answers.values():
            return "waiting"
        if not self._run.judged(self._asking.judged(asks), task_id=task_id):
            return "denied"
        gates = (
            policy.judge(
                contract,
                policies,
                directories=baseline.broad(),
                # A part lies within what was approved for the whole.
                approved=broad
                if answers.get("override") == "yes" or self._is_part(contract)
                else (),
            ),
            network.judge(
                contract.tool_permissions.network,
                needed_by=("tool_permissions.network",)
                if contract.tool_permissions.network != "deny"
                else (),
                approved=answers.get("network") == "yes",
            ),
            mcp.judge(
                contract.tool_permissions.mcp_tools,
                servers=contract.mcp_tool_set,
                allow=policies.mcp.allow,
                deny=policies.mcp.deny,
            ),
            integrated.judge(self._needed(), integrated=policies.tools.integrated),
            sampling.judge(
                (*contract.tool_permissions.mcp_tools, *contract.mcp_tool_set),
                approved=answers.get("sampling") == "yes",
            ),
            self._tools(contract, policies, baseline),
        )
        passed = [self._run.judged(each, task_id=task_id) for each in gates]
        return "passed" if all(passed) else "failed"

    def _unknown_commit(self, contract: TaskContract) -> tuple[Problem, ...]:
        """The baseline that a contract names has to be there: another one is not what was meant."""
        try:
            self._equipment.repository.resolve(contract.rollback.baseline_ref)
        except UsageError as problem:
            return (Problem("/rollback/baseline_ref", problem.message),)
        return ()

    def lock(self, tasks: Sequence[TaskContract], *, again: bool = False) -> bool:
        """Lock everything that the tasks may write, or nothing."""
        locks, run = self._equipment.locks, self._run
        claims = [
            lock_gate.Claim(task.task_id, task.allowed_paths, task.locks or ()) for task in tasks
        ]
        for old in locks.reclaim(run.id, owned=True):
            run.emit(EventType.LOCK_RECLAIMED, {"path": old.path, "owner": str(old.owner)})
        wanted = tuple(dict.fromkeys(path for task in tasks for path in task.allowed_paths))
        siblings = lock_gate.judge(claims, held={})
        taken = None
        if siblings.passed:
            answer = locks.acquire(run.id, run.root_contract.task_id, wanted)
            if isinstance(answer, Taken):
                taken = {
                    one.lock.path: f"task {one.lock.task_id} of run {one.lock.run_id}"
                    for one in answer.conflicts
                }
            else:
                run.held = answer
        gate = siblings if taken is None else lock_gate.judge(claims, held=taken)
        if not again or not gate.passed:
            run.judged(gate)
        if gate.passed:
            run.emit(EventType.LOCKS_ACQUIRED, {"paths": list(wanted)})
        return gate.passed

    def _control(self, contract: TaskContract) -> tuple[Problem, ...]:
        """What judges the work is nobody's work."""
        return tuple(
            Problem(f"/allowed_paths/{index}", f"holds {place}, where policies are read from")
            for index, path in enumerate(contract.allowed_paths)
            for place in self._equipment.control_paths
            if paths.flaw(path) is None and paths.overlap(path, place)
        )

    def _is_part(self, contract: TaskContract) -> bool:
        """Whether this run made the contract, from its own; what a contract says of itself is no
        matter."""
        root = self._run.progress.root
        return root is not None and root.task_id != contract.task_id

    def _broad(
        self, contract: TaskContract, policies: PolicySet, baseline: Baseline
    ) -> tuple[str, ...]:
        return paths.broad_paths(
            contract.allowed_paths,
            directories=baseline.broad(),
            segments_at_most=policies.pack.limits.broad_segments,
        )

    def _asks(
        self, contract: TaskContract, policies: PolicySet, broad: tuple[str, ...]
    ) -> tuple[Ask, ...]:
        """What somebody has to approve before this contract may go on."""
        asks: list[Ask] = []
        # Sub-contracts lie within what was approved for the contract that they come from.
        if broad and policies.pack.override_approvals and not self._is_part(contract):
            asks.append(override_ask(contract, broad))
        if contract.tool_permissions.network == "on-request":
            asks.append(network_ask(contract))
        wanted = {*contract.tool_permissions.mcp_tools, *contract.mcp_tool_set}
        if {name.casefold() for name in wanted} & sampling.SAMPLING:
            asks.append(sampling_ask(contract))
        return tuple(asks)

    def _needed(self) -> tuple[str, ...]:
        """The tools that the run cannot do without: who performs, and who reviews."""
        kinds = [parse_runner(str(self._run.option("runner"))).kind]
        reviewer = str(self._run.option("reviewer") or "rules")
        if reviewer not in {"rules", "model"}:
            kinds.append(parse_runner(reviewer).kind)
        return tuple(dict.fromkeys(kinds))

    def _tools(self, contract: TaskContract, policies: PolicySet, baseline: Baseline) -> GateResult:
        """The command gate over every acceptance test, as one result."""
        terms = Terms(
            rules=policies.commands,
            forbidden_actions=tuple(
                dict.fromkeys((*policies.forbidden_actions, *contract.forbidden_actions))
            ),
            is_file=lambda name: (
                name in baseline.files or paths.within(name, contract.allowed_paths)
            ),
            network=contract.tool_permissions.network == "allow",
        )
        results = [
            command.judge_text(
                test.cmd,
                terms=terms,
                timeout_sec=test.timeout_sec or contract.timeout_retry.timeout_sec,
            )
            for test in contract.acceptance_tests
        ]
        found = tuple(violation for result in results for violation in result.violations)
        commands = [test.cmd for test in contract.acceptance_tests]
        return GateResult("tool_gate", found, {"commands": list(commands)})


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
