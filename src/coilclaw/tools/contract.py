"""What a tool is: a schema, declared effects, and one way to perform a call."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from coilclaw.workspace.sandbox_view import View

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime
    from pathlib import Path

    from coilclaw.domain.effects import Effect, Locate
    from coilclaw.domain.messages import Json
    from coilclaw.domain.toolcalls import ToolResult
    from coilclaw.domain.turns import Recollection
    from coilclaw.domain.verdict import Risk
    from coilclaw.security.judgement import Judgement
    from coilclaw.security.settings import SecuritySettings
    from coilclaw.workspace.process import Cancellation
    from coilclaw.workspace.resolve import Root
    from coilclaw.workspace.sandbox import Kind, Mount, SandboxSupport
    from coilclaw.workspace.state import TreeState

Arguments: TypeAlias = "Mapping[str, Json]"

DEFAULT_OUTPUT_BYTES: Final = 64 * 2**10


@dataclass(frozen=True, slots=True)
class ToolLimits:
    """The named bounds of every tool call."""

    tool_timeout_s: float = 30.0
    shell_timeout_s: float = 15.0
    http_timeout_s: float = 20.0
    output_bytes: int = DEFAULT_OUTPUT_BYTES
    """How much of what a tool found the model is given; the rest is cut, and said so."""
    shell_timeout_max_s: float = 600.0
    """The most that a model may ask for one command."""


@dataclass(frozen=True, slots=True)
class ToolContext:
    """Where and on what terms a call takes place."""

    root: Root
    """The workspace, open."""
    state: TreeState
    home: Path
    security: SecuritySettings
    locate: Locate
    judge: Callable[[tuple[Effect, ...]], Judgement]
    conversation_id: str
    turn_id: str
    cancel: Cancellation
    now: Callable[[], datetime]
    """The current time, with its zone."""
    environ: Mapping[str, str]
    """Ours; a child gets only what it needs of it."""
    recall: Callable[[str, int], tuple[Recollection, ...]]
    """Searches the memory for a query, for at most so many."""
    ask: Callable[[str], str | None]
    """Asks the user a question; ``None`` when nobody can be asked."""
    sandbox: Kind = "auto"
    mounts: tuple[Mount, ...] = ()
    """What commands find at another path than it has on this machine."""
    support: Callable[[], SandboxSupport] | None = None
    limits: ToolLimits = field(default_factory=ToolLimits)
    view: View = field(default_factory=View)
    """What the user lets every child see."""
    shared_home: Path | None = None
    """The home that all commands read; without one each has a private one that it may write."""
    starting: Callable[[], None] = field(default=lambda: None)
    """Called by a tool just before it starts a process or hands the call to a server."""
    asking: Callable[[], None] = field(default=lambda: None)
    """Called before a person is asked: the program may end while the answer is awaited."""


class Prepared(Protocol):
    """A call that is ready: looked at, with no effect yet. What is shown is what is performed."""

    @property
    def detail(self) -> tuple[str, ...]:
        """What would happen, for a person: the argv, or the diff."""

    @property
    def timeout_s(self) -> float:
        """How long it may take, where that is more than ``limits.tool_timeout_s``."""

    @property
    def lookup(self) -> str:
        """Where to see after a crash whether it happened: ``start``, ``change TREE/ID`` or empty.

        ``start`` means that the tool calls ``ToolContext.starting`` before its effect.
        """

    def perform(self) -> ToolResult: ...


class Tool(Protocol):
    """One thing an agent can call."""

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def owner(self) -> str:
        """Whose it is: ``coilclaw``, ``plugin:NAME`` or ``mcp:SERVER``."""

    @property
    def parameters_schema(self) -> Mapping[str, Json]: ...

    def effects(self, args: Arguments) -> tuple[Effect, ...]:
        """Say what a call would touch; ``UsageError`` for arguments that make no sense."""

    def risk(self, args: Arguments, context: ToolContext) -> Risk: ...

    def prepare(self, args: Arguments, context: ToolContext) -> Prepared:
        """Get everything ready without any effect; a ``CoilClawError`` says why it cannot be."""

    def invoke(self, args: Arguments, context: ToolContext) -> ToolResult: ...
