"""The files of a plugin: plain files below one directory, within bounds, each name once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from coilclaw.domain.canonical import digest
from coilclaw.domain.treepath import TreePath, shown
from coilclaw.errors import DeniedError

MAX_FILES: Final = 1000
MAX_FILE_BYTES: Final = 16 * 2**20
MAX_TOTAL_BYTES: Final = 32 * 2**20
MAX_DEPTH: Final = 16

PLAIN: Final = 0o644
EXECUTABLE: Final = 0o755
MANIFEST: Final = "manifest.toml"


@dataclass(frozen=True, slots=True)
class PluginFile:
    """One file: where it is below the plugin's directory, its bytes and its permissions."""

    path: str
    content: bytes
    mode: int = PLAIN

    @property
    def sha256(self) -> str:
        return digest(self.content)

    @property
    def executable(self) -> bool:
        return bool(self.mode & 0o100)


@dataclass(slots=True)
class Collection:
    """Files as they come in from outside; what does not fit is refused at once."""

    total: int = 0
    _files: dict[str, PluginFile] = field(default_factory=dict)
    _spellings: dict[tuple[str, ...], tuple[str, ...]] = field(default_factory=dict)
    _directories: set[tuple[str, ...]] = field(default_factory=set)

    @property
    def room(self) -> int:
        """How many bytes the next file may have."""
        return min(MAX_FILE_BYTES, MAX_TOTAL_BYTES - self.total)

    def expect(self, name: str) -> TreePath:
        """Check the name of a file before anything of it is read."""
        if len(self._files) >= MAX_FILES:
            raise refused("plugin.bounds", f"there are more than {MAX_FILES} files")
        path = _path(name)
        if str(path) in self._files:
            raise refused("plugin.duplicate", f"{shown(name)} is there twice")
        if path.parts in self._directories:
            raise refused("plugin.duplicate", f"{shown(name)} is a file and a directory")
        self._note(path.parts)
        for length in range(1, len(path.parts)):
            self._directory(path.parts[:length], name)
        return path

    def directory(self, name: str) -> None:
        """Check the name of a directory, which is made only if a file is in it."""
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
            raise refused("plugin.duplicate", f"{shown(name)} is below a file")
        self._directories.add(parts)

    def _note(self, parts: tuple[str, ...]) -> None:
        """Refuse two spellings that some file system takes for one name."""
        folded = TreePath(parts).folded
        for length in range(1, len(parts) + 1):
            here = parts[:length]
            other = self._spellings.setdefault(folded[:length], here)
            if other != here:
                raise refused(
                    "plugin.duplicate",
                    f"{shown('/'.join(here))} and {shown('/'.join(other))} are one name elsewhere",
                )


def unwrapped(files: tuple[PluginFile, ...]) -> tuple[PluginFile, ...]:
    """Take off the one directory that an archive may have around everything."""
    tops = {file.path.partition("/")[0] for file in files}
    if len(tops) != 1 or not all("/" in file.path for file in files):
        return files
    return tuple(PluginFile(file.path.partition("/")[2], file.content, file.mode) for file in files)


def refused(rule: str, reason: str) -> DeniedError:
    """Say why something cannot be installed."""
    return DeniedError(f"the plugin is refused: {reason}", rule=rule)


def too_large(name: str) -> DeniedError:
    """Say that a file does not fit."""
    return refused(
        "plugin.bounds",
        f"{shown(name)} is larger than {MAX_FILE_BYTES:,} bytes, or all files together are larger "
        f"than {MAX_TOTAL_BYTES:,}",
    )


def _path(name: str) -> TreePath:
    path = TreePath.parse(name)
    if len(path.parts) > MAX_DEPTH:
        raise refused("plugin.bounds", f"{shown(name)} is more than {MAX_DEPTH} levels deep")
    return path
