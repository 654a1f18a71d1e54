"""``coilclaw init``: make a home with all that belongs to it, or set a repository up for runs."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from coilclaw.cli.parser import add_json

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from coilclaw.cli.console import Console


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    from argparse import BooleanOptionalAction

    parser.add_argument(
        "--workspace",
        metavar="DIR",
        help="where the agent works (default: ~/coilclaw-workspace)",
    )
    parser.add_argument(
        "--repo",
        nargs="?",
        const=".",
        metavar="DIR",
        help="set a repository up for runs instead (default: the one around this directory)",
    )
    parser.add_argument(
        "--exclude", action="store_true", help="with --repo: ignore in .git/info/exclude"
    )
    parser.add_argument(
        "--hooks",
        action=BooleanOptionalAction,
        help="with --repo: have git ask the active contract (default: leave git's hooks)",
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help="with --hooks: refuse everything while no contract is active",
    )
    add_json(parser)


def run(args: argparse.Namespace, console: Console) -> int:
    """Make what is missing, and say what was made and what was there."""
    from coilclaw.app.home import home
    from coilclaw.app.setup import init
    from coilclaw.cli.dispatch import DONE

    if args.repo is not None or args.exclude or args.hooks is not None or args.strict:
        return _repository(args, console)
    where = home()
    workspace = Path(os.path.abspath(args.workspace)) if args.workspace else None
    done = init(where, os.environ, workspace)
    for warning in done.warnings:
        console.warn(warning)
    if console.as_json:
        console.data(
            {
                "home": str(where),
                "items": [
                    {"what": item.what, "path": str(item.path), "made": item.made}
                    for item in done.items
                ],
                "warnings": list(done.warnings),
            }
        )
        return DONE
    for item in done.items:
        mark, style = ("made", "green") if item.made else ("there", "dim")
        console.print(f"{mark:<6} {item.what:<14} {item.path}", style)
    if any(item.made for item in done.items):
        console.note("next: coilclaw onboard", "dim")
    return DONE


def _repository(args: argparse.Namespace, console: Console) -> int:
    from coilclaw.app.repositorysetup import SetupOptions, set_up
    from coilclaw.cli.dispatch import DONE
    from coilclaw.errors import UsageError

    if args.repo is None:
        raise UsageError("--exclude, --hooks and --strict go with --repo", rule="usage.init")
    if args.strict and not args.hooks:
        raise UsageError("--strict goes with --hooks", rule="usage.init")
    if args.workspace is not None:
        raise UsageError("--workspace does not go with --repo", rule="usage.init")
    options = SetupOptions(exclude=args.exclude, hooks=bool(args.hooks), strict=args.strict)
    items = set_up(Path(args.repo), os.environ, options)
    if console.as_json:
        rows = [
            {"what": one.what, "path": str(one.path), "made": one.made, "detail": one.detail}
            for one in items
        ]
        console.data({"items": rows})
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
    from coilclaw.app import next_command
    from coilclaw.app.home import home
    from coilclaw.app.repositorysetup import uncommitted
    from coilclaw.cli.contract import DEFAULT_FILE

    found = uncommitted(Path(repo), home(), os.environ)
    if found.paths:
        place = () if Path.cwd() == found.top else ("-C", str(found.top))
        past = ("--no-verify",) if found.refused else ()
        message = ("-m", "Add the policies of runs")
        yield (
            shlex.join(("git", *place, "add", "--", *found.paths))
            + " && "
            + shlex.join(("git", *place, "commit", *past, *message, "--", *found.paths))
        )
    if not os.path.lexists(DEFAULT_FILE):
        yield next_command.command("contract", "init", repo=repo)
