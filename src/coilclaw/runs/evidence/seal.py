"""The seal of a bundle: the last event, a manifest that covers every byte, and no more writes.

    root_hash  SHA-256 of the RFC 8785 text of the manifest without ``integrity.root_hash``,
               ``integrity.seal`` and ``integrity.signature``
    signature  Ed25519 of ``SIGNED`` and the root hash, where there is a signing key
    seal       HMAC-SHA256, under the journal's key, of ``SEALED``, the root hash and the signature

The manifest holds the hash of every file but itself, the name of every directory, and the count
and head of the events. Only ``audits`` is left open. Sealing again, after a kill or for no reason,
gives the same manifest.
"""

from __future__ import annotations

import hmac
import os
from base64 import b64encode
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import (
    EnvironmentFault,
    UsageError,
    VerificationFailed,
    digest_bytes,
    explain_os_errors,
    hash_json,
    read_private,
    schemas,
    write_atomic,
)
from coilclaw.runs.contracts.event_types import EventType
from coilclaw.runs.contracts.manifest import RunManifest
from coilclaw.runs.contracts.records import NEXT
from coilclaw.runs.evidence import bundle as bundletree
from coilclaw.runs.evidence import layout
from coilclaw.runs.evidence.bundle import Bundle, json_bytes, sealed_manifest
from coilclaw.runs.evidence.event_index import EventIndex, get_part, parse_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from coilclaw.kernel import Json, SigningKey
    from coilclaw.runs.evidence.event_log import EventLog


NOBODY: Final = "none"
"""The agent of a report that no agent made."""
UNKNOWN_REF: Final = "unknown"
_NO_AGENT: Final[dict[str, Json]] = {"role": "ORCHESTRATOR", "agent_id": NOBODY}
_UNJUDGED: Final[Mapping[str, Json]] = {
    "schema_gate": {"passed": False, "violations": ["no contract was available to judge"]}
}


def complete_bundle(bundle: Bundle, events: Iterable[Mapping[str, object]], reason: str) -> None:
    """Write the evidence report, then what is missing. Doing it again changes nothing.

    The evidence report says what was really there. Afterwards every file of the structure exists,
    and those that stand for what never took place say exactly that: no verdict is made up.
    """
    if not bundle.has(layout.EVIDENCE_REPORT):
        missing: list[Json] = [one for one in layout.REQUIRED_EVIDENCE if not bundle.has(one)]
        status = "fail" if missing else "ok"
        bundle.write_json(layout.EVIDENCE_REPORT, {"status": status, "missing": missing})
    for path in layout.EMPTY_WHERE_MISSING:
        if not bundle.has(path):
            bundle.write_bytes(path, b"", redact=False)
    if not bundle.has(layout.META):
        bundle.write_json(layout.META, {})
    for path, report in _make_reports(bundle, events, reason).items():
        if not bundle.has(path):
            bundle.write_json(path, report)


def _sum_up(events: Iterable[Mapping[str, object]]) -> tuple[str, str, str, dict[str, Json]]:
    """Return when a run began and ended, its baseline, and the last result of each gate."""
    index = EventIndex(one for one in events if one.get("event_type") != EventType.RUN_SEALED)
    times = [event.ts for event in index] or [""]
    gates: dict[str, Json] = {}
    for event in index:
        if event.passed is not None and (gate := event.text("gate")):
            said = event.payload.get("violations")
            violations: list[Json] = [str(one) for one in said] if isinstance(said, list) else []
            gates[gate] = {"passed": event.passed, "violations": violations}
    return times[0], times[-1], index.baseline or UNKNOWN_REF, gates


def _make_reports(
    bundle: Bundle, events: Iterable[Mapping[str, object]], reason: str
) -> dict[str, dict[str, Json]]:
    """Return each report that says that nothing took place, by its path."""
    first, last, baseline, gates = _sum_up(events)
    contract = parse_json(bundle.find(layout.CONTRACT))
    if schemas.find_schema_problems("task_contract.v1", contract):
        contract = {}  # One that its schema refuses names nothing to rely on.
    request = get_part(contract, "inputs", "spec") or reason or "no request was recorded"
    task_id = get_part(contract, "task_id") or bundle.run_id
    own: dict[str, Json] = {"run_id": bundle.run_id, "task_id": task_id}
    return {
        layout.REVIEW_REPORT: {
            **own,
            "reviewer": {"role": "REVIEWER", "agent_id": NOBODY},
            "reviewed_at": last,
            "verdict": "BLOCKED",
            "summary": "No review took place.",
            "scope_check": {"passed": False, "violations": ["no review took place"]},
            "evidence": [],
            "findings": [],
            "produced_diff": False,
        },
        layout.TEST_REPORT: {
            **own,
            "runner": dict(_NO_AGENT),
            "started_at": last,
            "finished_at": last,
            "status": "SKIPPED",
            "commands": [],
            "artifacts": [],
        },
        layout.EVIDENCE_BUNDLE: {
            "bundle_id": f"research-{bundle.run_id}",
            "created_at": last,
            "requested_by": dict(_NO_AGENT),
            "query": {"raw_question": request, "refined_prompt": request},
            "sources": [],
            "claims": [],
            "limitations": ["No research took place."],
        },
        layout.TASK_RESULT: {
            **own,
            "producer": dict(_NO_AGENT),
            "status": "BLOCKED",
            "started_at": first,
            "finished_at": last,
            "summary": reason or "The run ended before it had a result.",
            "artifacts": [],
            "git": {
                "baseline_ref": baseline,
                "head_ref": baseline,
                "changed_files": bundle.artifact(layout.NAMES).json(),
                "patch": bundle.artifact(layout.PATCH).json(),
            },
            "gates": gates or dict(_UNJUDGED),
            NEXT: {"suggested_action": "see the events", "notes": ""},
            "failure": {"message": reason or "no result", "hint": ""},
        },
    }


