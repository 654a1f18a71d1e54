"""``graph_trace`` (= ``coilclaw graph-trace``): a trajectory as a table, pictures and a report."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw.cli.parser import add_json

if TYPE_CHECKING:
    import argparse

    from coilclaw.cli.console import Console
    from coilclaw.trajectory.graphdata import Graph

PLOTTING: Final = "plotting"


def main() -> int:
    """Run as the executable ``graph_trace``."""
    from coilclaw.cli.dispatch import perform
    from coilclaw.cli.main import leave, make_ready
    from coilclaw.cli.parser import single_parser

    make_ready()
    return leave(perform(single_parser("graph_trace", "graph-trace").parse_args(sys.argv[1:])))


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    from coilclaw.cli.replay import add_judging

    parser.add_argument(
        "trajectory_id", metavar="ID", help="its id, the beginning of it, or 'last'"
    )
    parser.add_argument(
        "--part", type=int, metavar="P", help="only check the code out as it was after this part"
    )
    parser.add_argument(
        "--checkout-dest", metavar="DIR", help="a new directory (default: output/repo_part_P)"
    )
    parser.add_argument(
        "--output",
        default="output",
        metavar="DIR",
        help="where graph_trace_ID.json, .svg, .png and .html go (default: output)",
    )
    add_judging(parser)
    add_json(parser)


def run(args: argparse.Namespace, console: Console) -> int:
    """Judge a trajectory and draw it, or check one part out."""
    from coilclaw.cli import replay
    from coilclaw.errors import UsageError
    from coilclaw.trajectory.graphdata import graph_of

    if args.part is None and args.checkout_dest:
        raise UsageError("--checkout-dest goes with --part", rule="usage.part")
    archive = replay.archive_of(args)
    if args.part is None:
        replay.require_writable(Path(args.output), folder=True)
    with archive.open(args.trajectory_id) as recording:
        if args.part is not None:
            return replay.checkout(recording, args.part, args.checkout_dest, None, console)
        evaluation = replay.judged(args, archive, recording, console)
        graph = graph_of(evaluation)
        written = write_all(graph, Path(args.output), archive.home)
    if console.as_json:
        console.data({**graph.json(), "files": [str(path) for path in written]})
        return replay.ending(evaluation)
    show_table(graph, console)
    console.print()
    replay.summarise(evaluation, console)
    for path in written:
        console.print(f"written: {path}")
    return replay.ending(evaluation)


def write_all(graph: Graph, folder: Path, home: Path) -> list[Path]:
    """Write the figures, the pictures and the report."""
    # The plotting library looks for fonts once, and keeps the list there.
    os.environ.setdefault("MPLCONFIGDIR", str(home / PLOTTING))
    from coilclaw.cli.replay import write_file, write_json
    from coilclaw.trajectory.graphdrawing import draw_all
    from coilclaw.trajectory.report import html_report

    base = folder / f"graph_trace_{graph.trajectory_id}"
    paths = [base.with_name(f"{base.name}.{form}") for form in ("json", "svg", "png", "html")]
    write_json(paths[0], graph.json())
    write_file(paths[1], draw_all(graph, "svg"))
    write_file(paths[2], draw_all(graph, "png"))
    write_file(paths[3], html_report(graph))
    return paths


def show_table(graph: Graph, console: Console) -> None:
    """Print one line a state of the files, and what broke."""
    from coilclaw.trajectory.reporttext import table

    lines = table(graph)
    for index, (line, broken) in enumerate(lines):
        console.print(line, "bold" if index == 0 else "red" if broken else None)
    for point in graph.regressions:
        names = point.change.newly_broken
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        console.print(f"part {point.part} broke {', '.join(names[:5])}{more}", "red")
    best = graph.best
    if best is not None and best.score is not None:
        console.print(f"best: {best.score} at part {best.part}", "green")
