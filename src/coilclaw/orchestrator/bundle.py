"""``Bundle``: the evidence of one run while it is being gathered.

Everything is written whole and synced, and passes the redactor, but for patches, which would no
longer apply; what a patch may add is the diff gate's matter. A file is written once; only those
that hold the latest of several (``layout.is_latest``) are replaced, and nothing is after the seal.
"""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING, Final

from coilclaw.contracts.artifact import ArtifactRef
from coilclaw.domain.canonical import digest
from coilclaw.domain.freeform import text as canonical_text
from coilclaw.errors import DeniedError, EnvironmentFault, UsageError
from coilclaw.orchestrator import bundletree, layout
from coilclaw.orchestrator.places import checked as checked_run
from coilclaw.storage.atomic import sync_directory, write_all, write_atomic

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from coilclaw.domain.messages import Json

MAX_FILE_BYTES: Final = 512 * 2**20
MAX_APPENDED_BYTES: Final = 256 * 2**20
MAX_AUDITS: Final = 100_000
_TEMPORARY: Final = re.compile(r"(?:.*/)?\.coilclaw-[0-9a-f]{16}\.tmp")
_WHAT: Final = re.compile(r"[a-z][a-z0-9-]{0,39}")


class Bundle:
    """One run's directory. Making the object touches nothing."""

    def __init__(self, directory: Path, redact: Callable[[str], str]) -> None:
        self.directory = directory
        self.run_id = checked_run(directory.name)
        self._redact = redact

    def create(self) -> None:
        """Make the directory with all its folders; one that is there already is refused."""
        try:
            self.directory.parent.mkdir(parents=True, exist_ok=True)
            self.directory.mkdir()
            for folder in layout.FOLDERS:
                (self.directory / folder).mkdir()
        except FileExistsError:
            raise UsageError(f"there is a run {self.run_id} already", rule="run.exists") from None
        except OSError as problem:
            raise _fault(self.directory, problem) from problem
        sync_directory(self.directory)
        sync_directory(self.directory.parent)

    @property
    def exists(self) -> bool:
        return bundletree.exists(self.directory)

    @property
    def sealed(self) -> bool:
        """Whether the manifest says that this is all."""
        return sealed_manifest(self.directory) is not None

    def write_text(self, path: str, text: str, *, name: str | None = None) -> ArtifactRef:
        """Keep a text as UTF-8."""
        return self._write(path, self._clean(text).encode("utf-8", "replace"), name)

    def write_json(
        self, path: str, value: Mapping[str, Json], *, name: str | None = None
    ) -> ArtifactRef:
        """Keep a JSON object as its RFC 8785 text and a newline."""
        return self._write(path, json_bytes(_redacted(dict(value), self._clean)), name)

    def write_bytes(
        self, path: str, data: bytes, *, redact: bool = True, name: str | None = None
    ) -> ArtifactRef:
        """Keep bytes; only what must stay exact, such as a patch, is not redacted."""
        if redact:
            # What is no UTF-8 comes back byte for byte.
            clean = self._clean(data.decode("utf-8", "surrogateescape"))
            data = clean.encode("utf-8", "surrogateescape")
        return self._write(path, data, name)

    def append(self, path: str, line: str) -> None:
        """Add one line to an agent's events or transcript; the seal makes it durable."""
        if not layout.is_appended(layout.checked(path)):
            raise UsageError(f"{path} is no file that lines are added to", rule="bundle.append")
        self._refuse_if_sealed(path)
        data = self._clean(line.rstrip("\n")).encode("utf-8", "replace") + b"\n"
        place = self._place(path)
        try:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(place, flags, 0o644)
            try:
                if os.fstat(descriptor).st_size + len(data) > MAX_APPENDED_BYTES:
                    raise UsageError(
                        f"{place} would be larger than {MAX_APPENDED_BYTES} bytes",
                        rule="bundle.large",
                    )
                write_all(descriptor, data)
            finally:
                os.close(descriptor)
        except OSError as problem:
            raise _fault(place, problem) from problem

    def read(self, path: str, *, limit: int = bundletree.MAX_JSON_BYTES) -> bytes:
        """Return what a file holds; a missing one raises."""
        return bundletree.read(self.directory, layout.checked(path), limit=limit)

    def find(self, path: str, *, limit: int = bundletree.MAX_JSON_BYTES) -> bytes | None:
        """Return what a file holds, or ``None`` where there is none."""
        return bundletree.find(self.directory, layout.checked(path), limit=limit)

    def has(self, path: str) -> bool:
        """Whether there is a file of this name."""
        return bundletree.is_file(self.directory, layout.checked(path))

    def artifact(self, path: str, *, name: str | None = None) -> ArtifactRef:
        """Describe a file that is there."""
        measured = bundletree.measured(self.directory, layout.checked(path))
        return ArtifactRef(
            name=name or path,
            path=path,
            sha256=measured.sha256,
            media_type=layout.media_type(path),
            size_bytes=measured.size,
        )

    def sweep(self) -> None:
        """Remove the half-written files that a kill left."""
        for path in bundletree.listing(self.directory).files:
            if _TEMPORARY.fullmatch(path):
                try:
                    os.unlink(self.directory / path)
                except OSError as problem:
                    raise _fault(self.directory / path, problem) from problem

    def _write(self, path: str, data: bytes, name: str | None) -> ArtifactRef:
        layout.checked(path)
        if len(data) > MAX_FILE_BYTES:
            raise UsageError(
                f"{path} would be larger than {MAX_FILE_BYTES} bytes", rule="bundle.large"
            )
        self._refuse_if_sealed(path)
        place = self._place(path)
        old = bundletree.find(self.directory, path, limit=MAX_FILE_BYTES)
        if old is not None and old != data and not layout.is_latest(path):
            raise DeniedError(
                f"{path} of run {self.run_id} is written already, with other content",
                rule="bundle.overwrite",
            )
        if old != data:
            write_atomic(place, data)
        return ArtifactRef(
            name=name or path,
            path=path,
            sha256=digest(data),
            media_type=layout.media_type(path),
            size_bytes=len(data),
        )

    def _place(self, path: str) -> Path:
        """Make the folders above a file; a link among them is refused."""
        place = self.directory / path
        try:
            for folder in reversed(place.relative_to(self.directory).parents[:-1]):
                (self.directory / folder).mkdir(exist_ok=True)
                if not stat.S_ISDIR(os.lstat(self.directory / folder).st_mode):
                    raise EnvironmentFault(
                        f"{self.directory / folder} is no directory", rule="bundle.io"
                    )
        except OSError as problem:
            raise _fault(place, problem) from problem
        return place

    def _refuse_if_sealed(self, path: str) -> None:
        if self.sealed:
            raise DeniedError(
                f"run {self.run_id} is sealed, so {path} cannot be written", rule="bundle.sealed"
            )

    def _clean(self, text: str) -> str:
        return self._redact(text)


