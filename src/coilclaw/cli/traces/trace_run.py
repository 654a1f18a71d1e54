"""``trace run``: let an agent work on an environment's task, and record every part of it."""

from __future__ import annotations

import os
import signal
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from coilclaw.cli.command import DENIED, DONE, FAILED, FAULT, PROVIDER, Namespace, Parser, find_home
from coilclaw.cli.console import Console, escape_hidden
from coilclaw.cli.status_line import StatusLine
from coilclaw.kernel import CoilClawError, UsageError, signal_scope

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from coilclaw.cli.traces.detachment import DetachedProcess
    from coilclaw.traces import (
        PartRecord,
        RecordedTurn,
        Resumable,
        SessionEnd,
        TraceOptions,
        TraceOutcome,
        Tracing,
        TrajectoryPlan,
        UploadReport,
    )

NICENESS: Final = 10
MAX_SUMMARY: Final = 60


def declare(parser: Parser) -> None:
    """Declare the arguments."""
    parser.value(
        "--agent",
        "NAME",
        'codex (default), opencode, acp:"COMMAND", process:"COMMAND" or scripted:FILE',
    )
    parser.value("--model", "NAME", "the agent's model", default="")
    parser.value("--environment", "NAME", "a name, a directory or a file", default="")
    parser.value("--max-parts", "N", "default: 1000", type=int)
    parser.value("--max-turns", "N", "default: as many as it takes", type=int)
    parser.value("--timeout", "SECONDS", "for the whole of it", type=float)
    summary = "what the agent is held in; modal: the whole recording runs there"
    boxes = ("local", "bwrap", "modal")
    parser.value("--sandbox", None, summary, choices=boxes, default="local")
    parser.value("--store", "DIR|s3://…", "where the artifacts are kept", default="")
    parser.value("--trajectory-id", "ID", "default: a new one", default="")
    parser.flag("--resume", "go on with --trajectory-id, which was stopped")
    parser.flag("--detach", "go on behind the terminal")
    giving_way = parser.add_mutually_exclusive_group()
    summary = "give way to everything else on this machine"
    giving_way.add_argument("--preemptible", action="store_true", help=summary)
    summary = "take part like everything else (default)"
    giving_way.add_argument("--non-preemptible", action="store_true", help=summary)
    parser.value("--prompt-file", "FILE", "instead of the environment's task")
    parser.value("--jobs", "N", "cases at once when tests run", type=int)
    parser.flag("--raw", "keep the agent's own events with the parts")
    parser.json()


def run(args: Namespace, console: Console) -> int:
    """Record a new trajectory, or resume one."""
    from coilclaw.cli.traces.detachment import DetachedProcess, detach

    if args.resume and not args.trajectory_id:
        raise UsageError("--resume needs --trajectory-id", rule="usage.resume")
    if not args.detach:
        return _record(args, console)
    # At once: what is used later, such as a client of a bucket, does not survive a fork.
    part = detach()
    if isinstance(part, DetachedProcess):
        return _record(args, console, part)
    if part.code is not None:
        return part.code
    console.note(f"it goes on as process {part.pid}; 'trace show' says how far it is")
    return DONE


