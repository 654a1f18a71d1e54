"""``coilclaw init``: create the home, or set up a repository for runs."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from coilclaw.cli.command import DONE, Console, Namespace, Parser, find_home, pick
from coilclaw.kernel import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator


def declare(parser: Parser) -> None:
    """Declare the arguments."""
    from argparse import BooleanOptionalAction

    parser.value("--workspace", "DIR", "where the agent works (default: ~/coilclaw-workspace)")
    summary = "set up a repository for runs instead (default: the one around this directory)"
    parser.value("--repo", "DIR", summary, nargs="?", const=".")
    parser.flag("--exclude", "with --repo: write the ignore rules to .git/info/exclude")
    summary = "with --repo: make git check the active contract (default: leave its hooks)"
    parser.add_argument("--hooks", action=BooleanOptionalAction, help=summary)
    parser.flag("--strict", "with --hooks: refuse everything while no contract is active").json()


def run(args: Namespace, console: Console) -> int:
    """Create what is missing, and print what was created and what existed."""
    from coilclaw.app import init

    if args.repo is not None or args.exclude or args.hooks is not None or args.strict:
        return _set_up_repository(args, console)
    where = find_home()
    workspace = Path(os.path.abspath(args.workspace)) if args.workspace else None
    done = init(where, os.environ, workspace)
    for warning in done.warnings:
        console.warn(warning)
    items = [pick(item, "what", "path", "made") for item in done.items]
    if console.emit({"home": str(where), "items": items, "warnings": list(done.warnings)}):
        return DONE
    for item in done.items:
        _show_item(console, f"{item.what:<14} {item.path}", made=item.made)
    if any(item.made for item in done.items):
        console.note("next: coilclaw onboard", "dim")
    return DONE


def _set_up_repository(args: Namespace, console: Console) -> int:
    from coilclaw.runs import SetupOptions, set_up_repository

    if args.repo is None:
        raise UsageError("--exclude, --hooks and --strict need --repo", rule="usage.init")
    if args.strict and not args.hooks:
        raise UsageError("--strict needs --hooks", rule="usage.init")
    if args.workspace is not None:
        raise UsageError("--workspace and --repo exclude each other", rule="usage.init")
    options = SetupOptions(exclude=args.exclude, hooks=bool(args.hooks), strict=args.strict)
    items = set_up_repository(Path(args.repo), os.environ, options)
    if console.emit({"items": [pick(one, "what", "path", "made", "detail") for one in items]}):
        return DONE
    for one in items:
        detail = f"  ({one.detail})" if one.detail else ""
        _show_item(console, f"{one.what:<15} {one.path}{detail}", made=one.made)
    for line in _next(args.repo):
        console.note(f"next: {line}", "dim")
    return DONE


def _show_item(console: Console, text: str, *, made: bool) -> None:
    mark, style = ("made", "green") if made else ("there", "dim")
    console.print(f"{mark:<6} {text}", style)


def _next(repo: str) -> Iterator[str]:
    """Yield the next commands: commit the new files, then write a contract."""
    from coilclaw.cli.runs.contract import DEFAULT_FILE
    from coilclaw.runs import find_uncommitted, next_command

    found = find_uncommitted(Path(repo), os.environ)
    if found.paths:
        place = () if Path.cwd() == found.top else ("-C", str(found.top))
        past = ("--no-verify",) if found.refused else ()
        message = ("-m", "Add the policies of runs")
        add = shlex.join(("git", *place, "add", "--", *found.paths))
        commit = shlex.join(("git", *place, "commit", *past, *message, "--", *found.paths))
        yield f"{add} && {commit}"
    if not os.path.lexists(DEFAULT_FILE):
        yield next_command.command("contract", "init", repo=repo)
