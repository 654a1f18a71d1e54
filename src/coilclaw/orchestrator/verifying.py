"""``verify``: whether a bundle is what its run left, byte by byte and sentence by sentence.

It only reads, also from the journal of events, and can be repeated for ever. Strict, which is the
rule, a bundle holds only if the journal's key vouches for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from coilclaw.errors import UsageError
from coilclaw.orchestrator import bundletree, states
from coilclaw.orchestrator.codes import MEANINGS, UNCHECKED, Check
from coilclaw.orchestrator.examination import Examination, Finding, part
from coilclaw.orchestrator.places import checked
from coilclaw.orchestrator.run_checkpoint import check_checkpoints
from coilclaw.orchestrator.verifyevents import check_events, check_moves
from coilclaw.orchestrator.verifyreports import (
    check_bindings,
    check_contracts,
    check_report,
    reports,
)
from coilclaw.orchestrator.verifyseal import check_files, check_manifest, check_seal
from coilclaw.orchestrator.verifywork import (
    check_outcome,
    check_result,
    check_root_diff,
    check_tests,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from coilclaw.domain.messages import Json
    from coilclaw.storage.checkpoint import SignedCheckpoint
    from coilclaw.storage.signing import PublicKey


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What verification found; a bundle passes exactly when there is no error."""

    run_id: str
    strict: bool
    root_hash: str
    """As the manifest has it; empty where there is none."""
    errors: tuple[Finding, ...]
    warnings: tuple[Finding, ...]
    checks: Mapping[str, bool]
    """Each check, and whether it was made and found nothing of its kind wrong."""

    @property
    def status(self) -> Literal["pass", "fail"]:
        return "fail" if self.errors else "pass"

    def json(self) -> dict[str, Json]:
        return {
            "run_id": self.run_id,
            "status": self.status,
            "strict": self.strict,
            "root_hash": self.root_hash,
            "errors": [finding.json() for finding in self.errors],
            "warnings": [finding.json() for finding in self.warnings],
            "checks": dict(self.checks),
        }


def verify(
    directory: Path,
    *,
    key_path: Path,
    strict: bool = True,
    expected_root: str | None = None,
    public_key: PublicKey | None = None,
    checkpoints: Sequence[SignedCheckpoint] | None = None,
    run_id: str | None = None,
    legal: Callable[[str, str, str], bool] = states.legal,
) -> VerifyReport:
    """Recompute everything that a bundle says about itself.

    ``run_id`` is the run that is meant; without it the directory's name is. ``expected_root`` is a
    root hash that was noted elsewhere, and ``checkpoints`` are statements that were kept there:
    then not even the holder of the key can exchange the run.
    """
    if not bundletree.exists(directory):
        raise UsageError(f"there is no run {directory.name}", rule="run.unknown")
    wanted = directory.name if run_id is None else checked(run_id)
    examination = Examination(directory, strict)
    check_manifest(examination)
    check_seal(examination, key_path=key_path, public_key=public_key, expected_root=expected_root)
    if checkpoints is not None:
        check_checkpoints(examination, wanted, checkpoints, public_key)
    check_files(examination)
    check_events(examination, key_path=key_path)
    check_contracts(examination)
    check_bindings(examination, wanted)
    _check_reports(examination)
    check_root_diff(examination)
    check_moves(examination, legal)
    unchecked = [finding for finding in examination.warnings if finding.code in UNCHECKED]
    failed = {MEANINGS[finding.code][0] for finding in (*examination.errors, *unchecked)}
    return VerifyReport(
        run_id=wanted,
        strict=strict,
        root_hash=str(part(examination.manifest, "integrity", "root_hash") or ""),
        errors=tuple(examination.errors),
        warnings=tuple(examination.warnings),
        checks={check.value: check not in failed for check in Check},
    )


def _check_reports(examination: Examination) -> None:
    for path, schema, report in reports(examination):
        check_report(examination, path, schema, report)
        check_outcome(examination, path, report)
        if schema == "task_result.v1":
            check_result(examination, path, report)
        elif schema == "test_report.v1":
            check_tests(examination, path, report)
