"""``coilclaw trace``: record trajectories of agents, and inspect them.

The executable ``trace`` is ``coilclaw trace run``.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Final

from coilclaw.cli.traces import study, trace_run, trace_view
from coilclaw.cli.traces.replay import add_judging, add_store

if TYPE_CHECKING:
    from coilclaw.cli.command import Parser
    from coilclaw.cli.parser import Act, AddAction

FORMATS: Final = ("jsonl", "csv", "sqlite", "tar")


def main() -> int:
    """Run as the executable ``trace``."""
    from coilclaw.cli.main import run_program

    # The executable records unless another action is named.
    words = sys.argv[1:]
    if not words or (
        words[0].startswith("-") and words[0] not in {"-h", "--help", "-V", "--version"}
    ):
        words = ["run", *words]
    return run_program("trace", "trace", words)


def declare(parser: Parser) -> None:
    """Declare the arguments."""
    actions = parser.actions()
    action = partial(_add_action, actions)
    trace_run.declare(actions("run", "let an agent work, and record it", trace_run.run))
    actions("list", "list what was recorded on this machine", trace_view.list_recorded).json()
    showing = action("show", "show a trajectory, or one of its parts in full", trace_view.show)
    add_store(showing.value("--part", "P", "show this part in full", type=int))
    diffing = action("diff", "show what changed in the files between two parts", trace_view.diff)
    summary = "after this part (default: 0, before)"
    diffing.value("--from-part", "A", summary, type=int, default=0)
    diffing.value("--to-part", "B", "after that part (default: the last)", type=int)
    add_store(diffing.flag("--stat", "only show how much changed in each file"))
    comparing = actions("compare", "compare several trajectories", study.compare)
    add_judging(comparing.value("ids", "ID", "two or more", nargs="+").json())
    bisecting = action("bisect", "find the part that broke a case, or that fixed it", study.bisect)
    bisecting.value("--case", "NAME", "the full id of the case", required=True)
    bisecting.value("--from-part", "A", "the first part to consider", type=int)
    add_judging(bisecting.value("--to-part", "B", "the last part to consider", type=int))
    exporting = action("export", "write a trajectory for other programs", study.export)
    summary = "tar (default): trace, bundle and journal"
    exporting.value("--format", None, summary, choices=FORMATS, default="tar")
    exporting.value("--out", "FILE", "a new file (default: ID.FORMAT)")
    add_judging(exporting.flag("--evaluate", "with sqlite: include the status of every case"))
    summary = "verify that nothing of a recording is missing or changed"
    add_store(action("verify", summary, trace_view.verify))


def _add_action(actions: AddAction, name: str, summary: str, act: Act) -> Parser:
    action = actions(name, summary, act)
    return action.value("trajectory_id", "ID", "its id, the beginning of it, or 'last'").json()
