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

from coilclaw.contracts.eventtypes import EventType
from coilclaw.contracts.manifest import RunManifest
from coilclaw.domain.canonical import digest
from coilclaw.domain.freeform import hashed
from coilclaw.errors import EnvironmentFault, UsageError, VerificationFailed
from coilclaw.orchestrator import bundletree, layout
from coilclaw.orchestrator.bundle import json_bytes, sealed_manifest
from coilclaw.orchestrator.completing import complete
from coilclaw.storage.atomic import read_private, write_atomic

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from coilclaw.domain.messages import Json
    from coilclaw.orchestrator.bundle import Bundle
    from coilclaw.orchestrator.eventlog import EventLog
    from coilclaw.storage.signing import SigningKey

SEALED: Final = "coilclaw.run.seal.v1"
SIGNED: Final = "coilclaw.run.signature.v1"
OUTSIDE_ROOT: Final = ("root_hash", "seal", "signature")
COMPUTED: Final = ("artifacts", "directories", "evidence_hashes", "finished_at", "integrity")
"""Fields of the manifest that the seal fills."""


def seal(
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
        if root_hash(kept) != _integrity(kept)["root_hash"]:
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
    complete(bundle, log.read(), reason if isinstance(reason, str) else "")
    if ending != EventType.RUN_SEALED:
        log.append(EventType.RUN_SEALED, {"status": status})
    log.close()
    value = _manifest(bundle, log, facts, signing_key)
    manifest = RunManifest.of(value)
    write_atomic(bundle.directory / layout.MANIFEST, json_bytes(value))
    protect(bundle.directory)
    return manifest


def root_hash(manifest: Mapping[str, Json]) -> str:
    """The hash that stands for everything in a sealed bundle."""
    kept = {k: v for k, v in _integrity(manifest).items() if k not in OUTSIDE_ROOT}
    return hashed({**manifest, "integrity": kept})


def keyed_seal(key: bytes, root: str, signature: Mapping[str, Json] | None) -> str:
    """What only the holder of the journal's key can write."""
    signed = "" if signature is None else f"{signature['keyid']}:{signature['sig']}"
    return hmac.new(key, f"{SEALED}\n{root}\n{signed}".encode(), sha256).hexdigest()


def signed_text(root: str) -> bytes:
    """What the signing key signs."""
    return f"{SIGNED}\n{root}".encode("ascii")


def key_id(key: bytes) -> str:
    """Names the journal's key without giving it away, as its anchors do."""
    return sha256(key).hexdigest()[:16]


def protect(directory: Path) -> None:
    """Make everything read-only but ``audits``, from the bottom up."""
    found = bundletree.listing(directory)
    for path in found.files:
        _set_mode(directory / path, 0o444)
    for path in sorted(found.directories, reverse=True):
        if path != layout.AUDITS:
            _set_mode(directory / path, 0o555)
    _set_mode(directory, 0o555)


def _set_mode(place: Path, mode: int) -> None:
    try:
        descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.fchmod(descriptor, mode)
        finally:
            os.close(descriptor)
    except OSError as problem:
        raise EnvironmentFault(
            f"cannot make {place} read-only: {problem.strerror}", rule="seal.io"
        ) from problem


def _manifest(
    bundle: Bundle, log: EventLog, facts: Mapping[str, Json], signing_key: SigningKey | None
) -> dict[str, Json]:
    key = read_private(log.key_path)
    if key is None:
        raise EnvironmentFault(f"the key {log.key_path} is gone", rule="seal.key")
    count, head, ended = 0, "", ""
    for event in log.read():
        count, head, ended = count + 1, str(event["event_hash"]), str(event["ts"])
    found = bundletree.listing(bundle.directory)
    if found.odd:
        raise VerificationFailed(
            f"the bundle of run {bundle.run_id} holds what is no file: {', '.join(found.odd)}",
            rule="seal.odd",
        )
    artifacts = [bundle.artifact(p).json() for p in found.files if p != layout.MANIFEST]
    _sync(bundle.directory, [str(artifact["path"]) for artifact in artifacts])
    contract = bundle.find(layout.CONTRACT)
    integrity: dict[str, Json] = {
        "contract_sha256": digest((contract or b"").removesuffix(b"\n")),
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


def _integrity(manifest: Mapping[str, Json]) -> Mapping[str, Json]:
    integrity = manifest.get("integrity")
    return integrity if isinstance(integrity, dict) else {}


def _sync(directory: Path, paths: list[str]) -> None:
    """Make durable what was only appended; everything else is already."""
    for path in paths:
        if layout.is_appended(path):
            with bundletree.opened(directory, path) as file:
                os.fsync(file.fileno())
