"""Looking at a bundle as it stands: no link is followed, and nothing is written."""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, BinaryIO, Final

from coilclaw.errors import EnvironmentFault, UsageError
from coilclaw.orchestrator.layout import AUDITS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAX_ENTRIES: Final = 200_000
MAX_DEPTH: Final = 32
MAX_JSON_BYTES: Final = 32 * 2**20
"""Largest file of a bundle that is read whole to be parsed."""
MAX_PATCH_BYTES: Final = 256 * 2**20

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Listing:
    """Everything in a bundle but what lies in ``audits``."""

    files: tuple[str, ...]
    directories: tuple[str, ...]
    odd: dict[str, str] = field(default_factory=dict)
    """What is neither a file nor a directory: a path and what it is."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What a file's bytes are."""

    sha256: str
    size: int


def exists(directory: Path) -> bool:
    """Whether there is a directory of this name, and no link to one."""
    try:
        return stat.S_ISDIR(os.lstat(directory).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def listing(directory: Path) -> Listing:
    """List a bundle, sorted; names that are not UTF-8 carry surrogate escapes."""
    files: list[str] = []
    folders: list[str] = []
    odd: dict[str, str] = {}
    with _mapped(directory):
        root = os.open(directory, _FOLDER)
        try:
            _walk(root, "", files, folders, odd)
        finally:
            os.close(root)
    return Listing(tuple(sorted(files)), tuple(sorted(folders)), dict(sorted(odd.items())))


def _walk(
    descriptor: int, prefix: str, files: list[str], folders: list[str], odd: dict[str, str]
) -> None:
    for name, status in _entries(descriptor):
        path = prefix + name
        if len(files) + len(folders) + len(odd) >= MAX_ENTRIES or path.count("/") >= MAX_DEPTH:
            raise EnvironmentFault(
                f"the bundle has more than {MAX_ENTRIES} entries or {MAX_DEPTH} levels",
                rule="bundle.bounds",
            )
        if stat.S_ISDIR(status.st_mode):
            folders.append(path)
            if path == AUDITS:
                continue
            with suppress(FileNotFoundError), _folder(name, descriptor) as inner:
                _walk(inner, f"{path}/", files, folders, odd)
        elif not stat.S_ISREG(status.st_mode):
            odd[path] = "a symbolic link" if stat.S_ISLNK(status.st_mode) else "a special file"
        else:
            files.append(path)


def _entries(descriptor: int) -> Iterator[tuple[str, os.stat_result]]:
    """What is in a folder; in that of a run at work, files come and go while one looks."""
    with os.scandir(descriptor) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                yield entry.name, entry.stat(follow_symlinks=False)


@contextmanager
def _folder(name: str, above: int) -> Iterator[int]:
    inner = os.open(name, _FOLDER, dir_fd=above)
    try:
        yield inner
    finally:
        os.close(inner)


@contextmanager
def opened(directory: Path, path: str) -> Iterator[BinaryIO]:
    """Open a file of a bundle for reading; no part of its path may be a link."""
    with _mapped(directory / path):
        descriptor = _descend(directory, path)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise EnvironmentFault(f"{directory / path} is not a file", rule="bundle.io")
    with open(descriptor, "rb") as file:
        yield file


def _descend(directory: Path, path: str) -> int:
    *above, name = path.split("/")
    if not {"", ".", ".."}.isdisjoint((*above, name)):
        raise UsageError(f"{path!r} is no path inside a bundle", rule="bundle.path")
    place = os.open(directory, _FOLDER)
    try:
        for part in above:
            inner = os.open(part, _FOLDER, dir_fd=place)
            os.close(place)
            place = inner
        return os.open(name, _FILE, dir_fd=place)
    finally:
        os.close(place)


def read(directory: Path, path: str, *, limit: int = MAX_JSON_BYTES) -> bytes:
    """Return the bytes of a file; more than ``limit`` of them raise."""
    with opened(directory, path) as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise EnvironmentFault(
            f"{directory / path} is larger than {limit} bytes", rule="bundle.large"
        )
    return data


def find(directory: Path, path: str, *, limit: int = MAX_JSON_BYTES) -> bytes | None:
    """Return the bytes of a file, or ``None`` where there is none."""
    try:
        return read(directory, path, limit=limit)
    except EnvironmentFault as problem:
        if isinstance(problem.__cause__, FileNotFoundError):
            return None
        raise


def is_file(directory: Path, path: str) -> bool:
    """Whether a file stands at a path, with no link on the way."""
    try:
        with opened(directory, path):
            return True
    except EnvironmentFault as problem:
        if isinstance(problem.__cause__, FileNotFoundError):
            return False
        raise


def measured(directory: Path, path: str) -> Measured:
    """Hash a file of any size."""
    digest = sha256()
    size = 0
    with opened(directory, path) as file:
        while piece := file.read(2**20):
            digest.update(piece)
            size += len(piece)
    return Measured(digest.hexdigest(), size)


@contextmanager
def _mapped(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        raise EnvironmentFault(
            f"cannot read {path}: {problem.strerror or problem}", rule="bundle.io"
        ) from problem
