"""The argument parser: one entry per command, each built by its own module."""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import Final

COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "init": ("init", "make the configuration, the memory and the workspace"),
    "onboard": ("onboard", "choose a model, autonomy and workspace, and write the configuration"),
    "agent": ("agent", "talk with the agent, once or for as long as you like"),
    "config": ("config", "validate, show and change the configuration"),
    "provider": ("provider", "list and test the configured models"),
    "tool": ("tool", "list the tools, and run one through the guard"),
    "memory": ("memory", "list, search, show and clear what was said"),
    "receipt": ("receipt", "list, show, verify and export the receipts of tool calls"),
    "policy": ("policy", "show, explain and check what is allowed"),
    "estop": ("estop", "stop all tools of all processes at once"),
    "serve": ("serve", "open the gateway: the agent over HTTP, on this machine"),
    "token": ("token", "make, list and revoke the tokens of the gateway's clients"),
    "mcp": ("mcp", "offer our tools to MCP clients, and use those of MCP servers"),
    "sop": ("sop", "list, validate, run and resume deterministic workflows"),
    "plugin": ("plugin", "install, list, test and remove tools that are programs of their own"),
    "run": ("run", "carry out a contract, or one sentence, behind gates and with evidence"),
    "contract": ("contract", "make, check and explain contracts"),
    "runs": ("runs", "list, show, verify, replay, re-execute, merge and clear runs"),
    "hooks": ("hooks", "have git ask the active contract before a commit and a push"),
    "keys": ("keys", "make and show the key that runs are signed with"),
    "approvals": ("approvals", "list what waits for a person"),
    "approve": ("approve", "say yes to what waits"),
    "reject": ("reject", "say no to what waits"),
    "service": ("service", "run the gateway as a service of the user"),
    "apply": ("apply", "apply a model's answer to a tree, all or nothing"),
    "undo": ("undo", "take a change back"),
    "changes": ("changes", "list and show the changes made to a tree"),
    "commit": ("commit", "edit, build, repair: run code-commit in this directory"),
    "rollup": ("rollup", "write the codebase into codeRollup.txt"),
    "mock-server": ("mockserver", "play a scripted model on loopback"),
    "prompt": ("prompt", "print the text that tells a model how to answer"),
    "snapshot": ("snapshot", "take, compare and restore pictures of a whole tree"),
    "trace": ("trace", "record an agent's run part by part; list, compare and bisect such runs"),
    "replay": ("replay", "bring back the code of a part, or judge every part again"),
    "graph-trace": ("graphtrace", "draw and tabulate how a recorded run went"),
    "agents": ("agents", "find, install and try the agents that can perform work"),
    "env": ("env", "list, describe and run test environments"),
    "doctor": ("doctor", "say what this machine offers"),
    "demo": ("demo", "show what it does, on a tree made for the purpose"),
}
"""Command → the module of this area that declares and runs it, and its one-line help."""


def build_parser(only: str | None = None) -> argparse.ArgumentParser:
    """Build the parser; with ``only``, just the part that one command needs."""
    from coilclaw import __version__

    parser = argparse.ArgumentParser(
        prog="coilclaw",
        description="A governed coding-agent runtime: models propose, hard gates decide.",
        allow_abbrev=False,
    )
    parser.add_argument("-V", "--version", action="version", version=f"coilclaw {__version__}")
    # With the name given, argparse need not format a usage line to find it.
    commands = parser.add_subparsers(
        dest="command", metavar="COMMAND", title="commands", prog=parser.prog
    )
    for name, (module, summary) in COMMANDS.items():
        if only not in {None, name}:
            continue
        command = commands.add_parser(
            name,
            help=summary,
            description=summary[0].upper() + summary[1:] + ".",
            allow_abbrev=False,
        )
        command.set_defaults(module=module)
        import_module(f"coilclaw.cli.{module}").declare(command)
    return parser


def single_parser(prog: str, name: str) -> argparse.ArgumentParser:
    """Build the parser of an executable that is one of the commands."""
    from coilclaw import __version__

    module, summary = COMMANDS[name]
    parser = argparse.ArgumentParser(
        prog=prog, description=summary[0].upper() + summary[1:] + ".", allow_abbrev=False
    )
    parser.add_argument("-V", "--version", action="version", version=f"{prog} {__version__}")
    parser.set_defaults(command=name, module=module)
    import_module(f"coilclaw.cli.{module}").declare(parser)
    return parser


def add_root(parser: argparse.ArgumentParser) -> None:
    """Declare ``--root``, which every command on a tree takes."""
    parser.add_argument(
        "--root", default=".", metavar="DIR", help="the tree (default: the current directory)"
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """Declare ``--json``."""
    parser.add_argument("--json", action="store_true", help="print JSON for machines")


def add_repo(parser: argparse.ArgumentParser) -> None:
    """Declare ``--repo``, which every command on a repository takes."""
    parser.add_argument(
        "--repo",
        default=".",
        metavar="DIR",
        help="the repository (default: the one around the current directory)",
    )


def add_performers(parser: argparse.ArgumentParser) -> None:
    """Declare who performs and reviews a run, over what its contract says."""
    parser.add_argument(
        "--runner",
        metavar="NAME",
        help="who performs: builtin, code-commit, codex, scripted:FILE.json or process:'ARGV…' "
        "(default: what the contract says, else builtin)",
    )
    parser.add_argument(
        "--reviewer",
        metavar="NAME",
        help="who reviews: rules, model or a runner (default: what the contract says, else rules)",
    )
    parser.add_argument(
        "--diagnostic", action="store_true", help="mark the run as one for diagnosis"
    )
