"""``coilclaw hooks``: make git check the active contract."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from coilclaw.cli.command import DONE, FAILED, Console, Namespace, Parser, find_home, pick

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coilclaw.runs import GitHook, HookJudgement


def declare(parser: Parser) -> None:
    """Declare the arguments."""
    action = parser.actions()
    strict = "refuse everything while no contract is active"
    summary = "install pre-commit and pre-push; existing hooks run first"
    action("install", summary).flag("--strict", strict).repo().json()
    action("uninstall", "remove them, and restore the hooks from before").repo().json()
    action("status", "show which hooks are installed").repo().json()
    checking = action("check", "what the hooks run: check the active contracts", _check)
    checking.flag("--strict", strict)
    checking.value("hook", None, "the hook that runs it", choices=("pre-commit", "pre-push"))
    checking.value("arguments", "ARGUMENT", "what git passes to the hook", nargs="*").repo().json()


def run(args: Namespace, console: Console) -> None:
    """Install, remove or show the hooks."""
    from coilclaw.runs import hooks
    from coilclaw.workspace import Repository

    repository = Repository.open(Path(args.repo))
    if args.action == "status":
        _show(hooks.status(repository, os.environ), "state", console)
    elif args.action == "install":
        _show(hooks.install(repository, os.environ, strict=args.strict), "done", console)
    else:
        _show(hooks.uninstall(repository, os.environ), "done", console)


def _show(found: Sequence[GitHook], state: str, console: Console) -> None:
    """Print each hook with its state, or with what was done to it."""
    rows = [{"hook": one.name, **pick(one, "path", state, "chained", "strict")} for one in found]
    styles = {"installed": "green", "outdated": "yellow"} if state == "state" else {}
    lines = []
    for row in rows:
        chained = " (restored)" if row[state] == "removed" else " (runs after the existing hook)"
        notes = (chained if row["chained"] else "") + (" (strict)" if row["strict"] else "")
        said = str(row[state])
        lines.append((f"{said:<10} {row['path']}{notes}", styles.get(said)))
    console.table(rows, lines)


def _check(args: Namespace, console: Console) -> int:
    from coilclaw.app import open_orchestrator
    from coilclaw.runs import MAX_PUSH_BYTES, HookCheck, find_hook_places

    places = find_hook_places(Path(args.repo), os.environ, strict=args.strict)
    check = None
    if places is not None:
        check = HookCheck(open_orchestrator(Path(args.repo), find_home(), os.environ), places)
    judged: HookJudgement | None = None
    if check is not None and args.hook == "pre-commit":
        judged = check.commit(os.environ.get("GIT_INDEX_FILE"))
    elif check is not None:
        remote = args.arguments[0] if args.arguments else ""
        judged = check.push(remote, sys.stdin.read(MAX_PUSH_BYTES + 1))
    allowed = judged is None or bool(judged.allowed_by)
    violations = {} if judged is None else judged.violations
    record = {
        "hook": args.hook,
        "allowed": allowed,
        "allowed_by": "" if judged is None else judged.allowed_by,
        "violations": {
            run: [pick(each, "rule", "message", "path") for each in found]
            for run, found in violations.items()
        },
    }
    if not console.emit(record) and not allowed:
        for run, found in violations.items():
            for each in found:
                console.error(f"the contract of {run}: {each.message}", rule=each.rule)
        console.note("  hint: remove what it does not allow; --no-verify skips the hook")
        for run in violations:
            console.note(
                f"  hint: {run} is not finished: 'coilclaw runs resume {run}' resumes it, "
                f"'coilclaw runs abandon {run}' gives it up"
            )
    return DONE if allowed else FAILED
