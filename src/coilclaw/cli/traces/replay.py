"""``replay`` (= ``coilclaw replay``): check out the code of any part, or evaluate all parts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw.cli.command import DONE, FAULT, Console, Namespace, Parser, find_home
from coilclaw.cli.status_line import StatusLine
from coilclaw.kernel import EnvironmentFault, UsageError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from coilclaw.traces import Evaluation, Graph, Recording, TrajectoryArchive

MODES: Final = ("evaluate", "checkout-part", "analyze")


def main() -> int:
    """Run as the executable ``replay``."""
    from coilclaw.cli.main import run_program

    return run_program("replay", "replay")


def declare(parser: Parser) -> None:
    """Declare the arguments."""
    summary = (
        "evaluate (default): test the code of every part; checkout-part: check out one part; "
        "analyze: evaluate, and print the table"
    )
    parser.value("--mode", None, summary, choices=MODES, default=MODES[0])
    parser.value("--trajectory-id", "ID", "a trajectory on this machine, or in the store")
    parser.value("--trace", "FILE", "a trace file instead, local or s3://…")
    summary = "its bundle, local or s3://…, or a directory of pieces (default: beside the trace)"
    parser.value("--bundle", "FILE", summary, default="")
    parser.value("--part", "P", "the part for checkout-part; 0 is the start", type=int)
    parser.value("--checkout-dest", "DIR", "a new directory (default: output/repo_part_P)")
    parser.value("--output", "FILE", "the report (default: below output/)")
    add_judging(parser)
    parser.json()


def add_judging(parser: Parser) -> None:
    """Declare the arguments of every command that evaluates a recording."""
    add_store(parser)
    parser.value("--environment", "NAME", "the one to test with (default: its own)", default="")
    summary = "a suite or case (default: all; repeatable)"
    parser.value("--test-path", "PATH", summary, action="append")
    parser.value("--jobs", "N", "test cases to run at once (default: one per processor)", type=int)
    parser.flag("--fresh", "evaluate again, even if the result is known")


def add_store(parser: Parser) -> None:
    """Declare ``--store``."""
    parser.value("--store", "DIR|s3://…", "read from this store, not from this machine", default="")


def run(args: Namespace, console: Console) -> int:
    """Check out a part, or evaluate all of them."""

    checks_out = args.mode == "checkout-part"
    if checks_out and args.part is None:
        raise UsageError("checkout-part needs --part", rule="usage.part")
    if not checks_out and (args.part is not None or args.checkout_dest):
        raise UsageError("--part and --checkout-dest need --mode checkout-part", rule="usage.part")
    archive = open_archive(args)
    name = "offline_eval" if args.mode == "evaluate" else "offline_analysis"
    output = Path(args.output or f"output/{name}.json")
    if args.output or not checks_out:
        require_writable(output)
    with _open_source(args, archive) as recording:
        if checks_out:
            return checkout(recording, args.part, args.checkout_dest, args.output, console)
        evaluation = judge_recording(args, archive, recording, console)
        return _report(args.mode, output, evaluation, console)


def open_archive(args: Namespace) -> TrajectoryArchive:
    """Open the archive that ``--store`` names, else that of this machine."""
    from coilclaw.traces import TrajectoryArchive

    return TrajectoryArchive(find_home(), os.environ, args.store)


def _open_source(args: Namespace, archive: TrajectoryArchive) -> AbstractContextManager[Recording]:
    if bool(args.trajectory_id) == bool(args.trace):
        raise UsageError("give either --trajectory-id or --trace", rule="usage.source")
    if args.bundle and not args.trace:
        raise UsageError("--bundle needs --trace", rule="usage.source")
    if args.trace:
        return archive.open_files(args.trace, args.bundle)
    return archive.open(args.trajectory_id)


def judge_recording(
    args: Namespace, archive: TrajectoryArchive, recording: Recording, console: Console
) -> Evaluation:
    """Evaluate every distinct tree, and show the progress."""
    from coilclaw.traces import evaluate

    with archive.scratch() as scratch:
        court = archive.court(
            recording, args.environment, jobs=args.jobs, fresh=args.fresh, scratch=scratch
        )
        warn_of_version(recording, court.version, console)
        live = console.err.isatty() and not console.as_json
        with StatusLine(console.err, live=live) as line:
            return evaluate(
                recording,
                court,
                paths=tuple(args.test_path or ("",)),
                notify=lambda done, total, one: line.show(
                    f"evaluating: {done} of {total} ({one.source})"
                ),
            )


def warn_of_version(recording: Recording, version: str, console: Console) -> None:
    """Warn if the environment differs from the version that was recorded."""
    if recording.trace.environment_version not in {"", version}:
        console.warn(
            "the environment is not the version that this trajectory was recorded with: "
            f"{version[:12]} instead of {recording.trace.environment_version[:12]}"
        )


def checkout(
    recording: Recording, part: int, dest: str | None, output: str | None, console: Console
) -> int:
    """Clone the repository at the commit of a part into a new directory."""
    from coilclaw.traces import VERSION

    commit = recording.commit(part)
    directory = Path(dest or f"output/repo_part_{part}")
    recording.clone(commit, directory)
    trace = recording.trace
    record = {
        "schema_version": VERSION,
        "mode": "checkout-part",
        "trajectory_id": trace.trajectory_id,
        "session_id": trace.session_id,
        "part": part,
        "timestamp": trace.started_at if part == 0 else trace.part(part).timestamp,
        "commit": commit,
        "repo_path": str(directory.absolute()),
    }
    if output:
        write_json(Path(output), record)
    if not console.emit(record):
        console.print(f"part {part} is commit {commit}, checked out in {directory}", "green")
    return DONE


def require_writable(path: Path, *, folder: bool = False) -> None:
    """Raise if a report cannot be written there, before any evaluation; create its folders."""

    above = path if folder else path.parent
    try:
        above.mkdir(parents=True, exist_ok=True)
    except FileExistsError as problem:
        raise UsageError(f"{above} is not a directory", rule="replay.output") from problem
    except OSError as problem:
        raise EnvironmentFault(
            f"cannot create {above}: {problem.strerror}", rule="replay.output"
        ) from problem
    if path.is_dir() and not folder:
        raise UsageError(f"{path} is a directory", rule="replay.output", hint="name a file")
    if not os.access(above, os.W_OK | os.X_OK):
        raise EnvironmentFault(f"{above} cannot be written to", rule="replay.output")


def write_json(path: Path, value: object) -> None:
    """Write a report, and create its folders."""
    import json

    write_file(path, (json.dumps(value, indent=2) + "\n").encode("ascii"))


def write_file(path: Path, data: bytes) -> None:
    """Write a file atomically, and create its folders."""
    from coilclaw.kernel import write_atomic

    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, data)


def _report(mode: str, path: Path, evaluation: Evaluation, console: Console) -> int:
    from coilclaw.traces import graph_of

    graph = graph_of(evaluation)
    record = evaluation.json() if mode == "evaluate" else graph.json()
    write_json(path, record)
    if not console.emit(record):
        if mode == "analyze":
            show_table(graph, console)
        summarise(evaluation, console)
        console.print(f"written: {path}")
    return FAULT if evaluation.failed else DONE


def summarise(evaluation: Evaluation, console: Console) -> None:
    """Print how many states were evaluated, and which could not be."""
    parts = len(evaluation.recording.trace.parts)
    console.print(
        f"{parts} parts, {len(evaluation.trees)} distinct states of the files, "
        f"{evaluation.judged} evaluated, the rest already known"
    )
    if evaluation.failed:
        console.note(f"{evaluation.failed} of them could not be evaluated:", "red")
        for one in evaluation.trees.values():
            if not one.complete:
                why = "; ".join((one.error or "").splitlines())
                console.note(f"  {one.tree[:12]}: {why}", "red")


def show_table(graph: Graph, console: Console) -> None:
    """Print one line for each state of the files, and what broke."""
    from coilclaw.traces import render_table

    lines = render_table(graph)
    for index, (line, broken) in enumerate(lines):
        style = "red" if broken else None
        console.print(line, style if index else "bold")
    for point in graph.regressions:
        names = point.change.newly_broken
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        console.print(f"part {point.part} broke {', '.join(names[:5])}{more}", "red")
    best = graph.best
    if best is not None and best.score is not None:
        console.print(f"best: {best.score} at part {best.part}", "green")
