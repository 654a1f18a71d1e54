"""The audits of a bundle: what was done with a run after its seal, and whether it was this run.

An audit lies outside the seal. What it says is believed only as far as it names the run that it
lies with; one that names another run is foreign, wherever it was copied from.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.errors import EnvironmentFault, UsageError
from coilclaw.orchestrator import bundletree, layout

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from coilclaw.domain.messages import Json

APPLICATION: Final = "apply.json"
VERIFICATION: Final = "verify_report.json"
REEXECUTION: Final = "reexec_report.json"
MAX_REPORT_BYTES: Final = 2**20
MAX_LINE_BYTES: Final = 2**20
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
        return {
            "audit": self.audit,
            "at": self.at,
            "branch": self.branch,
            "commit": self.commit,
        }


def list_audits(directory: Path, suffix: str = "") -> tuple[AuditRecord, ...]:
    """Return the audits of a bundle, oldest first; only those ``suffix`` is part of the name of."""
    try:
        names = sorted(os.listdir(directory / layout.AUDITS))
    except (FileNotFoundError, NotADirectoryError):
        return ()
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
        found = _read_object(_find_bytes(directory, f"{place}/{known}"))
        if found is not None:
            report, kind = found, known
            break
    event = _read_object(_find_first_line(directory, f"{place}/{layout.EVENTS}"))
    named = [said.get("run_id") for said in (report, event or {}) if said]
    return AuditRecord(name, report, kind, frozenset(str(one)[:_MAX_TEXT] for one in named))


def _find_bytes(directory: Path, path: str) -> bytes:
    try:
        return bundletree.find(directory, path, limit=MAX_REPORT_BYTES) or b""
    except (EnvironmentFault, UsageError):
        # A link, a special file or too much: then it tells nothing.
        return b""


def _find_first_line(directory: Path, path: str) -> bytes:
    try:
        with bundletree.opened(directory, path) as file:
            return file.readline(MAX_LINE_BYTES)
    except (EnvironmentFault, UsageError):
        return b""


def _read_object(data: bytes) -> dict[str, Json] | None:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
