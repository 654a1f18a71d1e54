"""``coilclaw plugin``: install, list, approve, try and remove tools that are programs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from coilclaw.cli.parser import add_json

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from coilclaw.cli.console import Console
    from coilclaw.domain.toolcalls import ToolResult
    from coilclaw.plugins.manifest import Manifest
    from coilclaw.plugins.store import Installed, Store
    from coilclaw.plugins.trial import Trial


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser(
        "list", help="all plugins, their tools and whether they may run", allow_abbrev=False
    )
    add_json(listing)
    installing = actions.add_parser(
        "install", help="install a directory or an archive; nothing of it is run"
    )
    installing.add_argument("path", metavar="PATH", help="a directory, .zip, .tar.gz or .tar.xz")
    for name, summary in (
        ("remove", "delete a plugin"),
        ("enable", "let a plugin run again"),
        ("disable", "keep a plugin from running"),
        ("approve", "show what changed in a plugin, and let it run as it is now"),
    ):
        action = actions.add_parser(name, help=summary, allow_abbrev=False)
        action.add_argument("name", metavar="NAME", help="the plugin")
        if name == "approve":
            action.add_argument("--yes", action="store_true", help="approve without asking")
    testing = actions.add_parser(
        "test",
        help="run the manifest's examples, or one call, as the agent would",
        allow_abbrev=False,
    )
    testing.add_argument("name", metavar="NAME", help="the plugin")
    testing.add_argument("tool", nargs="?", metavar="TOOL", help="one of its tools")
    testing.add_argument(
        "--json",
        dest="arguments",
        metavar="ARGS",
        help="the arguments of TOOL as a JSON object, or '-' to read them from the input",
    )


def run(args: argparse.Namespace, console: Console) -> int:
    """Do what is asked with the plugins of this home."""
    from coilclaw.app.home import home
    from coilclaw.app.pluginwiring import open_plugins

    store = open_plugins(home())
    if args.action == "test":
        return _test(args, store, console)
    actions: dict[str, Callable[[argparse.Namespace, Store, Console], None]] = {
        "list": _list,
        "install": _install,
        "remove": _remove,
        "enable": _enable,
        "disable": _enable,
        "approve": _approve,
    }
    actions[args.action](args, store, console)
    from coilclaw.cli.dispatch import DONE

    return DONE


def _list(_: argparse.Namespace, store: Store, console: Console) -> None:
    found = store.installed()
    if console.as_json:
        console.data([_described(plugin) for plugin in found])
        return
    styles = {"enabled": "green", "disabled": "dim"}
    for plugin in found:
        tools = ", ".join(tool.name for tool in plugin.manifest.tools) if plugin.manifest else "-"
        line = f"{plugin.name:<20} {plugin.version:<10} {plugin.state:<10} {tools}"
        console.print(line, styles.get(plugin.state, "yellow"))
        for difference in plugin.differences:
            console.print(f"  {difference}")
        for line in plugin.problem.splitlines():
            console.print(f"  {line}")
    if not found:
        console.note("no plugin is installed")


def _described(plugin: Installed) -> dict[str, object]:
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


def _install(args: argparse.Namespace, store: Store, console: Console) -> None:
    from coilclaw.app.pluginwiring import builtin_names
    from coilclaw.plugins.installing import install

    found = install(store, Path(args.path), builtin_names())
    console.print(f"installed {found.name} {found.version}", "green")
    _tools(found, console)
    console.note(
        f"its risk is high unless plugins.{found.name}.risk in the configuration says less"
    )
    console.note(f'channels.cli.tools_allow has to name "plugin:{found.name}" or "plugin:*"')


def _tools(found: Manifest, console: Console) -> None:
    for tool in found.tools:
        network = "; wants the network" if tool.network else ""
        console.print(f"  {tool.name:<18} {tool.declared}{network}")


def _remove(args: argparse.Namespace, store: Store, console: Console) -> None:
    from coilclaw.plugins.installing import remove

    remove(store, args.name)
    console.print(f"removed {args.name}")


def _enable(args: argparse.Namespace, store: Store, console: Console) -> None:
    from coilclaw.plugins.installing import enable

    enable(store, args.name, enabled=args.action == "enable")
    console.print(f"{args.action}d {args.name}")


def _approve(args: argparse.Namespace, store: Store, console: Console) -> None:
    from coilclaw.app.pluginwiring import builtin_names
    from coilclaw.cli.console import visible
    from coilclaw.plugins.installing import approve, review

    reviewed = review(store, args.name, builtin_names())
    for line in reviewed.lines:
        console.print(f"  {visible(line)}")
    same = not reviewed.first and not reviewed.differences
    if not same and not args.yes:
        _confirm(args.name, console)
    approval = approve(store, args.name, builtin_names(), seen=reviewed.digest)
    changed = "for the first time" if approval.first else "as it is now"
    if same:
        changed = "again; nothing had changed"
    console.print(f"approved {args.name} {approval.manifest.version} {changed}", "green")
    _tools(approval.manifest, console)


def _confirm(name: str, console: Console) -> None:
    """Ask the person who has seen the differences; without one, or with a no, nothing happens."""
    import sys

    from coilclaw.cli.question import Questions
    from coilclaw.errors import DeniedError

    questions = Questions(console, sys.stdin)
    if not questions.attended:
        raise DeniedError(
            f"the plugin {name} is not approved: there is no terminal to ask at",
            rule="plugin.unattended",
            hint="look at the differences, then use --yes",
        )
    if not questions.agrees(f"Let {name} run as it is now?", flag="--yes", default=False):
        raise DeniedError(f"the plugin {name} is not approved", rule="plugin.declined")


def _test(args: argparse.Namespace, store: Store, console: Console) -> int:
    from coilclaw.app.agentwiring import open_config, open_runtime
    from coilclaw.cli.people import at_terminal
    from coilclaw.cli.telling import logging_for
    from coilclaw.cli.tool import arguments_of
    from coilclaw.domain.messages import ToolCall
    from coilclaw.errors import UsageError
    from coilclaw.plugins.trial import trials

    if args.arguments is not None and args.tool is None:
        raise UsageError("--json needs a TOOL that the arguments are for", rule="plugin.tool")
    given = None if args.arguments is None else arguments_of(args.arguments)
    wanted = trials(store, args.name, args.tool, given)
    config = open_config(store.home, os.environ)
    with (
        logging_for(os.environ, config),
        open_runtime(
            store.home, os.environ, at_terminal(config.security.autonomy), config=config
        ) as runtime,
    ):
        outcomes = [
            (trial, runtime.call(ToolCall(f"call-{number}", trial.tool, trial.arguments)))
            for number, trial in enumerate(wanted, start=1)
        ]
    return _told(outcomes, console, shows=given is not None)


def _told(outcomes: list[tuple[Trial, ToolResult]], console: Console, *, shows: bool) -> int:
    from coilclaw.cli.dispatch import DENIED, DONE, FAILED

    code = DONE
    for trial, result in outcomes:
        why = trial.shortfall(result)
        if shows:
            for line in result.output.splitlines():
                console.print(line)
        if why is None:
            console.note(f"ok      {trial.tool}", "green")
            continue
        console.error(f"{trial.tool}: {why}", rule=str(result.metadata.get("rule", "plugin.trial")))
        ran = result.metadata.get("status") in {"allowed", "failed"}
        code = max(code, FAILED if ran else DENIED)
    return code
