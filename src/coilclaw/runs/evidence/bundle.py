"""``Bundle``: the evidence of one run while it is being gathered.

Everything is written whole and synced, and passes the redactor, but for patches, which would no
longer apply; what a patch may add is the diff gate's matter. A file is written once; only those
that hold the latest of several (``layout.is_latest``) are replaced, and nothing is after the seal.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, BinaryIO, Final

from coilclaw.kernel import (
    DeniedError,
    EnvironmentFault,
    UsageError,
    digest_bytes,
    explain_os_errors,
    sync_directory,
    write_all,
    write_atomic,
)
from coilclaw.kernel import render_json as canonical_text
from coilclaw.runs.contracts.records import ArtifactRef
from coilclaw.runs.evidence import layout
from coilclaw.runs.evidence.layout import AUDITS, check_run_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from coilclaw.kernel import Json


MAX_ENTRIES: Final = 200_000
MAX_TREE_DEPTH: Final = 32
MAX_JSON_BYTES: Final = 32 * 2**20
"""Largest file of a bundle that is read whole to be parsed."""
MAX_PATCH_BYTES: Final = 256 * 2**20

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_APPEND: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_IO: Final = "bundle.io"


@dataclass(frozen=True, slots=True)
class BundleListing:
    """Everything in a bundle except what is in ``audits``."""

    files: list[str]
    directories: list[str]
    odd: dict[str, str] = field(default_factory=dict)
    """What is neither a file nor a directory: a path and what it is."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The hash and the size of a file."""

    sha256: str
    size: int


