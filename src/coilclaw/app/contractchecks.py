"""Contracts before any run: everything that is wrong with one, and drafting a valid one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.contracts import paths, rolecontract, rules, schemas
from coilclaw.contracts.drafting import MAX_RETRIES, TIMEOUT_SEC, draft
from coilclaw.contracts.policyset import PolicySet
from coilclaw.contracts.reading import parse
from coilclaw.contracts.schemas import Problem
from coilclaw.contracts.taskcontract import RuntimeOptions, TaskContract
from coilclaw.errors import UsageError
from coilclaw.orchestrator.baseline import Baseline
from coilclaw.orchestrator.teststage import timed

if TYPE_CHECKING:
    from pathlib import Path

    from coilclaw.app.runwiring import Orchestrator
    from coilclaw.contracts.roles import Role
    from coilclaw.contracts.taskcontract import PackName
    from coilclaw.domain.messages import Json

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

    def check(self, data: bytes) -> Checked:
        """Say everything that is wrong: the form, the rules, and the commands of its tests."""
        try:
            value = parse(data)
        except UsageError as problem:
            return Checked(None, (Problem("/", problem.message),))
        found = schemas.problems(SCHEMA, value)
        if found:
            return Checked(None, found)
        contract = TaskContract.of(value)
        return self.judge(contract)

    def judge(self, contract: TaskContract) -> Checked:
        """As ``check``, for a contract whose form is right."""
        problems: list[Problem] = []
        commit = ""
        if self.orchestrator is not None:
            commit, wrong = self._commit(contract)
            problems += wrong
        policies = self._policies(commit)
        policies = policies.under(policies.pack_for(contract))
        known = self._baseline(commit)
        problems += rules.problems(contract, policies, known_files=known.read)
        for index, test in enumerate(contract.acceptance_tests):
            problems += [
                Problem(f"/acceptance_tests/{index}/cmd", said)
                for said in known.refusals(
                    timed(test, contract),
                    policies,
                    allowed_paths=contract.allowed_paths,
                    forbidden_actions=contract.forbidden_actions,
                    network=contract.tool_permissions.network == "allow",
                )
            ]
        return Checked(contract, tuple(dict.fromkeys(problems)), self._notes(contract, policies))

    def _notes(self, contract: TaskContract, policies: PolicySet) -> tuple[str, ...]:
        broad = paths.broad_paths(
            contract.allowed_paths,
            directories=self._baseline(self._commit(contract)[0]).broad()
            if self.orchestrator
            else frozenset(),
            segments_at_most=policies.pack.limits.broad_segments,
        )
        notes = []
        if self.orchestrator is None:
            notes.append("there is no repository here: files and the baseline were not looked at")
        if broad:
            notes.append(f"a person has to approve the broad paths {', '.join(broad)}")
        if contract.tool_permissions.network == "on-request":
            notes.append("a person has to approve the network")
        return tuple(notes)

    def explained(self, data: bytes) -> dict[str, Json]:
        """The ``role_contract_summary`` of a contract; one that is malformed raises."""
        contract = TaskContract.of(parse(data))
        if contract.role_contract is None:
            commit = self._commit(contract)[0] if self.orchestrator else ""
            registry = self._policies(commit).registry
            contract = rolecontract.with_role_contract(contract, registry)
        return rolecontract.summary(contract)

    def drafted(self, wanted: Wanted) -> Checked:
        """Make a complete contract, and say what is wrong with it."""
        commit = self.orchestrator.repository.resolve("HEAD") if self.orchestrator else ""
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
            wanted.tests,
            policies=self._policies(commit),
            task_id=wanted.task_id,
            role=wanted.role,
            read_only=wanted.read_only,
            policy_pack=wanted.pack,
            baseline_ref=wanted.baseline_ref,
            runtime_options=RuntimeOptions.of(options) if options else None,
            timeout_sec=wanted.timeout_sec,
            max_retries=wanted.max_retries,
        )
        return self.judge(contract)

    def _commit(self, contract: TaskContract) -> tuple[str, list[Problem]]:
        """The baseline of a contract; one that cannot be found is a problem, and HEAD then."""
        assert self.orchestrator is not None
        repository = self.orchestrator.repository
        try:
            return repository.resolve(contract.rollback.baseline_ref), []
        except UsageError as problem:
            wrong = Problem("/rollback/baseline_ref", problem.message)
            return repository.resolve("HEAD"), [wrong]

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
        )
