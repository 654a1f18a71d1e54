"""The tools of configured MCP servers: offered as approved, compared, and approved anew."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from coilclaw.kernel import CoilClawError, Secret, UsageError
from coilclaw.workspace import format_time

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import ExitStack
    from datetime import datetime
    from pathlib import Path

    from coilclaw.agent.mcp.definitions import ToolListing
    from coilclaw.agent.mcp.pins import ServerPins
    from coilclaw.agent.mcp.settings import McpServer
    from coilclaw.agent.tools.contract import Tool, ToolContext

MIN_SECRET_CHARS: Final = 8
_SECRETIVE: Final = ("KEY", "TOKEN", "SECRET", "PASS", "CREDENTIAL", "AUTH", "COOKIE")

Standing: TypeAlias = Literal["approved", "changed", "new", "gone", "refused"]

_log = logging.getLogger(__name__)


def make_server_tools(
    servers: Mapping[str, McpServer], home: Path, stack: ExitStack
) -> tuple[Tool, ...]:
    """Return the approved tools of all servers; none is connected yet, and ``stack`` closes them.

    They are described as they were approved, so that no server has to run for this.
    """
    active = [server for server in servers.values() if server.enabled]
    if not active:
        return ()
    from coilclaw.agent.mcp.connection import ForeignTool, McpConnection
    from coilclaw.agent.mcp.pins import Pins

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
    """Return every secret that one of the servers is given, so that none gets out.

    The value of every header is one; a variable is one if its name says so.
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


@dataclass(frozen=True, slots=True)
class ComparedTool:
    """One tool of a server, beside what was approved of it."""

    name: str
    standing: Standing
    reason: str = ""


def find_server(servers: Mapping[str, McpServer], name: str) -> McpServer:
    """Return the server of that name; ``UsageError`` where none is configured."""
    if name in servers:
        return servers[name]
    raise UsageError(
        f"no MCP server {name!r} is configured",
        rule="mcp.unknown",
        hint=f"configured: {', '.join(servers) or 'none'}",
    )


def list_server_tools(
    server: McpServer, context: ToolContext, redact: Callable[[str], str]
) -> ToolListing:
    """Connect to a server, ask for its tools, and disconnect."""
    from coilclaw.agent.mcp.connection import ConnectionTerms, McpConnection
    from coilclaw.agent.mcp.server_process import launch

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
) -> list[ComparedTool]:
    """Compare each tool with what was approved of it."""
    from coilclaw.agent.mcp.settings import identity

    known = {}
    if pinned is not None and pinned.identity == identity(server):
        known = {name: each.sha256 for name, each in pinned.tools.items()}
    found = [ComparedTool(name, "refused", reason) for name, reason in listing.refused]
    for name, definition in listing.tools.items():
        standing: Standing = "new"
        if name in known:
            standing = "approved" if known[name] == definition.sha256 else "changed"
        found.append(ComparedTool(name, standing))
    found += [ComparedTool(name, "gone") for name in known if name not in listing.tools]
    return sorted(found, key=lambda one: one.name)


def approve_tools(server: McpServer, listing: ToolListing, home: Path, now: datetime) -> None:
    """Record the tools that a person has seen and agreed to."""
    from coilclaw.agent.mcp.pins import Pins
    from coilclaw.agent.mcp.settings import identity

    Pins(home).approve(server.name, identity(server), listing.tools.values(), format_time(now))
    _log.info(
        "%d tools of the MCP server %s are approved",
        len(listing.tools),
        server.name,
        extra={"event": "mcp_approved", "fields": {"server": server.name}},
    )
