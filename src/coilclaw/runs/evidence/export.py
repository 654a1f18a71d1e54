"""``export``: a run as one file that anyone can check without CoilClaw.

An uncompressed tar, the same bytes each time: ``attestation.dsse.json`` (who vouches for what),
``bundle/`` (the sealed bundle without its audits) and ``repo.bundle`` (a git bundle with what the
run made on top of its baseline), if it made anything. ``contrib/verify_run.py`` checks it.
"""

from __future__ import annotations

import json
import os
from base64 import b64encode
from contextlib import contextmanager, suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import (
    UsageError,
    VerificationFailed,
    explain_os_errors,
    read_raw_lines,
    sync_directory,
)
from coilclaw.kernel import render_json as canonical_text
from coilclaw.runs.contracts.event_types import EventType
from coilclaw.runs.evidence import bundle, layout
from coilclaw.runs.evidence.bundle import sealed_manifest
from coilclaw.runs.evidence.event_index import EventIndex, get_part
from coilclaw.runs.evidence.verification import verify_run
from coilclaw.workspace import Git

if TYPE_CHECKING:
    import tarfile
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import BinaryIO

    from coilclaw.kernel import Json, SigningKey


STATEMENT_TYPE: Final = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE: Final = "urn:coilclaw:run:v1"
PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"


def make_statement(subjects: Mapping[str, str], predicate: Mapping[str, Json]) -> bytes:
    """Say that these files, by name and SHA-256, are what the predicate tells of."""
    return canonical_text(
        {
            "_type": STATEMENT_TYPE,
            "subject": [
                {"name": name, "digest": {"sha256": digest}}
                for name, digest in sorted(subjects.items())
            ],
            "predicateType": PREDICATE_TYPE,
            "predicate": dict(predicate),
        }
    ).encode("utf-8")


def pre_authentication(payload: bytes, payload_type: str = PAYLOAD_TYPE) -> bytes:
    """The bytes that are signed: type and payload, each with its length, so that none can shift."""
    kind = payload_type.encode("utf-8")
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def make_envelope(payload: bytes, key: SigningKey) -> bytes:
    """Sign a payload, and put both into an envelope."""
    signature = b64encode(key.sign(pre_authentication(payload))).decode("ascii")
    return bundle.json_bytes(
        {
            "payload": b64encode(payload).decode("ascii"),
            "payloadType": PAYLOAD_TYPE,
            "signatures": [{"keyid": key.key_id, "sig": signature}],
        }
    )


ATTESTATION: Final = "attestation.dsse.json"
FOLDER: Final = "bundle"
REPOSITORY: Final = "repo.bundle"
REF: Final = "refs/heads/run"
"""The name under which the run's last commit stands in the git bundle."""
BASELINE_REF: Final = "refs/heads/baseline"
GIT_TIMEOUT_S: Final = 3600.0
_IO: Final = "export.io"


def export_run(
    directory: Path,
    objects: Path,
    out: Path,
    signing_key: SigningKey,
    *,
    key_path: Path,
    whole_history: bool = False,
) -> Path:
    """Write a sealed run that verifies into one signed file; one that is there is not replaced.

    ``objects`` is the object store of the repository. The git bundle builds on the baseline, which
    the reader needs to have, unless it holds the ``whole_history``.
    """
    report = verify_run(directory, key_path=key_path)
    if report.errors:
        first = report.errors[0]
        raise VerificationFailed(
            f"run {directory.name} does not verify ({first.code}: {first.message}), "
            "so it is not exported",
            rule="export.unverified",
        )
    if os.path.lexists(out):
        raise UsageError(f"the file {out} already exists", rule="export.exists")
    manifest = sealed_manifest(directory)
    assert manifest is not None
    hashes = manifest["evidence_hashes"]
    assert isinstance(hashes, dict)
    events = EventIndex(map(json.loads, read_raw_lines(directory / layout.EVENTS)))
    told = events.last(EventType.MERGE_COMPLETED) or events.last(EventType.CANDIDATE_PREPARED)
    baseline, final = events.baseline, told.text("commit") if told else ""
    made = final not in {"", baseline}
    with _open_scratch(out.parent) as scratch:
        sealed = (layout.MANIFEST, *sorted(hashes))
        files = {f"{FOLDER}/{path}": directory / path for path in sealed}
        if made:
            files[REPOSITORY] = scratch / REPOSITORY
            wanted = [REF, BASELINE_REF] if whole_history else [REF, f"^{baseline}"]
            _bundle_repository(scratch, objects, {REF: final, BASELINE_REF: baseline}, wanted)
        subjects = {
            name: bundle.measure_file(path.parent, path.name).sha256 for name, path in files.items()
        }
        repository: dict[str, Json] = {
            "baseline_commit": baseline,
            "final_commit": final or baseline,
            "bundle": REPOSITORY if made else None,
            "whole_history": whole_history,
        }
        predicate = _make_predicate(manifest, repository)
        target = scratch / "export.tar"
        envelope = make_envelope(make_statement(subjects, predicate), signing_key)
        _write_tar(target, envelope, manifest, files, subjects)
        _publish(target, out)
    return out


