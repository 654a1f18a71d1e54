"""The model context protocol, wired: foreign tools for our agent, and our tools for others."""

from __future__ import annotations

import logging
import threading
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from coilclaw.gateway import recalling
from coilclaw.kernel import CoilClawError, Secret, UsageError
from coilclaw.workspace import format_time, new_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import ExitStack
    from datetime import datetime
    from pathlib import Path

    from coilclaw.agent import (
        ApprovalQuestion,
        ApprovalStore,
        Call,
        Estop,
        McpServer,
        Offered,
        ServerPins,
        Tool,
        ToolContext,
        ToolListing,
    )
    from coilclaw.app.agent_runtime import Runtime
    from coilclaw.gateway import Client
    from coilclaw.kernel import ApprovalAnswer, ApprovalRequest, ToolCall, ToolResult
    from coilclaw.workspace import Cancellation

APPROVAL_S: Final = 300.0
"""How long a call of an MCP client waits for a person."""
MARGIN_S: Final = 60.0
"""How much later than a wait its watch for the emergency stop ends."""
MIN_SECRET_CHARS: Final = 8
_SECRETIVE: Final = ("KEY", "TOKEN", "SECRET", "PASS", "CREDENTIAL", "AUTH", "COOKIE")

Standing: TypeAlias = Literal["approved", "changed", "new", "gone", "refused"]

_log = logging.getLogger(__name__)


def mcp_tools(servers: Mapping[str, McpServer], home: Path, stack: ExitStack) -> tuple[Tool, ...]:
    """The approved tools of all servers; none is connected yet, and ``stack`` closes them.

    They are described as they were approved, so that no server has to run for this.
    """
    active = [server for server in servers.values() if server.enabled]
    if not active:
        return ()
    from coilclaw.agent import ForeignTool, McpConnection, Pins

    pins = Pins(home)
    approved = pins.read()
    tools: dict[str, Tool] = {}
    for server in active:
        pinned = approved.get(server.name)
        if pinned is None:
            _log.warning(
                "the MCP server %s is not approved, so that none of its tools is offered",
                server.name,
                extra={"event": "mcp_unapproved", "fields": {"server": server.name}},
            )
            continue
        connection = McpConnection(server)
        stack.callback(connection.close)
        for _, definition in sorted(pinned.tools.items()):
            tool = ForeignTool(definition, connection, pins)
            tools.setdefault(tool.name, tool)
    return tuple(tools.values())


def list_server_secrets(
    servers: Mapping[str, McpServer], environ: Mapping[str, str]
) -> tuple[Secret, ...]:
    """Every secret that one of the servers is given, so that none gets out.

    What goes into a header is one; of what goes into an environment, what is called like one.
    """
    names: dict[str, None] = {}
    for server in servers.values():
        names |= dict.fromkeys(server.headers.values())
        names |= dict.fromkeys([server.token_env] if server.token_env else [])
        names |= dict.fromkeys(
            name for name in server.env if any(word in name.upper() for word in _SECRETIVE)
        )
    texts = (environ.get(name, "").strip() for name in names)
    return tuple(Secret(text) for text in texts if len(text) >= MIN_SECRET_CHARS)


def list_offered_tools(runtime: Runtime) -> Offered:
    """The active tools, as others are told of them."""
    from coilclaw.agent import offered_tool

    guard = runtime.guard
    return lambda: [
        offered_tool(tool) for tool in guard.tools.values() if tool.name in guard.allowed
    ]


def make_guarded_call(
    runtime: Runtime,
    people: DeskPeople | None = None,
    client: Callable[[], Client | None] = lambda: None,
) -> Call:
    """The way of a foreign client's call: through the guard, each as a turn of its own.

    ``client`` tells who calls, where that is known.
    """
    guard = runtime.guard
    # What all contexts share is opened here: calls come in several threads.
    runtime.context("mcp", "turn")

    def call(wanted: ToolCall, conversation: str, cancel: Cancellation) -> ToolResult:
        turn, who = new_id("turn"), client()
        context = replace(runtime.context(conversation, turn), cancel=cancel)
        if who is not None:
            context = recalling(context, runtime.memory, who)
        try:
            if people is None:
                return guard.call(wanted, context)
            with people.during(conversation, cancel, "" if who is None else who.label):
                return guard.call(wanted, context)
        finally:
            runtime.undoing.after(conversation, turn)

    return call


