"""S0 and S1: a contract that every gate before the work accepts, and its split into tasks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal

from coilclaw.contracts import schemas
from coilclaw.contracts.eventtypes import EventType
from coilclaw.contracts.reading import parse
from coilclaw.contracts.taskcontract import RuntimeOptions, TaskContract
from coilclaw.domain.canonical import digest
from coilclaw.errors import UsageError
from coilclaw.gates import outputschema
from coilclaw.gates import schema as schema_gate
from coilclaw.orchestrator import layout, planner, techlead
from coilclaw.orchestrator.baseline import Baseline
from coilclaw.orchestrator.exchanges import plane_of
from coilclaw.orchestrator.places import segment
from coilclaw.orchestrator.plan_dialogue import PlanDialogue
from coilclaw.orchestrator.preflight import Preflight
from coilclaw.orchestrator.states import Trigger

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from coilclaw.contracts.handoff import Handoff
    from coilclaw.contracts.policyset import PolicySet
    from coilclaw.contracts.schemas import Problem
    from coilclaw.orchestrator.asking import Asking
    from coilclaw.orchestrator.equipment import Equipment
    from coilclaw.orchestrator.preflight import Judged
    from coilclaw.orchestrator.run import Run

MAX_FILE_BYTES: Final = 64 * 2**20
MAX_REASONS: Final = 20


@dataclass(frozen=True, slots=True)
class Request:
    """What somebody wants: a contract, or one sentence to make one from."""

    contract: bytes | None
    sentence: str = ""
    answers: tuple[str, ...] = ()
    """What the user says in addition to the sentence, before anybody asks."""


class Planning:
    """Brings a run to the point where agents may begin."""

    def __init__(
        self,
        run: Run,
        equipment: Equipment,
        request: Request,
        asking: Callable[[], Asking],
    ) -> None:
        self._run = run
        self._equipment = equipment
        self._request = request
        self._asking = asking
        self.status: Literal["invalid", "denied"] | None = None
        """Why a run that did not get as far as any work ended."""
        self.reason = ""

    @cached_property
    def policies(self) -> PolicySet:
        """The policies of the run, under the pack of its contract once that is known."""
        baseline = str(self._run.option("baseline_commit"))
        policies = self._equipment.policies(baseline)
        root = self._run.progress.root
        if root is None:
            return policies
        return policies.under(policies.pack_for(self._run.contract(root.task_id)))

    @cached_property
    def baseline(self) -> Baseline:
        """What is known of the repository at the commit that the run starts from."""
        repository, commit = self._equipment.repository, str(self._run.option("baseline_commit"))
        return Baseline.of(commit, repository.files(commit), self._read, repository.links(commit))

    def contract(self) -> Trigger:
        """S0: make or take the contract, and judge it."""
        run = self._run
        if run.progress.root is None:
            made = self._made()
            if made is None:
                return Trigger.GATE_FAILED
            run.write_contract(made, root=True)
            self.__dict__.pop("policies", None)
        contract = run.root_contract
        run.emit(
            EventType.POLICY_PACK_SELECTED,
            {"pack": self.policies.pack.pack, "policy_sha256": self.policies.sha256},
        )
        judged = self._preflight_of(self._asking()).judge(contract, self.policies, self.baseline)
        refused = self._settled(judged)
        if refused is None:
            # Who cannot perform at all says so now, and the run can be resumed.
            self._equipment.runner(str(run.option("runner")), contract)
        return refused or Trigger.CONTRACT_ACCEPTED

    def split(self) -> Trigger:
        """S1: split the contract, judge each part, and lock what they will write."""
        contract = self._run.root_contract
        if techlead.needs_split(contract):
            found = self._split(contract)
            if found is not None:
                return found
        tasks = [self._run.contract(task.task_id) for task in self._run.progress.active]
        preflight = self._preflight_of(self._asking())
        if techlead.needs_split(contract):
            for task in tasks:
                failed = self._settled(preflight.judge(task, self.policies, self.baseline))
                if failed is not None:
                    return failed
        if not preflight.lock(tasks):
            waited_s = self._equipment.lock_wait_s
            return self._refused(
                f"the paths were not free within {waited_s:g} seconds"
                if waited_s
                else "the paths are not free; with --wait a run waits for its turn",
                None,
            )
        self._catch_up()
        return self._judge_again(preflight, contract, tasks) or Trigger.SPLIT_ACCEPTED

    def _catch_up(self) -> None:
        """Begin at what the runs left that this one waited for, unless the contract says where."""
        run, repository = self._run, self._equipment.repository
        branch, old = str(run.option("branch") or ""), str(run.option("baseline_commit"))
        if not run.progress.queued or not branch or not self._follows(branch):
            return
        tip = repository.branch(branch)
        if tip is None or tip == old or not repository.is_ancestor(old, tip):
            return
        run.emit(
            EventType.BASELINE_MOVED,
            {
                "from": old,
                "baseline_commit": tip,
                "policy_sha256": self._equipment.policies(tip).sha256,
            },
        )
        run.bundle.write_text(layout.GIT_BASELINE, f"{tip}\n")
        for name in ("policies", "baseline"):
            self.__dict__.pop(name, None)

    def _follows(self, branch: str) -> bool:
        """Whether the run was to begin at whatever the branch stands at."""
        if self._request.contract is None:
            return True
        named = self._run.root_contract.rollback.baseline_ref
        return named in {"HEAD", branch, f"refs/heads/{branch}"}

    def _judge_again(
        self, preflight: Preflight, contract: TaskContract, tasks: Sequence[TaskContract]
    ) -> Trigger | None:
        """Judge everything once more where the baseline is no longer what was judged."""
        if not self._run.progress.moved:
            return None
        for each in dict.fromkeys((contract.task_id, *(task.task_id for task in tasks))):
            judged = preflight.judge(self._run.contract(each), self.policies, self.baseline)
            failed = self._settled(judged)
            if failed is not None:
                return failed
        return None

    def relock(self) -> None:
        """After a kill: take the locks over that the run had."""
        tasks = [self._run.contract(task.task_id) for task in self._run.progress.active]
        if not self._preflight_of(self._asking()).lock(tasks, again=True):
            raise UsageError(
                f"the locks of run {self._run.id} were taken by another run", rule="run.locks"
            )

    def _preflight_of(self, asking: Asking) -> Preflight:
        return Preflight(self._run, self._equipment, asking)

    def _settled(self, judged: Judged) -> Trigger | None:
        if judged == "waiting":
            raise Waiting
        if judged == "denied":
            return self._refused("somebody would have to approve it, and nobody did", "denied")
        if judged == "invalid":
            return self._refused("the contract is not valid", "invalid")
        if judged == "failed":
            return self._refused("a gate refuses the contract", None)
        return None

    def _refused(self, reason: str, status: Literal["invalid", "denied"] | None) -> Trigger:
        self.status, self.reason = status, reason
        return Trigger.DENIED if status == "denied" else Trigger.GATE_FAILED

    def _made(self) -> TaskContract | None:
        """The run's contract: given, or made by the PM; ``None`` where the gate refuses it."""
        drift = schemas.drift()
        self._run.emit(
            EventType.SCHEMA_REGISTRY_CHECK,
            {"status": drift.status, "registry_sha256": schemas.registry_sha256()},
            level="INFO" if drift.status == "ok" else "ERROR",
        )
        if self._request.contract is not None:
            return self._given(self._request.contract, drift.status)
        if drift.status != "ok":
            gate = schema_gate.judge("task_contract.v1", schema_problems=(), drift=drift.status)
            self._run.judged(gate)
            self.status, self.reason = "invalid", f"the schemas: {drift.status}"
            return None
        return self._planned()

    def _given(self, data: bytes, drift: str) -> TaskContract | None:
        value: object = None
        try:
            value = parse(data)
        except UsageError as problem:
            found: tuple[Problem, ...] = (schemas.Problem("/", problem.message),)
        else:
            found = schemas.problems("task_contract.v1", value)
        if found or drift != "ok":
            gate = schema_gate.judge("task_contract.v1", schema_problems=found, drift=drift)
            self._run.judged(gate)
            self.status = "invalid"
            self.reason = "; ".join(str(each) for each in found[:5]) or f"the schemas: {drift}"
            return None
        return self._bound(TaskContract.of(value))

    def _bound(self, contract: TaskContract) -> TaskContract:
        """The contract as this run carries it out: its id in the log references."""
        return replace(contract, log_refs=replace(contract.log_refs, run_id=self._run.id))

    def _planned(self) -> TaskContract | None:
        dialogue = PlanDialogue(
            self._run,
            self._equipment,
            self._request.sentence,
            planner.PlanTerms(
                self.baseline,
                self.policies,
                task_id=f"task-{digest(self._run.id.encode())[:12]}",
                run_id=self._run.id,
                runtime_options=self._options(),
            ),
            self._refusals,
        )
        for answer in self._request.answers if not self._run.progress.answers else ():
            self._run.emit(EventType.USER_ANSWERED, {"question": "", "answer": answer})
        made = dialogue.hold()
        if made.question:
            raise Waiting
        self._answered("PM", planner.SCHEMA, made.problems, "")
        if made.contract is None:
            self.reason = "; ".join(str(each) for each in made.problems[:MAX_REASONS])
            return None
        if made.handoff is not None:
            self._hand_on("PM", "TECH_LEAD", made.contract.task_id, made.handoff)
        return self._bound(made.contract)

    def _refusals(self, contract: TaskContract) -> tuple[Problem, ...]:
        """Why the gates before the work would refuse a contract that was planned."""
        policies = self.policies.under(self.policies.pack_for(contract))
        preflight = self._preflight_of(self._asking())
        return preflight.refusals(contract, policies, self.baseline)

    def _options(self) -> RuntimeOptions | None:
        kind = str(self._run.option("runner")).partition(":")[0]
        return RuntimeOptions.of({"runner": kind})

    def _split(self, contract: TaskContract) -> Trigger | None:
        """Have the Tech Lead split it."""
        run = self._run
        # After a kill the same answer is read again, from the evidence.
        plane = plane_of(run, self._equipment, "TECH_LEAD", contract.task_id)
        divided = techlead.split(plane, contract, baseline=self.baseline, policies=self.policies)
        self._answered("TECH_LEAD", techlead.SCHEMA, divided.problems, contract.task_id)
        if divided.problems:
            self.reason = "; ".join(str(each) for each in divided.problems[:5])
            return Trigger.GATE_FAILED
        for child in divided.contracts:
            run.write_contract(self._bound(child))
        for child, handoff in zip(divided.contracts, divided.handoffs, strict=False):
            self._hand_on("TECH_LEAD", child.assigned_agent.role, child.task_id, handoff)
        return None

    def _answered(self, role: str, schema: str, problems: Sequence[Problem], task_id: str) -> None:
        gate = outputschema.judge(
            None if problems else {"role": role},
            schema=schema,
            problems=[str(each) for each in problems],
            task_id=task_id,
        )
        self._run.judged(gate, task_id=task_id or None)

    def _hand_on(self, origin: str, target: str, task_id: str, handoff: Handoff) -> None:
        path = f"artifacts/handoffs/{segment(f'{origin.lower()}-{task_id}')}.json"
        if not self._run.bundle.has(path):
            self._run.bundle.write_json(path, handoff.json())
        self._run.emit(
            EventType.HANDOFF_RECORDED,
            {"from": origin, "to": target, "instruction_sha256": handoff.instruction_sha256},
            task_id=task_id,
        )

    def _read(self, name: str) -> bytes | None:
        """A file of the baseline, or of this run's evidence."""
        prefix = f"runs/{self._run.id}/"
        if name.startswith(prefix):
            return self._run.bundle.find(name.removeprefix(prefix), limit=MAX_FILE_BYTES)
        commit = str(self._run.option("baseline_commit"))
        return self._equipment.repository.read(commit, name, MAX_FILE_BYTES)


class Waiting(Exception):
    """The run waits for an approval, or for an answer of the user."""
