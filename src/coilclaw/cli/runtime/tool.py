"""``coilclaw tool``: list the tools, and run one through the guard."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from coilclaw.cli.command import DENIED, DONE, FAILED, find_home, load_config, pick
from coilclaw.kernel import JsonFault, UsageError, read_json_object

if TYPE_CHECKING:
    from coilclaw.cli.command import Console, Namespace, Parser
    from coilclaw.kernel import Json

MAX_ARGUMENT_BYTES: Final = 4 * 2**20


def declare(parser: Parser) -> None:
    """Declare the arguments."""
    action = parser.actions()
    action("list", "list all tools, and which are active", _list).json()
    running = action("run", "run one tool as the agent would: gate, approval, receipt", _run)
    running.value("name", "NAME", "the tool")
    summary = "its arguments as a JSON object; '-' reads standard input (default: {})"
    running.value("--json", "ARGS", summary, dest="arguments", default="{}")
    summary = "the format of the result: text (default) or json"
    running.value("--output", "FORM", summary, choices=("text", "json"), default="text")


def _list(_: Namespace, console: Console) -> None:
    from coilclaw.app import collect_tools, list_allowed_tools

    config = load_config()
    with ExitStack() as stack:
        known = collect_tools(config, find_home(), stack).values()
    allowed = list_allowed_tools(known, config.cli.tools_allow)
    records: list[dict[str, object]] = []
    lines: list[tuple[str, str | None]] = []
    for tool in known:
        active = tool.name in allowed
        about = {"active": active, **pick(tool, "owner", "parameters_schema")}
        records.append({**pick(tool, "name", "description"), **about})
        state = "" if tool.owner == "coilclaw" else f"  [{tool.owner}]"
        state += "" if active else "  (not in channels.cli.tools_allow)"
        lines.append((f"{tool.name:<14} {tool.description}{state}", None if active else "dim"))
    console.table(records, lines)


def _run(args: Namespace, console: Console) -> int:
    from coilclaw.cli.session import open_session
    from coilclaw.kernel import ToolCall

    arguments = read_arguments(args.arguments)
    with open_session() as runtime:
        result = runtime.call(ToolCall("call-1", args.name, arguments))
    if args.output == "json":
        record = pick(result, "success", "output", "error")
        record |= {"metadata": dict(result.metadata), "receipt_id": result.receipt_id}
        console.data(record)
    else:
        for line in result.output.splitlines():
            console.print(line)
        if result.error is not None:
            console.error(result.error, rule=str(result.metadata.get("rule", "tool.failed")))
    if result.success:
        return DONE
    # Without receipts, results have no status, and everything is denied.
    return FAILED if result.metadata.get("status") == "failed" else DENIED


def read_arguments(text: str) -> dict[str, Json]:
    """Read the arguments of a call; ``-`` reads standard input."""
    if text == "-":
        text = sys.stdin.read(MAX_ARGUMENT_BYTES + 1)
    if len(text) > MAX_ARGUMENT_BYTES:
        raise UsageError("the arguments are too large", rule="arguments.large")
    try:
        return read_json_object(text)
    except JsonFault as problem:
        raise UsageError(
            f"the value of --json {problem}",
            rule="arguments.json",
            hint='for example: --json \'{"path": "."}\'',
        ) from problem
