"""``coilclaw doctor``: check what this machine supports."""

from __future__ import annotations

import os
from pathlib import Path

from coilclaw.cli.command import DONE, FAILED, Console, Namespace, Parser, find_home, pick


def declare(parser: Parser) -> None:
    """Declare the arguments."""
    summary = "require that this repository is ready for runs"
    parser.value("--repo", "DIR", summary).json()


def run(args: Namespace, console: Console) -> int:
    """Check the machine; exit with code 1 if a hard requirement is not met."""
    from coilclaw.app import examine, examine_runs

    start, required = Path(args.repo or "."), args.repo is not None
    findings = (
        *examine(find_home(), os.environ),
        *examine_runs(start, find_home(), os.environ, required=required),
    )
    good = all(finding.ok for finding in findings if finding.required)
    records = [pick(finding, "name", "ok", "required", "detail") for finding in findings]
    if not console.emit({"ok": good, "findings": records}):
        for finding in findings:
            mark, style = ("ok", "green") if finding.ok else ("missing", "yellow")
            if finding.required and not finding.ok:
                mark, style = "FAILED", "red"
            console.print(f"{mark:<8} {finding.name:<17} {finding.detail}", style)
        if not good:
            console.note("a hard requirement is not met", "red")
    return DONE if good else FAILED
