"""``coilclaw hooks``: have git ask the active contract."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from coilclaw.cli.parser import add_json, add_repo

if TYPE_CHECKING:
    import argparse

    from coilclaw.app.hookcheck import Judgement
    from coilclaw.app.hooks import Change
    from coilclaw.cli.console import Console
    from coilclaw.workspace.repository import Repository


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, summary in (
        ("install", "put pre-commit and pre-push in place; what is there runs first"),
        ("uninstall", "take them away, and put back what was there"),
        ("status", "say which hooks are in place"),
    ):
        action = actions.add_parser(name, help=summary, allow_abbrev=False)
        if name == "install":
            _add_strict(action)
        add_repo(action)
        add_json(action)
    checking = actions.add_parser(
        "check", help="what the hooks run: ask the active contracts", allow_abbrev=False
    )
    _add_strict(checking)
    checking.add_argument("hook", choices=("pre-commit", "pre-push"), help="which hook asks")
    checking.add_argument("arguments", nargs="*", metavar="ARGUMENT", help="what git gave it")
    add_repo(checking)
    add_json(checking)


def _add_strict(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--strict", action="store_true", help="refuse everything while no contract is active"
    )


def run(args: argparse.Namespace, console: Console) -> int:
    """Install, take away, look, or check."""
    from coilclaw.app import hooks
    from coilclaw.workspace.repository import Repository

    if args.action == "check":
        return _check(args, console)
    repository = Repository.open(Path(args.repo))
    if args.action == "status":
        return _status(repository, console)
    if args.action == "install":
        return _changed(hooks.install(repository, os.environ, strict=args.strict), console)
    return _changed(hooks.uninstall(repository, os.environ), console)


def _changed(changes: tuple[Change, ...], console: Console) -> int:
    from coilclaw.cli.dispatch import DONE

    if console.as_json:
        console.data(
            [
                {
                    "hook": one.name,
                    "path": str(one.path),
                    "done": one.done,
                    "chained": one.chained,
                    "strict": one.strict,
                }
                for one in changes
            ]
        )
        return DONE
    for one in changes:
        chained = ""
        if one.chained:
            chained = " (as it was before)" if one.done == "removed" else " (after the one before)"
        console.print(f"{one.done:<10} {one.path}{chained}{' (strict)' if one.strict else ''}")
    return DONE


def _status(repository: Repository, console: Console) -> int:
    from coilclaw.app import hooks
    from coilclaw.cli.dispatch import DONE

    found = hooks.status(repository, os.environ)
    if console.as_json:
        console.data(
            [
                {
                    "hook": one.name,
                    "path": str(one.path),
                    "state": one.state,
                    "chained": one.chained,
                    "strict": one.strict,
                }
                for one in found
            ]
        )
        return DONE
    for one in found:
        style = {"installed": "green", "outdated": "yellow"}.get(one.state)
        chained = " (after the one before)" if one.chained else ""
        strict = " (strict)" if one.strict else ""
        console.print(f"{one.state:<10} {one.path}{chained}{strict}", style)
    return DONE


def _check(args: argparse.Namespace, console: Console) -> int:
    from coilclaw.app.home import home
    from coilclaw.app.hookcheck import MAX_PUSH_BYTES, open_check

    check = open_check(Path(args.repo), home(), os.environ, strict=args.strict)
    judged: Judgement | None
    if check is None:
        judged = None
    elif args.hook == "pre-commit":
        judged = check.commit(os.environ.get("GIT_INDEX_FILE"))
    else:
        remote = args.arguments[0] if args.arguments else ""
        judged = check.push(remote, sys.stdin.read(MAX_PUSH_BYTES + 1))
    return _judged(args.hook, judged, console)


def _judged(hook: str, judged: Judgement | None, console: Console) -> int:
    from coilclaw.cli.dispatch import DONE, FAILED

    allowed = judged is None or judged.allowed
    if console.as_json:
        console.data(
            {
                "hook": hook,
                "allowed": allowed,
                "allowed_by": "" if judged is None else judged.allowed_by,
                "violations": {}
                if judged is None
                else {
                    run: [
                        {"rule": each.rule, "message": each.message, "path": each.path}
                        for each in found
                    ]
                    for run, found in judged.violations.items()
                },
            }
        )
    elif judged is not None and not allowed:
        for run, found in judged.violations.items():
            for each in found:
                console.error(f"the contract of {run}: {each.message}", rule=each.rule)
        console.note("  hint: take out what it does not allow; --no-verify goes past the hook")
        for run in judged.violations:
            console.note(
                f"  hint: {run} is not finished: 'coilclaw runs resume {run}' goes on with it, "
                f"'coilclaw runs abandon {run}' gives it up"
            )
    return DONE if allowed else FAILED
