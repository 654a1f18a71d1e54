"""``ContractGates``: everything that a contract has to pass before an agent works on it.

A run judges by it and records each answer; ``contract validate`` asks the same without a run. Both
ask the gates of ``GATES``.
"""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import SchemaProblem, UsageError, valid_text
from coilclaw.runners import parse as parse_runner
from coilclaw.runs.contracts import paths, permissions, rules
from coilclaw.runs.contracts.project_profile import ProjectProfile, recognise_project
from coilclaw.runs.engine.approvals import RunApprovalRequest
from coilclaw.runs.gates import contract_gates
from coilclaw.runs.gates.command import CommandTerms, judge_text
from coilclaw.runs.gates.command_line import ForbiddenAction, parse_command
from coilclaw.runs.gates.result import ContractCase
from coilclaw.runs.gates.table import GATES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from coilclaw.kernel import Json
    from coilclaw.runs.contracts.policy_set import PolicySet
    from coilclaw.runs.contracts.records import ApprovalKind
    from coilclaw.runs.contracts.task_contract import AcceptanceTest, SetupCommand, TaskContract
    from coilclaw.runs.gates.result import GateResult
    from coilclaw.workspace import Repository


MAX_TOLD: Final = 3_000
"""Names that a model is told, of files and of directories; the shallowest come first."""
MAX_TOLD_CHARS: Final = 200_000
MAX_FILE_BYTES: Final = 64 * 2**20
BROAD_FILES: Final = 20
"""A directory with fewer files is not broad, however short its name is."""
ROOTS: Final = frozenset({"src", "docs"})
LOCKED_BY: Final = {
    "uv.lock": "uv",
    "poetry.lock": "poetry",
    "pdm.lock": "pdm",
    "Pipfile.lock": "pipenv",
    "pnpm-lock.yaml": "pnpm",
    "yarn.lock": "yarn",
}
"""Lock files, each with the tool that is needed to use it."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """The names of a commit's files and directories, and a way to read the files."""

    commit: str
    files: frozenset[str]
    directories: frozenset[str]
    read: Callable[[str], bytes | None]
    links: frozenset[str] = frozenset()
    """Those of the files that are none: links and submodules."""

    @classmethod
    def of(
        cls,
        commit: str,
        files: Iterable[str],
        read: Callable[[str], bytes | None],
        links: Iterable[str] = (),
    ) -> Baseline:
        """Make it from the names of files: directories are what is above them."""
        names = frozenset(files)
        above = frozenset(above for name in names for above in _list_parents(name))
        return cls(commit, names, above, read, frozenset(links))

    @classmethod
    def at(cls, repository: Repository, commit: str) -> Baseline:
        """Make it from a commit of a repository."""
        read = partial(repository.read, commit, limit=MAX_FILE_BYTES)
        return cls.of(commit, repository.files(commit), read, repository.links(commit))

    def recognise(self) -> ProjectProfile:
        """Recognise what kind of project it is; a file that cannot be read says nothing."""

        def read(name: str) -> bytes | None:
            try:
                return self.read(name)
            except UsageError:
                return None

        python = "python" if shutil.which("python") or not shutil.which("python3") else "python3"
        files = self.files - self.links
        # The lock of a tool that is not installed says nothing about how the project is used here.
        unused = {lock for lock, tool in LOCKED_BY.items() if not shutil.which(tool)}
        found = recognise_project(files - unused, read, python=python)
        kept = recognise_project(files, read, python=python).forbidden_paths
        return replace(found, forbidden_paths=kept)

    def broad(self) -> frozenset[str]:
        """Return the directories that are too much for one task without an override.

        Those are the ones that hold many files, and the ones that hold everything by convention.
        """
        counts = Counter(above for name in self.files for above in _list_parents(name))
        many = {name for name, count in counts.items() if count >= BROAD_FILES}
        return frozenset(many | (ROOTS & self.directories))

    def list_names(self, scopes: Collection[str] = (), *, limit: int = MAX_TOLD) -> dict[str, Json]:
        """Return names for a model, those within ``scopes`` first, and how many are left out."""
        files = _choose_names(self.files, scopes, limit)
        directories = _choose_names(self.directories, scopes, limit)
        return {
            "baseline_commit": self.commit,
            "files": files,
            "files_left_out": len(self.files) - len(files),
            "directories": directories,
            "directories_left_out": len(self.directories) - len(directories),
        }

    def find_mentioned(self, text: str) -> tuple[str, ...]:
        """Return the files and directories that a text names, in its order."""
        words = (word.strip("\"'`.,:;!?()[]{}<>").rstrip("/") for word in text.split())
        names = self.files | self.directories
        return tuple(dict.fromkeys(word for word in words if word in names))

    def judge_test(
        self, test: AcceptanceTest, contract: TaskContract, policies: PolicySet
    ) -> GateResult:
        """Ask the command gate about a test of a contract."""
        network = contract.tool_permissions.network == "allow"
        limit = test.timeout_sec or contract.timeout_retry.timeout_sec
        terms = replace(self._make_terms(contract, policies), network=network)
        return judge_text(test.cmd, terms=terms, timeout_sec=limit)

    def refusals(
        self, test: AcceptanceTest, contract: TaskContract, policies: PolicySet
    ) -> tuple[str, ...]:
        """Say why the command gate would not run a test of a contract."""
        return tuple(map(str, self.judge_test(test, contract, policies).violations))

    def judge_setup(self, contract: TaskContract, policies: PolicySet) -> tuple[GateResult, ...]:
        """Let the command gate judge each command of a set-up, with the network it declares."""
        terms = replace(self._make_terms(contract, policies), rules=policies.setup_commands)
        return tuple(
            judge_text(
                command.cmd,
                terms=replace(terms, network=command.may_use_network),
                timeout_sec=command.timeout_sec or contract.timeout_retry.timeout_sec,
            )
            for command in policies.setup_for(contract)
        )

    def _make_terms(self, contract: TaskContract, policies: PolicySet) -> CommandTerms:
        return self.terms(policies, contract.allowed_paths, contract.forbidden_actions)

    def terms(
        self,
        policies: PolicySet,
        allowed_paths: Collection[str] = (),
        forbidden_actions: Iterable[str] = (),
    ) -> CommandTerms:
        """Return what commands are judged by, without the network.

        A file that the work may still make counts as there, and a directory that a build may; a
        link of the baseline does not.
        """
        forbidden = (*policies.forbidden_actions, *forbidden_actions)
        return CommandTerms(
            rules=policies.commands,
            forbidden_actions=tuple(dict.fromkeys(forbidden)),
            is_file=lambda name: (
                name not in self.links
                and (name in self.files or paths.is_within(name, allowed_paths))
            ),
            is_directory=lambda name: self.files.isdisjoint((name, *_list_parents(name))),
        )