def make_question(request: ApprovalRequest, **more: str) -> ApprovalQuestion:
    """Make the question whether a call of a tool may be made."""
    from coilclaw.agent import ApprovalQuestion

    verdict = request.verdict
    return ApprovalQuestion(
        kind="tool",
        digest=request.digest,
        tool=request.tool,
        arguments=request.arguments,
        risk=str(verdict.risk),
        rule=verdict.rule,
        reason=verdict.reason,
        detail=request.detail,
        **more,
    )


class DeskPeople:
    """People who are not at this terminal: a question goes to the desk and waits, for a while."""

    def __init__(
        self,
        desk: ApprovalStore,
        estop: Estop,
        timeout_s: float = APPROVAL_S,
        *,
        who: str = "an MCP client",
    ) -> None:
        self._desk = desk
        self._estop = estop
        self._stopping: str | None = None
        self._timeout_s = timeout_s
        self._who = who
        self._calls = threading.local()

    @contextmanager
    def during(self, conversation: str, cancel: Cancellation, asker: str = "") -> Iterator[None]:
        """Say whose call this thread is about to take through the guard."""
        self._calls.current = (conversation, cancel, asker)
        try:
            yield
        finally:
            del self._calls.current

    def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        """Put the question on the desk; anything but a yes in time is a no."""
        from coilclaw.kernel import ApprovalAnswer, ApprovalReply

        current: tuple[str, Cancellation, str] | None = getattr(self._calls, "current", None)
        if current is None:
            return ApprovalAnswer(ApprovalReply.NO, "nobody", "the call has no client")
        conversation, cancel, asker = current
        title = f"{self._who} calls {request.tool}"
        question = make_question(request, origin=conversation, title=title, asker=asker)
        name = self._desk.ask(question, expires_s=self._timeout_s)
        _log.warning(
            "%s waits for approval: 'coilclaw approve %s', within %g s",
            request.tool,
            name,
            self._timeout_s,
            extra={"event": "approval_waiting", "fields": {"approval": name}},
        )
        with self._estop.watched(cancel, self._timeout_s + MARGIN_S):
            return self._desk.wait_for_answer(
                name,
                request.digest,
                cancel=cancel,
                timeout_s=self._timeout_s,
                stopping=lambda: self._stopping,
            )

    def halt(self, reason: str) -> None:
        """Hear that the program is being stopped: whatever still waits ends by that."""
        self._stopping = reason

    def ask(self, _question: str) -> None:
        """Answer nothing: questions are not put over this wire."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One tool of a server, beside what was approved of it."""

    name: str
    standing: Standing
    reason: str = ""


def find_server(servers: Mapping[str, McpServer], name: str) -> McpServer:
    """The server of that name."""
    if name in servers:
        return servers[name]
    raise UsageError(
        f"there is no MCP server {name!r} in the configuration",
        rule="mcp.unknown",
        hint=f"configured: {', '.join(servers) or 'none'}",
    )


def examine(server: McpServer, context: ToolContext, redact: Callable[[str], str]) -> ToolListing:
    """Connect to a server, ask for its tools, and let go of it."""
    from coilclaw.agent import ConnectionTerms, McpConnection, launch

    connection = McpConnection(server)
    start = None if server.command is None else lambda: launch(server, context)
    try:
        return connection.listing(
            ConnectionTerms(start, context.environ, server.start_timeout_s, context.cancel)
        )
    except CoilClawError as problem:
        problem.message = redact(problem.message)  # it may hold what the program complained about
        raise
    finally:
        connection.close()


def compare_tools(
    server: McpServer, listing: ToolListing, pinned: ServerPins | None
) -> list[Compared]:
    """Say of each tool whether it is what was approved."""
    from coilclaw.agent import identity

    known = {}
    if pinned is not None and pinned.identity == identity(server):
        known = {name: each.sha256 for name, each in pinned.tools.items()}
    found = [Compared(name, "refused", reason) for name, reason in listing.refused]
    for name, definition in listing.tools.items():
        standing: Standing = "new"
        if name in known:
            standing = "approved" if known[name] == definition.sha256 else "changed"
        found.append(Compared(name, standing))
    found += [Compared(name, "gone") for name in known if name not in listing.tools]
    return sorted(found, key=lambda one: one.name)


def approve(server: McpServer, listing: ToolListing, home: Path, now: datetime) -> None:
    """Record what a person has seen and agreed to."""
    from coilclaw.agent import Pins, identity

    Pins(home).approve(server.name, identity(server), listing.tools.values(), format_time(now))
    _log.info(
        "%d tools of the MCP server %s are approved",
        len(listing.tools),
        server.name,
        extra={"event": "mcp_approved", "fields": {"server": server.name}},
    )
