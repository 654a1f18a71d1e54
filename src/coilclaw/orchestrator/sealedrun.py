"""A run that has ended, opened again to be looked at, executed again or merged; never to go on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coilclaw.errors import UsageError, VerificationFailed
from coilclaw.orchestrator import layout
from coilclaw.orchestrator.bundle import Bundle, sealed_manifest
from coilclaw.orchestrator.eventlog import EventLog
from coilclaw.orchestrator.run import Run
from coilclaw.orchestrator.starting import unknown
from coilclaw.orchestrator.verifying import verify

if TYPE_CHECKING:
    from coilclaw.orchestrator.equipment import Equipment


def sealed_run(equipment: Equipment, run_id: str) -> Run:
    """Open a sealed run whose evidence holds; what it is told to record is refused."""
    directory = equipment.places.bundle(run_id)
    bundle = Bundle(directory, equipment.secrets.redact)
    if not bundle.exists:
        raise unknown(run_id)
    if sealed_manifest(directory) is None:
        raise UsageError(
            f"run {run_id} has not ended",
            rule="run.open",
            hint=f"go on with it: coilclaw runs resume {run_id}",
        )
    report = verify(directory, key_path=equipment.key_path)
    if report.errors:
        first = report.errors[0]
        raise VerificationFailed(
            f"run {run_id} does not verify ({first.code}: {first.message})",
            rule="run.unverified",
            hint=f"see all of it: coilclaw runs verify {run_id}",
        )
    log = EventLog(
        directory / layout.EVENTS,
        run_id,
        equipment.key_path,
        equipment.secrets.redact,
        equipment.clock,
    )
    return Run(equipment.places, bundle, log)
