"""What can be done with a run that has ended: verify, vouch for it, export and report."""

from __future__ import annotations

import os
import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw.app.home import signing_key_path
from coilclaw.app.receipt_checks import find_signing_key
from coilclaw.kernel import UsageError, VerificationFailed
from coilclaw.runs import VERIFICATION, json_bytes, new_audit, read_report, render_page
from coilclaw.runs import verify_run as verify_bundle
from coilclaw.workspace import format_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coilclaw.app.run_orchestrator import Orchestrator
    from coilclaw.kernel import Checkpoint, SignedCheckpoint
    from coilclaw.runs import (
        RunReport,
        VerifyReport,
    )


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
    key = find_signing_key(orchestrator.home)
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
    from coilclaw.kernel import write_atomic

    audit = new_audit(directory, format_time(datetime.now(UTC)), "verify")
    write_atomic(audit / VERIFICATION, json_bytes(report.json()))
    return report, audit


def take_checkpoint(orchestrator: Orchestrator, directory: Path) -> Checkpoint:
    """Return what stands for a sealed run; one that does not hold is not vouched for."""
    from coilclaw.runs import RunManifest, make_checkpoint, sealed_manifest

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


def export(
    orchestrator: Orchestrator, directory: Path, out: Path | None, *, whole_history: bool = False
) -> Path:
    """Write a run as one signed file that can be checked anywhere."""
    from coilclaw.kernel import checkpoint
    from coilclaw.runs import export_run

    key = checkpoint.load_key(signing_key_path(orchestrator.home))
    return export_run(
        directory,
        orchestrator.repository.objects,
        out or Path(f"{directory.name}.tar"),
        key,
        key_path=orchestrator.key_path,
        whole_history=whole_history,
    )


def build_report(orchestrator: Orchestrator, directory: Path) -> RunReport:
    """Verify a bundle strictly, and read it; nothing is written."""

    verification, _ = verify(orchestrator, directory)
    return read_report(directory, verification, orchestrator.redactor.redact)


def write_report(report: RunReport, out: Path) -> None:
    """Write a report; an earlier file is replaced, anything else at its place is refused."""
    from coilclaw.kernel import write_atomic

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
