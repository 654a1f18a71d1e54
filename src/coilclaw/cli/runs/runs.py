"""``coilclaw runs``: what runs there are, what they did, and what can be done with them."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from coilclaw.cli.checkpoint import add_checkpoint
from coilclaw.cli.command import DONE, Console, Namespace, Parser, find_home

if TYPE_CHECKING:
    from coilclaw.cli.parser import AddAction
    from coilclaw.cli.runs.run_display import Watch
    from coilclaw.runs import Orchestrator, RunOutcome, RunStore


def declare(parser: Parser) -> None:
    """Declare the arguments."""
    from coilclaw.cli.runs.run import add_answer, add_waiting, add_watching

    actions = parser.actions()
    action = partial(_add_action, actions)
    listing = actions("list", "all runs, oldest first").repo().json()
    listing.value("--limit", "N", "only the newest N", type=int)
    action("show", "state, tasks, gates, reviews, tests and merge of one run")
    action("events", "the events of a run").flag("--follow", "go on until the run ends")
    action("log", "all that the commands wrote that failed")
    diffing = action("diff", "what the run changed, as a patch")
    diffing.value("--task", "ID", "only the work of this task")
    diffing.flag("--rejected", "what was rolled back, instead of what was accepted")
    reporting = action("report", "write the run as one HTML file to look at")
    summary = "write there, '-' for standard output (default: RUN.html)"
    reporting.add_argument("-o", "--out", metavar="FILE", help=summary)
    checking = action("verify", "recompute everything that the evidence says")
    checking.flag("--no-strict", "let the key be missing, and the run unsealed")
    checking.value("--root", "HASH", "the root hash that was noted when the run ended")
    add_checkpoint(checking)
    checking.flag("--record", "keep the report as an audit")
    stating = action("checkpoint", "print what stands for a sealed run")
    stating.flag("--sign", "sign it with the key of this home")
    action("replay", "tell the run again from its events, without any model")
    action("reexec", "baseline, patch, gates and tests once more, and compared")
    applying = action("apply", "merge accepted work that is not merged yet")
    applying.value("--branch", "NAME", "into this branch (default: that of the run)")
    exporting = action("export", "write the run as one signed file")
    exporting.value("--out", "FILE", "write there (default: RUN.tar)")
    exporting.flag("--whole-history", "put the history before the run in, too")
    clearing = actions("gc", "remove what ended runs left lying about").repo().json()
    summary = "only runs that began, and set-ups used, before that"
    clearing.value("--older-than", "DAYS", summary, type=float)
    summary = "leave the newest N ended runs, and the N set-ups used last, alone"
    clearing.value("--keep", "N", summary, type=int)
    clearing.flag("--bundles", "remove the evidence, too: with one of the above")
    clearing.flag("--pending", "also of accepted work that was never merged")
    clearing.flag("--dry-run", "only say what would go")
    resuming = action("resume", "go on with a run that waits or was interrupted")
    add_answer(resuming)
    add_watching(resuming)
    add_waiting(resuming)
    action("stop", "stop a run that goes on or waits; it can be resumed")
    add_watching(action("abandon", "give up a run that waits or was interrupted"))


def _add_action(actions: AddAction, name: str, summary: str) -> Parser:
    action = actions(name, summary)
    return action.value("run", "RUN", "its id, the beginning of it, or 'last'").repo().json()


def run(args: Namespace, console: Console) -> int:
    """Look at runs, or do something with one."""
    from coilclaw.app import open_orchestrator
    from coilclaw.cli.runs import run_audit, run_view
    from coilclaw.cli.runs.run import read_terms, resume_run
    from coilclaw.cli.runs.run_display import attend_run
    from coilclaw.runs import RunStore

    if args.action == "resume":
        terms = read_terms(args)
        return attend_run(args, console, partial(resume_run, args.run, args.answer), terms)
    if args.action == "abandon":

        def abandon(runs: Orchestrator, watch: Watch) -> RunOutcome:
            return runs.abandon(RunStore(runs.places).find(args.run).name, watch)

        return attend_run(args, console, abandon)
    runs = open_orchestrator(Path(args.repo), find_home(), os.environ)
    store = RunStore(runs.places)
    if args.action in {"list", "show", "events", "log", "diff"}:
        return run_view.run(args, console, store)
    if args.action == "stop":
        return _stop(store, args, console)
    return run_audit.run(args, console, runs)


def _stop(store: RunStore, args: Namespace, console: Console) -> int:
    """Have the process that works on a run stop it, and say how it is resumed."""
    from coilclaw.runs import next_command, request_stop

    run_id = store.find(args.run).name
    request_stop(store.places.runtime, run_id)
    again = next_command.resume(run_id, (), repo=args.repo)
    if not console.emit({"run_id": run_id, "status": "stopped", "next": again}):
        console.print("status   stopped", "yellow")
        console.print(f"next     {again}")
    return DONE