def _make_predicate(manifest: Mapping[str, Json], repository: dict[str, Json]) -> dict[str, Json]:
    integrity = ("root_hash", "events_count", "events_head", "contract_sha256")
    return {
        **{name: manifest[name] for name in ("run_id", "status", "created_at", "merge")},
        **{name: get_part(manifest, "integrity", name) for name in integrity},
        "finished_at": manifest.get("finished_at"),
        "repository": repository,
    }


def _bundle_repository(
    scratch: Path, objects: Path, refs: Mapping[str, str], wanted: Sequence[str]
) -> None:
    """Make a git bundle with a git directory of our own, which borrows the repository's objects."""
    git = Git(scratch / "git")
    git.create()
    with explain_os_errors(f"write {git.git_dir}", rule=_IO):
        (git.git_dir / "objects" / "info" / "alternates").write_text(f"{objects.absolute()}\n")
    for name, commit in refs.items():
        git.run("update-ref", name, commit)
    # One thread, so that the same objects give the same bytes.
    git.run(
        "-c", "pack.threads=1", "bundle", "create", "--quiet",
        str((scratch / REPOSITORY).absolute()), *wanted, timeout_s=GIT_TIMEOUT_S,
    )  # fmt: skip


def _write_tar(
    target: Path,
    envelope: bytes,
    manifest: Mapping[str, Json],
    files: Mapping[str, Path],
    subjects: Mapping[str, str],
) -> None:
    import io
    import tarfile

    directories = manifest["directories"]
    assert isinstance(directories, list)
    folders = sorted([FOLDER, *(f"{FOLDER}/{path}" for path in directories)])
    with explain_os_errors(f"write {target}", rule=_IO), open(target, "xb") as file:
        with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
            archive.addfile(_make_entry(ATTESTATION, len(envelope)), io.BytesIO(envelope))
            for name in folders:
                archive.addfile(_make_entry(name))
            for name, path in sorted(files.items()):
                _add(archive, name, path, subjects[name])
        file.flush()
        os.fsync(file.fileno())


def _add(archive: tarfile.TarFile, name: str, path: Path, expected: str) -> None:
    """Put a file in; what goes in is hashed on the way, in case it changed since."""
    with bundle.open_file(path.parent, path.name) as file:
        watched = _Watched(file)
        archive.addfile(_make_entry(name, os.fstat(file.fileno()).st_size), watched)
    if watched.digest.hexdigest() != expected:
        raise VerificationFailed(f"{path} changed while it was exported", rule="export.changed")


class _Watched:
    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.digest = sha256()

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self.digest.update(data)
        return data


def _make_entry(name: str, size: int | None = None) -> tarfile.TarInfo:
    """A member whose time, owner and mode are always the same; without a size, a directory."""
    import tarfile

    info = tarfile.TarInfo(name)
    info.mtime = 0
    info.mode = 0o755 if size is None else 0o644
    info.type = tarfile.DIRTYPE if size is None else tarfile.REGTYPE
    info.size = size or 0
    return info


@contextmanager
def _open_scratch(parent: Path) -> Iterator[Path]:
    """A private folder beside the file that will be written, removed in the end."""
    import shutil
    import tempfile
    from pathlib import Path

    with explain_os_errors(f"write {parent}", rule=_IO):
        place = Path(tempfile.mkdtemp(prefix=".coilclaw-export-", dir=parent))
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _publish(target: Path, out: Path) -> None:
    """Give the finished file its name, unless another process took it meanwhile."""
    with explain_os_errors(f"write {out}", rule=_IO):
        target.chmod(0o644)
        try:
            os.link(target, out)
        except FileExistsError:
            raise UsageError(f"the file {out} already exists", rule="export.exists") from None
    with suppress(FileNotFoundError):
        os.unlink(target)
    sync_directory(out.parent)
