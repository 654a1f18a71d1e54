"""``trace run``: let an agent work on an environment's task, and record every part of it."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw.cli.console import visible
from coilclaw.cli.parser import add_json

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator
    from types import FrameType

    from coilclaw.app.tracewiring import Outcome, Resumable, Tracing, Wishes
    from coilclaw.artifacts.uploader import Report
    from coilclaw.cli.console import Console
    from coilclaw.cli.detaching import Behind
    from coilclaw.trajectory.plan import Plan
    from coilclaw.trajectory.trace import PartRecord, SessionEnd, TurnRecord

NICENESS: Final = 10
MAX_SUMMARY: Final = 60


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "--agent",
        metavar="NAME",
        help='codex (default), opencode, acp:"COMMAND", process:"COMMAND" or scripted:FILE',
    )
    parser.add_argument("--model", default="", metavar="NAME", help="the agent's model")
    parser.add_argument(
        "--environment", default="", metavar="NAME", help="a name, a directory or a file"
    )
    parser.add_argument("--max-parts", type=int, metavar="N", help="default: 1000")
    parser.add_argument("--max-turns", type=int, metavar="N", help="default: as many as it takes")
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help="for the whole of it")
    parser.add_argument(
        "--sandbox",
        choices=("local", "bwrap", "modal"),
        default="local",
        help="what the agent is held in; modal: the whole recording runs there",
    )
    parser.add_argument(
        "--store", default="", metavar="DIR|s3://…", help="where the artifacts are kept"
    )
    parser.add_argument("--trajectory-id", default="", metavar="ID", help="default: a new one")
    parser.add_argument(
        "--resume", action="store_true", help="go on with --trajectory-id, which was stopped"
    )
    parser.add_argument("--detach", action="store_true", help="go on behind the terminal")
    giving_way = parser.add_mutually_exclusive_group()
    giving_way.add_argument(
        "--preemptible",
        action="store_true",
        help="give way to everything else on this machine",
    )
    giving_way.add_argument(
        "--non-preemptible", action="store_true", help="take part like everything else (default)"
    )
    parser.add_argument("--prompt-file", metavar="FILE", help="instead of the environment's task")
    parser.add_argument("--jobs", type=int, metavar="N", help="cases at once when tests run")
    parser.add_argument(
        "--raw", action="store_true", help="keep the agent's own events with the parts"
    )
    add_json(parser)


def run(args: argparse.Namespace, console: Console) -> int:
    """Record a new trajectory, or go on with one."""
    from coilclaw.errors import UsageError

    if args.resume and not args.trajectory_id:
        raise UsageError("--resume needs --trajectory-id", rule="usage.resume")
    if not args.detach:
        return _recorded(args, console)
    from coilclaw.cli.detaching import Behind, detach

    # At once: what is used later, such as a client of a bucket, does not survive a fork.
    part = detach()
    if isinstance(part, Behind):
        return _recorded(args, console, part)
    if part.code is not None:
        return part.code
    console.note(f"it goes on as process {part.pid}; 'trace show' says how far it is")
    return 0


def _recorded(args: argparse.Namespace, console: Console, behind: Behind | None = None) -> int:
    from coilclaw.app.home import home
    from coilclaw.app.tracewiring import Tracing
    from coilclaw.errors import CoilClawError

    progress = Progress(console, live=console.err.isatty() and behind is None)
    tracing = Tracing(
        home(),
        os.environ,
        Path.cwd(),
        store_at=args.store,
        box="local" if args.sandbox == "modal" else args.sandbox,
        jobs=args.jobs,
        on_wait=progress.wait,
        on_part=progress.part,
        on_turn=progress.turn,
    )
    if args.sandbox == "modal":
        return _elsewhere(args, tracing, console, behind)
    ready = _resumable(args, tracing, console) if args.resume else None
    plan = tracing.plan(_wishes(args)) if ready is None else ready.plan
    if ready is None:
        tracing.ready(plan)
        _warn_of_skipped(tracing, plan, console)
    _announce(plan, console)
    if behind is not None:
        tracing.on_begin = _letting_go(behind, tracing, plan, console)
    if args.preemptible:
        os.nice(NICENESS)
    try:
        with stopped_by_signals(tracing.cancel.cancel), closing(progress):
            if ready is None:
                outcome = tracing.run(plan)
            else:
                outcome = tracing.resume(plan.trajectory_id, ready=ready)
    except CoilClawError:
        _tell_kept(tracing.home, plan, console)
        raise
    return _tell(outcome, plan, console if behind is None else _plain(console))


def _warn_of_skipped(tracing: Tracing, plan: Plan, console: Console) -> None:
    """What is solved without some of the suites must not be taken for all of it."""
    if tracing.skipped:
        console.warn(
            visible(
                f"not judged, because their fixtures are not here: {', '.join(tracing.skipped)}; "
                f"see 'coilclaw env fixtures {plan.environment} status'"
            )
        )


def _tell_kept(home: Path, plan: Plan, console: Console) -> None:
    """After a fault in the middle: nothing that was recorded is lost."""
    from coilclaw.trajectory.places import Places

    journal = Places(home, plan.trajectory_id).journal
    if journal.is_file() and journal.stat().st_size:
        console.note(
            "what was recorded until then is kept; to go on: "
            f"trace --resume --trajectory-id {plan.trajectory_id}"
        )


def _letting_go(
    behind: Behind, tracing: Tracing, plan: Plan, console: Console
) -> Callable[[], None]:
    """What the process that goes on does when it is under way."""
    from coilclaw.trajectory.places import Places

    log = Places(tracing.home, plan.trajectory_id).log

    def under_way() -> None:
        if behind.waited_for:
            console.note(f"what it says from now on is in {log}")
            behind.under_way(log)

    return under_way


def _plain(console: Console) -> Console:
    """A console for what has become a file."""
    from coilclaw.cli.console import Console

    return Console.of(console.out, console.err, os.environ, as_json=console.as_json)


def _elsewhere(
    args: argparse.Namespace, tracing: Tracing, console: Console, behind: Behind | None
) -> int:
    """Record in a sandbox of Modal."""
    from coilclaw import artifacts
    from coilclaw.app.modalbox import ModalBox, is_bucket, require_sdk
    from coilclaw.app.modalcargo import Extras
    from coilclaw.errors import UsageError

    if args.resume:
        raise UsageError(
            "a trajectory cannot be gone on with in a Modal sandbox, which begins with nothing",
            rule="modal.resume",
            hint="go on with it on this machine: leave --sandbox modal away, and name its --store",
        )
    require_sdk()
    plan = tracing.plan(_wishes(args))
    tracing.ready(plan, here=False)
    store = tracing.store_at or artifacts.default_place(tracing.environ, tracing.home)

    begun = _letting_go(behind, tracing, plan, console) if behind is not None else None

    def say(line: str, side: str) -> None:
        if begun is not None:
            begun()
        if side == "out":
            console.print(visible(line))
        else:
            console.note(line)

    box = ModalBox(
        plan=plan,
        store=store,
        environ=tracing.environ,
        start=tracing.start,
        extras=Extras(jobs=args.jobs, preemptible=args.preemptible, as_json=console.as_json),
        say=say,
        cancel=tracing.cancel,
    )
    _announce(plan, console)
    if args.non_preemptible:
        console.warn("Modal does not let a sandbox choose whether it can be preempted")
    if behind is not None and is_bucket(store):
        with tracing.stoppable():
            console.note(f"it goes on in the Modal sandbox {box.leave()}")
        return 0
    with tracing.stoppable(), stopped_by_signals(tracing.cancel.cancel):
        return box.record()


def _wishes(args: argparse.Namespace) -> Wishes:
    from coilclaw.app.tracewiring import Wishes

    wishes = Wishes(
        model=args.model,
        environment=args.environment,
        prompt_file=Path(args.prompt_file) if args.prompt_file else None,
        trajectory_id=args.trajectory_id,
        max_turns=args.max_turns,
        timeout_s=args.timeout,
        keep_raw=args.raw,
    )
    if args.agent is not None:
        wishes = replace(wishes, agent=args.agent)
    return wishes if args.max_parts is None else replace(wishes, max_parts=args.max_parts)


def _resumable(args: argparse.Namespace, tracing: Tracing, console: Console) -> Resumable:
    """What is gone on with; what it was begun with stays, but for its limits."""
    from coilclaw.errors import UsageError

    fixed = ("agent", "model", "prompt_file", "raw")
    if given := [name for name in fixed if getattr(args, name)]:
        raise UsageError(
            f"--{given[0].replace('_', '-')} cannot change when a trajectory is gone on with",
            rule="usage.resume",
            hint="start a new one",
        )
    ready = tracing.resumable(args.trajectory_id, _change(args), args.environment)
    if ready.brought is not None:
        console.note(f"brought here from the store, with {ready.brought.history.parts} parts")
        if ready.brought.left_out:
            console.warn(
                f"{ready.brought.left_out} parts were recorded after that, whose code did not "
                "reach the store"
            )
    return ready


def _change(args: argparse.Namespace) -> Callable[[Plan], Plan]:
    def change(plan: Plan) -> Plan:
        if args.max_parts is not None:
            plan = replace(plan, max_parts=args.max_parts)
        if args.max_turns is not None:
            plan = replace(plan, max_turns=args.max_turns)
        return plan if args.timeout is None else replace(plan, timeout_s=args.timeout)

    return change


def _announce(plan: Plan, console: Console) -> None:
    """Say where everything will be before anything begins."""
    lines = {
        "TRAJECTORY_ID": plan.trajectory_id,
        "TRACE_S3_URI": plan.trace_uri,
        "BUNDLE_S3_URI": plan.bundle_uri,
    }
    for name, value in lines.items():
        if console.as_json:
            console.note(f"{name}={value}")
        else:
            console.print(f"{name}={value}")
    console.out.flush()
    console.err.flush()


@contextmanager
def stopped_by_signals(stop: Callable[[str], None]) -> Iterator[None]:
    """Have a first signal end the trajectory with everything recorded, and a second one at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    seen = False

    def handle(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - a handler's shape
        nonlocal seen
        if seen:
            raise KeyboardInterrupt
        seen = True
        stop(f"signal {signal.Signals(number).name}")

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _tell(outcome: Outcome, plan: Plan, console: Console) -> int:
    end, uploads = outcome.end, outcome.uploads
    for trouble in uploads.troubles:
        console.warn(visible(f"not in the store: {trouble.key}: {trouble.message}"))
    if console.as_json:
        console.data(
            {
                "trajectory_id": plan.trajectory_id,
                "trace": plan.trace_uri,
                "bundle": plan.bundle_uri,
                "session_end": end.json(),
                "artifacts_complete": uploads.complete,
            }
        )
    else:
        style = "green" if end.reason == "solved" else "yellow"
        detail = f": {end.detail}" if end.detail else ""
        console.print(
            visible(
                f"ended: {end.reason}{detail} ({end.total_parts} parts, {end.total_turns} turns)"
            ),
            style,
        )
        console.print(f"look at it:  graph_trace {plan.trajectory_id}")
    return exit_code(end, complete=uploads.complete)


def exit_code(end: SessionEnd, *, complete: bool = True) -> int:
    """0 only when it is solved and everything is kept."""
    from coilclaw.cli.dispatch import DENIED, DONE, FAILED, FAULT, PROVIDER

    match end.reason:
        case "solved":
            return DONE if complete else FAULT
        case "interrupted":
            return DENIED
        case "agent_error":
            return PROVIDER
        case "envoi_error":
            return FAULT
        case _:
            return FAILED


class Progress:
    """One line that changes on a terminal; elsewhere one line a part."""

    def __init__(self, console: Console, *, live: bool | None = None) -> None:
        self._console = console
        self._live = console.err.isatty() if live is None else live
        self._tokens = 0
        self._turns = 0
        self._tests = "–"

    def turn(self, record: TurnRecord) -> None:
        """A turn began or ended."""
        self._turns = record.turn
        for call in record.envoi_calls:
            if call.result is not None:
                self._tests = f"{call.result.passed}/{call.result.total}"

    def part(self, record: PartRecord) -> None:
        """A part was recorded."""
        from coilclaw.trajectory.reporttext import clock, grouped

        if record.token_usage is not None:
            usage = record.token_usage
            self._tokens += (usage.input_tokens or 0) + (usage.output_tokens or 0)
        state = record.testing_state
        if state is not None and state.latest_passed is not None:
            self._tests = f"{state.latest_passed}/{state.latest_total}"
        text = " ".join(record.summary.split())[:MAX_SUMMARY]
        line = visible(
            f"part {record.part}  turn {record.turn}  tests {self._tests}  "
            f"tokens {grouped(self._tokens)}  {clock(record.elapsed_ms)}  "
            f"{record.tool_name or record.part_type}: {text}"
        )
        if self._live:
            width = _width(self._console)
            # The cursor goes back to the start, so that a warning stands where the line was.
            self._console.err.write(f"\r\x1b[K{line[: width - 1]}\r")
            self._console.err.flush()
        else:
            self._console.note(line)

    def wait(self, report: Report, seconds: int) -> None:
        """The end waits for uploads."""
        self.close()
        self._live = False
        why = f": {report.troubles[0].message}" if report.troubles else ""
        self._console.note(
            visible(
                f"waiting up to {seconds} s for {report.waiting} artifacts to reach the store"
                f"{why}; "
                "a signal ends the waiting, and everything is kept on this machine"
            )
        )

    def close(self) -> None:
        """Leave the terminal to what comes next."""
        if self._live:
            self._console.err.write("\n")


def _width(console: Console) -> int:
    try:
        return os.get_terminal_size(console.err.fileno()).columns or 80
    except OSError:
        return 80