def bundle_exists(directory: Path) -> bool:
    """Return whether a directory of this name exists, and is not a link."""
    try:
        return stat.S_ISDIR(os.lstat(directory).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def list_bundle(directory: Path) -> BundleListing:
    """List a bundle, sorted; names that are not UTF-8 carry surrogate escapes."""
    found = BundleListing([], [])
    with explain_os_errors(f"read {directory}", rule=_IO), _open_folder(directory) as root:
        _walk(root, "", found)
    return BundleListing(
        sorted(found.files), sorted(found.directories), dict(sorted(found.odd.items()))
    )


def _walk(descriptor: int, prefix: str, found: BundleListing) -> None:
    with os.scandir(descriptor) as entries:
        for entry in entries:
            path = prefix + entry.name
            # In the folder of a run at work, files come and go while it is listed.
            with suppress(FileNotFoundError):
                mode = entry.stat(follow_symlinks=False).st_mode
                count = len(found.files) + len(found.directories) + len(found.odd)
                if count >= MAX_ENTRIES or path.count("/") >= MAX_TREE_DEPTH:
                    raise EnvironmentFault(
                        f"the bundle has more than {MAX_ENTRIES} entries or {MAX_TREE_DEPTH} "
                        "levels",
                        rule="bundle.bounds",
                    )
                if stat.S_ISREG(mode):
                    found.files.append(path)
                elif not stat.S_ISDIR(mode):
                    link = stat.S_ISLNK(mode)
                    found.odd[path] = "a symbolic link" if link else "a special file"
                else:
                    found.directories.append(path)
                    if path != AUDITS:
                        with _open_folder(entry.name, descriptor) as inner:
                            _walk(inner, f"{path}/", found)


@contextmanager
def _open_folder(name: str | Path, above: int | None = None) -> Iterator[int]:
    inner = os.open(name, _FOLDER, dir_fd=above)
    try:
        yield inner
    finally:
        os.close(inner)


@contextmanager
def open_file(directory: Path, path: str) -> Iterator[BinaryIO]:
    """Open a file of a bundle for reading; no part of its path may be a link."""
    with explain_os_errors(f"read {directory / path}", rule=_IO):
        descriptor = _descend(directory, path)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise EnvironmentFault(f"{directory / path} is not a file", rule=_IO)
    with open(descriptor, "rb") as file:
        yield file


def _descend(directory: Path, path: str) -> int:
    *above, name = path.split("/")
    if not {"", ".", ".."}.isdisjoint((*above, name)):
        raise UsageError(f"{path!r} is not a path inside a bundle", rule="bundle.path")
    place = os.open(directory, _FOLDER)
    try:
        for part in above:
            inner = os.open(part, _FOLDER, dir_fd=place)
            os.close(place)
            place = inner
        return os.open(name, _FILE, dir_fd=place)
    finally:
        os.close(place)


def read_file(
    directory: Path, path: str, *, limit: int = MAX_JSON_BYTES, cut: bool = False
) -> bytes:
    """Return the bytes of a file; more than ``limit`` of them raise, or are ``cut`` off."""
    with open_file(directory, path) as file:
        data = file.read(limit if cut else limit + 1)
    if len(data) > limit:
        raise EnvironmentFault(
            f"{directory / path} is larger than {limit} bytes", rule="bundle.large"
        )
    return data


def find_file(
    directory: Path, path: str, *, limit: int = MAX_JSON_BYTES, cut: bool = False
) -> bytes | None:
    """Return what ``read_file`` returns, or ``None`` if the file does not exist."""
    try:
        return read_file(directory, path, limit=limit, cut=cut)
    except EnvironmentFault as problem:
        if isinstance(problem.__cause__, FileNotFoundError):
            return None
        raise


def is_file(directory: Path, path: str) -> bool:
    """Return whether a path is a file, with no link on the way."""
    return find_file(directory, path, limit=0, cut=True) is not None


def measure_file(directory: Path, path: str) -> Measured:
    """Hash a file of any size."""
    digest = sha256()
    size = 0
    with open_file(directory, path) as file:
        while piece := file.read(2**20):
            digest.update(piece)
            size += len(piece)
    return Measured(digest.hexdigest(), size)


MAX_FILE_BYTES: Final = 512 * 2**20
MAX_APPENDED_BYTES: Final = 256 * 2**20
MAX_AUDITS: Final = 100_000
_TEMPORARY: Final = re.compile(r"(?:.*/)?\.coilclaw-[0-9a-f]{16}\.tmp")
_WHAT: Final = re.compile(r"[a-z][a-z0-9-]{0,39}")


class Bundle:
    """One run's directory. Making the object touches nothing."""

    def __init__(self, directory: Path, redact: Callable[[str], str]) -> None:
        self.directory = directory
        self.run_id = check_run_id(directory.name)
        self._redact = redact

    def create(self) -> None:
        """Make the directory with all its folders; raise if it already exists."""
        with explain_os_errors(f"write {self.directory}", rule=_IO):
            self.directory.parent.mkdir(parents=True, exist_ok=True)
            try:
                self.directory.mkdir()
            except FileExistsError:
                said = f"run {self.run_id} already exists"
                raise UsageError(said, rule="run.exists") from None
            for folder in layout.FOLDERS:
                (self.directory / folder).mkdir()
        sync_directory(self.directory)
        sync_directory(self.directory.parent)

    @property
    def exists(self) -> bool:
        return bundle_exists(self.directory)

    def write_text(self, path: str, text: str) -> ArtifactRef:
        """Keep a text as UTF-8."""
        return self._write(path, self._redact(text).encode("utf-8", "replace"))

    def write_json(self, path: str, value: Mapping[str, Json]) -> ArtifactRef:
        """Keep a JSON object as its RFC 8785 text and a newline."""
        return self._write(path, json_bytes(_redact_value(dict(value), self._redact)))

    def write_bytes(self, path: str, data: bytes, *, redact: bool = True) -> ArtifactRef:
        """Keep bytes; only what must stay exact, such as a patch, is not redacted."""
        if redact:
            # What is not UTF-8 comes back byte for byte.
            clean = self._redact(data.decode("utf-8", "surrogateescape"))
            data = clean.encode("utf-8", "surrogateescape")
        return self._write(path, data)

    def append(self, path: str, line: str) -> None:
        """Add one line to an agent's events or transcript; the seal makes it durable."""
        if not layout.is_appended(layout.check_bundle_path(path)):
            raise UsageError(f"lines cannot be appended to {path}", rule="bundle.append")
        self._refuse_if_sealed(path)
        data = self._redact(line.rstrip("\n")).encode("utf-8", "replace") + b"\n"
        place = self._place(path)
        with explain_os_errors(f"write {place}", rule=_IO):
            descriptor = os.open(place, _APPEND, 0o644)
            try:
                if os.fstat(descriptor).st_size + len(data) > MAX_APPENDED_BYTES:
                    raise UsageError(
                        f"{place} would be larger than {MAX_APPENDED_BYTES} bytes",
                        rule="bundle.large",
                    )
                write_all(descriptor, data)
            finally:
                os.close(descriptor)

    def read(self, path: str, *, limit: int = MAX_JSON_BYTES) -> bytes:
        """Return what a file holds; a missing one raises."""
        return read_file(self.directory, layout.check_bundle_path(path), limit=limit)

    def find(self, path: str, *, limit: int = MAX_JSON_BYTES) -> bytes | None:
        """Return what a file holds, or ``None`` if it does not exist."""
        return find_file(self.directory, layout.check_bundle_path(path), limit=limit)

    def has(self, path: str) -> bool:
        """Return whether the file exists."""
        return is_file(self.directory, layout.check_bundle_path(path))

    def artifact(self, path: str) -> ArtifactRef:
        """Return the hash and the size of a file as a reference."""
        measured = measure_file(self.directory, layout.check_bundle_path(path))
        return _describe(path, measured.sha256, measured.size)

    def sweep(self) -> None:
        """Remove the half-written files that a kill left."""
        for path in list_bundle(self.directory).files:
            if _TEMPORARY.fullmatch(path):
                place = self.directory / path
                with explain_os_errors(f"write {place}", rule=_IO):
                    os.unlink(place)

    def _write(self, path: str, data: bytes) -> ArtifactRef:
        layout.check_bundle_path(path)
        if len(data) > MAX_FILE_BYTES:
            raise UsageError(
                f"{path} would be larger than {MAX_FILE_BYTES} bytes", rule="bundle.large"
            )
        self._refuse_if_sealed(path)
        place = self._place(path)
        old = find_file(self.directory, path, limit=MAX_FILE_BYTES)
        if old is not None and old != data and not layout.is_latest(path):
            raise DeniedError(
                f"{path} of run {self.run_id} was already written with other content",
                rule="bundle.overwrite",
            )
        if old != data:
            write_atomic(place, data)
        return _describe(path, digest_bytes(data), len(data))

    def _place(self, path: str) -> Path:
        """Make the folders above a file; a link among them is refused."""
        place = self.directory / path
        with explain_os_errors(f"write {place}", rule=_IO):
            for name in reversed(place.relative_to(self.directory).parents[:-1]):
                folder = self.directory / name
                folder.mkdir(exist_ok=True)
                if not bundle_exists(folder):
                    raise EnvironmentFault(f"{folder} is not a directory", rule=_IO)
        return place

    def _refuse_if_sealed(self, path: str) -> None:
        if sealed_manifest(self.directory) is not None:
            raise DeniedError(
                f"run {self.run_id} is sealed, so {path} cannot be written", rule="bundle.sealed"
            )


def _describe(path: str, sha256: str, size: int) -> ArtifactRef:
    media_type = layout.media_type(path)
    return ArtifactRef(name=path, path=path, sha256=sha256, media_type=media_type, size_bytes=size)


def json_bytes(value: Json) -> bytes:
    """Return the bytes of a JSON file in a bundle: RFC 8785 and a newline."""
    return canonical_text(value).encode("utf-8") + b"\n"


def sealed_manifest(directory: Path) -> dict[str, Json] | None:
    """Return the manifest of a sealed bundle, unverified; ``None`` until it is sealed."""
    data = find_file(directory, layout.MANIFEST)
    try:
        value = json.loads(data or b"")
    except (ValueError, RecursionError):
        return None
    integrity = value.get("integrity") if isinstance(value, dict) else None
    return value if isinstance(integrity, dict) and "seal" in integrity else None


def new_audit(directory: Path, time: str, what: str) -> Path:
    """Make a new folder for an audit of a sealed run; ``time`` is a UTC timestamp."""
    if not bundle_exists(directory):
        raise UsageError(f"run {directory.name} does not exist", rule="run.unknown")
    if not _WHAT.fullmatch(what):
        raise UsageError(f"{what!r} cannot name an audit", rule="bundle.audit")
    stem = re.sub(r"[^0-9TZ]", "", time) + f"-{what}"
    audits = directory / layout.AUDITS
    with explain_os_errors(f"write {audits}", rule=_IO):
        for number in range(1, MAX_AUDITS):
            place = audits / (stem if number == 1 else f"{stem}-{number}")
            with suppress(FileExistsError):
                place.mkdir()
                return place
    raise EnvironmentFault(f"{audits} is full", rule="bundle.audit")


def discard_bundle(directory: Path) -> None:
    """Remove a bundle, read-only or not."""
    with explain_os_errors(f"write {directory}", rule=_IO):
        for top, folders, _ in os.walk(directory):
            os.chmod(top, 0o700)
            for folder in folders:
                if not os.path.islink(os.path.join(top, folder)):
                    os.chmod(os.path.join(top, folder), 0o700)
        shutil.rmtree(directory)


def _redact_value(value: Json, clean: Callable[[str], str]) -> Json:
    if isinstance(value, str):
        return clean(value.encode("utf-8", "replace").decode("utf-8"))
    if isinstance(value, dict):
        return {clean(key): _redact_value(item, clean) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_redact_value(item, clean) for item in value]
    return value
