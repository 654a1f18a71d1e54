"""``Runner``: the one protocol of everybody who performs work in a directory.

A runner is contained, not trusted: whatever it starts runs in the assignment's sandbox and dies
with it. What it did to the directory is judged afterwards, from snapshots, never from its word.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from coilclaw.domain.toolcalls import Answer, Reply

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping
    from pathlib import Path

    from coilclaw.agents.denial import Denial
    from coilclaw.domain.budget import Budget
    from coilclaw.domain.messages import Json, Usage
    from coilclaw.domain.parts import Part
    from coilclaw.workspace.cancel import Cancellation
    from coilclaw.workspace.sandbox import Enforced, Sandbox, SandboxSupport

Filesystem: TypeAlias = Literal["read-only", "workspace-write"]
Shell: TypeAlias = Literal["deny", "never", "on-request", "untrusted"]
Network: TypeAlias = Literal["deny", "on-request", "allow"]
Status: TypeAlias = Literal["done", "failed", "aborted", "exhausted"]
"""``failed``: the agent says so; ``aborted``: it ended without an end, was cancelled or crashed;
``exhausted``: the budget was used up."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """One piece of work for one agent."""

    task_id: str
    instruction: str
    """The prompt, made from the contract; the contract itself is what counts."""
    contract: Mapping[str, Json]
    """The task contract as JSON; empty outside of orchestrated work."""
    directory: Path
    """Where it works, on this machine; real path."""
    home: Path
    """A home of its own, which exists and is writable in the sandbox; nothing else of ours is."""
    sandbox: Sandbox
    """What everything that the runner starts is confined to."""
    environ: Mapping[str, str]
    """The whole environment of what it starts: minimal, without secrets that it does not need."""
    budget: Budget
    filesystem: Filesystem = "workspace-write"
    shell: Shell = "deny"
    network: Network = "deny"
    output_schema: Mapping[str, Json] | None = None
    """What the final answer must be; the caller checks it again."""
    thread_id: str = ""
    """The agent's session to go on with, if it can."""
    model: str = ""
    seen_at: Path | None = None
    """Where its sandbox shows the directory, if at another path."""

    @property
    def workspace(self) -> Path:
        """The directory by the path that an agent in its sandbox knows it by."""
        return self.directory if self.seen_at is None else self.seen_at

    def find_inside(self, path: Path) -> Path:
        """Return where an agent in its sandbox finds a path of this machine."""
        if self.workspace == self.directory:
            return path  # nothing is mounted elsewhere
        ways = [one for one in self.sandbox.mounts if path.is_relative_to(one.source)]
        if not ways:
            return path
        nearest = max(ways, key=lambda one: len(one.source.parts))
        return nearest.target / path.relative_to(nearest.source)


@dataclass(frozen=True, slots=True)
class AgentRequest:
    """Something that an agent wants to do and may not do unasked."""

    task_id: str
    kind: Literal["command", "change", "permission"]
    title: str
    detail: tuple[str, ...]
    """Exactly what would happen: the argv or the diff, line by line."""
    digest: str
    """SHA-256 of kind and detail: what an approval is given for."""
    reason: str = ""


def ask_nobody(_: AgentRequest) -> Answer:
    """Say no for want of a user: this work is done unattended."""
    return Answer(Reply.NO, "nobody", "there is no user who could be asked")


@dataclass(frozen=True, slots=True)
class Means:
    """What a runner gets from whoever binds it."""

    approve: Callable[[AgentRequest], Answer]
    """Waits for the answer; silence is a no."""
    cancel: Cancellation
    support: SandboxSupport
    """What ``sandbox.probe`` found."""
    run_tests: Callable[[str], str] | None = None
    """Runs the tests at a path (empty: all) and answers with a text; ``None``: there are none."""
    on_session: Callable[[str], None] = lambda _: None
    """Told the agent's session as soon as the agent names it: who is killed afterwards can go on
    with it. It may be told the same more than once."""
    on_denied: Callable[[Denial], None] = lambda _: None
    """Told of a request that was refused, at the moment at which the agent hears of it."""
    on_usage: Callable[[Usage], None] = lambda _: None
    """Told the tokens of this performance so far, each time that more are known of."""
    on_output: Callable[[str], None] = lambda _: None
    """Told each line that a program writes besides its result, as it comes."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a performance ended."""

    status: Status
    reason: str = ""
    """Why it is not ``done``; one sentence."""
    result: Mapping[str, Json] | None = None
    """The structured answer, parsed from JSON; not yet checked against any schema."""
    text: str = ""
    """The last text of the agent."""
    thread_id: str = ""
    usage: Usage | None = None
    enforced: tuple[Enforced, ...] = field(default=())
    """The sandboxes that held while it ran."""
    version: str = ""
    """The agent's own version, where it has one."""
    session_lost: bool = False
    """Whether the agent could not go on with the session of the assignment, so that nothing was
    done: it does not know it, or not any more."""


class Runner(Protocol):
    """Performs assignments. One object may serve several threads at once."""

    @property
    def name(self) -> str: ...

    def perform(self, assignment: Assignment, means: Means) -> Generator[Part, None, Ending]:
        """Yield each part when it is complete; return the ending.

        Closing the generator ends everything that it started. An agent that cannot be started at
        all raises; everything that an agent does wrong is an ``Ending``.
        """
