"""``coilclaw mcp``: offer the active tools to MCP clients, and approve tools of MCP servers."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING

from coilclaw.cli.command import DENIED, DONE, FAILED, find_home, load_config, pick
from coilclaw.kernel import DeniedError, UsageError

if TYPE_CHECKING:
    from coilclaw.agent import ComparedTool, Definition, McpServer, ToolListing
    from coilclaw.cli.command import Console, Namespace, Parser


def declare(parser: Parser) -> None:
    """Declare the arguments."""
    action = parser.actions()
    serving = action("serve", "offer the active tools over standard input and output", _serve)
    summary = "how long a call waits for 'coilclaw approve' (default: 300; 0 denies at once)"
    serving.value("--approval-timeout", "S", summary, type=float)
    action("list", "list the configured servers, and what is approved", _list).json()
    showing = action("tools", "compare the tools of a server with the approved ones", _show_tools)
    showing.value("name", "NAME", "the server").json()
    approving = action("approve", "show the tools of a server, and approve exactly these", _approve)
    approving.value("name", "NAME", "the server")
    approving.flag("--yes", "approve without asking")
    forgetting = action("forget", "withdraw the approval of a server", _forget)
    forgetting.value("name", "NAME", "the server")


def _serve(args: Namespace, _: Console) -> None:
    from coilclaw.agent import APPROVAL_S, Estop, RemotePeople, divert_output, serve_stdio
    from coilclaw.app import People, open_desk, open_runtime
    from coilclaw.cli.session import open_logs

    timeout = args.approval_timeout
    seconds = APPROVAL_S if timeout is None else timeout
    if not 0 <= seconds <= 24 * 3600:
        raise UsageError("--approval-timeout must be 0 to 86400 seconds", rule="usage.timeout")
    place = find_home()
    config = load_config()
    people = RemotePeople(open_desk(place), Estop.of(place), seconds)
    with (
        divert_output() as (source, sink),
        open_logs(os.environ, config),
        open_runtime(
            place, os.environ, People(people.approve, people.ask), config=config
        ) as runtime,
    ):
        runtime.announce("mcp")
        calls = runtime.calls
        call = calls.with_people(people)
        serve_stdio(call, calls.offered_tools(), source, sink, people.halt)


def _list(_: Namespace, console: Console) -> None:
    from coilclaw.agent import Pins, identity

    pins = Pins(find_home()).read()
    records: list[dict[str, object]] = []
    lines: list[tuple[str, str | None]] = []
    for name, server in load_config().mcp_servers.items():
        pinned = pins.get(name)
        standing = "not approved"
        if pinned is not None:
            fits = pinned.identity == identity(server)
            standing = "approved" if fits else "approved for another command or address"
        tools = [] if pinned is None else list(pinned.tools)
        about = {"risk": str(server.risk), "standing": standing, "tools": tools}
        records.append({**pick(server, "name", "where", "enabled"), **about})
        state = standing if server.enabled else "disabled"
        lines.append((f"{server.name:<16} {state}, {len(tools)} tools, {server.risk} risk", None))
        lines.append((f"  {server.where}", "dim"))
    empty = "no server is configured: add one as [mcp.servers.NAME]"
    console.table(records, lines, empty)


def _examine(name: str) -> tuple[McpServer, ToolListing, list[ComparedTool]]:
    """Ask a server for its tools, in the same sandbox as for the agent."""
    from coilclaw.agent import Pins, compare_tools, estop, find_server, list_server_tools
    from coilclaw.cli.session import open_session

    config = load_config()
    server = find_server(config.mcp_servers, name)
    with open_session(config) as runtime:
        if runtime.guard.estop.set:
            raise DeniedError(
                f"{estop.ESTOP_REASON}, and no server is started", rule=estop.ESTOP_RULE
            )
        context = runtime.context("mcp-approve", "turn")
        listing = list_server_tools(server, context, runtime.redactor.redact)
    pinned = Pins(find_home()).read().get(name)
    return server, listing, compare_tools(server, listing, pinned)


def _show_tools(args: Namespace, console: Console) -> int:
    server, listing, compared = _examine(args.name)
    if console.as_json:
        console.data([_record(server, one, listing.tools.get(one.name)) for one in compared])
    else:
        _show_all(server, listing, compared, console)
    return DONE if all(one.standing == "approved" for one in compared) else FAILED


def _record(
    server: McpServer, one: ComparedTool, definition: Definition | None
) -> dict[str, object]:
    from coilclaw.agent import tool_name

    record: dict[str, object] = {
        "name": one.name,
        "called": tool_name(server.name, one.name),
        **pick(one, "standing", "reason"),
    }
    if definition is not None:
        record |= {"sha256": definition.sha256, "definition": json.loads(definition.text)}
    return record


def _show_all(
    server: McpServer, listing: ToolListing, compared: list[ComparedTool], console: Console
) -> None:
    """Show definitions, hidden characters included: a model will read them."""
    from coilclaw.agent import count_hidden, tool_name, visible

    for one in compared:
        style = {"approved": "green", "new": "yellow", "changed": "red"}.get(one.standing, "dim")
        console.print(f"{one.standing:<9} {visible(tool_name(server.name, one.name))}", style)
        if one.reason:
            console.print(f"  {visible(one.reason)}")
        definition = listing.tools.get(one.name)
        if definition is None:
            continue
        console.print(f"  sha256 {definition.sha256}", "dim")
        if count_hidden(definition.text) + count_hidden(definition.description):
            console.print("  contains invisible characters", "red")
        for line in definition.description.split("\n"):
            console.print(f"  | {visible(line)}")
        rest = {k: v for k, v in json.loads(definition.text).items() if k != "description"}
        for line in json.dumps(rest, indent=2, ensure_ascii=False).split("\n"):
            console.print(f"  {visible(line)}", "dim")


def _approve(args: Namespace, console: Console) -> int:
    from datetime import datetime

    from coilclaw.agent import approve_tools
    from coilclaw.cli.question import Questions

    server, listing, compared = _examine(args.name)
    _show_all(server, listing, compared, console)
    asked = f"Approve these {len(listing.tools)} tools of {server.name} ({server.where})?"
    questions = Questions(console, sys.stdin)
    if not args.yes and not questions.confirm(asked, flag="--yes", default=False):
        console.note("nothing was approved")
        return DENIED
    approve_tools(server, listing, find_home(), datetime.now().astimezone())
    console.print(f"{len(listing.tools)} tools of {server.name} are approved", "green")
    return DONE


def _forget(args: Namespace, console: Console) -> None:
    from coilclaw.agent import Pins

    name = args.name
    if not Pins(find_home()).forget(name):
        raise UsageError(f"no MCP server {name!r} is approved", rule="mcp.unknown")
    console.print(f"the approval of {name} is withdrawn")