def _record(args: Namespace, console: Console, behind: DetachedProcess | None = None) -> int:
    from coilclaw.app import open_tracing

    progress = TraceProgress(console, live=console.err.isatty() and behind is None)
    tracing = open_tracing(
        find_home(),
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
        return _record_elsewhere(args, tracing, console, behind)
    ready = _resumable(args, tracing, console) if args.resume else None
    plan = tracing.plan(_wishes(args)) if ready is None else ready.plan
    if ready is None:
        tracing.ready(plan)
        if tracing.skipped:  # What is solved without some suites must not be taken for all of it.
            console.warn(
                f"not judged, because their fixtures are not here: {', '.join(tracing.skipped)}; "
                f"see 'coilclaw env fixtures {plan.environment} status'"
            )
    _announce(plan, console)
    if behind is not None:
        tracing.on_begin = _letting_go(behind, tracing, plan, console)
    if args.preemptible:
        os.nice(NICENESS)
    try:
        with stop_on_signals(tracing.cancel.cancel), closing(progress):
            if ready is None:
                outcome = tracing.run(plan)
            else:
                outcome = tracing.resume(plan.trajectory_id, ready=ready)
    except CoilClawError:
        _tell_kept(tracing.home, plan, console)
        raise
    if behind is not None:  # what was a terminal has become a file
        console = Console.of(console.out, console.err, os.environ, as_json=console.as_json)
    return _show_end(outcome, plan, console)


def _tell_kept(home: Path, plan: TrajectoryPlan, console: Console) -> None:
    """After a fault in the middle: nothing that was recorded is lost."""
    from coilclaw.traces import TracePlaces

    journal = TracePlaces(home, plan.trajectory_id).journal
    if journal.is_file() and journal.stat().st_size:
        console.note(
            "what was recorded until then is kept; to go on: "
            f"trace --resume --trajectory-id {plan.trajectory_id}"
        )


def _letting_go(
    behind: DetachedProcess, tracing: Tracing, plan: TrajectoryPlan, console: Console
) -> Callable[[], None]:
    """What the process that goes on does when it is under way."""
    from coilclaw.traces import TracePlaces

    log = TracePlaces(tracing.home, plan.trajectory_id).log

    def under_way() -> None:
        if behind.waited_for:
            console.note(f"what it says from now on is in {log}")
            behind.under_way(log)

    return under_way


def _record_elsewhere(
    args: Namespace, tracing: Tracing, console: Console, behind: DetachedProcess | None
) -> int:
    """Record in a sandbox of Modal."""
    from coilclaw.traces import ModalBox, ModalExtras, is_bucket, require_sdk
    from coilclaw.traces import place as artifacts

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
        (console.print if side == "out" else console.note)(escape_hidden(line))

    box = ModalBox(
        plan=plan,
        store=store,
        environ=tracing.environ,
        start=tracing.start,
        extras=ModalExtras(jobs=args.jobs, preemptible=args.preemptible, as_json=console.as_json),
        say=say,
        cancel=tracing.cancel,
    )
    _announce(plan, console)
    if args.non_preemptible:
        console.warn("Modal does not let a sandbox choose whether it can be preempted")
    if behind is not None and is_bucket(store):
        with tracing.stoppable():
            console.note(f"it goes on in the Modal sandbox {box.leave()}")
        return DONE
    with tracing.stoppable(), stop_on_signals(tracing.cancel.cancel):
        return box.record()


def _wishes(args: Namespace) -> TraceOptions:
    from coilclaw.traces import TraceOptions

    return TraceOptions(
        model=args.model,
        environment=args.environment,
        prompt_file=Path(args.prompt_file) if args.prompt_file else None,
        trajectory_id=args.trajectory_id,
        max_turns=args.max_turns,
        timeout_s=args.timeout,
        keep_raw=args.raw,
        **_given(agent=args.agent, max_parts=args.max_parts),
    )


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _resumable(args: Namespace, tracing: Tracing, console: Console) -> Resumable:
    """What is gone on with; what it was begun with stays, but for its limits."""

    fixed = ("agent", "model", "prompt_file", "raw")
    if given := [name for name in fixed if getattr(args, name)]:
        raise UsageError(
            f"--{given[0].replace('_', '-')} cannot change when a trajectory is gone on with",
            rule="usage.resume",
            hint="start a new one",
        )
    limits = _given(max_parts=args.max_parts, max_turns=args.max_turns, timeout_s=args.timeout)
    ready = tracing.resumable(
        args.trajectory_id, lambda plan: replace(plan, **limits), args.environment
    )
    if ready.brought is not None:
        console.note(f"brought here from the store, with {ready.brought.history.parts} parts")
        if ready.brought.left_out:
            console.warn(
                f"{ready.brought.left_out} parts were recorded after that, whose code did not "
                "reach the store"
            )
    return ready


def _announce(plan: TrajectoryPlan, console: Console) -> None:
    """Say where everything will be before anything begins."""
    say = console.note if console.as_json else console.print
    say(f"TRAJECTORY_ID={plan.trajectory_id}")
    say(f"TRACE_S3_URI={plan.trace_uri}")
    say(f"BUNDLE_S3_URI={plan.bundle_uri}")
    console.out.flush()
    console.err.flush()


@contextmanager
def stop_on_signals(stop: Callable[[str], None]) -> Iterator[None]:
    """Have a first signal end the trajectory with everything recorded, and a second one at once."""
    seen = False

    def arrived(number: signal.Signals) -> None:
        nonlocal seen
        if seen:
            raise KeyboardInterrupt
        seen = True
        stop(f"signal {number.name}")

    with signal_scope(arrived, signal.SIGINT, signal.SIGTERM):
        yield


def _show_end(outcome: TraceOutcome, plan: TrajectoryPlan, console: Console) -> int:
    end, uploads = outcome.end, outcome.uploads
    for trouble in uploads.troubles:
        console.warn(f"not in the store: {trouble.key}: {trouble.message}")
    record = {
        "trajectory_id": plan.trajectory_id,
        "trace": plan.trace_uri,
        "bundle": plan.bundle_uri,
        "session_end": end.json(),
        "artifacts_complete": uploads.complete,
    }
    if not console.emit(record):
        detail = f": {end.detail}" if end.detail else ""
        said = f"ended: {end.reason}{detail} ({end.total_parts} parts, {end.total_turns} turns)"
        console.show(said, "green" if end.reason == "solved" else "yellow")
        console.print(f"look at it:  graph_trace {plan.trajectory_id}")
    return exit_code(end, complete=uploads.complete)


def exit_code(end: SessionEnd, *, complete: bool = True) -> int:
    """Return 0 only when it is solved and everything is kept."""
    if end.reason == "solved":
        return DONE if complete else FAULT
    codes = {"interrupted": DENIED, "agent_error": PROVIDER, "envoi_error": FAULT}
    return codes.get(end.reason, FAILED)


class TraceProgress(StatusLine):
    """One line that changes on a terminal; elsewhere one line a part."""

    def __init__(self, console: Console, *, live: bool | None = None) -> None:
        super().__init__(console.err, live=console.err.isatty() if live is None else live)
        self._console = console
        self._tokens = 0
        self._tests = "–"

    def turn(self, record: RecordedTurn) -> None:
        """A turn began or ended."""
        for call in record.envoi_calls:
            if call.result is not None:
                self._tests = f"{call.result.passed}/{call.result.total}"

    def part(self, record: PartRecord) -> None:
        """A part was recorded."""
        from coilclaw.traces import format_duration, format_number

        if record.token_usage is not None:
            usage = record.token_usage
            self._tokens += (usage.input_tokens or 0) + (usage.output_tokens or 0)
        state = record.testing_state
        if state is not None and state.latest_passed is not None:
            self._tests = f"{state.latest_passed}/{state.latest_total}"
        text = " ".join(record.summary.split())[:MAX_SUMMARY]
        line = (
            f"part {record.part}  turn {record.turn}  tests {self._tests}  "
            f"tokens {format_number(self._tokens)}  {format_duration(record.elapsed_ms)}  "
            f"{record.tool_name or record.part_type}: {text}"
        )
        if self._live:
            self.show(line)
        else:
            self._console.note(line)

    def wait(self, report: UploadReport, seconds: int) -> None:
        """The end waits for uploads."""
        self.close()
        why = f": {report.troubles[0].message}" if report.troubles else ""
        self._console.note(
            f"waiting up to {seconds} s for {report.waiting} artifacts to reach the store{why}; "
            "a signal ends the waiting, and everything is kept on this machine"
        )
