"""S0 and S1: a contract that every gate before the work accepts, and its split into tasks."""

from __future__ import annotations

import math
import select
import time
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal

from coilclaw.kernel import Stopped, UsageError, digest_bytes, quote_text, schemas
from coilclaw.runs.contracts.event_types import EventType
from coilclaw.runs.contracts.task_contract import RuntimeOptions, TaskContract, parse_document
from coilclaw.runs.engine.approvals import RunApprovals
from coilclaw.runs.engine.contract_checks import (
    MAX_FILE_BYTES,
    Baseline,
    ContractGates,
    runner_kinds,
)
from coilclaw.runs.engine.locks import Conflict, Held, Taken
from coilclaw.runs.evidence import layout
from coilclaw.runs.evidence.progress import Trigger
from coilclaw.runs.gates import contract_gates, decision_gates
from coilclaw.runs.roles import planner, tech_lead
from coilclaw.runs.roles.model_questions import plane_of
from coilclaw.runs.roles.plan_dialogue import PlanDialogue

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from coilclaw.kernel import SchemaProblem
    from coilclaw.runs.contracts.policy_set import PolicySet
    from coilclaw.runs.contracts.records import Handoff
    from coilclaw.runs.engine.run import Run, RunDependencies


LOOK_EVERY_S: Final = 0.5
REMIND_S: Final = 60.0
"""After so long a wait in which nothing changed is told again; then after twice as long."""
MAX_REMIND_S: Final = 3600.0
MAX_HOLDERS: Final = 20
"""Runs that one event names."""


def lock_tasks(
    run: Run, equipment: RunDependencies, tasks: Sequence[TaskContract], *, again: bool = False
) -> bool:
    """Lock everything that the tasks may write, or nothing; perhaps only after a wait."""
    claims = [
        decision_gates.LockClaim(one.task_id, one.allowed_paths, one.locks or ()) for one in tasks
    ]
    wanted = tuple(dict.fromkeys(path for task in tasks for path in task.allowed_paths))
    gate = decision_gates.judge_locks(claims, held={})
    if gate.passed:
        answer = _take_paths(run, equipment, wanted)
        if isinstance(answer, Held):
            run.held = answer
        else:
            taken = {
                one.lock.path: f"task {one.lock.task_id} of run {one.lock.run_id} "
                f"{'waits for' if one.queued else 'holds'}"
                for one in answer.conflicts
            }
            gate = decision_gates.judge_locks(claims, held=taken)
    if not again or not gate.passed:
        run.record_gate(gate)
    if gate.passed:
        run.emit(EventType.LOCKS_ACQUIRED, {"paths": list(wanted)})
    return gate.passed


def _take_paths(run: Run, equipment: RunDependencies, paths: Sequence[str]) -> Held | Taken:
    """Lock all of the paths; where others are first, wait for as long as the run may.

    Raise ``Stopped`` when the run is cancelled in the meantime; its place in the queue is kept.
    """
    locks, wait_s = equipment.locks, equipment.lock_wait_s
    if wait_s is None:
        waited = any(ticket.run_id == run.id for ticket in locks.list_queue())
        wait_s = math.inf if waited else 0.0
    until = time.monotonic() + wait_s
    notice = WaitNotice(run)
    with equipment.cancel.waking() as waker:
        while True:
            answer = locks.acquire(
                run.id, run.root_contract.task_id, paths, owned=True, queue=wait_s > 0
            )
            for lock in answer.reclaimed:
                about = {"path": lock.path, "owner": str(lock.owner), "run_id": lock.run_id}
                run.emit(EventType.LOCK_RECLAIMED, about)
            left = until - time.monotonic()
            if isinstance(answer, Taken) and left <= 0:
                locks.leave(run.id)
            if isinstance(answer, Held) or left <= 0:
                return answer
            notice.tell(answer)
            select.select([waker.fd], [], [], min(LOOK_EVERY_S, left))
            if equipment.cancel.cancelled:
                reason = equipment.cancel.reason
                raise Stopped(f"the run was stopped while it waited for locked paths: {reason}")


