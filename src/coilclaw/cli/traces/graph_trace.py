"""``graph_trace`` (= ``coilclaw graph-trace``): a trajectory as a table, plots and a report."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw.cli.command import DONE, FAULT, Console, Namespace, Parser
from coilclaw.kernel import UsageError

if TYPE_CHECKING:
    from coilclaw.traces import Graph

PLOTTING: Final = "plotting"


def main() -> int:
    """Run as the executable ``graph_trace``."""
    from coilclaw.cli.main import run_program

    return run_program("graph_trace", "graph-trace")


def declare(parser: Parser) -> None:
    """Declare the arguments."""
    from coilclaw.cli.traces.replay import add_judging

    parser.value("trajectory_id", "ID", "its id, the beginning of it, or 'last'")
    parser.value("--part", "P", "only check out the code after this part", type=int)
    parser.value("--checkout-dest", "DIR", "a new directory (default: output/repo_part_P)")
    summary = "the directory for graph_trace_ID.json, .svg, .png and .html (default: output)"
    parser.value("--output", "DIR", summary, default="output")
    add_judging(parser)
    parser.json()


def run(args: Namespace, console: Console) -> int:
    """Evaluate and plot a trajectory, or check out one part."""
    from coilclaw.cli.traces import replay
    from coilclaw.traces import graph_of

    if args.part is None and args.checkout_dest:
        raise UsageError("--checkout-dest needs --part", rule="usage.part")
    archive = replay.open_archive(args)
    if args.part is None:
        replay.require_writable(Path(args.output), folder=True)
    with archive.open(args.trajectory_id) as recording:
        if args.part is not None:
            return replay.checkout(recording, args.part, args.checkout_dest, None, console)
        evaluation = replay.judge_recording(args, archive, recording, console)
        graph = graph_of(evaluation)
        written = write_all(graph, Path(args.output), archive.home)
    if not console.emit({**graph.json(), "files": [str(path) for path in written]}):
        replay.show_table(graph, console)
        console.print()
        replay.summarise(evaluation, console)
        for path in written:
            console.print(f"written: {path}")
    return FAULT if evaluation.failed else DONE


def write_all(graph: Graph, folder: Path, home: Path) -> list[Path]:
    """Write the figures, the plots and the report."""
    # The plotting library caches its list of fonts there.
    os.environ.setdefault("MPLCONFIGDIR", str(home / PLOTTING))
    from coilclaw.cli.traces.replay import write_file, write_json
    from coilclaw.traces import draw_all, html_report

    base = folder / f"graph_trace_{graph.trajectory_id}"
    paths = [base.with_name(f"{base.name}.{form}") for form in ("json", "svg", "png", "html")]
    write_json(paths[0], graph.json())
    write_file(paths[1], draw_all(graph, "svg"))
    write_file(paths[2], draw_all(graph, "png"))
    write_file(paths[3], html_report(graph))
    return paths
