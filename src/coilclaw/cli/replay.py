"""``replay`` (= ``coilclaw replay``): the code of a trajectory at any part, and its worth."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw.cli.console import visible
from coilclaw.cli.parser import add_json

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from coilclaw.app.replaywiring import Archive
    from coilclaw.cli.console import Console
    from coilclaw.trajectory.evaluation import Evaluation, Judged
    from coilclaw.trajectory.replaying import Recording

MODES: Final = ("evaluate", "checkout-part", "analyze")


def main() -> int:
    """Run as the executable ``replay``."""
    from coilclaw.cli.dispatch import perform
    from coilclaw.cli.main import leave, make_ready
    from coilclaw.cli.parser import single_parser

    make_ready()
    return leave(perform(single_parser("replay", "replay").parse_args(sys.argv[1:])))


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "--mode",
        choices=MODES,
        default=MODES[0],
        help="evaluate (default): judge the code of every part; checkout-part: get it at one part; "
        "analyze: judge, and print the table",
    )
    parser.add_argument("--trajectory-id", metavar="ID", help="recorded here, or in the store")
    parser.add_argument("--trace", metavar="FILE", help="a trace instead, local or s3://…")
    parser.add_argument(
        "--bundle",
        metavar="FILE",
        default="",
        help="its bundle, local or s3://…, or a directory of pieces (default: beside the trace)",
    )
    parser.add_argument("--part", type=int, metavar="P", help="of checkout-part; 0 is the start")
    parser.add_argument(
        "--checkout-dest", metavar="DIR", help="a new directory (default: output/repo_part_P)"
    )
    parser.add_argument("--output", metavar="FILE", help="the report (default: below output/)")
    add_judging(parser)
    add_json(parser)


def add_judging(parser: argparse.ArgumentParser) -> None:
    """Declare what every command that judges a recording takes."""
    add_store(parser)
    parser.add_argument(
        "--environment", default="", metavar="NAME", help="judge by this one (default: its own)"
    )
    parser.add_argument(
        "--test-path",
        action="append",
        metavar="PATH",
        help="a suite or case, may be repeated (default: all)",
    )
    parser.add_argument(
        "--jobs", type=int, metavar="N", help="at once (default: as many as processors)"
    )
    parser.add_argument("--fresh", action="store_true", help="judge again what is known already")


def add_store(parser: argparse.ArgumentParser) -> None:
    """Declare ``--store``."""
    parser.add_argument(
        "--store", default="", metavar="DIR|s3://…", help="look for it there, and not here"
    )


def run(args: argparse.Namespace, console: Console) -> int:
    """Check a part out, or judge all of them."""
    from coilclaw.errors import UsageError

    if args.mode == "checkout-part" and args.part is None:
        raise UsageError("checkout-part needs --part", rule="usage.part")
    if args.mode != "checkout-part" and (args.part is not None or args.checkout_dest):
        raise UsageError(
            "--part and --checkout-dest are for --mode checkout-part", rule="usage.part"
        )
    archive = archive_of(args)
    if args.output or args.mode != "checkout-part":
        require_writable(_output(args))
    with _source(args, archive) as recording:
        if args.mode == "checkout-part":
            return checkout(recording, args.part, args.checkout_dest, args.output, console)
        evaluation = judged(args, archive, recording, console)
        return _report(args, evaluation, console)


def archive_of(args: argparse.Namespace) -> Archive:
    """Where the trajectories of a command are looked for."""
    from coilclaw.app.home import home
    from coilclaw.app.replaywiring import Archive

    return Archive(home(), os.environ, args.store)


@contextmanager
def _source(args: argparse.Namespace, archive: Archive) -> Iterator[Recording]:
    from coilclaw.errors import UsageError

    if bool(args.trajectory_id) == bool(args.trace):
        raise UsageError("give either --trajectory-id or --trace", rule="usage.source")
    if args.bundle and not args.trace:
        raise UsageError("--bundle goes with --trace", rule="usage.source")
    if args.trace:
        with archive.open_files(args.trace, args.bundle) as recording:
            yield recording
    else:
        with archive.open(args.trajectory_id) as recording:
            yield recording


def judged(
    args: argparse.Namespace, archive: Archive, recording: Recording, console: Console
) -> Evaluation:
    """Judge every distinct tree, and say how it goes."""
    from coilclaw.trajectory.evaluation import evaluate

    with archive.scratch() as scratch:
        court = archive.court(
            recording, args.environment, jobs=args.jobs, fresh=args.fresh, scratch=scratch
        )
        warn_of_version(recording, court.version, console)
        live = console.err.isatty() and not console.as_json

        def notify(done: int, total: int, one: Judged) -> None:
            if live:
                console.err.write(f"\r\x1b[Kjudging: {done} of {total} ({one.source})")
                console.err.flush()

        try:
            paths = tuple(args.test_path or ("",))
            return evaluate(recording, court, paths=paths, notify=notify)
        finally:
            if live:
                console.err.write("\r\x1b[K")


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
    from coilclaw.cli.dispatch import DONE
    from coilclaw.trajectory.evaluation import VERSION

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
    if console.as_json:
        console.data(record)
    else:
        console.print(f"part {part} is commit {commit}, checked out in {directory}", "green")
    return DONE


def require_writable(path: Path, *, folder: bool = False) -> None:
    """Refuse a place for a report before anything is judged; folders on the way are made."""
    from coilclaw.errors import EnvironmentFault, UsageError

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
    from coilclaw.storage.atomic import write_atomic

    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, data)


def _output(args: argparse.Namespace) -> Path:
    name = "offline_eval" if args.mode == "evaluate" else "offline_analysis"
    return Path(args.output or f"output/{name}.json")


def _report(args: argparse.Namespace, evaluation: Evaluation, console: Console) -> int:
    from coilclaw.trajectory.graphdata import graph_of

    path = _output(args)
    graph = graph_of(evaluation)
    record = evaluation.json() if args.mode == "evaluate" else graph.json()
    write_json(path, record)
    if console.as_json:
        console.data(record)
        return ending(evaluation)
    if args.mode == "analyze":
        from coilclaw.cli.graphtrace import show_table

        show_table(graph, console)
    summarise(evaluation, console)
    console.print(f"written: {path}")
    return ending(evaluation)


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
                console.note(visible(f"  {one.tree[:12]}: {why}"), "red")


def ending(evaluation: Evaluation) -> int:
    """The exit code: what could not be judged is our own fault."""
    from coilclaw.cli.dispatch import DONE, FAULT

    return FAULT if evaluation.failed else DONE
