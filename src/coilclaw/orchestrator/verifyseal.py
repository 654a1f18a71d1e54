"""Verification of the manifest, the seal, and every file and directory that it covers."""

from __future__ import annotations

import hmac
import json
from base64 import b64decode
from typing import TYPE_CHECKING

from coilclaw.contracts.schemas import problems
from coilclaw.errors import CoilClawError, UsageError
from coilclaw.orchestrator import bundletree, layout
from coilclaw.orchestrator.bundle import json_bytes
from coilclaw.orchestrator.codes import Code
from coilclaw.orchestrator.examination import part
from coilclaw.orchestrator.seal import key_id, keyed_seal, root_hash, signed_text
from coilclaw.storage.atomic import read_private

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from coilclaw.domain.messages import Json
    from coilclaw.orchestrator.examination import Examination
    from coilclaw.storage.signing import PublicKey


def check_manifest(examination: Examination) -> None:
    """Read the manifest; its bytes must be the only ones that say what it says."""
    say = examination.say
    data = examination.find(layout.MANIFEST)
    if data is None:
        say(Code.MANIFEST_MISSING, "there is no manifest.json", layout.MANIFEST)
        return
    try:
        value = json.loads(data)
        canonical = json_bytes(value) == data
    except (ValueError, RecursionError, UsageError) as problem:
        say(Code.MANIFEST_INVALID, f"manifest.json is no JSON: {problem}", layout.MANIFEST)
        return
    found = problems("run_manifest.v1", value)
    for flaw in found:
        say(
            Code.MANIFEST_INVALID,
            f"manifest.json{flaw.path}: {flaw.message}",
            layout.MANIFEST,
        )
    if not isinstance(value, dict) or found:
        return
    examination.manifest = value
    if part(value, "integrity") is None or value.get("status") == "RUNNING":
        say(Code.MANIFEST_UNSEALED, "the run is not sealed", layout.MANIFEST)
    elif not canonical:
        say(Code.MANIFEST_NOT_CANONICAL, "manifest.json is not canonical", layout.MANIFEST)
    _check_lists(examination, value)


def _check_lists(examination: Examination, manifest: Mapping[str, Json]) -> None:
    """The list of artifacts and the table of hashes are two views of the same files."""
    artifacts = manifest["artifacts"]
    assert isinstance(artifacts, list)
    listed = [(part(item, "path"), part(item, "sha256")) for item in artifacts]
    hashes = manifest["evidence_hashes"]
    assert isinstance(hashes, dict)
    if part(manifest, "integrity") is not None and listed != sorted(hashes.items()):
        examination.say(
            Code.MANIFEST_HASHES_INCONSISTENT,
            "the artifacts and the evidence hashes are not the same files",
            layout.MANIFEST,
        )


def check_seal(
    examination: Examination,
    *,
    key_path: Path,
    public_key: PublicKey | None,
    expected_root: str | None,
) -> None:
    """Recompute the root hash, the keyed seal and the signature."""
    say = examination.say
    integrity = part(examination.manifest, "integrity")
    if not isinstance(integrity, dict):
        if expected_root is not None:
            say(Code.ROOT_HASH_UNEXPECTED, "there is no root hash", layout.MANIFEST)
        return
    root = root_hash(examination.manifest)
    if integrity["root_hash"] != root:
        say(Code.ROOT_HASH_MISMATCH, f"the manifest's hash is {root}", layout.MANIFEST)
    if expected_root is not None and expected_root.lower() != root:
        say(Code.ROOT_HASH_UNEXPECTED, f"the root hash is {root}", layout.MANIFEST)
    signature = integrity.get("signature")
    assert signature is None or isinstance(signature, dict)
    key = _key(key_path)
    if key is None:
        say(Code.SEAL_KEY_MISSING, f"there is no key at {key_path}", layout.MANIFEST)
    elif key_id(key) != integrity["key_id"]:
        say(
            Code.SEAL_KEY_OTHER,
            f"the seal was made with key {integrity['key_id']}, not with {key_id(key)}",
            layout.MANIFEST,
        )
    elif not hmac.compare_digest(keyed_seal(key, root, signature), str(integrity["seal"])):
        say(Code.SEAL_INVALID, "the seal was not made over this manifest", layout.MANIFEST)
    if signature is not None:
        _check_signature(examination, root, signature, public_key)


def _key(path: Path) -> bytes | None:
    try:
        return read_private(path)
    except CoilClawError:
        return None


def _check_signature(
    examination: Examination, root: str, signature: Mapping[str, Json], key: PublicKey | None
) -> None:
    name = str(signature["keyid"])
    if key is None or key.key_id != name:
        examination.say(
            Code.SIGNATURE_UNCHECKED, f"the signature is by key {name}", layout.MANIFEST
        )
        return
    try:
        made = b64decode(str(signature["sig"]), validate=True)
    except ValueError:
        made = b""
    if not key.made(made, signed_text(root)):
        examination.say(Code.SIGNATURE_INVALID, "the signature is not by its key", layout.MANIFEST)


def check_files(examination: Examination) -> None:
    """Hash every file, and look for what is missing, extra or no file at all."""
    say = examination.say
    try:
        found = bundletree.listing(examination.directory)
    except CoilClawError as problem:
        say(Code.EVIDENCE_UNREADABLE, problem.message)
        return
    for path, what in found.odd.items():
        say(Code.ENTRY_ODD, f"{path} is {what}", path)
    if part(examination.manifest, "integrity") is None:
        return
    hashes = examination.manifest["evidence_hashes"]
    assert isinstance(hashes, dict)
    present = {path for path in found.files if path != layout.MANIFEST}
    for path in sorted(present - hashes.keys()):
        say(Code.EVIDENCE_EXTRA, f"{path} is not in the manifest", path)
    for path in sorted(hashes.keys() - present):
        say(Code.EVIDENCE_MISSING, f"{path} is not there", path)
    for path in sorted(present & hashes.keys()):
        _check_file(examination, path, str(hashes[path]))
    _check_sizes(examination)
    directories = examination.manifest["directories"]
    assert isinstance(directories, list)
    listed = {str(path) for path in directories}
    for path in sorted(set(found.directories) - listed):
        say(Code.DIRECTORY_EXTRA, f"{path} is not in the manifest", path)
    for path in sorted(listed - set(found.directories)):
        say(Code.DIRECTORY_MISSING, f"{path} is not there", path)


def _check_file(examination: Examination, path: str, expected: str) -> None:
    try:
        actual = bundletree.measured(examination.directory, path).sha256
    except CoilClawError as problem:
        examination.say(Code.EVIDENCE_UNREADABLE, problem.message, path)
        return
    if actual != expected.lower():
        code = Code.PATCH_HASH_MISMATCH if path == layout.PATCH else Code.MANIFEST_HASH_MISMATCH
        examination.say(code, f"{path} has the hash {actual}, and was sealed with {expected}", path)


def _check_sizes(examination: Examination) -> None:
    """A size that is not the file's would be a lie under a valid hash."""
    artifacts = examination.manifest["artifacts"]
    assert isinstance(artifacts, list)
    for item in artifacts:
        path, size = str(part(item, "path")), part(item, "size_bytes")
        try:
            actual = (examination.directory / path).lstat().st_size
        except OSError:
            continue  # missing, and noted as such
        if size is not None and size != actual:
            examination.say(
                Code.MANIFEST_HASH_MISMATCH, f"{path} has {actual} bytes, not {size}", path
            )