def json_bytes(value: Json) -> bytes:
    """The bytes of a JSON file in a bundle: RFC 8785 and a newline."""
    return canonical_text(value).encode("utf-8") + b"\n"


def sealed_manifest(directory: Path) -> dict[str, Json] | None:
    """Return the manifest of a sealed bundle, unverified; ``None`` while the run goes on."""
    import json

    data = bundletree.find(directory, layout.MANIFEST)
    if data is None:
        return None
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    integrity = value.get("integrity") if isinstance(value, dict) else None
    return value if isinstance(integrity, dict) and "seal" in integrity else None


def new_audit(directory: Path, time: str, what: str) -> Path:
    """Make a fresh folder for what is found out about a sealed run; ``time`` is a UTC stamp."""
    if not bundletree.exists(directory):
        raise UsageError(f"there is no run {directory.name}", rule="run.unknown")
    if not _WHAT.fullmatch(what):
        raise UsageError(f"{what!r} cannot name an audit", rule="bundle.audit")
    stem = re.sub(r"[^0-9TZ]", "", time) + f"-{what}"
    audits = directory / layout.AUDITS
    try:
        for number in range(1, MAX_AUDITS):
            place = audits / (stem if number == 1 else f"{stem}-{number}")
            try:
                place.mkdir()
            except FileExistsError:
                continue
            return place
    except OSError as problem:
        raise _fault(audits, problem) from problem
    raise EnvironmentFault(f"{audits} is full", rule="bundle.audit")


def discard(directory: Path) -> None:
    """Remove a bundle, read-only or not."""
    import shutil

    try:
        for top, folders, _ in os.walk(directory):
            os.chmod(top, 0o700)
            for folder in folders:
                if not os.path.islink(os.path.join(top, folder)):
                    os.chmod(os.path.join(top, folder), 0o700)
        shutil.rmtree(directory)
    except OSError as problem:
        raise _fault(directory, problem) from problem


def _redacted(value: Json, clean: Callable[[str], str]) -> Json:
    if isinstance(value, str):
        return clean(value.encode("utf-8", "replace").decode("utf-8"))
    if isinstance(value, dict):
        return {clean(key): _redacted(item, clean) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_redacted(item, clean) for item in value]
    return value


def _fault(path: Path, problem: OSError) -> EnvironmentFault:
    return EnvironmentFault(f"cannot write {path}: {problem.strerror or problem}", rule="bundle.io")
