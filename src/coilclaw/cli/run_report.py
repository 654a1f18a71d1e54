"""``coilclaw runs report``: a run as one HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import argparse

    from coilclaw.app.runwiring import Orchestrator
    from coilclaw.cli.console import Console

STANDARD_OUTPUT: Final = "-"


def run(args: argparse.Namespace, console: Console, runs: Orchestrator) -> int:
    """Write the report; evidence that does not hold is exit code 1, and reported all the same."""
    from coilclaw.app.run_report import build_report, write_report
    from coilclaw.app.runlisting import RunStore
    from coilclaw.cli.dispatch import DONE, FAILED
    from coilclaw.errors import UsageError

    if args.out == STANDARD_OUTPUT and console.as_json:
        raise UsageError("'-o -' and --json both want standard output", rule="usage.report")
    report = build_report(runs, RunStore(runs.places).find(args.run))
    state = report.verification.state
    if args.out == STANDARD_OUTPUT:
        from coilclaw.orchestrator.report_page import render_page

        console.out.flush()
        console.out.buffer.write(render_page(report))
        console.out.buffer.flush()
    else:
        out = Path(args.out or f"{report.outcome.run_id}.html")
        write_report(report, out)
        if console.as_json:
            console.data(
                {
                    "run_id": report.outcome.run_id,
                    "status": report.outcome.standing,
                    "verification": state,
                    "file": str(out.absolute()),
                }
            )
        else:
            console.print(str(out))
    if state != "broken":
        return DONE
    console.note(report.verification.summary, "red")
    return FAILED
