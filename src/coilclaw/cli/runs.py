"""``coilclaw runs``: what runs there are, what they did, and what can be done with them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from coilclaw.cli.checkpoint_input import add_checkpoint
from coilclaw.cli.parser import add_json, add_repo

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping

    from coilclaw.app.runlisting import RunStore
    from coilclaw.cli.console import Console
    from coilclaw.orchestrator.engine import Outcome


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = _action(actions, "list", "all runs, oldest first", run=False)
    listing.add_argument("--limit", type=int, metavar="N", help="only the newest N")
    _action(actions, "show", "state, tasks, gates, reviews, tests and merge of one run")
    following = _action(actions, "events", "the events of a run")
    following.add_argument("--follow", action="store_true", help="go on until the run ends")
    _action(actions, "log", "all that the commands wrote that failed")
    diffing = _action(actions, "diff", "what the run changed, as a patch")
    diffing.add_argument("--task", metavar="ID", help="only the work of this task")
    diffing.add_argument(
        "--rejected", action="store_true", help="what was rolled back, instead of what was accepted"
    )
    reporting = _action(actions, "report", "write the run as one HTML file to look at")
    reporting.add_argument(
        "-o",
        "--out",
        metavar="FILE",
        help="write there, '-' for standard output (default: RUN.html)",
    )
    checking = _action(actions, "verify", "recompute everything that the evidence says")
    checking.add_argument(
        "--no-strict", action="store_true", help="let the key be missing, and the run unsealed"
    )
    checking.add_argument(
        "--root", metavar="HASH", help="the root hash that was noted when the run ended"
    )
    add_checkpoint(checking)
    checking.add_argument("--record", action="store_true", help="keep the report as an audit")
    stating = _action(actions, "checkpoint", "print what stands for a sealed run")
    stating.add_argument("--sign", action="store_true", help="sign it with the key of this home")
    _action(actions, "replay", "tell the run again from its events, without any model")
    _action(actions, "reexec", "baseline, patch, gates and tests once more, and compared")
    applying = _action(actions, "apply", "merge accepted work that is not merged yet")
    applying.add_argument(
        "--branch", metavar="NAME", help="into this branch (default: that of the run)"
    )
    exporting = _action(actions, "export", "write the run as one signed file")
    exporting.add_argument("--out", metavar="FILE", help="write there (default: RUN.tar)")
    exporting.add_argument(
        "--whole-history", action="store_true", help="put the history before the run in, too"
    )
    _declare_gc(_action(actions, "gc", "remove what ended runs left lying about", run=False))
    from coilclaw.cli.run import add_answer, add_waiting, add_watching

    resuming = _action(actions, "resume", "go on with a run that waits or was interrupted")
    add_answer(resuming)
    add_watching(resuming)
    add_waiting(resuming)
    _action(actions, "stop", "stop a run that goes on or waits; it can be resumed")
    add_watching(_action(actions, "abandon", "give up a run that waits or was interrupted"))


def _action(
    actions: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    summary: str,
    *,
    run: bool = True,
) -> argparse.ArgumentParser:
    action = actions.add_parser(name, help=summary, allow_abbrev=False)
    if run:
        action.add_argument("run", metavar="RUN", help="its id, the beginning of it, or 'last'")
    add_repo(action)
    add_json(action)
    return action


def _declare_gc(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--older-than",
        type=float,
        metavar="DAYS",
        help="only runs that began, and set-ups used, before that",
    )
    parser.add_argument(
        "--keep",
        type=int,
        metavar="N",
        help="leave the newest N ended runs, and the N set-ups used last, alone",
    )
    parser.add_argument(
        "--bundles", action="store_true", help="remove the evidence, too: with one of the above"
    )
    parser.add_argument(
        "--pending", action="store_true", help="also of accepted work that was never merged"
    )
    parser.add_argument("--dry-run", action="store_true", help="only say what would go")


def run(args: argparse.Namespace, console: Console) -> int:
    """Look at runs, or do something with one."""
    from coilclaw.app.home import home
    from coilclaw.app.runlisting import RunStore
    from coilclaw.app.runwiring import Orchestrator

    if args.action in {"resume", "abandon"}:
        from coilclaw.cli.run import waiting_terms
        from coilclaw.cli.runprogress import attend

        def go(runs: Orchestrator, watch: Callable[[Mapping[str, object]], None]) -> Outcome:
            name = RunStore(runs.places).find(args.run).name
            if args.action == "abandon":
                return runs.abandon(name, watch)
            return runs.resume(name, watch, answer=args.answer or "")

        return attend(args, console, go, waiting_terms(args) if args.action == "resume" else None)
    runs = Orchestrator(Path(args.repo), home(), os.environ)
    if args.action in {"list", "show", "events", "log", "diff"}:
        from coilclaw.cli import runview

        return runview.run(args, console, RunStore(runs.places))
    if args.action == "report":
        from coilclaw.cli import run_report

        return run_report.run(args, console, runs)
    if args.action == "stop":
        return _stop(RunStore(runs.places), args, console)
    from coilclaw.cli import runaudit

    return runaudit.run(args, console, runs)


def _stop(store: RunStore, args: argparse.Namespace, console: Console) -> int:
    """Have the process that works on a run stop it, and say how it goes on."""
    from coilclaw.app import next_command
    from coilclaw.cli.dispatch import DONE
    from coilclaw.orchestrator.starting import request_stop

    run_id = store.find(args.run).name
    request_stop(store.places.runtime, run_id)
    again = next_command.resume(run_id, (), repo=args.repo)
    if console.as_json:
        console.data({"run_id": run_id, "status": "stopped", "next": again})
    else:
        console.print("status   stopped", "yellow")
        console.print(f"next     {again}")
    return DONE
