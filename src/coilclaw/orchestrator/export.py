"""``export``: a run as one file that anybody can check without us.

An uncompressed tar, the same bytes each time: ``attestation.dsse.json`` (who vouches for what),
``bundle/`` (the sealed bundle without its audits) and ``repo.bundle`` (a git bundle with what the
run made on top of its baseline), if it made anything. ``contrib/verify_run.py`` checks it.
"""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from coilclaw.contracts.eventtypes import EventType
from coilclaw.errors import EnvironmentFault, UsageError, VerificationFailed
from coilclaw.orchestrator import bundletree, layout
from coilclaw.orchestrator.attestation import enveloped, statement
from coilclaw.orchestrator.bundle import sealed_manifest
from coilclaw.orchestrator.chronicle import Chronicle
from coilclaw.orchestrator.examination import part
from coilclaw.orchestrator.verifying import verify
from coilclaw.storage.atomic import sync_directory
from coilclaw.storage.verify import raw_lines
from coilclaw.workspace.git import Git

if TYPE_CHECKING:
    import tarfile
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from typing import BinaryIO

    from coilclaw.domain.messages import Json
    from coilclaw.storage.signing import SigningKey

ATTESTATION: Final = "attestation.dsse.json"
FOLDER: Final = "bundle"
REPOSITORY: Final = "repo.bundle"
REF: Final = "refs/heads/run"
"""The name under which the run's last commit stands in the git bundle."""
BASELINE_REF: Final = "refs/heads/baseline"
GIT_TIMEOUT_S: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Commits:
    """What the run started from, and what it made of it; empty where there is nothing."""

    baseline: str
    final: str

    @property
    def made(self) -> bool:
        return bool(self.final) and self.final != self.baseline


def export(
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
    whoever unpacks it needs to have, unless it holds the ``whole_history``.
    """
    report = verify(directory, key_path=key_path)
    if report.errors:
        first = report.errors[0]
        raise VerificationFailed(
            f"run {directory.name} does not verify ({first.code}: {first.message}), "
            "so nobody should vouch for it",
            rule="export.unverified",
        )
    if os.path.lexists(out):
        raise UsageError(f"there is a file {out} already", rule="export.exists")
    manifest = sealed_manifest(directory)
    assert manifest is not None
    commits = _commits(directory)
    with _scratch(out.parent) as scratch:
        files = {f"{FOLDER}/{path}": directory / path for path in _sealed_files(manifest)}
        if commits.made:
            files[REPOSITORY] = scratch / REPOSITORY
            _bundle_repository(scratch, objects, commits, whole_history=whole_history)
        subjects = {name: _hash(path) for name, path in files.items()}
        payload = statement(subjects, _predicate(manifest, commits, whole_history=whole_history))
        target = scratch / "export.tar"
        _write_tar(target, enveloped(payload, signing_key), manifest, files, subjects)
        _put(target, out)
    return out


def _sealed_files(manifest: Mapping[str, Json]) -> tuple[str, ...]:
    hashes = manifest["evidence_hashes"]
    assert isinstance(hashes, dict)
    return (layout.MANIFEST, *sorted(hashes))


def _commits(directory: Path) -> Commits:
    import json

    chronicle = Chronicle()
    for number, line in enumerate(raw_lines(directory / layout.EVENTS), 1):
        chronicle.add(number, json.loads(line))
    told = chronicle.last(EventType.MERGE_COMPLETED) or chronicle.last(EventType.CANDIDATE_PREPARED)
    return Commits(chronicle.baseline, "" if told is None else told.text("commit"))


def _predicate(
    manifest: Mapping[str, Json], commits: Commits, *, whole_history: bool
) -> dict[str, Json]:
    return {
        "run_id": manifest["run_id"],
        "status": manifest["status"],
        "created_at": manifest["created_at"],
        "finished_at": manifest.get("finished_at"),
        "root_hash": part(manifest, "integrity", "root_hash"),
        "events_count": part(manifest, "integrity", "events_count"),
        "events_head": part(manifest, "integrity", "events_head"),
        "contract_sha256": part(manifest, "integrity", "contract_sha256"),
        "merge": manifest["merge"],
        "repository": {
            "baseline_commit": commits.baseline,
            "final_commit": commits.final or commits.baseline,
            "bundle": REPOSITORY if commits.made else None,
            "whole_history": whole_history,
        },
    }


def _bundle_repository(
    scratch: Path, objects: Path, commits: Commits, *, whole_history: bool
) -> None:
    """Make a git bundle with a git directory of our own, which borrows the repository's objects."""
    git = Git(scratch / "git")
    git.create()
    try:
        (git.git_dir / "objects" / "info" / "alternates").write_text(f"{objects.absolute()}\n")
    except OSError as problem:
        raise _fault(git.git_dir, problem) from problem
    git.run("update-ref", REF, commits.final)
    git.run("update-ref", BASELINE_REF, commits.baseline)
    wanted = [REF, BASELINE_REF] if whole_history else [REF, f"^{commits.baseline}"]
    # One thread, so that the same objects give the same bytes.
    git.run(
        "-c", "pack.threads=1", "bundle", "create", "--quiet",
        str((scratch / REPOSITORY).absolute()), *wanted, timeout_s=GIT_TIMEOUT_S,
    )  # fmt: skip


def _hash(path: Path) -> str:
    return bundletree.measured(path.parent, path.name).sha256


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
    try:
        with open(target, "xb") as file:
            with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
                archive.addfile(_entry(ATTESTATION, len(envelope)), io.BytesIO(envelope))
                for name in folders:
                    archive.addfile(_entry(name))
                for name, path in sorted(files.items()):
                    _add(archive, name, path, subjects[name])
            file.flush()
            os.fsync(file.fileno())
    except OSError as problem:
        raise _fault(target, problem) from problem


def _add(archive: tarfile.TarFile, name: str, path: Path, expected: str) -> None:
    """Put a file in; what goes in is hashed on the way, in case it changed since."""
    with bundletree.opened(path.parent, path.name) as file:
        watched = _Watched(file)
        archive.addfile(_entry(name, os.fstat(file.fileno()).st_size), watched)
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


def _entry(name: str, size: int | None = None) -> tarfile.TarInfo:
    """A member whose time, owner and mode are always the same; without a size, a directory."""
    import tarfile

    info = tarfile.TarInfo(name)
    info.mtime = 0
    info.mode = 0o755 if size is None else 0o644
    info.type = tarfile.DIRTYPE if size is None else tarfile.REGTYPE
    info.size = size or 0
    return info


@contextmanager
def _scratch(parent: Path) -> Iterator[Path]:
    """A private folder beside the file that will be written, removed in the end."""
    import shutil
    import tempfile
    from pathlib import Path

    try:
        place = Path(tempfile.mkdtemp(prefix=".coilclaw-export-", dir=parent))
    except OSError as problem:
        raise _fault(parent, problem) from problem
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _put(target: Path, out: Path) -> None:
    """Give the finished file its name, unless somebody else took it meanwhile."""
    try:
        target.chmod(0o644)
        os.link(target, out)
    except FileExistsError:
        raise UsageError(f"there is a file {out} already", rule="export.exists") from None
    except OSError as problem:
        raise _fault(out, problem) from problem
    with suppress(FileNotFoundError):
        os.unlink(target)
    sync_directory(out.parent)


def _fault(path: Path, problem: OSError) -> EnvironmentFault:
    return EnvironmentFault(f"cannot write {path}: {problem.strerror or problem}", rule="export.io")