def _list_parents(name: str) -> Iterator[str]:
    while (name := name.rpartition("/")[0]) != "":
        yield name


def _choose_names(names: Iterable[str], scopes: Collection[str], limit: int) -> list[Json]:
    order = sorted(
        names, key=lambda name: (not paths.is_within(name, scopes), name.count("/"), name)
    )
    chosen: list[Json] = []
    left = MAX_TOLD_CHARS
    for name in map(valid_text, order[:limit]):
        left -= len(name)
        if left < 0:
            break
        chosen.append(name)
    return chosen


@dataclass(frozen=True, slots=True)
class ContractGates:
    """The gates, with everything that they look at beside the contract."""

    policies: PolicySet
    """Under the pack that judges."""
    baseline: Baseline
    resolve: Callable[[str], str] | None
    """Finds a commit; ``None`` without a repository."""
    control_paths: tuple[str, ...]
    runners: tuple[str, ...]
    """The kinds of agents that take part."""
    is_part: bool = False
    """Whether the contract lies within one that was approved as a whole."""

    def find_problems(self, contract: TaskContract) -> tuple[SchemaProblem, ...]:
        """Return what is wrong with a contract in itself, and with what it refers to."""
        named: tuple[SchemaProblem, ...] = ()
        if self.resolve is not None:
            try:
                # It has to be there: another one is not what was meant.
                self.resolve(contract.rollback.baseline_ref)
            except UsageError as problem:
                named = (SchemaProblem("/rollback/baseline_ref", problem.message),)
        return (
            *named,
            *rules.find_rule_problems(contract, self.policies, known_files=self.baseline.read),
            # What judges the work cannot be part of it.
            *(
                SchemaProblem(
                    f"/allowed_paths/{index}", f"holds {place}, where policies are read from"
                )
                for index, path in enumerate(contract.allowed_paths)
                for place in self.control_paths
                if paths.find_path_flaw(path) is None and paths.overlap(path, place)
            ),
        )

    def find_broad(self, contract: TaskContract) -> tuple[str, ...]:
        """Return the allowed paths that are too much without an override."""
        return paths.broad_paths(
            contract.allowed_paths,
            directories=self.baseline.broad(),
            segments_at_most=self.policies.pack.limits.broad_segments,
        )

    def list_asks(self, contract: TaskContract) -> tuple[RunApprovalRequest, ...]:
        """Return what a person has to approve before this contract may go on."""
        asks: list[RunApprovalRequest] = []
        broad = self.find_broad(contract)
        # Sub-contracts lie within what was approved for the contract that they come from.
        if broad and self.policies.pack.override_approvals and not self.is_part:
            title = f"let {contract.task_id} change everything below {', '.join(broad)}"
            texts = (title, "the contract allows broad paths")
            named = (f"allowed path: {path}" for path in broad)
            asks.append(_make_ask("override", contract, "policy.broad", texts, *named))
        if contract.tool_permissions.network == "on-request":
            asks.append(network_ask(contract))
        wanted = {*contract.tool_permissions.mcp_tools, *contract.mcp_tool_set}
        if {name.casefold() for name in wanted} & contract_gates.SAMPLING:
            title = f"let the MCP servers of {contract.task_id} ask for completions"
            texts = (title, "the contract names sampling among its tools")
            ask = _make_ask("sampling", contract, "sampling.approval", texts, "sampling: allow")
            asks.append(ask)
        return tuple(asks)

    def judge(self, contract: TaskContract, approved: Collection[str]) -> tuple[GateResult, ...]:
        """Let every gate have its say; ``approved`` are the kinds of asks that got a yes."""
        tests, setup = contract.acceptance_tests, self.baseline.judge_setup(contract, self.policies)
        case = ContractCase(
            contract,
            self.policies,
            approved,
            self.baseline.broad(),
            self.runners,
            (*setup, *(self.baseline.judge_test(each, contract, self.policies) for each in tests)),
            self.is_part,
        )
        return tuple(gate.judge(case) for gate in GATES.values() if gate.judge is not None)

    def list_refusals(self, contract: TaskContract) -> tuple[SchemaProblem, ...]:
        """Return why a run would refuse a contract even if everybody approved it.

        As in a run, the gates look at a contract only when it is valid in itself.
        """
        found = [
            *self.find_problems(contract),
            *(
                SchemaProblem(f"/acceptance_tests/{index}/cmd", refused)
                for index, test in enumerate(contract.acceptance_tests)
                for refused in self.baseline.refusals(test, contract, self.policies)
            ),
            *(
                SchemaProblem(f"/setup/{index}/cmd", str(violation))
                for index, result in enumerate(self.baseline.judge_setup(contract, self.policies))
                for violation in result.violations
            ),
        ]
        if not found:
            approved = [ask.kind for ask in self.list_asks(contract)]
            found += [
                SchemaProblem(GATES[result.gate].place, str(violation))
                for result in self.judge(contract, approved)
                for violation in result.violations
            ]
        return tuple(dict.fromkeys(found))


