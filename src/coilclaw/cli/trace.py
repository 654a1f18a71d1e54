"""``coilclaw trace``: record trajectories of agents, and look at them.

The executable ``trace`` is ``coilclaw trace run``.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from coilclaw.cli.parser import add_json

if TYPE_CHECKING:
    import argparse

    from coilclaw.cli.console import Console

FORMATS: Final = ("jsonl", "csv", "sqlite", "tar")


def main() -> int:
    """Run as the executable ``trace``."""
    from coilclaw.cli.dispatch import perform
    from coilclaw.cli.main import leave, make_ready
    from coilclaw.cli.parser import single_parser

    make_ready()
    parser = single_parser("trace", "trace")
    # The executable records unless another action is named.
    words = sys.argv[1:]
    if not words or (
        words[0].startswith("-") and words[0] not in {"-h", "--help", "-V", "--version"}
    ):
        words = ["run", *words]
    return leave(perform(parser.parse_args(words)))


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    from coilclaw.cli import tracerun
    from coilclaw.cli.replay import add_judging, add_store

    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    running = actions.add_parser("run", help="let an agent work, and record it", allow_abbrev=False)
    tracerun.declare(running)
    listing = actions.add_parser("list", help="what was recorded here", allow_abbrev=False)
    add_json(listing)
    showing = _action(actions, "show", "one trajectory, or one of its parts whole")
    showing.add_argument("--part", type=int, metavar="P", help="everything about this part")
    add_store(showing)
    diffing = _action(actions, "diff", "what changed in the files between two parts")
    diffing.add_argument(
        "--from-part", type=int, default=0, metavar="A", help="after this part (default: 0, before)"
    )
    diffing.add_argument(
        "--to-part", type=int, metavar="B", help="after that part (default: the last)"
    )
    diffing.add_argument("--stat", action="store_true", help="only how much changed in each file")
    add_store(diffing)
    comparing = actions.add_parser(
        "compare", help="several trajectories beside each other", allow_abbrev=False
    )
    comparing.add_argument("ids", nargs="+", metavar="ID", help="two or more")
    add_json(comparing)
    add_judging(comparing)
    bisecting = _action(actions, "bisect", "the part that broke a case, or else fixed it")
    bisecting.add_argument("--case", required=True, metavar="NAME", help="the full id of the case")
    bisecting.add_argument("--from-part", type=int, metavar="A", help="from there on")
    bisecting.add_argument("--to-part", type=int, metavar="B", help="up to there")
    add_judging(bisecting)
    exporting = _action(actions, "export", "write a trajectory for other programs")
    exporting.add_argument(
        "--format", choices=FORMATS, default="tar", help="tar (default): trace, bundle and journal"
    )
    exporting.add_argument("--out", metavar="FILE", help="a new file (default: ID.FORMAT)")
    exporting.add_argument(
        "--evaluate", action="store_true", help="of sqlite: with the status of every case"
    )
    add_judging(exporting)
    verifying = _action(
        actions, "verify", "prove that nothing of a recording is missing or changed"
    )
    add_store(verifying)


def _action(
    actions: argparse._SubParsersAction[argparse.ArgumentParser], name: str, summary: str
) -> argparse.ArgumentParser:
    action = actions.add_parser(name, help=summary, allow_abbrev=False)
    action.add_argument(
        "trajectory_id", metavar="ID", help="its id, the beginning of it, or 'last'"
    )
    add_json(action)
    return action


def run(args: argparse.Namespace, console: Console) -> int:
    """Record a trajectory, or look at some."""
    if args.action == "run":
        from coilclaw.cli import tracerun

        return tracerun.run(args, console)
    if args.action in {"list", "show", "diff", "verify"}:
        from coilclaw.cli import traceview

        return traceview.run(args, console)
    from coilclaw.cli import tracestudy

    return tracestudy.run(args, console)
