"""The report of a run: verified, read, and written as one HTML file."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from coilclaw.errors import UsageError
from coilclaw.orchestrator.report_page import render_page
from coilclaw.orchestrator.report_reader import read_report

if TYPE_CHECKING:
    from pathlib import Path

    from coilclaw.app.runwiring import Orchestrator
    from coilclaw.orchestrator.run_report import RunReport


def build_report(orchestrator: Orchestrator, directory: Path) -> RunReport:
    """Verify a bundle strictly, and read it; nothing is written."""
    from coilclaw.app.runaudits import verify

    verification, _ = verify(orchestrator, directory)
    return read_report(directory, verification, orchestrator.redactor.redact)


def write_report(report: RunReport, out: Path) -> None:
    """Write a report; an earlier file is replaced, anything else at its place is refused."""
    from coilclaw.storage.atomic import write_atomic

    try:
        mode = os.lstat(out).st_mode
    except (FileNotFoundError, NotADirectoryError):
        mode = stat.S_IFREG
    if stat.S_ISLNK(mode):
        raise UsageError(
            f"{out} is a symbolic link, and a report is not written through one",
            rule="report.link",
            hint="name a file with -o FILE",
        )
    if not stat.S_ISREG(mode):
        raise UsageError(
            f"{out} is not a file, so no report can be written there",
            rule="report.place",
            hint="name a file with -o FILE",
        )
    write_atomic(out, render_page(report))
