"""``coilclaw sop``: list, check, run and resume deterministic workflows."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from coilclaw.cli.command import DENIED, DONE, FAILED, USAGE, find_home, load_config
from coilclaw.cli.console import Console, escape_hidden
from coilclaw.kernel import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coilclaw.agent import ApprovalQuestion, ExaminedSop, Resolution, SopRun, Sops
    from coilclaw.cli.command import Namespace, Parser

MAX_ANSWER: Final = 4096
_SETTLED: Final = {"redo": "redone", "accept": "accepted", "skip": "skipped"}
_RESOLUTIONS: Final = {
    "redo": "run it again",
    "accept": "treat it as done; its output is lost",
    "skip": "leave it out",
}
_STYLES: Final = {
    "done": "green",
    "failed": "red",
    "denied": "red",
    "rejected": "red",
    "waiting": "yellow",
    "interrupted": "yellow",
}


def declare(parser: Parser) -> None:
    """Declare the arguments."""
    action = parser.actions()
    action("list", "list all SOPs", _list).json()
    checking = action("validate", "list every problem of a SOP", _validate)
    checking.value("name", "NAME", "the SOP (default: all)", nargs="?").json()
    running = action("run", "start a run", _run)
    running.value("name", "NAME", "the SOP")
    summary = "a value for an input (repeatable; each adds one value to a list)"
    running.many("--input", "NAME=VALUE", summary).json()
    resuming = action("resume", "resume a run that waits or was interrupted", _resume)
    resuming.value("run_id", "RUN", "its id, or the beginning of it")
    settling = resuming.add_mutually_exclusive_group()
    for how, meaning in _RESOLUTIONS.items():
        summary = f"the stage that was interrupted: {meaning}"
        settling.add_argument(f"--{how}", dest="how", action="store_const", const=how, help=summary)
    resuming.value("--stage", "STAGE", "only this stage, if several were interrupted", default="")
    resuming.value("--note", "TEXT", "the reason, kept with the run", default="").json()
    telling = action("status", "list all runs, or show one in detail", _show_status)
    telling.value("run_id", "RUN", "its id, or the beginning of it", nargs="?").json()


def _run(args: Namespace, console: Console) -> int:
    with _open_sops(console) as sops:
        run = sops.run(args.name, lambda name: console.note(f"run {name}"), inputs=args.input)
        return _show_end(run, console)


def _resume(args: Namespace, console: Console) -> int:
    with _open_sops(console) as sops:
        return _show_end(sops.resume(args.run_id, _read_resolution(args)), console)


def _read_resolution(args: Namespace) -> Resolution | None:
    import getpass

    from coilclaw.agent import Resolution

    if args.how is not None:
        return Resolution(args.how, f"person {getpass.getuser()}", args.note, args.stage)
    if args.note or args.stage:
        raise UsageError(
            "--note and --stage need --redo, --accept or --skip", rule="sop.resolution"
        )
    return None


@contextmanager
def _open_sops(console: Console) -> Iterator[Sops]:
    from coilclaw.agent import Attended
    from coilclaw.app import open_sops
    from coilclaw.cli.session import open_logs, people_at_terminal

    config = load_config()
    people = people_at_terminal(config.security.autonomy)
    # With a terminal, the user is asked at once.
    asks = not console.as_json and sys.stdin.isatty()
    attended = Attended(people.approve, _confirm) if asks else None
    with (
        open_logs(os.environ, config),
        open_sops(find_home(), os.environ, people, config=config, attended=attended) as sops,
    ):
        yield sops


def _confirm(question: ApprovalQuestion) -> bool | None:
    import termios

    from coilclaw.cli.runtime.approvals import describe_question

    sys.stdout.flush()
    lines = ["", "Approval:", *describe_question(question), "Approve? [y/n, anything else: later] "]
    # Input typed before the question appeared does not answer it.
    termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
    sys.stderr.write("\n".join(lines))
    sys.stderr.flush()
    word = sys.stdin.readline(MAX_ANSWER).strip().lower()
    return {"y": True, "yes": True, "n": False, "no": False}.get(word)


def _list(_: Namespace, console: Console) -> None:
    from coilclaw.agent import sop_record

    with _open_sops(console) as sops:
        found = sops.examine()
    lines: list[tuple[str, str | None]] = []
    for one in found:
        state = f"  ({_count_problems(one)})" if one.problems else ""
        line = f"{one.name:<20} {one.description or one.path}{state}"
        lines.append((line, "red" if one.problems else None))
    console.table(map(sop_record, found), lines, "no SOPs found")


def _validate(args: Namespace, console: Console) -> int:
    from coilclaw.agent import sop_record

    with _open_sops(console) as sops:
        found = sops.examine(args.name)
    code = USAGE if any(one.problems for one in found) else DONE
    if console.emit([sop_record(one) for one in found]):
        return code
    for one in found:
        for problem in one.problems:
            console.print(problem.sentence(str(one.path)), "red")
        if one.problems:
            console.error(f"{one.name} has {_count_problems(one)}", rule="sop.invalid")
        else:
            console.print(f"{one.name} is valid: {len(one.stages)} stages", "green")
    if not found:
        console.note("no SOPs found")
    return code


def _count_problems(one: ExaminedSop) -> str:
    return "a problem" if len(one.problems) == 1 else f"{len(one.problems)} problems"


def _show_end(run: SopRun, console: Console) -> int:
    """Print the state of a run, and return the exit code for it."""
    _show(run, console)
    if run.status == "waiting" and not console.as_json:
        answers = " && ".join(f"coilclaw approve {name}" for name in run.waits.values())
        console.note(f"next: {answers} && coilclaw sop resume {run.id}")
    return {"done": DONE, "failed": FAILED}.get(run.status, DENIED)


def _show_status(args: Namespace, console: Console) -> None:
    from coilclaw.agent import run_record
    from coilclaw.app import open_sop_runs

    runs = open_sop_runs(find_home())
    if args.run_id is not None:
        _show(runs.find(args.run_id), console)
        return
    found = runs.list()
    lines = (
        (f"{one.id}  {one.begun[:19]}Z  {one.status:<11} {one.sop}", _STYLES.get(one.status))
        for one in found
    )
    console.table(map(run_record, found), lines, "no runs yet")


def _show(run: SopRun, console: Console) -> None:
    from coilclaw.agent import run_record

    if console.emit(run_record(run)):
        return
    console.print(f"{run.id}  {run.sop}  {run.status}", _STYLES.get(run.status))
    for outcome in run.outcomes.values():
        said = f": {escape_hidden(outcome.error)}" if outcome.error else ""
        style = _STYLES.get(outcome.status)
        console.print(f"  {outcome.stage:<20} {outcome.status}{said}", style)
    for attempt in run.attempts.values():
        state = run.status if run.status == "interrupted" else "started"
        asked = run.waits.get(attempt.stage)
        console.print(f"  {attempt.stage:<20} {f'waits for {asked}' if asked else state}", "yellow")
    for one in run.settlements:
        why = f": {escape_hidden(one.note)}" if one.note else ""
        console.print(
            f"  {one.stage:<20} {_SETTLED[one.how]} by {escape_hidden(one.by)} at "
            f"{one.time[:19]}Z{why}"
        )
