"""The report of commands that the orchestrator ran, with everything that they wrote."""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING, Final

from coilclaw.contracts.reports import TestCommand, TestCounts, TestReport, TestRunner
from coilclaw.contracts.results import Failure
from coilclaw.orchestrator.places import segment
from coilclaw.runtime.identity import stamp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coilclaw.orchestrator.commands import Finished
    from coilclaw.orchestrator.equipment import Equipment
    from coilclaw.orchestrator.run import Run

AGENT: Final = "orchestrator"


def unused_folder(run: Run, folder: str) -> str:
    """Return a folder of the bundle that holds nothing yet.

    What a run that was killed had written there stays: it may be named by an event.
    """
    names = (f"{folder}-again-{number}" if number else folder for number in itertools.count())
    return next(name for name in names if not os.path.lexists(run.bundle.directory / name))


def write_report(
    run: Run,
    equipment: Equipment,
    done: Sequence[Finished],
    *,
    started: str,
    folder: str,
    skipped: int = 0,
) -> TestReport:
    """Keep the output of commands below ``folder`` in the bundle, and return their report.

    Before there is a contract, the report is that of the run.
    """
    rows = [_write_row(run, number, one, folder) for number, one in enumerate(done, 1)]
    red = [one for one in done if one.red]
    broken = any(one.outcome != "exited" for one in done)
    status = "ERROR" if broken else "FAIL" if red else "PASS"
    return TestReport(
        run_id=run.id,
        task_id=run.id if run.progress.root is None else run.root_contract.task_id,
        runner=TestRunner(role="ORCHESTRATOR", agent_id=AGENT),
        started_at=started,
        finished_at=stamp(equipment.clock()),
        status=status,  # type: ignore[arg-type]  # one of its values
        commands=tuple(rows),
        artifacts=tuple(ref for row in rows for ref in (row.stdout, row.stderr)),
        attempt=run.progress.attempt,
        summary=TestCounts(
            passed=sum(one.green for one in done),
            failed=sum(not one.green for one in done),
            skipped=skipped,
        ),
        failure=Failure(message=describe_failure(red[0])) if red else None,
    )


def describe_failure(one: Finished) -> str:
    """Say in one sentence how a command failed."""
    if one.outcome == "timed_out":
        return f"{one.test.name} took longer than {one.timeout_sec} s"
    if one.outcome != "exited":
        return f"{one.test.name} {one.outcome.replace('_', ' ')}"
    return f"{one.test.name} ended with exit code {one.exit_code}"


def _write_row(run: Run, number: int, one: Finished, folder: str) -> TestCommand:
    name = segment(f"{number:03}-{one.test.name}")
    return TestCommand(
        name=one.test.name,
        cmd_argv=one.argv,
        must_pass=one.test.must_pass,
        timeout_sec=one.timeout_sec,
        exit_code=one.exit_code,
        duration_sec=round(one.duration_sec, 3),
        stdout=run.bundle.write_bytes(f"{folder}/{name}.stdout.log", one.stdout),
        stderr=run.bundle.write_bytes(f"{folder}/{name}.stderr.log", one.stderr),
        cwd=".",
    )