def runner_kinds(runner: str, reviewer: str) -> tuple[str, ...]:
    """Return the kinds of agents that a run cannot do without: who performs, and who reviews."""
    names = [name for name in (runner, reviewer) if name not in {"", "rules", "model"}]
    return tuple(dict.fromkeys(parse_runner(name).kind for name in names))


def _make_ask(
    kind: ApprovalKind, contract: TaskContract, rule: str, texts: tuple[str, str], *detail: str
) -> RunApprovalRequest:
    bound = (*detail, f"contract: {contract.sha256}")
    return RunApprovalRequest(kind, *texts, rule, bound, contract.task_id)


def network_ask(contract: TaskContract) -> RunApprovalRequest:
    """Ask for the network, for this task of this run."""
    title = f"let {contract.task_id} use the network"
    texts = (title, "the contract asks for the network on request")
    return _make_ask("network", contract, "network.approval", texts, "network: allow")


_TIMEOUT_SEC: Final = 60
"""Any limit that the gate accepts: only the words are judged here."""


@dataclass(frozen=True, slots=True)
class ContractProposal:
    """What was recognised, and what of it can go into a contract."""

    tests: tuple[str, ...]
    setup: tuple[SetupCommand, ...]
    forbidden_paths: tuple[str, ...]
    test_paths: tuple[str, ...]
    notes: tuple[str, ...]
    """What was recognised and why, and what the policies leave out."""


