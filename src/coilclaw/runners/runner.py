"""``Runner``: the one protocol for performing work in a directory.

A runner is contained, not trusted: whatever it starts runs in the assignment's sandbox and ends
with it. Its changes are judged afterwards, from snapshots, never from its own report.
"""

from __future__ import annotations

import shlex
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias, get_args

from coilclaw.kernel import ApprovalAnswer, ApprovalReply, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping
    from pathlib import Path

    from coilclaw.kernel import Budget, Json, Part, Usage
    from coilclaw.runners.agent_requests import Denial
    from coilclaw.workspace import Cancellation, Enforced, Sandbox, SandboxSupport


Kind: TypeAlias = Literal[
    "builtin", "code-commit", "scripted", "process", "codex", "codex-exec", "opencode", "acp"
]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
MAX_NAME: Final = 32 * 2**10

_ARGUMENTS: Final = {
    "scripted": "FILE.json",
    "process": '"PROGRAM ARGUMENT…"',
    "acp": '"PROGRAM ARGUMENT…"',
}
"""The form of the argument behind the colon; other kinds take none."""


@dataclass(frozen=True, slots=True)
class RunnerName:
    """A runner as the user names it; ``argument`` follows the colon."""

    kind: Kind
    argument: str = ""

    @property
    def argv(self) -> tuple[str, ...]:
        """The words of a ``process`` or ``acp``: split as a shell would, and never read by one."""
        return tuple(shlex.split(self.argument))

    def __str__(self) -> str:
        return f"{self.kind}:{self.argument}" if self.argument else self.kind


def parse(text: str) -> RunnerName:
    """Parse a name; raise ``UsageError`` with the list of names for an unknown one."""
    kind, colon, argument = text.partition(":")
    if kind not in KINDS or len(text) > MAX_NAME:
        raise UsageError(
            f"the runner {text[:200]!r} is not known",
            rule="runner.unknown",
            hint=f"use {list_runners()}",
        )
    form = _ARGUMENTS.get(kind)
    if form is None and colon:
        raise UsageError(f"the runner {kind} takes no argument", rule="runner.argument")
    name = RunnerName(kind, argument.strip())
    if form is not None and not name.argument:
        raise UsageError(
            f"the runner {kind} needs an argument",
            rule="runner.argument",
            hint=f"write {kind}:{form}",
        )
    if kind in ("process", "acp"):
        try:
            words = name.argv
        except ValueError as problem:
            raise UsageError(
                f"the command of the runner cannot be split: {problem}", rule="runner.argument"
            ) from problem
        if not words or not words[0] or any("\0" in word for word in words):
            raise UsageError("the command of the runner names no program", rule="runner.argument")
    return name


def list_runners() -> str:
    """Return every name in its form, for messages."""
    return ", ".join(f"{kind}:{_ARGUMENTS[kind]}" if kind in _ARGUMENTS else kind for kind in KINDS)


DEFAULT_WALL_S: Final = 3600.0
"""For a budget that names no time: nothing runs without a limit."""

Filesystem: TypeAlias = Literal["read-only", "workspace-write"]
Shell: TypeAlias = Literal["deny", "never", "on-request", "untrusted"]
Network: TypeAlias = Literal["deny", "on-request", "allow"]
Status: TypeAlias = Literal["done", "failed", "aborted", "exhausted"]
"""``failed``: the agent reports it; ``aborted``: it was cancelled or crashed; ``exhausted``: the
budget is used up."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment of the monotonic clock; waiting for an approval counts like any other time."""

    at: float
    seconds: float
    """How long it was from the beginning."""

    @classmethod
    def of(cls, budget: Budget) -> Deadline:
        """Return the deadline of work that begins now."""
        seconds = DEFAULT_WALL_S if budget.wall_s is None else budget.wall_s
        return cls(time.monotonic() + seconds, seconds)

    @property
    def remaining_s(self) -> float:
        """The time left; never zero, because a process needs a positive time limit."""
        return max(self.at - time.monotonic(), 0.001)

    @property
    def passed(self) -> bool:
        return time.monotonic() >= self.at

    @property
    def reason(self) -> str:
        return f"the time of {self.seconds:g} s is used up"


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
    """The agent's session to resume, if it can."""
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
    """An action of an agent that needs an approval."""

    task_id: str
    kind: Literal["command", "change", "permission"]
    title: str
    detail: tuple[str, ...]
    """Exactly what would happen: the argv or the diff, line by line."""
    digest: str
    """SHA-256 of kind and detail: what an approval is given for."""
    reason: str = ""


def ask_nobody(_: AgentRequest) -> ApprovalAnswer:
    """Refuse every request: this work is done unattended."""
    return ApprovalAnswer(ApprovalReply.NO, "nobody", "no user can be asked")


@dataclass(frozen=True, slots=True)
class Means:
    """What a runner gets from its caller."""

    approve: Callable[[AgentRequest], ApprovalAnswer]
    """Waits for the answer; no answer refuses the request."""
    cancel: Cancellation
    support: SandboxSupport
    """What ``sandbox.probe`` found."""
    run_tests: Callable[[str], str] | None = None
    """Runs the tests at a path (empty: all) and answers with a text; ``None``: there are none."""
    on_session: Callable[[str], None] = lambda _: None
    """Called with the agent's session as soon as it is known, perhaps more than once: a caller that
    is killed later can resume it."""
    on_denied: Callable[[Denial], None] = lambda _: None
    """Called for a request that was refused, when the agent gets the answer."""
    on_usage: Callable[[Usage], None] = lambda _: None
    """Called with the tokens of this performance so far, each time the count grows."""
    on_output: Callable[[str], None] = lambda _: None
    """Called with each line that a program writes besides its result."""


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
    """Whether the agent does not know the session of the assignment, so that nothing was done."""


class Runner(Protocol):
    """Performs assignments. One object may serve several threads at once."""

    @property
    def name(self) -> str: ...

    def perform(self, assignment: Assignment, means: Means) -> Generator[Part, None, Ending]:
        """Yield each part when it is complete; return the ending.

        Closing the generator ends everything that it started. An agent that cannot be started at
        all raises; everything that an agent does wrong is an ``Ending``.
        """
