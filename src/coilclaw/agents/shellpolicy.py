"""What ``tool_permissions.shell`` means, once for all runners.

==============  =====================  ==================  ========================
shell           codex approval policy  a contained command  a command that goes beyond
==============  =====================  ==================  ========================
``deny``        none: no shell at all  refused             refused
``never``       ``never``              runs                refused
``on-request``  ``on-request``         runs                a person is asked
``untrusted``   ``untrusted``          a person is asked   a person is asked
==============  =====================  ==================  ========================

A command is contained when the operating system's sandbox holds it to the assignment. Silence is a
no, and an unknown word is ``deny``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from coilclaw.agents.runner import AgentRequest
from coilclaw.domain import freeform
from coilclaw.workspace import sandbox

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from coilclaw.agents.runner import Assignment, Means, Shell
    from coilclaw.domain import toolcalls

Answer: TypeAlias = Literal["run", "ask", "refuse"]
RequestKind: TypeAlias = Literal["command", "change", "permission"]

REFUSED_EXIT_CODE: Final = 126
"""What a shell says of a command that is there and may not be run."""


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


@dataclass(frozen=True, slots=True)
class Ruling:
    """Whether a command may run, and why not."""

    allowed: bool
    reason: str = ""


def terms(shell: Shell) -> ShellTerms:
    """Return the row of a word; one that is not in the table denies."""
    return TABLE.get(shell, TABLE["deny"])


def answer(shell: Shell, *, contained: bool) -> Answer:
    """Return what is done with a command."""
    row = terms(shell)
    return row.contained if contained else row.beyond


def settle(
    shell: Shell,
    request: AgentRequest,
    approve: Callable[[AgentRequest], toolcalls.Answer],
    *,
    contained: bool,
) -> Ruling:
    """Say whether a command may run, and ask whoever has to be asked."""
    match answer(shell, contained=contained):
        case "run":
            return Ruling(allowed=True)
        case "ask":
            said = approve(request)
            why = said.reason or "the request was not approved"
            return Ruling(said.granted, "" if said.granted else f"denied: {why}")
        case _:
            return Ruling(allowed=False, reason=f"denied by tool_permissions.shell = {shell}")


def is_contained(assignment: Assignment, means: Means) -> bool:
    """Whether the sandbox of an assignment really holds on this machine."""
    wanted = assignment.sandbox
    if wanted.kind == "none":
        return False
    held = sandbox.choose(wanted, means.support).enforced
    return held.filesystem and (wanted.network or held.network != "open")


def command_request(task_id: str, argv: Sequence[str], *, directory: str) -> AgentRequest:
    """Ask for one command; the detail is everything that the approval is given for."""
    words = json.dumps(list(argv), ensure_ascii=False)
    return request(task_id, "command", f"run {words}", (f"argv: {words}", f"in: {directory}"))


def request(
    task_id: str, kind: RequestKind, title: str, detail: tuple[str, ...], reason: str = ""
) -> AgentRequest:
    """Make a request whose digest names its kind and its detail."""
    clean = tuple(line.encode("utf-8", "backslashreplace").decode("utf-8") for line in detail)
    digest = freeform.hashed({"kind": kind, "detail": list(clean)})
    return AgentRequest(task_id, kind, title, clean, digest, reason)