def propose_contract(baseline: Baseline, policies: PolicySet) -> ContractProposal:
    """Recognise the project at a commit, and propose what its policies allow."""
    profile = baseline.recognise()
    notes = [f"recognised {finding}" for finding in profile.findings]
    terms = baseline.terms(policies)
    tests = []
    for cmd in profile.tests:
        refused = judge_text(cmd, terms=terms, timeout_sec=_TIMEOUT_SEC).violations
        if refused:
            notes.append(f"the test '{cmd}' is not proposed: {refused[0].message}")
        else:
            tests.append(cmd)
    setup, left_out = _judge_setup(() if policies.setup else profile.setup, terms, policies)
    notes += left_out
    return ContractProposal(
        tuple(tests), setup, profile.forbidden_paths, profile.test_paths, tuple(notes)
    )


def setup_without_contract(baseline: Baseline, policies: PolicySet) -> tuple[SetupCommand, ...]:
    """Return what prepares a worktree before there is a contract: what one would come to have.

    A set-up of the policies is taken whole or, where a command of it is refused, not at all.
    """
    if not policies.setup:
        return propose_contract(baseline, policies).setup
    setup, left_out = _judge_setup(policies.setup, baseline.terms(policies), policies)
    return () if left_out else setup


def _judge_setup(
    commands: Sequence[SetupCommand], terms: CommandTerms, policies: PolicySet
) -> tuple[tuple[SetupCommand, ...], list[str]]:
    """Return the commands that may run, and why the others may not."""
    allowed, notes = [], []
    denied = permissions.exceeds("network", "allow", policies.pack.ceilings.network)
    for command in commands:
        online = command.may_use_network
        own = replace(terms, rules=policies.setup_commands, network=online)
        refused = judge_text(command.cmd, terms=own, timeout_sec=_TIMEOUT_SEC).violations
        if online and denied:
            notes.append(
                f"the set-up '{command.cmd}' is not proposed: the pack {policies.pack.pack} "
                "denies the network"
            )
        elif refused:
            notes.append(f"the set-up '{command.cmd}' is not proposed: {refused[0].message}")
        else:
            allowed.append(command)
    return tuple(allowed), notes


def forbidden_edits(
    candidates: Iterable[str], allowed_paths: Sequence[str], commands: Iterable[str]
) -> tuple[str, ...]:
    """Return the actions that forbid changing some paths.

    Left out is what the user allows by name, and what a command of the contract names: an action
    forbids commands as well.
    """
    argvs = [argv for argv in (parse_command(command).argv for command in commands) if argv]
    found = []
    for path in candidates:
        action = ForbiddenAction.of(f"edit ./{path}")
        named = any(
            paths.find_path_flaw(allowed) is None and paths.contains(path, allowed)
            for allowed in allowed_paths
        )
        if action is not None and not named and not any(map(action.matches, argvs)):
            found.append(action.text)
    return tuple(found)
