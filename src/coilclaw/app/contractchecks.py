"""Contracts before any run: everything that is wrong with one, and drafting a valid one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.app.policy_source import UNCLAIMED
from coilclaw.contracts import rolecontract, schemas
from coilclaw.contracts.drafting import MAX_RETRIES, TIMEOUT_SEC, draft
from coilclaw.contracts.policyset import PolicySet
from coilclaw.contracts.reading import parse
from coilclaw.contracts.schemas import Problem
from coilclaw.contracts.taskcontract import RuntimeOptions, TaskContract
from coilclaw.errors import UsageError
from coilclaw.orchestrator.baseline import Baseline
from coilclaw.orchestrator.contract_gates import ContractGates, runner_kinds
from coilclaw.orchestrator.contract_proposal import forbidden_edits, propose_contract

if TYPE_CHECKING:
    from pathlib import Path

    from coilclaw.app.runwiring import Orchestrator
    from coilclaw.contracts.roles import Role
    from coilclaw.contracts.taskcontract import ExpectedBaseline, PackName, SetupCommand
    from coilclaw.domain.messages import Json
    from coilclaw.orchestrator.contract_proposal import ContractProposal
    from coilclaw.orchestrator.starting import Options

MAX_FILE_BYTES: Final = 64 * 2**20
SCHEMA: Final = "task_contract.v1"


@dataclass(frozen=True, slots=True)
class Checked:
    """A contract that was looked at; it is valid exactly when there is no problem."""

    contract: TaskContract | None
    problems: tuple[Problem, ...]
    notes: tuple[str, ...] = ()
    """What is no problem, but will stop the run for a while."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What somebody wants done."""

    spec: str
    allowed_paths: tuple[str, ...]
    tests: tuple[str, ...]
    """None: those that are proposed."""
    setup: tuple[SetupCommand, ...] | None = None
    """``None``: what is proposed; empty: nothing."""
    expected_baseline: ExpectedBaseline | None = None
    role: Role = "WORKER"
    read_only: bool = False
    runner: str | None = None
    reviewer: str | None = None
    model: str | None = None
    pack: PackName | None = None
    task_id: str | None = None
    timeout_sec: int = TIMEOUT_SEC
    max_retries: int = MAX_RETRIES
    baseline_ref: str = "HEAD"


