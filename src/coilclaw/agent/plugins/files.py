"""The files of a plugin: plain files below one directory, bounded in number, size and depth."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import DeniedError, TreePath, digest_bytes, explain_os_errors, quote_text

if TYPE_CHECKING:
    from pathlib import Path

MAX_FILES: Final = 1000
MAX_FILE_BYTES: Final = 16 * 2**20
MAX_TOTAL_BYTES: Final = 32 * 2**20
MAX_DEPTH: Final = 16

PLAIN: Final = 0o644
EXECUTABLE: Final = 0o755
MANIFEST: Final = "manifest.toml"
SKIPPED: Final = frozenset({".git", "__pycache__"})
"""Directories that are not installed."""

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class PluginFile:
    """One file: its path below the plugin's directory, its bytes and its permissions."""

    path: str
    content: bytes
    mode: int = PLAIN

    @property
    def sha256(self) -> str:
        return digest_bytes(self.content)

    @property
    def executable(self) -> bool:
        return bool(self.mode & 0o100)


@dataclass(slots=True)
class Collection:
    """Collects untrusted files, and refuses each one that breaks a rule or a bound."""

    total: int = 0
    _files: dict[str, PluginFile] = field(default_factory=dict)
    _spellings: dict[tuple[str, ...], tuple[str, ...]] = field(default_factory=dict)
    _directories: set[tuple[str, ...]] = field(default_factory=set)

    @property
    def room(self) -> int:
        """The number of bytes that the next file may have."""
        return min(MAX_FILE_BYTES, MAX_TOTAL_BYTES - self.total)

    def expect(self, name: str) -> TreePath:
        """Check the name of a file before its content is read."""
        if len(self._files) >= MAX_FILES:
            raise refusal_error("plugin.bounds", f"there are more than {MAX_FILES} files")
        path = _path(name)
        if str(path) in self._files:
            raise refusal_error("plugin.duplicate", f"{quote_text(name)} is there twice")
        if path.parts in self._directories:
            raise refusal_error("plugin.duplicate", f"{quote_text(name)} is a file and a directory")
        self._note(path.parts)
        for length in range(1, len(path.parts)):
            self._directory(path.parts[:length], name)
        return path

    def directory(self, name: str) -> None:
        """Check the name of a directory, which is created only if it holds a file."""
        path = _path(name.rstrip("/"))
        self._note(path.parts)
        for length in range(1, len(path.parts) + 1):
            self._directory(path.parts[:length], name)

    def add(self, name: str, content: bytes, *, executable: bool) -> None:
        """Take a file whose bytes were read with ``room`` as their bound."""
        path = str(self.expect(name))
        if len(content) > self.room:
            raise too_large(name)
        self.total += len(content)
        self._files[path] = PluginFile(path, content, EXECUTABLE if executable else PLAIN)

    def files(self) -> tuple[PluginFile, ...]:
        """Return everything, by name."""
        return tuple(self._files[path] for path in sorted(self._files))

    def _directory(self, parts: tuple[str, ...], name: str) -> None:
        if "/".join(parts) in self._files:
            raise refusal_error("plugin.duplicate", f"{quote_text(name)} is below a file")
        self._directories.add(parts)

    def _note(self, parts: tuple[str, ...]) -> None:
        """Refuse two spellings that are the same name on some file system."""
        folded = TreePath(parts).folded
        for length in range(1, len(parts) + 1):
            here = parts[:length]
            other = self._spellings.setdefault(folded[:length], here)
            if other != here:
                names = f"{quote_text('/'.join(here))} and {quote_text('/'.join(other))}"
                raise refusal_error(
                    "plugin.duplicate", f"{names} are the same name on some file systems"
                )


def strip_top_directory(files: tuple[PluginFile, ...]) -> tuple[PluginFile, ...]:
    """Return the files without the directory that wraps all of them, if an archive has one."""
    tops = {file.path.partition("/")[0] for file in files}
    if len(tops) != 1 or not all("/" in file.path for file in files):
        return files
    return tuple(PluginFile(file.path.partition("/")[2], file.content, file.mode) for file in files)


