"""The audits of a bundle: what was done with a run after its seal, and with which run.

An audit lies outside the seal. What it says is believed only as far as it names the run that it
lies with; one that names another run is foreign, wherever it was copied from.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import Checkpoint, EnvironmentFault, UsageError
from coilclaw.runs.evidence import bundle, layout
from coilclaw.runs.evidence.event_index import Examination, get_part
from coilclaw.runs.evidence.layout import list_names
from coilclaw.runs.evidence.verification_codes import Code

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from coilclaw.kernel import Json, PublicKey, SignedCheckpoint
    from coilclaw.runs.contracts.manifest import RunManifest


APPLICATION: Final = "apply.json"
VERIFICATION: Final = "verify_report.json"
REEXECUTION: Final = "reexec_report.json"
MAX_BYTES: Final = 2**20
"""Of a report, and of the first line of events."""
_MAX_TEXT: Final = 200
_COMMIT: Final = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """One audit, as its report and the first of its events tell it."""

    name: str
    report: Mapping[str, Json]
    """Empty where there is none that can be read, as after a kill."""
    kind: str
    """The name of the report; empty where there is none."""
    run_ids: frozenset[str]
    """The runs that report and events name."""

    def is_foreign(self, run_id: str) -> bool:
        """Return whether something in the audit names another run."""
        return not self.run_ids <= {run_id}


@dataclass(frozen=True, slots=True)
class Application:
    """A merge of a run after the run had ended."""

    audit: str
    at: str
    branch: str
    commit: str

    def json(self) -> dict[str, Json]:
        return asdict(self)


def list_audits(directory: Path, suffix: str = "") -> tuple[AuditRecord, ...]:
    """Return the audits of a bundle, oldest first; only those ``suffix`` is part of the name of."""
    names = list_names(directory / layout.AUDITS)
    return tuple(_read_audit(directory, name) for name in names if suffix in name)


def list_applications(directory: Path, run_id: str) -> Iterator[Application]:
    """Yield the merges that audits of this run report; git is not asked whether they are there."""
    for audit in list_audits(directory, "-apply"):
        report = audit.report
        if audit.kind != APPLICATION or audit.is_foreign(run_id):
            continue
        commit = str(report.get("commit"))
        if report.get("status") == "merged" and _COMMIT.fullmatch(commit):
            at, branch = (str(report.get(name))[:_MAX_TEXT] for name in ("applied_at", "branch"))
            yield Application(audit.name, at, branch, commit)


def _read_audit(directory: Path, name: str) -> AuditRecord:
    place = f"{layout.AUDITS}/{name}"
    report: Mapping[str, Json] = {}
    kind = ""
    for known in (APPLICATION, VERIFICATION, REEXECUTION):
        found = _read_object(directory, f"{place}/{known}")
        if found is not None:
            report, kind = found, known
            break
    event = _read_object(directory, f"{place}/{layout.EVENTS}", first_line=True)
    named = [said.get("run_id") for said in (report, event or {}) if said]
    return AuditRecord(name, report, kind, frozenset(str(one)[:_MAX_TEXT] for one in named))


def _read_object(directory: Path, path: str, *, first_line: bool = False) -> dict[str, Json] | None:
    """Read a JSON object; return ``None`` for a link, a special file or a large file."""
    try:
        with bundle.open_file(directory, path) as file:
            data = file.readline(MAX_BYTES) if first_line else file.read(MAX_BYTES + 1)
        value = json.loads(data if len(data) <= MAX_BYTES else b"")
    except (EnvironmentFault, UsageError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


ORIGIN: Final = "coilclaw/runs/"


def make_checkpoint(manifest: RunManifest) -> Checkpoint | None:
    """Return the checkpoint of a sealed run; ``None`` if it is not sealed."""
    sealed = manifest.integrity
    if sealed is None:
        return None
    extensions = () if manifest.finished_at is None else (f"time {manifest.finished_at}",)
    return Checkpoint(
        f"{ORIGIN}{manifest.run_id}", sealed.events_count, sealed.root_hash, extensions
    )


def check_checkpoints(
    examination: Examination,
    run_id: str,
    checkpoints: Sequence[SignedCheckpoint],
    key: PublicKey | None,
) -> None:
    """Compare a bundle with every checkpoint of its run."""
    say = examination.say
    own = [one for one in checkpoints if one.checkpoint.origin == f"{ORIGIN}{run_id}"]
    if not own:
        say(Code.CHECKPOINT_MISSING, f"none of the checkpoints is about {run_id}")
    integrity = get_part(examination.manifest, "integrity")
    sealed = (get_part(integrity, "events_count"), get_part(integrity, "root_hash"))
    for one in own:
        stated = one.checkpoint
        if (stated.size, stated.root) != sealed:
            say(
                Code.CHECKPOINT_MISMATCH,
                f"a checkpoint says {stated.size} events and the root hash {stated.root}",
                layout.MANIFEST,
            )
        trust = one.judge(key)
        if trust == "invalid":
            say(Code.CHECKPOINT_SIGNATURE_INVALID, "a checkpoint was not signed by its key")
        elif trust != "valid":
            why = "is not signed" if trust == "unsigned" else "is signed by a key not known here"
            say(Code.CHECKPOINT_UNSIGNED, f"a checkpoint {why}")
