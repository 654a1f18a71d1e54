"""What ``contract init`` proposes where the user named nothing: test, set-up, forbidden paths.

Nothing is proposed that the policies of the repository refuse; what was left out is said.
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
    setup = []
    online = replace(terms, rules=policies.setup_commands, network=True)
    denied = permissions.exceeds("network", "allow", policies.pack.ceilings.network)
    for command in () if policies.setup else profile.setup:
        refused = judge_text(command.cmd, terms=online, timeout_sec=_TIMEOUT_SEC).violations
        if denied:
            notes.append(
                f"the set-up '{command.cmd}' is not proposed: the pack {policies.pack.pack} "
                "denies the network"
            )
        elif refused:
            notes.append(f"the set-up '{command.cmd}' is not proposed: {refused[0].message}")
        else:
            setup.append(command)
    return ContractProposal(
        tuple(tests), tuple(setup), profile.forbidden_paths, profile.test_paths, tuple(notes)
    )


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
