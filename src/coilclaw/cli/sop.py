"""``coilclaw sop``: list, check, run and resume deterministic workflows."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from coilclaw.cli.parser import add_json

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from coilclaw.app.sopwiring import Attended, Examined, Sops
    from coilclaw.cli.console import Console
    from coilclaw.runtime.approvals import Question
    from coilclaw.security.autonomy import Autonomy
    from coilclaw.sop.interruption import Resolution
    from coilclaw.sop.runfile import Run

MAX_ANSWER: Final = 4096
_SETTLED: Final = {"redo": "redone", "accept": "accepted", "skip": "skipped"}
_RESOLUTIONS: Final = {
    "redo": "do it again",
    "accept": "take it as done; its output is lost",
    "skip": "leave it out",
}


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="all SOPs", allow_abbrev=False)
    add_json(listing)
    checking = actions.add_parser(
        "validate", help="say everything that is wrong with a SOP", allow_abbrev=False
    )
    checking.add_argument("name", nargs="?", metavar="NAME", help="the SOP (default: all)")
    add_json(checking)
    running = actions.add_parser("run", help="begin a run", allow_abbrev=False)
    running.add_argument("name", metavar="NAME", help="the SOP")
    running.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a value for an input (repeatable; a list takes one value from each)",
    )
    add_json(running)
    resuming = actions.add_parser(
        "resume", help="go on with a run that waits or was interrupted", allow_abbrev=False
    )
    resuming.add_argument("run_id", metavar="RUN", help="its id, or the beginning of it")
    settling = resuming.add_mutually_exclusive_group()
    for how, meaning in _RESOLUTIONS.items():
        settling.add_argument(
            f"--{how}",
            dest="how",
            action="store_const",
            const=how,
            help=f"the stage that was interrupted: {meaning}",
        )
    resuming.add_argument(
        "--stage", default="", metavar="STAGE", help="only this one, where there are several"
    )
    resuming.add_argument("--note", default="", metavar="TEXT", help="why, kept with the run")
    add_json(resuming)
    telling = actions.add_parser("status", help="all runs, or one in detail", allow_abbrev=False)
    telling.add_argument("run_id", nargs="?", metavar="RUN", help="its id, or the beginning of it")
    add_json(telling)


def run(args: argparse.Namespace, console: Console) -> int:
    """List, validate, run, resume or tell."""
    if args.action == "status":
        return _status(args.run_id, console)
    with _opened(console) as sops:
        match args.action:
            case "list":
                return _list(sops, console)
            case "validate":
                return _validate(sops, args.name, console)
            case "run":
                run = sops.run(
                    args.name, lambda name: console.note(f"run {name}"), inputs=args.input
                )
                return _ended(run, console)
            case _:
                return _ended(sops.resume(args.run_id, _resolution(args)), console)


def _resolution(args: argparse.Namespace) -> Resolution | None:
    import getpass

    from coilclaw.errors import UsageError
    from coilclaw.sop.interruption import Resolution

    if args.how is not None:
        return Resolution(args.how, f"person {getpass.getuser()}", args.note, args.stage)
    if args.note or args.stage:
        raise UsageError(
            "--note and --stage belong to --redo, --accept or --skip", rule="sop.resolution"
        )
    return None


@contextmanager
def _opened(console: Console) -> Iterator[Sops]:
    from coilclaw.app.agentwiring import open_config
    from coilclaw.app.home import home
    from coilclaw.app.sopwiring import open_sops
    from coilclaw.cli.people import at_terminal
    from coilclaw.cli.telling import logging_for

    place = home()
    config = open_config(place, os.environ)
    people = at_terminal(config.security.autonomy)
    attended = None if console.as_json else _attended(config.security.autonomy)
    with (
        logging_for(os.environ, config),
        open_sops(place, os.environ, people, config=config, attended=attended) as sops,
    ):
        yield sops


def _attended(autonomy: Autonomy) -> Attended | None:
    """The person here, who is asked at once; nobody where the input is no terminal."""
    if not sys.stdin.isatty():
        return None
    from coilclaw.app.sopwiring import Attended
    from coilclaw.cli.people import at_terminal

    return Attended(at_terminal(autonomy).approve, _confirm)


def _confirm(question: Question) -> bool | None:
    import termios

    from coilclaw.cli.approvals import described

    sys.stdout.flush()
    lines = ["", "Approval:", *described(question), "Approve? [y/n, anything else: later] "]
    # What was typed before the question could be read is no answer to it.
    termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
    sys.stderr.write("\n".join(lines))
    sys.stderr.flush()
    word = sys.stdin.readline(MAX_ANSWER).strip().lower()
    return {"y": True, "yes": True, "n": False, "no": False}.get(word)


def _list(sops: Sops, console: Console) -> int:
    from coilclaw.app.sop_records import sop_record
    from coilclaw.cli.dispatch import DONE

    found = sops.examine()
    if console.as_json:
        console.data([sop_record(one) for one in found])
        return DONE
    for one in found:
        state = f"  ({_count(one)})" if one.problems else ""
        style = "red" if one.problems else None
        console.print(f"{one.name:<20} {one.description or one.path}{state}", style)
    if not found:
        console.note("there are no SOPs")
    return DONE


def _validate(sops: Sops, name: str | None, console: Console) -> int:
    from coilclaw.app.sop_records import sop_record
    from coilclaw.cli.dispatch import DONE, USAGE

    found = sops.examine(name)
    wrong = any(one.problems for one in found)
    if console.as_json:
        console.data([sop_record(one) for one in found])
        return USAGE if wrong else DONE
    for one in found:
        for problem in one.problems:
            console.print(problem.sentence(str(one.path)), "red")
        if one.problems:
            console.error(f"{one.name} has {_count(one)}", rule="sop.invalid")
        else:
            console.print(f"{one.name} is valid: {len(one.stages)} stages", "green")
    if not found:
        console.note("there are no SOPs")
    return USAGE if wrong else DONE


def _count(one: Examined) -> str:
    return "a problem" if len(one.problems) == 1 else f"{len(one.problems)} problems"


def _ended(run: Run, console: Console) -> int:
    """Say how far it went; what is not done is an exit code of its own."""
    from coilclaw.cli.dispatch import DENIED, DONE, FAILED

    _tell(run, console)
    if run.status == "waiting" and not console.as_json:
        answers = " && ".join(f"coilclaw approve {name}" for name in run.waits.values())
        console.note(f"next: {answers} && coilclaw sop resume {run.id}")
    return {"done": DONE, "failed": FAILED}.get(run.status, DENIED)


def _status(name: str | None, console: Console) -> int:
    from coilclaw.app.home import home
    from coilclaw.app.sop_records import run_record
    from coilclaw.app.sopwiring import open_runs
    from coilclaw.cli.dispatch import DONE

    runs = open_runs(home())
    if name is not None:
        _tell(runs.find(name), console)
        return DONE
    found = runs.list()
    if console.as_json:
        console.data([run_record(one) for one in found])
        return DONE
    for one in found:
        console.print(
            f"{one.id}  {one.begun[:19]}Z  {one.status:<11} {one.sop}", _style(one.status)
        )
    if not found:
        console.note("there are no runs")
    return DONE


def _tell(run: Run, console: Console) -> None:
    from coilclaw.app.sop_records import run_record
    from coilclaw.cli.console import visible

    if console.as_json:
        console.data(run_record(run))
        return
    console.print(f"{run.id}  {run.sop}  {run.status}", _style(run.status))
    for outcome in run.outcomes.values():
        said = f": {visible(outcome.error)}" if outcome.error else ""
        console.print(f"  {outcome.stage:<20} {outcome.status}{said}", _style(outcome.status))
    for attempt in run.attempts.values():
        asked = run.waits.get(attempt.stage)
        waits = (
            f" waits for {asked}"
            if asked
            else f" {run.status if run.status == 'interrupted' else 'started'}"
        )
        console.print(f"  {attempt.stage:<20}{waits}", "yellow")
    for one in run.settlements:
        why = f": {visible(one.note)}" if one.note else ""
        console.print(
            f"  {one.stage:<20} {_SETTLED[one.how]} by {visible(one.by)} at {one.time[:19]}Z{why}"
        )


def _style(status: str) -> str | None:
    good, bad = {"done": "green"}, {"failed": "red", "denied": "red", "rejected": "red"}
    return {**good, **bad, "waiting": "yellow", "interrupted": "yellow"}.get(status)
