"""``coilclaw init``: make a home with all that belongs to it, or set a repository up for runs."""

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
    summary = "set a repository up for runs instead (default: the one around this directory)"
    parser.value("--repo", "DIR", summary, nargs="?", const=".")
    parser.flag("--exclude", "with --repo: ignore in .git/info/exclude")
    summary = "with --repo: have git ask the active contract (default: leave git's hooks)"
    parser.add_argument("--hooks", action=BooleanOptionalAction, help=summary)
    parser.flag("--strict", "with --hooks: refuse everything while no contract is active").json()


def run(args: Namespace, console: Console) -> int:
    """Make what is missing, and say what was made and what was there."""
    from coilclaw.app import init

    if args.repo is not None or args.exclude or args.hooks is not None or args.strict:
        return _repository(args, console)
    where = find_home()
    workspace = Path(os.path.abspath(args.workspace)) if args.workspace else None
    done = init(where, os.environ, workspace)
    for warning in done.warnings:
        console.warn(warning)
    items = [pick(item, "what", "path", "made") for item in done.items]
    if console.emit({"home": str(where), "items": items, "warnings": list(done.warnings)}):
        return DONE
    for item in done.items:
        mark, style = ("made", "green") if item.made else ("there", "dim")
        console.print(f"{mark:<6} {item.what:<14} {item.path}", style)
    if any(item.made for item in done.items):
        console.note("next: coilclaw onboard", "dim")
    return DONE


def _repository(args: Namespace, console: Console) -> int:
    from coilclaw.runs import SetupOptions, set_up_repository

    if args.repo is None:
        raise UsageError("--exclude, --hooks and --strict go with --repo", rule="usage.init")
    if args.strict and not args.hooks:
        raise UsageError("--strict goes with --hooks", rule="usage.init")
    if args.workspace is not None:
        raise UsageError("--workspace does not go with --repo", rule="usage.init")
    options = SetupOptions(exclude=args.exclude, hooks=bool(args.hooks), strict=args.strict)
    items = set_up_repository(Path(args.repo), os.environ, options)
    if console.emit({"items": [pick(one, "what", "path", "made", "detail") for one in items]}):
        return DONE
    for one in items:
        mark, style = ("made", "green") if one.made else ("there", "dim")
        detail = f"  ({one.detail})" if one.detail else ""
        console.print(f"{mark:<6} {one.what:<15} {one.path}{detail}", style)
    for line in _next(args.repo):
        console.note(f"next: {line}", "dim")
    return DONE


def _next(repo: str) -> Iterator[str]:
    """Return what to type next: commit what was made, then write a contract."""
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
