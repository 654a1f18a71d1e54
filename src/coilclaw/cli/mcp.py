"""``coilclaw mcp``: offer our tools to others, and approve those of others."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

from coilclaw.cli.parser import add_json

if TYPE_CHECKING:
    import argparse

    from coilclaw.app.mcpwiring import Compared
    from coilclaw.cli.console import Console
    from coilclaw.mcp.definitions import Definition, Listing
    from coilclaw.mcp.settings import McpServer


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    serving = actions.add_parser(
        "serve", help="offer the active tools over standard input and output", allow_abbrev=False
    )
    serving.add_argument(
        "--approval-timeout",
        type=float,
        metavar="S",
        help="seconds that a call waits for 'coilclaw approve' (default: 300; 0: denied at once)",
    )
    listing = actions.add_parser(
        "list", help="the servers in the configuration, and what is approved", allow_abbrev=False
    )
    add_json(listing)
    showing = actions.add_parser(
        "tools", help="ask a server for its tools, and compare", allow_abbrev=False
    )
    showing.add_argument("name", metavar="NAME", help="the server")
    add_json(showing)
    approving = actions.add_parser(
        "approve", help="show the tools of a server, and approve exactly these", allow_abbrev=False
    )
    approving.add_argument("name", metavar="NAME", help="the server")
    approving.add_argument("--yes", action="store_true", help="approve without being asked")
    forgetting = actions.add_parser(
        "forget", help="take the approval of a server back", allow_abbrev=False
    )
    forgetting.add_argument("name", metavar="NAME", help="the server")


def run(args: argparse.Namespace, console: Console) -> int:
    """Serve, or look after the servers of others."""
    match args.action:
        case "serve":
            return _serve(args.approval_timeout)
        case "list":
            return _list(console)
        case "tools":
            return _tools(args.name, console)
        case "approve":
            return _approve(args, console)
        case _:
            return _forget(args.name, console)


def _serve(approval_timeout: float | None) -> int:
    from datetime import datetime

    from coilclaw.app import mcpwiring
    from coilclaw.app.agentwiring import People, open_config, open_runtime
    from coilclaw.app.home import home
    from coilclaw.cli.dispatch import DONE
    from coilclaw.cli.telling import logging_for
    from coilclaw.errors import UsageError
    from coilclaw.mcp.stdio import diverted, serve
    from coilclaw.runtime.approvals import Desk
    from coilclaw.runtime.estop import Estop

    seconds = mcpwiring.APPROVAL_S if approval_timeout is None else approval_timeout
    if not 0 <= seconds <= 24 * 3600:
        raise UsageError("--approval-timeout is 0 to 86400 seconds", rule="usage.timeout")
    place = home()
    config = open_config(place, os.environ)
    desk = Desk(place, lambda: datetime.now().astimezone())
    people = mcpwiring.DeskPeople(desk, Estop.of(place), seconds)
    with (
        diverted() as (source, sink),
        logging_for(os.environ, config),
        open_runtime(
            place, os.environ, People(people.approve, people.ask), config=config
        ) as runtime,
    ):
        runtime.announce("mcp")
        call = mcpwiring.guarded(runtime, people)
        serve(call, mcpwiring.offered(runtime), source, sink, people.halt)
    return DONE


def _list(console: Console) -> int:
    from coilclaw.app.agentwiring import open_config
    from coilclaw.app.home import home
    from coilclaw.cli.dispatch import DONE
    from coilclaw.mcp.pins import Pins
    from coilclaw.mcp.settings import identity

    servers = open_config(home(), os.environ).mcp_servers
    pins = Pins(home()).read()
    rows = []
    for name, server in servers.items():
        pinned = pins.get(name)
        standing = "not approved"
        if pinned is not None:
            fits = pinned.identity == identity(server)
            standing = "approved" if fits else "approved for another command or address"
        rows.append((server, standing, () if pinned is None else tuple(pinned.tools)))
    if console.as_json:
        console.data([_row(*row) for row in rows])
        return DONE
    for server, standing, tools in rows:
        state = standing if server.enabled else "disabled"
        console.print(f"{server.name:<16} {state}, {len(tools)} tools, {server.risk} risk")
        console.print(f"  {server.where}", "dim")
    if not rows:
        console.note("no server in the configuration: [mcp.servers.NAME] names one")
    return DONE


def _row(server: McpServer, standing: str, tools: tuple[str, ...]) -> dict[str, object]:
    return {
        "name": server.name,
        "where": server.where,
        "enabled": server.enabled,
        "risk": str(server.risk),
        "standing": standing,
        "tools": list(tools),
    }


def _examined(name: str) -> tuple[McpServer, Listing, list[Compared]]:
    """Ask a server what it offers, contained as it would be for the agent."""
    from coilclaw.app import mcpwiring
    from coilclaw.app.agentwiring import open_config, open_runtime
    from coilclaw.app.home import home
    from coilclaw.cli.people import at_terminal
    from coilclaw.cli.telling import logging_for
    from coilclaw.errors import DeniedError
    from coilclaw.mcp.pins import Pins
    from coilclaw.runtime import estop

    config = open_config(home(), os.environ)
    server = mcpwiring.chosen(config.mcp_servers, name)
    with (
        logging_for(os.environ, config),
        open_runtime(
            home(), os.environ, at_terminal(config.security.autonomy), config=config
        ) as runtime,
    ):
        if runtime.guard.estop.set:
            raise DeniedError(f"{estop.REASON}, and no server is started", rule=estop.RULE)
        context = runtime.context("mcp-approve", "turn")
        listing = mcpwiring.examine(server, context, runtime.redactor.redact)
    return server, listing, mcpwiring.compare(server, listing, Pins(home()).read().get(name))


def _tools(name: str, console: Console) -> int:
    from coilclaw.cli.dispatch import DONE, FAILED

    server, listing, compared = _examined(name)
    same = all(one.standing == "approved" for one in compared)
    if console.as_json:
        console.data([_tool(server, one, listing.tools.get(one.name)) for one in compared])
        return DONE if same else FAILED
    for one in compared:
        _show(server, one, listing.tools.get(one.name), console)
    return DONE if same else FAILED


def _tool(server: McpServer, one: Compared, definition: Definition | None) -> dict[str, object]:
    from coilclaw.mcp.names import tool_name

    told: dict[str, object] = {
        "name": one.name,
        "called": tool_name(server.name, one.name),
        "standing": one.standing,
        "reason": one.reason,
    }
    if definition is not None:
        told |= {"sha256": definition.sha256, "definition": json.loads(definition.text)}
    return told


def _show(
    server: McpServer, one: Compared, definition: Definition | None, console: Console
) -> None:
    """Show a definition with everything in it visible: it is what a model will read."""
    from coilclaw.channels.visible import visible
    from coilclaw.mcp.foreigntext import hidden
    from coilclaw.mcp.names import tool_name

    style = {"approved": "green", "new": "yellow", "changed": "red"}.get(one.standing, "dim")
    console.print(f"{one.standing:<9} {visible(tool_name(server.name, one.name))}", style)
    if one.reason:
        console.print(f"  {visible(one.reason)}")
    if definition is None:
        return
    console.print(f"  sha256 {definition.sha256}", "dim")
    unseen = hidden(definition.text) + hidden(definition.description)
    if unseen:
        console.print("  it holds invisible characters", "red")
    for line in definition.description.split("\n"):
        console.print(f"  | {visible(line)}")
    rest = {k: v for k, v in json.loads(definition.text).items() if k != "description"}
    for line in json.dumps(rest, indent=2, ensure_ascii=False).split("\n"):
        console.print(f"  {visible(line)}", "dim")


def _approve(args: argparse.Namespace, console: Console) -> int:
    from datetime import datetime

    from coilclaw.app import mcpwiring
    from coilclaw.app.home import home
    from coilclaw.cli.dispatch import DENIED, DONE
    from coilclaw.cli.question import Questions

    server, listing, compared = _examined(args.name)
    for one in compared:
        _show(server, one, listing.tools.get(one.name), console)
    if not args.yes and not Questions(console, sys.stdin).agrees(
        f"Approve these {len(listing.tools)} tools of {server.name} ({server.where})?",
        flag="--yes",
        default=False,
    ):
        console.note("nothing is approved")
        return DENIED
    mcpwiring.approve(server, listing, home(), datetime.now().astimezone())
    console.print(f"{len(listing.tools)} tools of {server.name} are approved", "green")
    return DONE


def _forget(name: str, console: Console) -> int:
    from coilclaw.app.home import home
    from coilclaw.cli.dispatch import DONE
    from coilclaw.errors import UsageError
    from coilclaw.mcp.pins import Pins

    if not Pins(home()).forget(name):
        raise UsageError(f"nothing of an MCP server {name!r} is approved", rule="mcp.unknown")
    console.print(f"the approval of {name} is taken back")
    return DONE