@dataclass(frozen=True, slots=True)
class Checks:
    """Looks at contracts for one repository; without one, with the policies that ship."""

    orchestrator: Orchestrator | None

    @classmethod
    def at(cls, start: Path, home: Path, environ: dict[str, str], *, needed: bool) -> Checks:
        """For the repository around a path; there has to be one only if it is ``needed``."""
        from coilclaw.app.runwiring import Orchestrator

        try:
            return cls(Orchestrator(start, home, environ))
        except UsageError as problem:
            if needed or problem.rule not in {"repository.none", "repository.empty"}:
                raise
            return cls(None)

    def check(self, data: bytes, options: Options | None = None) -> Checked:
        """Say everything for which a run would refuse a contract before it begins.

        ``options`` are how it would be carried out; without them nothing is said of the agents.
        """
        drift = schemas.drift().status
        if drift != "ok":
            return Checked(None, (Problem("/", f"the schemas do not match their hashes: {drift}"),))
        try:
            value = parse(data)
        except UsageError as problem:
            return Checked(None, (Problem("/", problem.message),))
        found = schemas.problems(SCHEMA, value)
        if found:
            return Checked(None, found)
        return self.judge(TaskContract.of(value), options)

    def judge(self, contract: TaskContract, options: Options | None = None) -> Checked:
        """As ``check``, for a contract whose form is right."""
        found: list[Problem] = []
        runners: tuple[str, ...] = ()
        if options is not None:
            try:
                runners = runner_kinds(options.runner, options.reviewer)
                if self.orchestrator is not None:
                    self.orchestrator.check_options(options)
            except UsageError as problem:
                found.append(Problem("/runtime_options", problem.message))
        gates = self._gates(contract, runners)
        found += gates.list_refusals(contract)
        return Checked(contract, tuple(dict.fromkeys(found)), self._notes(contract, gates))

    def _gates(self, contract: TaskContract, runners: tuple[str, ...]) -> ContractGates:
        runs = self.orchestrator
        commit = self._commit(contract) if runs is not None else ""
        policies = self._policies(commit)
        return ContractGates(
            policies.under(policies.pack_for(contract)),
            self._baseline(commit),
            None if runs is None else runs.repository.resolve,
            UNCLAIMED if runs is None else runs.control_paths,
            runners,
        )

    def _notes(self, contract: TaskContract, gates: ContractGates) -> tuple[str, ...]:
        notes = []
        if self.orchestrator is None:
            notes.append("there is no repository here: files and the baseline were not looked at")
        notes += [f"a person has to approve it: {ask.title}" for ask in gates.list_asks(contract)]
        return tuple(notes)

    def explained(self, data: bytes) -> dict[str, Json]:
        """The ``role_contract_summary`` of a contract; one that is malformed raises."""
        contract = TaskContract.of(parse(data))
        if contract.role_contract is None:
            commit = self._commit(contract) if self.orchestrator else ""
            registry = self._policies(commit).registry
            contract = rolecontract.with_role_contract(contract, registry)
        return rolecontract.summary(contract)

    def proposed(self, pack: PackName | None = None) -> ContractProposal:
        """Say what the project looks like, and what a contract for it could name."""
        commit = self.orchestrator.repository.resolve("HEAD") if self.orchestrator else ""
        policies = self._policies(commit)
        return propose_contract(self._baseline(commit), policies.under(pack, "WORKER"))

    def drafted(self, wanted: Wanted, proposal: ContractProposal) -> Checked:
        """Make a complete contract, and say what is wrong with it."""
        commit = self.orchestrator.repository.resolve("HEAD") if self.orchestrator else ""
        tests = wanted.tests or proposal.tests
        setup = wanted.setup
        if setup is None and proposal.setup:
            setup = proposal.setup
        guarded = proposal.forbidden_paths
        if wanted.expected_baseline == "red":
            # The tests that show the fault are there, and the work is not about them.
            guarded = (*guarded, *proposal.test_paths)
        commands = (*tests, *(command.cmd for command in setup or ()))
        options: dict[str, Json] = {
            name: value
            for name, value in (
                ("runner", wanted.runner),
                ("reviewer", wanted.reviewer),
                ("model", wanted.model),
            )
            if value is not None
        }
        contract = draft(
            wanted.spec,
            wanted.allowed_paths,
            tests,
            policies=self._policies(commit),
            task_id=wanted.task_id,
            role=wanted.role,
            read_only=wanted.read_only,
            policy_pack=wanted.pack,
            baseline_ref=wanted.baseline_ref,
            runtime_options=RuntimeOptions.of(options) if options else None,
            timeout_sec=wanted.timeout_sec,
            max_retries=wanted.max_retries,
            forbidden_actions=forbidden_edits(guarded, wanted.allowed_paths, commands),
            setup=setup,
            expected_baseline=wanted.expected_baseline,
        )
        return self.judge(contract)

    def _commit(self, contract: TaskContract) -> str:
        """The baseline of a contract; HEAD for one that cannot be found, which the gates say."""
        assert self.orchestrator is not None
        repository = self.orchestrator.repository
        try:
            return repository.resolve(contract.rollback.baseline_ref)
        except UsageError:
            return repository.resolve("HEAD")

    def _policies(self, commit: str) -> PolicySet:
        return self.orchestrator.policies(commit) if self.orchestrator else PolicySet.shipped()

    def _baseline(self, commit: str) -> Baseline:
        if self.orchestrator is None:
            return Baseline.of("", (), lambda _: None)
        repository = self.orchestrator.repository
        return Baseline.of(
            commit,
            repository.files(commit),
            lambda name: repository.read(commit, name, MAX_FILE_BYTES),
            repository.links(commit),
        )
