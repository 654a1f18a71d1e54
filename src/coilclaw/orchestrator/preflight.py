"""The gates before the work: each judges the contract, and each leaves its own event."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from coilclaw.contracts.eventtypes import EventType
from coilclaw.gates import locks as lock_gate
from coilclaw.gates import schema as schema_gate
from coilclaw.orchestrator.contract_gates import ContractGates, runner_kinds
from coilclaw.orchestrator.lock_wait import take_locks
from coilclaw.orchestrator.locks import Taken

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coilclaw.contracts.policyset import PolicySet
    from coilclaw.contracts.schemas import Problem
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
        gates = self._gates(contract, policies, baseline)
        problems = gates.find_problems(contract)
        gate = schema_gate.judge("task_contract.v1", schema_problems=(), rule_problems=problems)
        if not self._run.judged(gate, task_id=task_id):
            return "invalid"
        asks = gates.list_asks(contract)
        answers = {ask.kind: self._asking.answer(ask) for ask in asks}
        if "waiting" in answers.values():
            return "waiting"
        if not self._run.judged(self._asking.judged(asks), task_id=task_id):
            return "denied"
        approved = [kind for kind, answer in answers.items() if answer == "yes"]
        results = gates.judge(contract, approved)
        passed = [self._run.judged(each, task_id=task_id) for each in results]
        return "passed" if all(passed) else "failed"

    def _gates(
        self, contract: TaskContract, policies: PolicySet, baseline: Baseline
    ) -> ContractGates:
        return ContractGates(
            policies,
            baseline,
            self._equipment.repository.resolve,
            self._equipment.control_paths,
            runner_kinds(str(self._run.option("runner")), str(self._run.option("reviewer") or "")),
            self._is_part(contract),
        )

    def refusals(
        self, contract: TaskContract, policies: PolicySet, baseline: Baseline
    ) -> tuple[Problem, ...]:
        """Say why gates would refuse a contract that is not part of the run yet.

        Whatever a person may still approve counts as approved, and nothing is recorded.
        """
        return self._gates(contract, policies, baseline).list_refusals(contract)

    def lock(self, tasks: Sequence[TaskContract], *, again: bool = False) -> bool:
        """Lock everything that the tasks may write, or nothing; perhaps only after a wait."""
        run = self._run
        claims = [
            lock_gate.Claim(task.task_id, task.allowed_paths, task.locks or ()) for task in tasks
        ]
        wanted = tuple(dict.fromkeys(path for task in tasks for path in task.allowed_paths))
        siblings = lock_gate.judge(claims, held={})
        taken = None
        if siblings.passed:
            answer = take_locks(run, self._equipment, wanted)
            if isinstance(answer, Taken):
                taken = {
                    one.lock.path: f"task {one.lock.task_id} of run {one.lock.run_id} "
                    f"{'waits for' if one.queued else 'holds'}"
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

    def _is_part(self, contract: TaskContract) -> bool:
        """Whether this run made the contract, from its own; what a contract says of itself is no
        matter."""
        root = self._run.progress.root
        return root is not None and root.task_id != contract.task_id
