"""The argument parser: one entry per command, each built by its own module."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

if TYPE_CHECKING:
    from coilclaw.cli.console import Console

Act = Callable[[argparse.Namespace, "Console"], int | None]
"""Performs an action and returns the exit code; ``None`` means success."""


class AddAction(Protocol):
    """Declares an action of a command: its name, its summary and the function that performs it."""

    def __call__(self, name: str, summary: str, act: Act | None = None) -> Parser: ...


COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "init": (".setup.init", "create the configuration, the memory and the workspace"),
    "onboard": (
        ".setup.onboard",
        "choose a model, the autonomy and the workspace; write the configuration",
    ),
    "agent": (".runtime.agent", "talk to the agent, for one turn or interactively"),
    "config": (".setup.config", "validate, show and change the configuration"),
    "provider": (".runtime.provider", "list and test the configured models"),
    "tool": (".runtime.tool", "list the tools, and run one through the guard"),
    "memory": (".runtime.memory", "list, search, show and clear past conversations"),
    "receipt": (".runtime.receipt", "list, show, verify and export the receipts of tool calls"),
    "policy": (".runtime.policy", "show, explain and check what is allowed"),
    "estop": (".runtime.estop", "stop all tools in all processes at once"),
    "serve": (".setup.serve", "serve the agent over HTTP, on this machine"),
    "token": (".setup.token", "create, list and revoke tokens for clients of the gateway"),
    "mcp": (
        ".runtime.mcp",
        "offer CoilClaw's tools to MCP clients, and use the tools of MCP servers",
    ),
    "sop": (".runtime.sop", "list, validate, run and resume deterministic workflows"),
    "plugin": (
        ".runtime.plugin",
        "install, list, test and remove tools that are separate programs",
    ),
    "run": (".runs.run", "carry out a contract, or one sentence, behind gates and with evidence"),
    "contract": (".runs.contract", "create, check and explain contracts"),
    "runs": (".runs.runs", "list, show, verify, replay, re-execute, merge and clear runs"),
    "hooks": (".runs.hooks", "make git check the active contract before a commit and a push"),
    "keys": (".setup.keys", "create and show the key that signs runs"),
    "approvals": (".runtime.approvals", "list what waits for an approval"),
    "approve": (".runtime.approve", "approve what waits"),
    "reject": (".runtime.reject", "reject what waits"),
    "service": (".setup.service", "run the gateway as a user service"),
    "apply": (".delivery.apply", "apply a model's answer to a tree, all or nothing"),
    "undo": (".delivery.undo", "revert a change"),
    "changes": (".delivery.changes", "list and show the changes made to a tree"),
    "commit": (".delivery.commit", "edit, build, repair: run code-commit in this directory"),
    "rollup": (".delivery.rollup", "write the codebase into codeRollup.txt"),
    "mock-server": (".model_server.command", "play a scripted model on loopback"),
    "prompt": (".delivery.prompt", "print the instructions that tell a model how to answer"),
    "snapshot": (".delivery.snapshot", "take, compare and restore snapshots of a whole tree"),
    "trace": (".traces.trace", "record an agent's run part by part; list, compare and bisect runs"),
    "replay": (".traces.replay", "check out the code of a part, or evaluate every part again"),
    "graph-trace": (".traces.graph_trace", "plot and tabulate a recorded run"),
    "agents": (".setup.agents", "find, install and test the agents that can perform work"),
    "env": (".traces.env", "list, describe and run test environments"),
    "doctor": (".setup.doctor", "check what this machine supports"),
    "demo": (".demo.demo", "show what CoilClaw does, on a tree made for the demo"),
}
"""Command → the module of this package that declares and runs it, and its one-line help."""


class Parser(argparse.ArgumentParser):
    """An argument parser that declares an argument in one line; options cannot be abbreviated."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **settings})

    def actions(self, dest: str = "action") -> AddAction:
        """Make the command take one of several actions; return the function that declares one."""
        actions = self.add_subparsers(dest=dest, metavar="ACTION", required=True)

        def add(name: str, summary: str, act: Act | None = None) -> Parser:
            action = actions.add_parser(name, help=summary)
            if act is not None:
                action.set_defaults(act=act)
            return action

        return add

    def value(self, name: str, metavar: str | None, summary: str | None, **settings: Any) -> Self:
        """Declare a positional argument, or an option with a value."""
        self.add_argument(name, metavar=metavar, help=summary, **settings)
        return self

    def many(self, name: str, metavar: str, summary: str) -> Self:
        """Declare an option that may be repeated."""
        return self.value(name, metavar, summary, action="append", default=[])

    def flag(self, name: str, summary: str) -> Self:
        """Declare an option without a value."""
        self.add_argument(name, action="store_true", help=summary)
        return self

    def json(self) -> Self:
        """Declare ``--json``."""
        return self.flag("--json", "print JSON for machines")

    def root(self) -> Self:
        """Declare ``--root``, which every command on a tree takes."""
        summary = "the tree (default: the current directory)"
        return self.value("--root", "DIR", summary, default=".")

    def repo(self) -> Self:
        """Declare ``--repo``, which every command on a repository takes."""
        summary = "the repository (default: the one around the current directory)"
        return self.value("--repo", "DIR", summary, default=".")


def build_parser(only: str | None = None) -> Parser:
    """Build the parser; with ``only``, just the part that one command needs."""
    from coilclaw import __version__

    parser = Parser(
        prog="coilclaw",
        description="A governed coding-agent runtime: models propose, hard gates decide.",
    )
    parser.add_argument("-V", "--version", action="version", version=f"coilclaw {__version__}")
    # With the name given, argparse need not format a usage line to find it.
    commands = parser.add_subparsers(
        dest="command", metavar="COMMAND", title="commands", prog=parser.prog
    )
    for name, (module, summary) in COMMANDS.items():
        if only in {None, name}:
            command = commands.add_parser(name, help=summary, description=_sentence(summary))
            command.set_defaults(module=module)
            import_module(module, __package__).declare(command)
    return parser


def single_parser(prog: str, name: str) -> Parser:
    """Build the parser of an executable that is one of the commands."""
    from coilclaw import __version__

    module, summary = COMMANDS[name]
    parser = Parser(prog=prog, description=_sentence(summary))
    parser.add_argument("-V", "--version", action="version", version=f"{prog} {__version__}")
    parser.set_defaults(command=name, module=module)
    import_module(module, __package__).declare(parser)
    return parser


def _sentence(summary: str) -> str:
    return summary[0].upper() + summary[1:] + "."


def add_performers(parser: Parser) -> None:
    """Declare who performs and reviews a run, which overrides its contract."""
    parser.value(
        "--runner",
        "NAME",
        "who performs: builtin, code-commit, codex, scripted:FILE.json or process:'ARGV…' "
        "(default: from the contract, else builtin)",
    )
    parser.value(
        "--reviewer",
        "NAME",
        "who reviews: rules, model or a runner (default: from the contract, else rules)",
    )
    parser.flag("--diagnostic", "mark the run as diagnostic")
