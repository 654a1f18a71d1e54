"""``coilclaw tool``: list the tools, and run one through the guard."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Final

from coilclaw.cli.parser import add_json

if TYPE_CHECKING:
    import argparse

    from coilclaw.cli.console import Console
    from coilclaw.domain.messages import Json
    from coilclaw.domain.toolcalls import ToolResult

MAX_ARGUMENT_BYTES: Final = 4 * 2**20


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="all tools, and which are active", allow_abbrev=False)
    add_json(listing)
    running = actions.add_parser(
        "run", help="run one tool, as the agent would: gate, approval, receipt", allow_abbrev=False
    )
    running.add_argument("name", metavar="NAME", help="the tool")
    running.add_argument(
        "--json",
        dest="arguments",
        default="{}",
        metavar="ARGS",
        help="its arguments as a JSON object, or '-' to read them from the input (default: {})",
    )
    running.add_argument(
        "--output",
        choices=("text", "json"),
        default="text",
        metavar="FORM",
        help="print the result as text (default) or json",
    )


def run(args: argparse.Namespace, console: Console) -> int:
    """List the tools or run one."""
    return _list(console) if args.action == "list" else _run(args, console)


def _list(console: Console) -> int:
    from contextlib import ExitStack

    from coilclaw.app.agentwiring import open_config
    from coilclaw.app.home import home
    from coilclaw.app.toolbox import allowed_of, tools_of
    from coilclaw.cli.dispatch import DONE

    config = open_config(home(), os.environ)
    with ExitStack() as stack:
        known = tools_of(config, home(), stack).values()
    allowed = allowed_of(known, config.cli.tools_allow)
    tools = [(tool, tool.name in allowed) for tool in known]
    if console.as_json:
        console.data(
            [
                {
                    "name": tool.name,
                    "description": tool.description,
                    "active": active,
                    "owner": tool.owner,
                    "parameters_schema": tool.parameters_schema,
                }
                for tool, active in tools
            ]
        )
        return DONE
    for tool, active in tools:
        state = "" if tool.owner == "coilclaw" else f"  [{tool.owner}]"
        state += "" if active else "  (not in channels.cli.tools_allow)"
        console.print(f"{tool.name:<14} {tool.description}{state}", None if active else "dim")
    return DONE


def _run(args: argparse.Namespace, console: Console) -> int:
    from coilclaw.app.agentwiring import open_config, open_runtime
    from coilclaw.app.home import home
    from coilclaw.cli.people import at_terminal
    from coilclaw.cli.telling import logging_for
    from coilclaw.domain.messages import ToolCall

    arguments = arguments_of(args.arguments)
    config = open_config(home(), os.environ)
    with (
        logging_for(os.environ, config),
        open_runtime(
            home(), os.environ, at_terminal(config.security.autonomy), config=config
        ) as runtime,
    ):
        result = runtime.call(ToolCall("call-1", args.name, arguments))
    return _show(result, console, as_json=args.output == "json")


def _show(result: ToolResult, console: Console, *, as_json: bool) -> int:
    from coilclaw.cli.dispatch import DENIED, DONE, FAILED

    status = result.metadata.get("status")
    if as_json:
        console.data(
            {
                "success": result.success,
                "output": result.output,
                "error": result.error,
                "metadata": dict(result.metadata),
                "receipt_id": result.receipt_id,
            }
        )
    else:
        for line in result.output.splitlines():
            console.print(line)
        if result.error is not None:
            rule = str(result.metadata.get("rule", "tool.failed"))
            console.error(result.error, rule=rule)
    if result.success:
        return DONE
    # Without receipts there is no status, and everything is denied.
    return FAILED if status == "failed" else DENIED


def arguments_of(text: str) -> dict[str, Json]:
    from coilclaw.errors import UsageError

    if text == "-":
        text = sys.stdin.read(MAX_ARGUMENT_BYTES + 1)
    if len(text) > MAX_ARGUMENT_BYTES:
        raise UsageError("the arguments are too large", rule="arguments.large")
    try:
        value = json.loads(text, object_pairs_hook=_pairs, parse_constant=_no_number)
    except (ValueError, RecursionError) as problem:
        raise UsageError(
            f"the arguments are not JSON: {problem}",
            rule="arguments.json",
            hint='for example: --json \'{"path": "."}\'',
        ) from problem
    if not isinstance(value, dict):
        raise UsageError("the arguments are no JSON object", rule="arguments.json")
    return value


def _pairs(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is there twice")
    return found


def _no_number(text: str) -> Json:
    raise ValueError(f"{text} is no number")