class WaitNotice:
    """Records for whom a run waits: when that changes, and from time to time."""

    def __init__(self, run: Run, clock: Callable[[], float] = time.monotonic) -> None:
        self._run = run
        self._clock = clock
        self._known: tuple[tuple[str, bool], ...] = ()
        self._remind_s = REMIND_S
        self._due = 0.0

    def tell(self, taken: Taken) -> None:
        """Leave an event, unless the last one says the same and is not old."""
        runs: dict[str, Conflict] = {}
        for one in taken.conflicts:
            # One conflict a run: that with a lock, where it has one.
            runs.setdefault(one.lock.run_id, one)
        ahead = tuple(runs.values())
        known = tuple((one.lock.run_id, one.queued) for one in ahead)
        now = self._clock()
        if known != self._known:
            self._known, self._remind_s = known, REMIND_S
        elif now < self._due:
            return
        else:
            self._remind_s = min(2 * self._remind_s, MAX_REMIND_S)
        self._due = now + self._remind_s
        since = taken.ticket.ts if taken.ticket else ""
        holders = [
            {
                "run_id": one.lock.run_id,
                "task_id": one.lock.task_id,
                "path": one.lock.path,
                "since": one.lock.ts,
                "holds": not one.queued,
            }
            for one in ahead[:MAX_HOLDERS]
        ]
        first = ahead[0]
        how = "has waited for" if first.queued else "has held"
        more = f", and for {len(ahead) - 1} more" if len(ahead) > 1 else ""
        reason = (
            f"waits since {since} for run {first.lock.run_id}, which {how} "
            f"{quote_text(first.lock.path)} since {first.lock.ts}{more}"
        )
        paths = list(dict.fromkeys(one.path for one in ahead[:MAX_HOLDERS]))
        about = {"paths": paths, "holders": holders, "since": since, "reason": reason}
        self._run.emit(EventType.LOCKS_AWAITED, about)


