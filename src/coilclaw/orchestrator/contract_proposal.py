"""What a contract is proposed where the user named nothing: test, set-up, forbidden paths.

``contract init`` asks for it, and the planner of a request takes the set-up from here. Nothing is
proposed that the policies of the repository refuse; what was left out is said.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from coilclaw.contracts import paths, permissions
from coilclaw.gates.command import judge_text
from coilclaw.gates.commandline import parse
from coilclaw.gates.forbiddenaction import ForbiddenAction

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from coilclaw.contracts.policyset import PolicySet
    from coilclaw.contracts.taskcontract import SetupCommand
    from coilclaw.gates.command import Terms
    from coilclaw.orchestrator.baseline import Baseline

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
    commands: Sequence[SetupCommand], terms: Terms, policies: PolicySet
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
    argvs = [argv for argv in (parse(command).argv for command in commands) if argv]
    found = []
    for path in candidates:
        action = ForbiddenAction.of(f"edit ./{path}")
        named = any(
            paths.flaw(allowed) is None and paths.contains(path, allowed)
            for allowed in allowed_paths
        )
        if action is not None and not named and not any(map(action.matches, argvs)):
            found.append(action.text)
    return tuple(found)
