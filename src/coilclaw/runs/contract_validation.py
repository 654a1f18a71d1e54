"""Contracts before any run: everything that is wrong with one, and drafting a valid one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import SchemaProblem, UsageError, schemas
from coilclaw.runs.contracts import role_contract
from coilclaw.runs.contracts.draft import MAX_RETRIES, TIMEOUT_SEC, draft_contract
from coilclaw.runs.contracts.policy_set import PolicySet
from coilclaw.runs.contracts.task_contract import RuntimeOptions, TaskContract, parse_document
from coilclaw.runs.engine.contract_checks import (
    Baseline,
    ContractGates,
    forbidden_edits,
    propose_contract,
    runner_kinds,
)
from coilclaw.runs.policy_source import UNCLAIMED

if TYPE_CHECKING:
    from collections.abc import Callable

    from coilclaw.kernel import Json
    from coilclaw.runs.contracts.roles import Role
    from coilclaw.runs.contracts.task_contract import ExpectedBaseline, PackName, SetupCommand
    from coilclaw.runs.engine.contract_checks import ContractProposal
    from coilclaw.runs.engine.run_start import RunOptions
    from coilclaw.runs.orchestrator import Orchestrator

SCHEMA: Final = "task_contract.v1"


@dataclass(frozen=True, slots=True)
class CheckedContract:
    """A contract that was looked at; it is valid exactly when it has no problems."""

    contract: TaskContract | None
    problems: tuple[SchemaProblem, ...]
    notes: tuple[str, ...] = ()
    """What is allowed, but will stop the run for a while."""


@dataclass(frozen=True, slots=True)
class ContractOptions:
    """What the user wants done."""

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
class ContractChecks:
    """Looks at contracts for one repository; without one, with the policies that ship."""

    orchestrator: Orchestrator | None

    @classmethod
    def of(cls, open_orchestrator: Callable[[], Orchestrator], *, needed: bool) -> ContractChecks:
        """Open a repository; without one, raise only where it is ``needed``."""
        try:
            return cls(open_orchestrator())
        except UsageError as problem:
            if needed or problem.rule not in {"repository.none", "repository.empty"}:
                raise
            return cls(None)

    def check(self, data: bytes, options: RunOptions | None = None) -> CheckedContract:
        """Say everything for which a run would refuse a contract before it begins.

        ``options`` are how it would be carried out; without them nothing is said of the agents.
        """
        drift = schemas.find_drift().status
        if drift != "ok":
            return CheckedContract(
                None, (SchemaProblem("/", f"the schemas do not match their hashes: {drift}"),)
            )
        try:
            value = parse_document(data)
        except UsageError as problem:
            return CheckedContract(None, (SchemaProblem("/", problem.message),))
        found = schemas.find_schema_problems(SCHEMA, value)
        if found:
            return CheckedContract(None, found)
        return self.judge(TaskContract.of(value), options)

    def judge(self, contract: TaskContract, options: RunOptions | None = None) -> CheckedContract:
        """As ``check``, for a contract whose form is right."""
        found: list[SchemaProblem] = []
        runners: tuple[str, ...] = ()
        if options is not None:
            try:
                runners = runner_kinds(options.runner, options.reviewer)
                if self.orchestrator is not None:
                    self.orchestrator.check_options(options)
            except UsageError as problem:
                found.append(SchemaProblem("/runtime_options", problem.message))
        runs, commit = self.orchestrator, self._commit(contract)
        policies = self._policies(commit)
        gates = ContractGates(
            policies.under(policies.pack_for(contract)),
            self._baseline(commit),
            None if runs is None else runs.repository.resolve,
            UNCLAIMED if runs is None else runs.control_paths,
            runners,
        )
        found += gates.list_refusals(contract)
        notes = [f"a person has to approve it: {ask.title}" for ask in gates.list_asks(contract)]
        if runs is None:
            notes.insert(
                0, "there is no repository here: files and the baseline were not looked at"
            )
        return CheckedContract(contract, tuple(dict.fromkeys(found)), tuple(notes))

    def explain_contract(self, data: bytes) -> dict[str, Json]:
        """The ``role_contract_summary`` of a contract; one that is malformed raises."""
        contract = TaskContract.of(parse_document(data))
        if contract.role_contract is None:
            registry = self._policies(self._commit(contract)).registry
            contract = role_contract.with_role_contract(contract, registry)
        return role_contract.summarise_role(contract)

    def proposed(self, pack: PackName | None = None) -> ContractProposal:
        """Say what the project looks like, and what a contract for it could name."""
        commit = self.orchestrator.repository.resolve("HEAD") if self.orchestrator else ""
        policies = self._policies(commit)
        return propose_contract(self._baseline(commit), policies.under(pack, "WORKER"))

    def drafted(self, wanted: ContractOptions, proposal: ContractProposal) -> CheckedContract:
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
        named = {name: getattr(wanted, name) for name in ("runner", "reviewer", "model")}
        options = {name: value for name, value in named.items() if value is not None}
        contract = draft_contract(
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
        if self.orchestrator is None:
            return ""
        repository = self.orchestrator.repository
        try:
            return repository.resolve(contract.rollback.baseline_ref)
        except UsageError:
            return repository.resolve("HEAD")

    def _policies(self, commit: str) -> PolicySet:
        return self.orchestrator.policies(commit) if self.orchestrator else PolicySet.read_shipped()

    def _baseline(self, commit: str) -> Baseline:
        if self.orchestrator is None:
            return Baseline.of("", (), lambda _: None)
        return Baseline.at(self.orchestrator.repository, commit)