def refusal_error(rule: str, reason: str) -> DeniedError:
    """Return the error for a plugin that cannot be installed."""
    return DeniedError(f"the plugin is refused: {reason}", rule=rule)


def too_large(name: str) -> DeniedError:
    """Return the error for a file that exceeds a size limit."""
    all_files = f"all files together are larger than {MAX_TOTAL_BYTES:,}"
    message = f"{quote_text(name)} is larger than {MAX_FILE_BYTES:,} bytes, or {all_files}"
    return refusal_error("plugin.bounds", message)


def _path(name: str) -> TreePath:
    path = TreePath.parse(name)
    if len(path.parts) > MAX_DEPTH:
        raise refusal_error(
            "plugin.bounds", f"{quote_text(name)} is more than {MAX_DEPTH} levels deep"
        )
    return path


@dataclass(slots=True)
class FolderState:
    """The content of a directory: its files, and every other entry with its kind."""

    files: dict[str, PluginFile] = field(default_factory=dict)
    odd: dict[str, str] = field(default_factory=dict)
    empty: list[str] = field(default_factory=list)
    """Empty directories."""
    total: int = 0


def look_at(path: Path, *, skip: frozenset[str] = frozenset()) -> FolderState:
    """Read everything below a directory, within the bounds of a plugin."""
    seen = FolderState()
    with explain_os_errors(f"read {path}", rule="plugin.read"):
        descriptor = os.open(path, _DIRECTORY)
        try:
            _walk(descriptor, (), seen, skip)
        finally:
            os.close(descriptor)
    return seen


def read_directory(path: Path) -> tuple[PluginFile, ...]:
    """Return the files of a directory to install; raise ``DeniedError`` if any is refused."""
    return check_files(look_at(path, skip=SKIPPED))


def check_files(seen: FolderState) -> tuple[PluginFile, ...]:
    """Return untrusted files after all checks; raise ``DeniedError`` if any is refused."""
    if seen.odd:
        what = ", ".join(f"{quote_text(name)} is {kind}" for name, kind in sorted(seen.odd.items()))
        raise refusal_error("plugin.kind", what)
    collection = Collection()
    for name, file in sorted(seen.files.items()):
        collection.add(name, file.content, executable=file.executable)
    return collection.files()


def _walk(descriptor: int, parts: tuple[str, ...], seen: FolderState, skip: frozenset[str]) -> None:
    if len(parts) > MAX_DEPTH:
        raise refusal_error("plugin.bounds", f"{quote_text('/'.join(parts))} is too deep")
    names = os.listdir(descriptor)
    if not names and parts:
        seen.empty.append("/".join(parts))
    for name in sorted(names):
        here = (*parts, name)
        mode = os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode
        if stat.S_ISDIR(mode):
            if name in skip:
                continue
            deeper = os.open(name, _DIRECTORY, dir_fd=descriptor)
            try:
                _walk(deeper, here, seen, skip)
            finally:
                os.close(deeper)
        else:
            _take(descriptor, here, mode, seen)
        if len(seen.files) + len(seen.odd) + len(seen.empty) > MAX_FILES:
            raise refusal_error("plugin.bounds", f"there are more than {MAX_FILES} files")


def _take(descriptor: int, parts: tuple[str, ...], mode: int, seen: FolderState) -> None:
    path = "/".join(parts)
    if not stat.S_ISREG(mode):
        seen.odd[path] = "a symbolic link" if stat.S_ISLNK(mode) else "no plain file"
        return
    file = os.open(parts[-1], _FILE, dir_fd=descriptor)
    try:
        info = os.fstat(file)
        if not stat.S_ISREG(info.st_mode):
            seen.odd[path] = "no plain file"
            return
        room = MAX_TOTAL_BYTES - seen.total
        with open(file, "rb", closefd=False) as stream:
            content = stream.read(room + 1)
    finally:
        os.close(file)
    if len(content) > room:
        raise too_large(path)
    seen.total += len(content)
    seen.files[path] = PluginFile(path, content, stat.S_IMODE(info.st_mode))
