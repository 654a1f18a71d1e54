"""The policy of an assignment: our own gate, made stricter by what the contract permits.

Whatever policy forbids stays forbidden. What is left is judged by ``tool_permissions`` and
``allowed_paths``: a write outside of them is denied at once, before the diff gate sees it.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from coilclaw.kernel import (
    Decision,
    Fetches,
    Risk,
    Runs,
    Verdict,
    Writes,
    canonical_json,
    is_below,
    is_below_any,
    valid_text,
)
from coilclaw.policy import (
    FORBIDDEN_PATHS,
    Autonomy,
    Judgement,
    SecretFiles,
    SecuritySettings,
    Terms,
    gate,
)
from coilclaw.runners.runner import AgentRequest
from coilclaw.workspace import PathLookup, sandbox

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from coilclaw.kernel import Effect, Json, messages
    from coilclaw.policy import CommandRules
    from coilclaw.runners.runner import Assignment, Means, Shell
    from coilclaw.workspace import SandboxSupport


Answer: TypeAlias = Literal["run", "ask", "refuse"]
RequestKind: TypeAlias = Literal["command", "change", "permission"]

REFUSED_EXIT_CODE: Final = 126
"""The exit code of shells for a command that exists and may not be run."""


@dataclass(frozen=True, slots=True)
class ShellTerms:
    """One row of the table."""

    approval_policy: str | None
    contained: Answer
    beyond: Answer


TABLE: Final[Mapping[str, ShellTerms]] = {
    "deny": ShellTerms(None, "refuse", "refuse"),
    "never": ShellTerms("never", "run", "refuse"),
    "on-request": ShellTerms("on-request", "run", "ask"),
    "untrusted": ShellTerms("untrusted", "ask", "ask"),
}


def terms(shell: Shell) -> ShellTerms:
    """Return the row of a word; an unknown word denies."""
    return TABLE.get(shell, TABLE["deny"])


def answer_shell(shell: Shell, *, contained: bool) -> Answer:
    """Return whether a command is run, asked about or refused."""
    row = terms(shell)
    return row.contained if contained else row.beyond


def settle(
    shell: Shell,
    request: AgentRequest,
    approve: Callable[[AgentRequest], messages.ApprovalAnswer],
    *,
    contained: bool,
) -> str:
    """Return why a command may not run, or nothing; ask the user if the contract says so."""
    match answer_shell(shell, contained=contained):
        case "run":
            return ""
        case "ask":
            said = approve(request)
            why = said.reason or "the request was not approved"
            return "" if said.granted else f"denied: {why}"
        case _:
            return f"denied by tool_permissions.shell = {shell}"


def is_contained(assignment: Assignment, means: Means) -> bool:
    """Whether this machine enforces the sandbox of an assignment."""
    wanted = assignment.sandbox
    if wanted.kind == "none":
        return False
    held = sandbox.choose_sandbox(wanted, means.support).enforced
    return held.filesystem and (wanted.network or held.network != "open")


def command_request(task_id: str, argv: Sequence[str], *, directory: str) -> AgentRequest:
    """Return the approval request for one command; its detail lists what the approval covers."""
    words = json.dumps(list(argv), ensure_ascii=False)
    return request(task_id, "command", f"run {words}", (f"argv: {words}", f"in: {directory}"))


def request(
    task_id: str, kind: RequestKind, title: str, detail: tuple[str, ...], reason: str = ""
) -> AgentRequest:
    """Make a request whose digest names its kind and its detail."""
    clean = tuple(valid_text(line) for line in detail)
    digest = canonical_json.hash_json({"kind": kind, "detail": list(clean)})
    return AgentRequest(task_id, kind, title, clean, digest, reason)


TRUSTED_LANDLOCK: Final = 3
_ANY_HOST: Final = ("*",)
_SYSTEM: Final = tuple(path for path in FORBIDDEN_PATHS if path.startswith("/"))


@dataclass(frozen=True)
class ContractPolicy:
    """Judges the effects of an agent's calls in one assignment."""

    assignment: Assignment
    means: Means
    state: Path
    """Our own state about it, which no tool may touch."""
    rules: Callable[[], CommandRules]
    """The rules about commands, loaded when the first one comes."""
    refuse_command: Callable[[Runs], str] = lambda _: ""
    """Says why a command may not run beyond all this: the allowlist of the run."""

    @cached_property
    def places(self) -> PathLookup:
        assignment = self.assignment
        return PathLookup(
            assignment.directory, home=str(assignment.home), seen_at=assignment.seen_at
        )

    @cached_property
    def settings(self) -> SecuritySettings:
        """The settings without the rules about commands."""
        assignment = self.assignment
        reads_only = assignment.filesystem == "read-only"
        workspace = os.path.realpath(assignment.directory)
        return SecuritySettings(
            workspace=workspace,
            rules=None,
            autonomy=Autonomy.READONLY if reads_only else Autonomy.FULL,
            forbidden_paths=tuple(_list_forbidden(assignment, workspace)),
            own_paths=(str(self.state), os.path.realpath(self.state)),
            allowed_domains=() if assignment.network == "deny" else _ANY_HOST,
            harmless_commands=False,
            # What an assignment may read is what its contract says.
            secrets=SecretFiles(read="allow"),
        )

    @cached_property
    def command_settings(self) -> SecuritySettings:
        """The settings with the rules, and with harmless commands where a sandbox contains them."""
        contained = holds(self.means.support) and self.assignment.sandbox.kind != "none"
        return replace(self.settings, rules=self.rules(), harmless_commands=contained)

    def judge(self, effects: tuple[Effect, ...]) -> Judgement:
        """Judge the effects of one call; the strictest verdict counts."""
        commands = any(isinstance(effect, Runs) for effect in effects)
        settings = self.command_settings if commands else self.settings
        judged = gate.judge_effects(effects, settings, self.places.locate)
        # A command is held to as much as the assignment has, and a harmless one to less.
        writable = judged.terms.writable and self.assignment.filesystem == "workspace-write"
        terms = Terms(writable, network=writable and self.assignment.network == "allow")
        judged = replace(judged, terms=terms)
        for effect in effects:
            own = self._judge_by_contract(effect)
            if own is None or judged.verdict.denied:
                continue
            if own.denied or judged.verdict.decision is Decision.ALLOW:
                judged = replace(judged, verdict=own)
        return judged

    @cached_property
    def hash(self) -> str:
        """The digest that names the policy in receipts."""
        assignment, settings = self.assignment, self.settings
        value: dict[str, Json] = {
            "contract": canonical_json.hash_json(dict(assignment.contract)),
            "filesystem": assignment.filesystem,
            "shell": assignment.shell,
            "network": assignment.network,
            "workspace": settings.workspace,
            "autonomy": settings.autonomy.value,
            "forbidden_paths": list(settings.forbidden_paths),
        }
        return canonical_json.hash_json(value)

    def _judge_by_contract(self, effect: Effect) -> Verdict | None:
        """Return the verdict of the contract on one effect; ``None`` if it adds nothing."""
        if isinstance(effect, Writes):
            return self._judge_write(effect)
        if isinstance(effect, Runs):
            return self._judge_command(effect)
        if isinstance(effect, Fetches):
            network = self.assignment.network
            if network == "allow":
                return None
            said = f"the contract says network = {network}"
            decision = Decision.ASK if network == "on-request" else Decision.DENY
            return Verdict(decision, Risk.HIGH, "contract.network", said)
        return None

    def _judge_write(self, effect: Writes) -> Verdict | None:
        if self.assignment.filesystem != "workspace-write":
            return _deny("contract.filesystem", "the contract says filesystem = read-only")
        allowed = allowed_paths(self.assignment)
        if allowed is None:
            return None
        place = self.places.locate(effect.path)
        root = self.settings.workspace + "/"
        for path in (place.lexical, place.real or ""):
            if not path.startswith(root) or not is_below_any(path[len(root) :], allowed):
                return _deny(
                    "contract.allowed_paths", f"{effect.path!r} is outside of allowed_paths"
                )
        return None

    def _judge_command(self, effect: Runs) -> Verdict | None:
        shell = self.assignment.shell
        contained = self.assignment.sandbox.kind != "none" and holds(self.means.support)
        answer = answer_shell(shell, contained=contained)
        said = f"the contract says shell = {shell}"
        if answer == "refuse":
            return _deny("contract.shell", said)
        refused = self.refuse_command(effect)
        if refused:
            return _deny("contract.command", refused)
        return Verdict(Decision.ASK, Risk.HIGH, "contract.shell", said) if answer == "ask" else None


def allowed_paths(assignment: Assignment) -> tuple[str, ...] | None:
    """Return the paths that may be written; ``None``, without a contract, allows all of them."""
    if not assignment.contract:
        return None
    named = assignment.contract.get("allowed_paths")
    return tuple(str(path).rstrip("/") for path in named) if isinstance(named, list) else ()


def holds(support: SandboxSupport) -> bool:
    """Whether this machine has a sandbox that keeps files and the network closed."""
    # Before this version Landlock cannot keep files from being emptied.
    landlock = support.landlock_abi >= TRUSTED_LANDLOCK and support.seccomp
    return bool(support.bubblewrap) or landlock


def _list_forbidden(assignment: Assignment, workspace: str) -> Iterator[str]:
    """Yield the places that may not be read; one that holds the workspace is left out."""
    for place in (*_SYSTEM, *map(str, assignment.sandbox.hidden)):
        if not is_below(workspace, place):
            yield place


def _deny(rule: str, reason: str) -> Verdict:
    return Verdict(Decision.DENY, Risk.HIGH, rule, reason)
