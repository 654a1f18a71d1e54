"""``verify``: check that a bundle is what its run left, byte by byte and report by report.

Verification only reads, also from the journal of events, so it can be repeated. In strict mode, the
default, a bundle passes only if the journal's key confirms its seal.
"""

from __future__ import annotations

import hmac
import json
from base64 import b64decode
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from coilclaw.kernel import (
    CoilClawError,
    UsageError,
    VerificationFailed,
    find_schema_problems,
    read_private,
    verify_journal,
)
from coilclaw.runs.contracts.event_types import EventType
from coilclaw.runs.evidence import bundle, layout, progress
from coilclaw.runs.evidence.audits import check_checkpoints
from coilclaw.runs.evidence.bundle import json_bytes
from coilclaw.runs.evidence.event_index import Examination, compare_evidence, get_part, is_time
from coilclaw.runs.evidence.event_log import HASH_FIELD
from coilclaw.runs.evidence.layout import check_run_id
from coilclaw.runs.evidence.report_verification import (
    check_bindings,
    check_contracts,
    check_reports,
    check_root_diff,
)
from coilclaw.runs.evidence.seal import key_id, keyed_seal, root_hash, signed_text
from coilclaw.runs.evidence.verification_codes import UNCHECKED, Check, Code

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from coilclaw.kernel import Json, PublicKey, SignedCheckpoint
    from coilclaw.runs.evidence.event_index import EvidenceFinding


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What verification found; a bundle passes exactly when it has no error."""

    run_id: str
    strict: bool
    root_hash: str
    """As the manifest has it; empty where there is none."""
    errors: tuple[EvidenceFinding, ...]
    warnings: tuple[EvidenceFinding, ...]
    checks: Mapping[str, bool]
    """Each check, and whether it was made and found no problem."""

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


def verify_run(
    directory: Path,
    *,
    key_path: Path,
    strict: bool = True,
    expected_root: str | None = None,
    public_key: PublicKey | None = None,
    checkpoints: Sequence[SignedCheckpoint] | None = None,
    run_id: str | None = None,
    legal: Callable[[str, str, str], bool] = progress.is_legal_move,
) -> VerifyReport:
    """Recompute every hash and compare every statement of a bundle.

    ``run_id`` is the run that is meant; without it the directory's name is. ``expected_root`` is a
    root hash that was noted elsewhere, and ``checkpoints`` are statements that were kept there:
    then not even the holder of the key can exchange the run.
    """
    if not bundle.bundle_exists(directory):
        raise UsageError(f"run {directory.name} does not exist", rule="run.unknown")
    wanted = directory.name if run_id is None else check_run_id(run_id)
    examination = Examination(directory, strict)
    _check_manifest(examination)
    _check_seal(examination, key_path, public_key, expected_root)
    if checkpoints is not None:
        check_checkpoints(examination, wanted, checkpoints, public_key)
    _check_files(examination)
    _check_events(examination, key_path)
    check_contracts(examination)
    check_bindings(examination, wanted)
    check_reports(examination)
    check_root_diff(examination)
    own = str(examination.manifest.get("run_id", directory.name))
    for one in compare_evidence(
        examination.events, directory, own, dict(examination.manifest), legal
    ):
        examination.say(one.code, str(one), one.path or layout.EVENTS)
    moved = examination.events.last(EventType.STATE_TRANSITION)
    state = progress.START.value if moved is None else moved.text("to")
    if examination.succeeded and state != progress.RunState.DONE:
        examination.say(Code.STATUS_MISMATCH, f"the run succeeded, and its last state is {state}")
    unchecked = [finding for finding in examination.warnings if finding.code in UNCHECKED]
    failed = {finding.code.check for finding in (*examination.errors, *unchecked)}
    return VerifyReport(
        run_id=wanted,
        strict=strict,
        root_hash=str(get_part(examination.manifest, "integrity", "root_hash") or ""),
        errors=tuple(examination.errors),
        warnings=tuple(examination.warnings),
        checks={check.value: check not in failed for check in Check},
    )


def _check_manifest(examination: Examination) -> None:
    """Read the manifest; its bytes must be the only ones that say what it says."""
    path = layout.MANIFEST
    data = examination.find(path)
    if data is None:
        examination.say(Code.MANIFEST_MISSING, "manifest.json is missing", path)
        return
    try:
        canonical = json_bytes(json.loads(data)) == data
    except (ValueError, RecursionError, UsageError) as problem:
        examination.say(Code.MANIFEST_INVALID, f"manifest.json is not valid JSON: {problem}", path)
        return
    manifest = examination.load(path, "run_manifest.v1", Code.MANIFEST_INVALID)
    if manifest is None:
        return
    examination.manifest = manifest
    if get_part(manifest, "integrity") is None or manifest.get("status") == "RUNNING":
        examination.say(Code.MANIFEST_UNSEALED, "the run is not sealed", path)
    elif not canonical:
        examination.say(Code.MANIFEST_NOT_CANONICAL, "manifest.json is not canonical", path)
    # The list of artifacts and the table of hashes are two views of the same files.
    artifacts, hashes = manifest["artifacts"], manifest["evidence_hashes"]
    assert isinstance(artifacts, list)
    assert isinstance(hashes, dict)
    listed = [(get_part(item, "path"), get_part(item, "sha256")) for item in artifacts]
    if get_part(manifest, "integrity") is not None and listed != sorted(hashes.items()):
        said = "the artifacts and the evidence hashes are not the same files"
        examination.say(Code.MANIFEST_HASHES_INCONSISTENT, said, path)


def _check_seal(
    examination: Examination,
    key_path: Path,
    public_key: PublicKey | None,
    expected_root: str | None,
) -> None:
    """Recompute the root hash, the keyed seal and the signature."""

    def say(code: Code, message: str) -> None:
        examination.say(code, message, layout.MANIFEST)

    integrity = get_part(examination.manifest, "integrity")
    if not isinstance(integrity, dict):
        if expected_root is not None:
            say(Code.ROOT_HASH_UNEXPECTED, "the root hash is missing")
        return
    root = root_hash(examination.manifest)
    if integrity["root_hash"] != root:
        say(Code.ROOT_HASH_MISMATCH, f"the manifest's hash is {root}")
    if expected_root is not None and expected_root.lower() != root:
        say(Code.ROOT_HASH_UNEXPECTED, f"the root hash is {root}")
    signature = integrity.get("signature")
    assert signature is None or isinstance(signature, dict)
    key = _read_key(key_path)
    if key is None:
        say(Code.SEAL_KEY_MISSING, f"the key {key_path} is missing")
    elif key_id(key) != integrity["key_id"]:
        made = f"the seal was made with key {integrity['key_id']}, not with {key_id(key)}"
        say(Code.SEAL_KEY_OTHER, made)
    elif not hmac.compare_digest(keyed_seal(key, root, signature), str(integrity["seal"])):
        say(Code.SEAL_INVALID, "the seal was not made over this manifest")
    if signature is None:
        return
    if public_key is None or public_key.key_id != signature["keyid"]:
        say(Code.SIGNATURE_UNCHECKED, f"the signature is by key {signature['keyid']}")
    elif not _is_signed(str(signature["sig"]), root, public_key):
        say(Code.SIGNATURE_INVALID, "the signature is not by its key")


def _read_key(path: Path) -> bytes | None:
    try:
        return read_private(path)
    except CoilClawError:
        return None


def _is_signed(signature: str, root: str, key: PublicKey) -> bool:
    try:
        return key.is_signature_of(b64decode(signature, validate=True), signed_text(root))
    except ValueError:
        return False


def _check_files(examination: Examination) -> None:
    """Hash every file, and find entries that are missing, extra or not files."""
    say, manifest = examination.say, examination.manifest
    try:
        found = bundle.list_bundle(examination.directory)
    except CoilClawError as problem:
        say(Code.EVIDENCE_UNREADABLE, problem.message)
        return
    for path, what in found.odd.items():
        say(Code.ENTRY_ODD, f"{path} is {what}", path)
    if get_part(manifest, "integrity") is None:
        return
    hashes, directories = manifest["evidence_hashes"], manifest["directories"]
    assert isinstance(hashes, dict)
    assert isinstance(directories, list)
    files = {path for path in found.files if path != layout.MANIFEST}
    for present, listed, extra, missing in (
        (files, hashes.keys(), Code.EVIDENCE_EXTRA, Code.EVIDENCE_MISSING),
        (
            set(found.directories),
            set(map(str, directories)),
            Code.DIRECTORY_EXTRA,
            Code.DIRECTORY_MISSING,
        ),
    ):
        for path in sorted(present - listed):
            say(extra, f"{path} is not in the manifest", path)
        for path in sorted(listed - present):
            say(missing, f"{path} is missing", path)
    artifacts = manifest["artifacts"]
    assert isinstance(artifacts, list)
    sizes = {get_part(item, "path"): get_part(item, "size_bytes") for item in artifacts}
    for path in sorted(files & hashes.keys()):
        _check_file(examination, path, str(hashes[path]), sizes.get(path))


def _check_file(examination: Examination, path: str, expected: str, size: Json) -> None:
    """Compare a file with the hash and the size that were sealed."""
    try:
        actual = bundle.measure_file(examination.directory, path)
    except CoilClawError as problem:
        examination.say(Code.EVIDENCE_UNREADABLE, problem.message, path)
        return
    code = Code.MANIFEST_HASH_MISMATCH
    if size not in {None, actual.size}:
        examination.say(code, f"{path} has {actual.size} bytes, not {size}", path)
    if actual.sha256 != expected.lower():
        said = f"{path} has the hash {actual.sha256}, and was sealed with {expected}"
        examination.say(Code.PATCH_HASH_MISMATCH if path == layout.PATCH else code, said, path)


def _check_events(examination: Examination, key_path: Path) -> None:
    """Follow the chain from the first event to the last, and to the anchor."""
    path, events = layout.EVENTS, examination.events
    flaws: list[str] = []
    head = ""

    def observe(number: int, event: Mapping[str, object]) -> None:
        nonlocal head
        if number == 1:
            flaws.clear()
        events.add(number, event)
        flaws.extend(
            f"event {number}{flaw.path}: {flaw.message}"
            for flaw in find_schema_problems("orchestrator_event.v1", event)
        )
        head = str(event.get(HASH_FIELD))

    try:
        report = verify_journal(
            examination.directory / path, hash_field=HASH_FIELD, key_path=key_path, observe=observe
        )
    except VerificationFailed as problem:
        examination.say(Code.EVENTS_MISSING, problem.message, path)
        return
    except CoilClawError as problem:
        examination.say(Code.EVIDENCE_UNREADABLE, problem.message, path)
        return
    for flaw in flaws:
        examination.say(Code.EVENT_INVALID, flaw, path)
    if report.break_ is not None:
        code, place = {
            "wrong key": (Code.SEAL_KEY_OTHER, layout.ANCHOR),
            "anchor missing": (Code.EVENTS_ANCHOR_INVALID, layout.ANCHOR),
            "anchor edited": (Code.EVENTS_ANCHOR_INVALID, layout.ANCHOR),
        }.get(report.break_.reason, (Code.EVENTS_HASHCHAIN_INVALID, path))
        examination.say(code, report.break_.sentence, place)
    if report.unanchored or report.torn_bytes:
        said = f"{report.unanchored} events and {report.torn_bytes} bytes stand after the anchor"
        examination.say(Code.EVENTS_ANCHOR_INVALID, said, path)
    if report.records == 0:
        examination.say(Code.EVENTS_MISSING, "no event exists", path)
    else:
        _check_each_event(examination)
        _check_end(examination, head, report.records)


def _check_each_event(examination: Examination) -> None:
    for event in examination.events:
        known = event.kind in EventType.__members__.values()
        wanted = EventType(event.kind).required if known else ()
        missing = [key for key in wanted if key not in event.payload]
        if missing:
            said = f"event {event.number} lacks {', '.join(missing)}"
            examination.say(Code.EVENT_INVALID, said, layout.EVENTS)
        if not is_time(event.ts):
            said = f"the time of event {event.number} is not a UTC time"
            examination.say(Code.EVENT_TS_INVALID, said, layout.EVENTS)


def _check_end(examination: Examination, head: str, count: int) -> None:
    """Check the first and the last event, and their count, against the seal."""

    def say(code: Code, message: str) -> None:
        examination.say(code, message, layout.EVENTS)

    kinds = [event.kind for event in examination.events]
    if EventType.RUN_SEALED not in kinds[-1:] or EventType.RUN_SEALED in kinds[:-1]:
        say(Code.EVENTS_NOT_SEALED, "RUN_SEALED is not the last event")
    if kinds[0] != EventType.RUN_CREATED or EventType.RUN_CREATED in kinds[1:]:
        say(Code.EVENT_INVALID, "RUN_CREATED is not the first event")
    integrity = get_part(examination.manifest, "integrity")
    if not isinstance(integrity, dict):
        return
    sealed = integrity["events_count"]
    if sealed != count:
        say(Code.EVENTS_COUNT_MISMATCH, f"the log has {count} events, and {sealed} were sealed")
    if str(integrity["events_head"]).lower() != head:
        say(Code.EVENTS_HEAD_MISMATCH, f"the last event's hash is {head}")