MAX_REASONS: Final = 20
_CONTRACT: Final = "task_contract.v1"


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What the user wants: a contract, or one sentence to make one from."""

    contract: bytes | None
    sentence: str = ""
    answers: tuple[str, ...] = ()
    """What the user says in addition to the sentence, before being asked."""


class RunWaiting(Exception):
    """The run waits for an approval, or for an answer of the user."""


@dataclass
class ContractStage:
    """Brings a run to the point where agents may begin."""

    run: Run
    equipment: RunDependencies
    request: RunRequest
    status: Literal["invalid", "denied"] | None = None
    """Why a run that did not get as far as any work ended."""
    reason: str = ""

    @cached_property
    def policies(self) -> PolicySet:
        """The policies of the run, under the pack of its contract once that is known."""
        policies = self.equipment.policies(self.run.baseline)
        if self.run.progress.root is None:
            return policies
        return policies.under(policies.pack_for(self.run.root_contract))

    @cached_property
    def baseline(self) -> Baseline:
        """What is known of the repository at the commit that the run starts from."""
        run, prefix = self.run, f"runs/{self.run.id}/"
        known = Baseline.at(self.equipment.repository, run.baseline)

        def read(name: str) -> bytes | None:
            """Read a file of the baseline, or of this run's evidence."""
            if name.startswith(prefix):
                return run.bundle.find(name.removeprefix(prefix), limit=MAX_FILE_BYTES)
            return known.read(name)

        return replace(known, read=read)

    def asking(self) -> RunApprovals:
        """Return what asks the user, under the policies of now."""
        return RunApprovals(self.run, self.equipment, self.policies.sha256)

    def contract(self) -> Trigger:
        """S0: make or take the contract, and judge it."""
        run = self.run
        if run.progress.root is None:
            made = self._make_contract()
            if made is None:
                return Trigger.GATE_FAILED
            # The log references name this run, which carries the contract out.
            run.write_contract(self._bind(made), root=True)
            self.__dict__.pop("policies", None)
        selected = {"pack": self.policies.pack.pack, "policy_sha256": self.policies.sha256}
        run.emit(EventType.POLICY_PACK_SELECTED, selected)
        refused = self._judge(run.root_contract)
        if refused is None:
            # A runner that cannot perform at all says so now, and the run can be resumed.
            self.equipment.runner(run.runner, run.root_contract)
        return refused or Trigger.CONTRACT_ACCEPTED

    def split(self) -> Trigger:
        """S1: split the contract, judge each part, and lock what they will write."""
        run, contract = self.run, self.run.root_contract
        if tech_lead.needs_split(contract):
            failed = self._split(contract) or self._judge_all(run.active_contracts)
            if failed is not None:
                return failed
        tasks = run.active_contracts
        if not lock_tasks(run, self.equipment, tasks):
            waited_s = self.equipment.lock_wait_s
            return self._refuse(
                f"the paths were not free within {waited_s:g} seconds"
                if waited_s
                else "the paths are not free; with --wait a run waits for its turn"
            )
        self._catch_up()
        if not run.progress.moved:
            return Trigger.SPLIT_ACCEPTED
        # The baseline is no longer what was judged.
        every = {one.task_id: one for one in (contract, *tasks)}
        return self._judge_all([*every.values()]) or Trigger.SPLIT_ACCEPTED

    def _catch_up(self) -> None:
        """Begin at what the runs left that this one waited for, unless the contract says where."""
        run, repository = self.run, self.equipment.repository
        branch, old = run.branch, run.baseline
        named = run.root_contract.rollback.baseline_ref
        heads = {"HEAD", branch, f"refs/heads/{branch}"}
        follows = self.request.contract is None or named in heads
        if not run.progress.queued or not branch or not follows:
            return
        tip = repository.branch(branch)
        if tip is None or tip == old or not repository.is_ancestor(old, tip):
            return
        policies = self.equipment.policies(tip).sha256
        moved = {"from": old, "baseline_commit": tip, "policy_sha256": policies}
        run.emit(EventType.BASELINE_MOVED, moved)
        run.bundle.write_text(layout.GIT_BASELINE, f"{tip}\n")
        for name in ("policies", "baseline"):
            self.__dict__.pop(name, None)

    def relock(self) -> None:
        """After a kill: take the locks over that the run had."""
        if not lock_tasks(self.run, self.equipment, self.run.active_contracts, again=True):
            raise UsageError(
                f"the locks of run {self.run.id} were taken by another run", rule="run.locks"
            )

    def _gates(self, contract: TaskContract, policies: PolicySet) -> ContractGates:
        run, root = self.run, self.run.progress.root
        return ContractGates(
            policies,
            self.baseline,
            self.equipment.repository.resolve,
            self.equipment.control_paths,
            runner_kinds(run.runner, str(run.option("reviewer") or "")),
            # Whether this run made it from its own: what a contract says of itself is no matter.
            is_part=root is not None and root.task_id != contract.task_id,
        )

    def _judge_all(self, contracts: Sequence[TaskContract]) -> Trigger | None:
        return next((failed for one in contracts if (failed := self._judge(one))), None)

    def _judge(self, contract: TaskContract) -> Trigger | None:
        """Let every gate have its say; the first that fails decides, and the others still speak."""
        run, task_id, asking = self.run, contract.task_id, self.asking()
        gates = self._gates(contract, self.policies)
        problems = gates.find_problems(contract)
        valid = contract_gates.judge_schema(_CONTRACT, schema_problems=(), rule_problems=problems)
        if not run.record_gate(valid, task_id=task_id):
            return self._refuse("the contract is not valid", "invalid")
        asks = gates.list_asks(contract)
        answers = {ask.kind: asking.answer(ask) for ask in asks}
        if "waiting" in answers.values():
            raise RunWaiting
        if not run.record_gate(asking.judge_asked(asks), task_id=task_id):
            return self._refuse("it needs an approval that was not given", "denied")
        approved = [kind for kind, answer in answers.items() if answer == "yes"]
        passed = [
            run.record_gate(each, task_id=task_id) for each in gates.judge(contract, approved)
        ]
        return None if all(passed) else self._refuse("a gate refuses the contract")

    def _refuse(self, reason: str, status: Literal["invalid", "denied"] | None = None) -> Trigger:
        self.status, self.reason = status, reason
        return Trigger.DENIED if status == "denied" else Trigger.GATE_FAILED

    def _make_contract(self) -> TaskContract | None:
        """The run's contract: given, or made by the PM; ``None`` where the gate refuses it."""
        drift = schemas.find_drift().status
        self.run.emit(
            EventType.SCHEMA_REGISTRY_CHECK,
            {"status": drift, "registry_sha256": schemas.registry_sha256()},
            level="INFO" if drift == "ok" else "ERROR",
        )
        value: object = None
        found: tuple[SchemaProblem, ...] = ()
        if self.request.contract is not None:
            try:
                value = parse_document(self.request.contract)
                found = schemas.find_schema_problems(_CONTRACT, value)
            except UsageError as problem:
                found = (schemas.SchemaProblem("/", problem.message),)
        if found or drift != "ok":
            gate = contract_gates.judge_schema(_CONTRACT, schema_problems=found, drift=drift)
            self.run.record_gate(gate)
            self._refuse("; ".join(map(str, found[:5])) or f"the schemas: {drift}", "invalid")
            return None
        return self._plan() if self.request.contract is None else TaskContract.of(value)

    def _bind(self, contract: TaskContract) -> TaskContract:
        return replace(contract, log_refs=replace(contract.log_refs, run_id=self.run.id))

    def _plan(self) -> TaskContract | None:
        run = self.run
        terms = planner.PlanTerms(
            self.baseline,
            self.policies,
            task_id=f"task-{digest_bytes(run.id.encode())[:12]}",
            run_id=run.id,
            runtime_options=RuntimeOptions.of({"runner": run.runner.partition(":")[0]}),
        )

        def list_refusals(contract: TaskContract) -> tuple[SchemaProblem, ...]:
            """Say why gates would refuse it; whatever a person may approve counts as approved."""
            policies = self.policies.under(self.policies.pack_for(contract))
            return self._gates(contract, policies).list_refusals(contract)

        for answer in self.request.answers if not run.progress.answers else ():
            run.emit(EventType.USER_ANSWERED, {"question": "", "answer": answer})
        dialogue = PlanDialogue(run, self.equipment, self.request.sentence, terms, list_refusals)
        made = dialogue.hold()
        if made.question:
            raise RunWaiting
        self._record_answer("PM", planner.SCHEMA, made.problems, "")
        if made.contract is None:
            self.reason = "; ".join(str(each) for each in made.problems[:MAX_REASONS])
        elif made.handoff is not None:
            self._hand_on("PM", "TECH_LEAD", made.contract.task_id, made.handoff)
        return made.contract

    def _split(self, contract: TaskContract) -> Trigger | None:
        """Have the Tech Lead split it."""
        # After a kill the same answer is read again, from the evidence.
        plane = plane_of(self.run, self.equipment, "TECH_LEAD", contract.task_id)
        divided = tech_lead.split(plane, contract, baseline=self.baseline, policies=self.policies)
        self._record_answer("TECH_LEAD", tech_lead.SCHEMA, divided.problems, contract.task_id)
        if divided.problems:
            self.reason = "; ".join(str(each) for each in divided.problems[:5])
            return Trigger.GATE_FAILED
        for child in divided.contracts:
            self.run.write_contract(self._bind(child))
        for child, handoff in zip(divided.contracts, divided.handoffs, strict=False):
            self._hand_on("TECH_LEAD", child.assigned_agent.role, child.task_id, handoff)
        return None

    def _record_answer(
        self, role: str, schema: str, problems: Sequence[SchemaProblem], task_id: str
    ) -> None:
        gate = contract_gates.judge_output(
            None if problems else {"role": role},
            schema=schema,
            problems=[str(each) for each in problems],
            task_id=task_id,
        )
        self.run.record_gate(gate, task_id=task_id or None)

    def _hand_on(self, origin: str, target: str, task_id: str, handoff: Handoff) -> None:
        path = f"artifacts/handoffs/{layout.make_segment(f'{origin.lower()}-{task_id}')}.json"
        if not self.run.bundle.has(path):
            self.run.bundle.write_json(path, handoff.json())
        hashed = handoff.instruction_sha256
        about = {"from": origin, "to": target, "instruction_sha256": hashed}
        self.run.emit(EventType.HANDOFF_RECORDED, about, task_id=task_id)
