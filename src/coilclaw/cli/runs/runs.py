"""``coilclaw runs``: list and inspect runs, check their evidence, resume or end them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from coilclaw.cli.checkpoint import add_checkpoint
from coilclaw.cli.runs import run_audit, run_view
from coilclaw.cli.runs.run import add_answer, add_waiting, add_watching, read_terms, resume_run

if TYPE_CHECKING:
    from coilclaw.cli.command import Console, Namespace, Parser
    from coilclaw.cli.parser import Act, AddAction
    from coilclaw.cli.runs.run_display import Watch
    from coilclaw.runs import Orchestrator, RunOutcome


def declare(parser: Parser) -> None:
    """Declare the arguments."""
    actions = parser.actions()
    action = partial(_add_action, actions)
    listing = actions("list", "all runs, oldest first", run_view.list_runs).repo().json()
    listing.value("--limit", "N", "only the newest N", type=int)
    action("show", "state, tasks, gates, reviews, tests and merge of one run", run_view.show_run)
    following = action("events", "the events of a run", run_view.show_events)
    following.flag("--follow", "print new events until the run ends")
    action("log", "the full output of commands that failed", run_view.show_logs)
    diffing = action("diff", "what the run changed, as a patch", run_view.show_diff)
    diffing.value("--task", "ID", "only the work of this task")
    diffing.flag("--rejected", "what was rolled back, instead of what was accepted")
    reporting = action("report", "write the run as one HTML file", run_audit.report)
    summary = "write there, '-' for standard output (default: RUN.html)"
    reporting.add_argument("-o", "--out", metavar="FILE", help=summary)
    checking = action("verify", "recompute everything that the evidence claims", run_audit.verify)
    checking.flag("--no-strict", "accept a missing key and an unsealed run")
    checking.value("--root", "HASH", "the root hash that was noted when the run ended")
    add_checkpoint(checking)
    checking.flag("--record", "keep the report as an audit")
    stating = action("checkpoint", "print a checkpoint of a sealed run", run_audit.checkpoint)
    stating.flag("--sign", "sign it with the key of this home")
    action("replay", "rebuild the run from its events, without a model", run_audit.replay)
    summary = "repeat baseline, patch, gates and tests, and compare the results"
    action("reexec", summary, run_audit.reexecute)
    applying = action("apply", "merge accepted work that is not merged yet", run_audit.apply)
    applying.value("--branch", "NAME", "into this branch (default: that of the run)")
    exporting = action("export", "write the run as one signed file", run_audit.export)
    exporting.value("--out", "FILE", "write there (default: RUN.tar)")
    exporting.flag("--whole-history", "include the history before the run")
    summary = "remove what ended runs left behind"
    clearing = actions("gc", summary, run_audit.collect_garbage).repo().json()
    summary = "only runs that began, and set-ups used, before that"
    clearing.value("--older-than", "DAYS", summary, type=float)
    summary = "leave the newest N ended runs, and the N set-ups used last, alone"
    clearing.value("--keep", "N", summary, type=int)
    clearing.flag("--bundles", "remove the evidence, too; needs one of the options above")
    clearing.flag("--pending", "also remove accepted work that was never merged")
    clearing.flag("--dry-run", "only print what would be removed")
    resuming = action("resume", "resume a run that waits or was interrupted", _resume)
    add_answer(resuming)
    add_watching(resuming)
    add_waiting(resuming)
    action("stop", "stop a run that is active or waits; it can be resumed", run_audit.stop)
    add_watching(action("abandon", "give up a run that waits or was interrupted", _abandon))


def _add_action(actions: AddAction, name: str, summary: str, act: Act) -> Parser:
    action = actions(name, summary, act)
    return action.value("run", "RUN", "its id, the beginning of it, or 'last'").repo().json()


def _resume(args: Namespace, console: Console) -> int:
    from coilclaw.cli.runs.run_display import attend_run

    carry = partial(resume_run, args.run, args.answer)
    return attend_run(args, console, carry, read_terms(args))


def _abandon(args: Namespace, console: Console) -> int:
    from coilclaw.cli.runs.run_display import attend_run
    from coilclaw.runs import RunStore

    def abandon(runs: Orchestrator, watch: Watch) -> RunOutcome:
        return runs.abandon(RunStore(runs.places).find(args.run).name, watch)

    return attend_run(args, console, abandon)
