"""``replay`` (= ``coilclaw replay``): the code of a trajectory at any part, and its worth."""

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
        "evaluate (default): judge the code of every part; checkout-part: get it at one part; "
        "analyze: judge, and print the table"
    )
    parser.value("--mode", None, summary, choices=MODES, default=MODES[0])
    parser.value("--trajectory-id", "ID", "recorded here, or in the store")
    parser.value("--trace", "FILE", "a trace instead, local or s3://…")
    summary = "its bundle, local or s3://…, or a directory of pieces (default: beside the trace)"
    parser.value("--bundle", "FILE", summary, default="")
    parser.value("--part", "P", "of checkout-part; 0 is the start", type=int)
    parser.value("--checkout-dest", "DIR", "a new directory (default: output/repo_part_P)")
    parser.value("--output", "FILE", "the report (default: below output/)")
    add_judging(parser)
    parser.json()


def add_judging(parser: Parser) -> None:
    """Declare what every command that judges a recording takes."""
    add_store(parser)
    parser.value("--environment", "NAME", "judge by this one (default: its own)", default="")
    summary = "a suite or case, may be repeated (default: all)"
    parser.value("--test-path", "PATH", summary, action="append")
    parser.value("--jobs", "N", "at once (default: as many as processors)", type=int)
    parser.flag("--fresh", "judge again what is known already")


def add_store(parser: Parser) -> None:
    """Declare ``--store``."""
    parser.value("--store", "DIR|s3://…", "look for it there, and not here", default="")


def run(args: Namespace, console: Console) -> int:
    """Check a part out, or judge all of them."""

    checks_out = args.mode == "checkout-part"
    if checks_out and args.part is None:
        raise UsageError("checkout-part needs --part", rule="usage.part")
    if not checks_out and (args.part is not None or args.checkout_dest):
        raise UsageError(
            "--part and --checkout-dest are for --mode checkout-part", rule="usage.part"
        )
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
    """Where the trajectories of a command are looked for."""
    from coilclaw.traces import TrajectoryArchive

    return TrajectoryArchive(find_home(), os.environ, args.store)


def _open_source(args: Namespace, archive: TrajectoryArchive) -> AbstractContextManager[Recording]:
    if bool(args.trajectory_id) == bool(args.trace):
        raise UsageError("give either --trajectory-id or --trace", rule="usage.source")
    if args.bundle and not args.trace:
        raise UsageError("--bundle goes with --trace", rule="usage.source")
    if args.trace:
        return archive.open_files(args.trace, args.bundle)
    return archive.open(args.trajectory_id)


def judge_recording(
    args: Namespace, archive: TrajectoryArchive, recording: Recording, console: Console
) -> Evaluation:
    """Judge every distinct tree, and say how it goes."""
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
                    f"judging: {done} of {total} ({one.source})"
                ),
            )


def warn_of_version(recording: Recording, version: str, console: Console) -> None:
    """Say that it is not judged by what it was recorded with."""
    if recording.trace.environment_version not in {"", version}:
        console.warn(
            "the environment is not the version that this trajectory was recorded with: "
            f"{version[:12]} instead of {recording.trace.environment_version[:12]}"
        )


def checkout(
    recording: Recording, part: int, dest: str | None, output: str | None, console: Console
) -> int:
    """Make a directory that is a repository at the commit of a part."""
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
    """Refuse a place for a report before anything is judged; folders on the way are made."""

    above = path if folder else path.parent
    try:
        above.mkdir(parents=True, exist_ok=True)
    except FileExistsError as problem:
        raise UsageError(f"{above} is no directory", rule="replay.output") from problem
    except OSError as problem:
        raise EnvironmentFault(
            f"cannot create {above}: {problem.strerror}", rule="replay.output"
        ) from problem
    if path.is_dir() and not folder:
        raise UsageError(f"{path} is a directory", rule="replay.output", hint="name a file")
    if not os.access(above, os.W_OK | os.X_OK):
        raise EnvironmentFault(f"{above} cannot be written to", rule="replay.output")


def write_json(path: Path, value: object) -> None:
    """Write a report; folders on the way are made."""
    import json

    write_file(path, (json.dumps(value, indent=2) + "\n").encode("ascii"))


def write_file(path: Path, data: bytes) -> None:
    """Write a file whole or not at all; folders on the way are made."""
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
    """Say what was done."""
    parts = len(evaluation.recording.trace.parts)
    console.print(
        f"{parts} parts, {len(evaluation.trees)} distinct states of the files, "
        f"{evaluation.judged} judged, the rest was known"
    )
    if evaluation.failed:
        console.note(f"{evaluation.failed} of them could not be judged:", "red")
        for one in evaluation.trees.values():
            if not one.complete:
                why = "; ".join((one.error or "").splitlines())
                console.note(f"  {one.tree[:12]}: {why}", "red")


def show_table(graph: Graph, console: Console) -> None:
    """Print one line a state of the files, and what broke."""
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
