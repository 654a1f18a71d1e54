"""``coilclaw doctor``: what this machine offers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from coilclaw.cli.parser import add_json

if TYPE_CHECKING:
    import argparse

    from coilclaw.cli.console import Console


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "--repo", metavar="DIR", help="this repository has to be fit for runs (default: if any is)"
    )
    add_json(parser)


def run(args: argparse.Namespace, console: Console) -> int:
    """Check the machine; exit 1 when a hard requirement does not hold."""
    from coilclaw.app.doctor import examine
    from coilclaw.app.home import home
    from coilclaw.app.rundoctor import examine_runs
    from coilclaw.cli.dispatch import DONE, FAILED

    place = home()
    start = Path(args.repo or ".")
    findings = (
        *examine(place),
        *examine_runs(start, place, os.environ, required=args.repo is not None),
    )
    good = all(finding.ok for finding in findings if finding.required)
    if console.as_json:
        console.data(
            {
                "ok": good,
                "findings": [
                    {
                        "name": finding.name,
                        "ok": finding.ok,
                        "required": finding.required,
                        "detail": finding.detail,
                    }
                    for finding in findings
                ],
            }
        )
        return DONE if good else FAILED
    for finding in findings:
        mark, style = ("ok", "green") if finding.ok else ("missing", "yellow")
        if finding.required and not finding.ok:
            mark, style = "FAILED", "red"
        console.print(f"{mark:<8} {finding.name:<17} {finding.detail}", style)
    if not good:
        console.note("a hard requirement does not hold", "red")
    return DONE if good else FAILED
