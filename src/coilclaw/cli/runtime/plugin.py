"""``coilclaw plugin``: install, list, approve, test and remove tools that are programs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from coilclaw.cli.command import DENIED, DONE, FAILED, escape_hidden, find_home
from coilclaw.kernel import DeniedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coilclaw.agent import InstalledPlugin, Manifest, PluginStore
    from coilclaw.cli.command import Console, Namespace, Parser


def declare(parser: Parser) -> None:
    """Declare the arguments."""
    action = parser.actions()
    action("list", "list all plugins, their tools and whether they may run").json()
    installing = action("install", "install a directory or an archive; none of its code is run")
    installing.value("path", "PATH", "a directory, .zip, .tar.gz or .tar.xz")
    for name, summary in (
        ("remove", "delete a plugin"),
        ("enable", "allow a plugin to run again"),
        ("disable", "do not allow a plugin to run"),
    ):
        action(name, summary).value("name", "NAME", "the plugin")
    approving = action("approve", "show what changed in a plugin, and approve its current files")
    approving.value("name", "NAME", "the plugin").flag("--yes", "approve without asking")
    testing = action("test", "run the examples of the manifest, or one call, as the agent would")
    testing.value("name", "NAME", "the plugin")
    testing.value("tool", "TOOL", "one of its tools", nargs="?")
    summary = "the arguments of TOOL as a JSON object; '-' reads standard input"
    testing.value("--json", "ARGS", summary, dest="arguments")


def run(args: Namespace, console: Console) -> int:
    """Perform an action on the plugins of this home."""
    from coilclaw.agent import installation
    from coilclaw.app import open_plugins

    store = open_plugins(find_home())
    match args.action:
        case "test":
            return _test(args, store, console)
        case "list":
            found = store.list_installed()
            lines = (line for plugin in found for line in _describe(plugin))
            console.table(map(_record, found), lines, "no plugin is installed")
        case "install":
            _install(args, store, console)
        case "remove":
            installation.remove_plugin(store, args.name)
            console.print(f"removed {args.name}")
        case "approve":
            _approve(args, store, console)
        case _:
            installation.enable_plugin(store, args.name, enabled=args.action == "enable")
            console.print(f"{args.action}d {args.name}")
    return DONE


def _describe(plugin: InstalledPlugin) -> Iterator[tuple[str, str | None]]:
    tools = ", ".join(tool.name for tool in plugin.manifest.tools) if plugin.manifest else "-"
    style = {"enabled": "green", "disabled": "dim"}.get(plugin.state, "yellow")
    yield f"{plugin.name:<20} {plugin.version:<10} {plugin.state:<10} {tools}", style
    for line in (*plugin.differences, *plugin.problem.splitlines()):
        yield f"  {line}", None


def _record(plugin: InstalledPlugin) -> dict[str, object]:
    tools = plugin.manifest.tools if plugin.manifest else ()
    return {
        "name": plugin.name,
        "version": plugin.version,
        "state": plugin.state,
        "tools": [
            {
                "name": tool.name,
                "description": tool.description,
                "declares": str(tool.declared),
                "network": tool.network,
            }
            for tool in tools
        ],
        "differences": [{"path": one.path, "what": one.what} for one in plugin.differences],
        "problem": plugin.problem or None,
    }


def _install(args: Namespace, store: PluginStore, console: Console) -> None:
    from coilclaw.agent import install_plugin
    from coilclaw.app import builtin_names

    found = install_plugin(store, Path(args.path), builtin_names())
    console.print(f"installed {found.name} {found.version}", "green")
    _show_tools(found, console)
    console.note(
        f"its risk is high unless plugins.{found.name}.risk in the configuration lowers it"
    )
    console.note(f'to use it, add "plugin:{found.name}" or "plugin:*" to channels.cli.tools_allow')


def _show_tools(found: Manifest, console: Console) -> None:
    for tool in found.tools:
        network = "; wants the network" if tool.network else ""
        console.print(f"  {tool.name:<18} {tool.declared}{network}")


def _approve(args: Namespace, store: PluginStore, console: Console) -> None:
    from coilclaw.agent import approve_plugin, review_plugin
    from coilclaw.app import builtin_names

    reviewed = review_plugin(store, args.name, builtin_names())
    for line in reviewed.lines:
        console.print(f"  {escape_hidden(line)}")
    same = not reviewed.first and not reviewed.differences
    if not same and not args.yes:
        _confirm(args.name, console)
    approval = approve_plugin(store, args.name, builtin_names(), seen=reviewed.digest)
    changed = "for the first time" if approval.first else "as it is now"
    if same:
        changed = "again; nothing had changed"
    console.print(f"approved {args.name} {approval.manifest.version} {changed}", "green")
    _show_tools(approval.manifest, console)


def _confirm(name: str, console: Console) -> None:
    """Ask the user, who has seen the differences; raise without a terminal or without a yes."""
    from coilclaw.cli.question import Questions

    questions = Questions(console, sys.stdin)
    if not questions.attended:
        raise DeniedError(
            f"the plugin {name} is not approved: cannot ask without a terminal",
            rule="plugin.unattended",
            hint="check the differences, then use --yes",
        )
    if not questions.confirm(f"Allow {name} to run as it is now?", flag="--yes", default=False):
        raise DeniedError(f"the plugin {name} is not approved", rule="plugin.declined")


def _test(args: Namespace, store: PluginStore, console: Console) -> int:
    from coilclaw.agent import list_trials
    from coilclaw.cli.runtime.tool import read_arguments
    from coilclaw.cli.session import open_session
    from coilclaw.kernel import ToolCall

    if args.arguments is not None and args.tool is None:
        raise UsageError("--json needs a TOOL to call", rule="plugin.tool")
    given = None if args.arguments is None else read_arguments(args.arguments)
    wanted = list_trials(store, args.name, args.tool, given)
    with open_session() as runtime:
        outcomes = [
            (trial, runtime.call(ToolCall(f"call-{number}", trial.tool, trial.arguments)))
            for number, trial in enumerate(wanted, start=1)
        ]
    code = DONE
    for trial, result in outcomes:
        why = trial.shortfall(result)
        if given is not None:
            for line in result.output.splitlines():
                console.print(line)
        if why is None:
            console.note(f"ok      {trial.tool}", "green")
            continue
        console.error(f"{trial.tool}: {why}", rule=str(result.metadata.get("rule", "plugin.trial")))
        ran = result.metadata.get("status") in {"allowed", "failed"}
        code = max(code, FAILED if ran else DENIED)
    return code
