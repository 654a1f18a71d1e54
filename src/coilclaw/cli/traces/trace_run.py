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
    parser.value("--max-turns", "N", "default: unlimited", type=int)
    parser.value("--timeout", "SECONDS", "time limit for the recording", type=float)
    summary = "the sandbox of the agent; modal: the whole recording runs there"
    boxes = ("local", "bwrap", "modal")
    parser.value("--sandbox", None, summary, choices=boxes, default="local")
    parser.value("--store", "DIR|s3://…", "where to store the artifacts", default="")
    parser.value("--trajectory-id", "ID", "default: a new one", default="")
    parser.flag("--resume", "resume --trajectory-id, which was stopped")
    parser.flag("--detach", "continue in the background")
    giving_way = parser.add_mutually_exclusive_group()
    summary = "run with a lower priority on this machine"
    giving_way.add_argument("--preemptible", action="store_true", help=summary)
    summary = "run with the normal priority (default)"
    giving_way.add_argument("--non-preemptible", action="store_true", help=summary)
    parser.value("--prompt-file", "FILE", "the task, instead of that of the environment")
    parser.value("--jobs", "N", "test cases to run at once", type=int)
    parser.flag("--raw", "keep the raw events of the agent with the parts")
    parser.json()


def run(args: Namespace, console: Console) -> int:
    """Record a new trajectory, or resume one."""
    from coilclaw.cli.traces.detachment import DetachedProcess, detach

    if args.resume and not args.trajectory_id:
        raise UsageError("--resume needs --trajectory-id", rule="usage.resume")
    if not args.detach:
        return _record(args, console)
    # Fork first: what is opened later, such as a client of a bucket, does not survive it.
    part = detach()
    if isinstance(part, DetachedProcess):
        return _record(args, console, part)
    if part.code is not None:
        return part.code
    console.note(f"continues in the background as process {part.pid}; see 'trace show'")
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
    ready = _find_resumable(args, tracing, console) if args.resume else None
    plan = tracing.plan(_read_options(args)) if ready is None else ready.plan
    if ready is None:
        tracing.ready(plan)
        if tracing.skipped:  # A result without some suites must not pass for the complete one.
            console.warn(
                f"not tested, because their fixtures are missing: {', '.join(tracing.skipped)}; "
                f"see 'coilclaw env fixtures {plan.environment} status'"
            )
    _announce(plan, console)
    if behind is not None:
        tracing.on_begin = _make_release(behind, tracing, plan, console)
    if args.preemptible:
        os.nice(NICENESS)
    try:
        with stop_on_signals(tracing.cancel.cancel), closing(progress):
            if ready is None:
                outcome = tracing.run(plan)
            else:
                outcome = tracing.resume(plan.trajectory_id, ready=ready)
    except CoilClawError:
        _note_kept(tracing.home, plan, console)
        raise
    if behind is not None:  # the terminal has been replaced by a file
        console = Console.of(console.out, console.err, os.environ, as_json=console.as_json)
    return _show_end(outcome, plan, console)


def _note_kept(home: Path, plan: TrajectoryPlan, console: Console) -> None:
    """Print how to resume after a fault, if anything was recorded."""
    from coilclaw.traces import TracePlaces

    journal = TracePlaces(home, plan.trajectory_id).journal
    if journal.is_file() and journal.stat().st_size:
        console.note(
            "what was recorded so far is kept; resume with: "
            f"trace --resume --trajectory-id {plan.trajectory_id}"
        )


def _make_release(
    behind: DetachedProcess, tracing: Tracing, plan: TrajectoryPlan, console: Console
) -> Callable[[], None]:
    """Return what the background process calls once recording has begun."""
    from coilclaw.traces import TracePlaces

    log = TracePlaces(tracing.home, plan.trajectory_id).log

    def under_way() -> None:
        if behind.waited_for:
            console.note(f"further output is in {log}")
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
            "a trajectory cannot be resumed in a Modal sandbox, which starts empty",
            rule="modal.resume",
            hint="resume it on this machine: omit --sandbox modal, and give its --store",
        )
    require_sdk()
    plan = tracing.plan(_read_options(args))
    tracing.ready(plan, here=False)
    store = tracing.store_at or artifacts.default_place(tracing.environ, tracing.home)

    begun = _make_release(behind, tracing, plan, console) if behind is not None else None

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
            console.note(f"continues in the Modal sandbox {box.leave()}")
        return DONE
    with tracing.stoppable(), stop_on_signals(tracing.cancel.cancel):
        return box.record()