SEALED: Final = "coilclaw.run.seal.v1"
SIGNED: Final = "coilclaw.run.signature.v1"
OUTSIDE_ROOT: Final = ("root_hash", "seal", "signature")
COMPUTED: Final = ("artifacts", "directories", "evidence_hashes", "finished_at", "integrity")
"""Fields of the manifest that the seal fills."""


def seal_bundle(
    bundle: Bundle,
    log: EventLog,
    facts: Mapping[str, Json],
    *,
    signing_key: SigningKey | None = None,
) -> RunManifest:
    """End a run's evidence; ``facts`` is the manifest without what is computed here.

    Before it is called the run has ended: no thread writes into the bundle any more.
    """
    kept = sealed_manifest(bundle.directory)
    if kept is not None:
        manifest = RunManifest.of(kept)
        if root_hash(kept) != get_part(kept, "integrity", "root_hash"):
            raise VerificationFailed(
                f"the manifest of run {bundle.run_id} was changed after it was sealed",
                rule="seal.broken",
            )
        protect(bundle.directory)
        return manifest
    status = facts.get("status")
    if status not in {"SUCCESS", "FAILURE"} or facts.get("run_id") != bundle.run_id:
        raise UsageError("a run is sealed with its own id and how it ended", rule="seal.facts")
    bundle.sweep()
    ending = log.last_type  # this opens the log, and so mends what a kill left
    reason = facts.get("failure_reason")
    complete_bundle(bundle, log.read(), reason if isinstance(reason, str) else "")
    if ending != EventType.RUN_SEALED:
        log.append(EventType.RUN_SEALED, {"status": status})
    log.close()
    value = _make_manifest(bundle, log, facts, signing_key)
    manifest = RunManifest.of(value)
    write_atomic(bundle.directory / layout.MANIFEST, json_bytes(value))
    protect(bundle.directory)
    return manifest


def root_hash(manifest: Mapping[str, Json]) -> str:
    """Return the hash that stands for everything in a sealed bundle."""
    integrity = get_part(manifest, "integrity")
    members = integrity.items() if isinstance(integrity, dict) else ()
    kept = {key: value for key, value in members if key not in OUTSIDE_ROOT}
    return hash_json({**manifest, "integrity": kept})


def keyed_seal(key: bytes, root: str, signature: Mapping[str, Json] | None) -> str:
    """Return the seal, which only the holder of the journal's key can compute."""
    signed = "" if signature is None else f"{signature['keyid']}:{signature['sig']}"
    return hmac.new(key, f"{SEALED}\n{root}\n{signed}".encode(), sha256).hexdigest()


def signed_text(root: str) -> bytes:
    """Return the bytes that the signing key signs."""
    return f"{SIGNED}\n{root}".encode("ascii")


def key_id(key: bytes) -> str:
    """Return the id of the journal's key, which does not reveal the key; anchors use it too."""
    return sha256(key).hexdigest()[:16]


def protect(directory: Path) -> None:
    """Make everything read-only but ``audits``, from the bottom up."""
    found = bundletree.list_bundle(directory)
    for path in found.files:
        _set_mode(directory / path, 0o444)
    for path in sorted(found.directories, reverse=True):
        if path != layout.AUDITS:
            _set_mode(directory / path, 0o555)
    _set_mode(directory, 0o555)


def _set_mode(place: Path, mode: int) -> None:
    with explain_os_errors(f"make {place} read-only", rule="seal.io"):
        descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.fchmod(descriptor, mode)
        finally:
            os.close(descriptor)


def _make_manifest(
    bundle: Bundle, log: EventLog, facts: Mapping[str, Json], signing_key: SigningKey | None
) -> dict[str, Json]:
    key = read_private(log.key_path)
    if key is None:
        raise EnvironmentFault(f"the key {log.key_path} is gone", rule="seal.key")
    count, head, ended = 0, "", ""
    for event in log.read():
        count, head, ended = count + 1, str(event["event_hash"]), str(event["ts"])
    found = bundletree.list_bundle(bundle.directory)
    if found.odd:
        raise VerificationFailed(
            f"the bundle of run {bundle.run_id} holds more than files: {', '.join(found.odd)}",
            rule="seal.odd",
        )
    artifacts = [bundle.artifact(p).json() for p in found.files if p != layout.MANIFEST]
    for path in filter(layout.is_appended, found.files):
        # Everything else is durable already.
        with bundletree.open_file(bundle.directory, path) as file:
            os.fsync(file.fileno())
    contract = bundle.find(layout.CONTRACT)
    integrity: dict[str, Json] = {
        "contract_sha256": digest_bytes((contract or b"").removesuffix(b"\n")),
        "events_count": count,
        "events_head": head,
        "key_id": key_id(key),
    }
    value: dict[str, Json] = {
        **{name: item for name, item in facts.items() if name not in COMPUTED},
        "finished_at": ended,
        "artifacts": list(artifacts),
        "evidence_hashes": {str(item["path"]): item["sha256"] for item in artifacts},
        "directories": list(found.directories),
        "integrity": integrity,
    }
    root = integrity["root_hash"] = root_hash(value)
    signature: dict[str, Json] | None = None
    if signing_key is not None:
        made = b64encode(signing_key.sign(signed_text(root))).decode("ascii")
        signature = integrity["signature"] = {"keyid": signing_key.key_id, "sig": made}
    integrity["seal"] = keyed_seal(key, root, signature)
    return value
