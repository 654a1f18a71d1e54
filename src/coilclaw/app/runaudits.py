"""What can be done with a run that has ended: verify, replay, re-execute, merge, export, clear."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw.app.home import signing_key_path
from coilclaw.errors import UsageError, VerificationFailed
from coilclaw.orchestrator.audit_records import VERIFICATION
from coilclaw.orchestrator.bundle import json_bytes, new_audit
from coilclaw.orchestrator.verifying import verify as verify_bundle
from coilclaw.runtime.identity import stamp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coilclaw.app.runwiring import Orchestrator
    from coilclaw.orchestrator.applying import Applied
    from coilclaw.orchestrator.gc import Removed, Wishes
    from coilclaw.orchestrator.reexec import Reexecuted
    from coilclaw.orchestrator.rehydrate import Rehydrated
    from coilclaw.orchestrator.verifying import VerifyReport
    from coilclaw.storage.checkpoint import Checkpoint, SignedCheckpoint

_HEX: Final = frozenset("0123456789abcdef")


def verify(
    orchestrator: Orchestrator,
    directory: Path,
    *,
    strict: bool = True,
    root: str | None = None,
    checkpoints: Sequence[SignedCheckpoint] | None = None,
    record: bool = False,
) -> tuple[VerifyReport, Path | None]:
    """Verify a bundle; the report is kept as an audit only if that is asked for."""
    if root is not None and (len(root) != 64 or not _HEX.issuperset(root.lower())):
        raise UsageError("a root hash has 64 hexadecimal digits", rule="verify.root")
    key = orchestrator.signing_key()
    report = verify_bundle(
        directory,
        key_path=orchestrator.key_path,
        strict=strict,
        expected_root=None if root is None else root.lower(),
        public_key=None if key is None else key.public,
        checkpoints=checkpoints,
    )
    if not record:
        return report, None
    from coilclaw.storage.atomic import write_atomic

    audit = new_audit(directory, stamp(datetime.now(UTC)), "verify")
    write_atomic(audit / VERIFICATION, json_bytes(report.json()))
    return report, audit


def take_checkpoint(orchestrator: Orchestrator, directory: Path) -> Checkpoint:
    """Return what stands for a sealed run; one that does not hold is not vouched for."""
    from coilclaw.contracts.manifest import RunManifest
    from coilclaw.orchestrator.bundle import sealed_manifest
    from coilclaw.orchestrator.run_checkpoint import make_checkpoint

    report, _ = verify(orchestrator, directory)
    kept = sealed_manifest(directory)
    made = None if kept is None or report.errors else make_checkpoint(RunManifest.of(kept))
    if made is None:
        why = report.errors[0].message if report.errors else "it is not sealed"
        raise VerificationFailed(
            f"{directory.name} does not hold: {why}",
            rule="checkpoint.refused",
            hint=f"see 'coilclaw runs verify {directory.name}'",
        )
    return made


def replay(directory: Path) -> Rehydrated:
    """Tell the run again from its events; no model is asked, and nothing is written."""
    from coilclaw.orchestrator.rehydrate import rehydrate

    return rehydrate(directory)


def reexecute(orchestrator: Orchestrator, run_id: str) -> Reexecuted:
    """Execute it again: baseline, patch, gates and tests."""
    from coilclaw.orchestrator import reexec

    return reexec.reexecute(orchestrator.equipment, run_id)


def apply(orchestrator: Orchestrator, run_id: str, *, branch: str | None = None) -> Applied:
    """Merge accepted work that waits for it."""
    from coilclaw.orchestrator import applying

    return applying.apply(orchestrator.equipment, run_id, branch=branch)


def export(
    orchestrator: Orchestrator, directory: Path, out: Path | None, *, whole_history: bool = False
) -> Path:
    """Write a run as one signed file that anybody can check."""
    from coilclaw.orchestrator.export import export as export_run
    from coilclaw.storage import signing

    key = signing.load(signing_key_path(orchestrator.home))
    return export_run(
        directory,
        orchestrator.repository.objects,
        out or Path(f"{directory.name}.tar"),
        key,
        key_path=orchestrator.key_path,
        whole_history=whole_history,
    )


def collect(orchestrator: Orchestrator, wishes: Wishes) -> tuple[Removed, ...]:
    """Remove what is of no use any more."""
    from coilclaw.orchestrator import gc

    return gc.collect(orchestrator.equipment, wishes)