def _read_options(args: Namespace) -> TraceOptions:
    from coilclaw.traces import TraceOptions

    return TraceOptions(
        model=args.model,
        environment=args.environment,
        prompt_file=Path(args.prompt_file) if args.prompt_file else None,
        trajectory_id=args.trajectory_id,
        max_turns=args.max_turns,
        timeout_s=args.timeout,
        keep_raw=args.raw,
        **_drop_none(agent=args.agent, max_parts=args.max_parts),
    )


def _drop_none(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _find_resumable(args: Namespace, tracing: Tracing, console: Console) -> Resumable:
    """Return the trajectory to resume; of its settings only the limits can change."""

    fixed = ("agent", "model", "prompt_file", "raw")
    if given := [name for name in fixed if getattr(args, name)]:
        raise UsageError(
            f"--{given[0].replace('_', '-')} cannot change when a trajectory is resumed",
            rule="usage.resume",
            hint="start a new one",
        )
    limits = _drop_none(max_parts=args.max_parts, max_turns=args.max_turns, timeout_s=args.timeout)
    ready = tracing.resumable(
        args.trajectory_id, lambda plan: replace(plan, **limits), args.environment
    )
    if ready.brought is not None:
        console.note(f"fetched from the store, with {ready.brought.history.parts} parts")
        if ready.brought.left_out:
            console.warn(
                f"{ready.brought.left_out} parts were recorded after that, whose code did not "
                "reach the store"
            )
    return ready


def _announce(plan: TrajectoryPlan, console: Console) -> None:
    """Print where the artifacts will be, before the recording begins."""
    say = console.note if console.as_json else console.print
    say(f"TRAJECTORY_ID={plan.trajectory_id}")
    say(f"TRACE_S3_URI={plan.trace_uri}")
    say(f"BUNDLE_S3_URI={plan.bundle_uri}")
    console.out.flush()
    console.err.flush()


@contextmanager
def stop_on_signals(stop: Callable[[str], None]) -> Iterator[None]:
    """Let a first signal end the trajectory cleanly, and a second one at once."""
    seen = False

    def note_signal(number: signal.Signals) -> None:
        nonlocal seen
        if seen:
            raise KeyboardInterrupt
        seen = True
        stop(f"signal {number.name}")

    with signal_scope(note_signal, signal.SIGINT, signal.SIGTERM):
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
        console.print(f"next:  graph_trace {plan.trajectory_id}")
    return exit_code(end, complete=uploads.complete)


def exit_code(end: SessionEnd, *, complete: bool = True) -> int:
    """Return 0 only if the task is solved and all artifacts are stored."""
    if end.reason == "solved":
        return DONE if complete else FAULT
    codes = {"interrupted": DENIED, "agent_error": PROVIDER, "envoi_error": FAULT}
    return codes.get(end.reason, FAILED)


class TraceProgress(StatusLine):
    """Shows a live line on a terminal, and one line per part elsewhere."""

    def __init__(self, console: Console, *, live: bool | None = None) -> None:
        super().__init__(console.err, live=console.err.isatty() if live is None else live)
        self._console = console
        self._tokens = 0
        self._tests = "–"

    def turn(self, record: RecordedTurn) -> None:
        """Note the test results of a turn."""
        for call in record.envoi_calls:
            if call.result is not None:
                self._tests = f"{call.result.passed}/{call.result.total}"

    def part(self, record: PartRecord) -> None:
        """Show a part that was recorded."""
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
        """Print that the command is waiting for uploads."""
        self.close()
        why = f": {report.troubles[0].message}" if report.troubles else ""
        self._console.note(
            f"waiting up to {seconds} s for {report.waiting} artifacts to reach the store{why}; "
            "a signal ends the wait, and everything is kept on this machine"
        )
