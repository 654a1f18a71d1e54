"""``unpack``: an archive from anybody becomes a directory, or is refused and leaves nothing.

Nothing is written through a link, nothing outside the directory, nothing twice, and never more
than the bounds say, whatever the archive claims about itself.
"""

from __future__ import annotations

import gzip
import os
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO, Final

from coilclaw.environments.tarreading import Archive, Entry, cut_off, refused
from coilclaw.errors import EnvironmentFault, UsageError
from coilclaw.workspace.removal import remove_tree

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAX_NAME_BYTES: Final = 255
MAX_PATH_BYTES: Final = 2000
MAX_LINKS: Final = 40
"""Links in a row that the system follows."""
MAX_FOLLOWED: Final = 2_000_000
"""Names on the way of all links together, those of links that they lead to included."""
_ENTRY_COST: Final = 2048
"""Bytes of an archive beside contents that one entry may take, on average."""
_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class UploadBounds:
    """How much one upload may be."""

    unpacked_bytes: int = 2 * 2**30
    """Of all files together."""
    entries: int = 100_000
    """Files, links and directories, those that are only named by what is in them included."""
    depth: int = 64


def unpack(archive: Path, directory: Path, bounds: UploadBounds) -> int:
    """Unpack a ``tar.gz`` into a directory that is made for it; return how many entries it has."""
    directory.mkdir(mode=0o700)
    try:
        with archive.open("rb") as file:
            return _Unpacking(directory, bounds).all(file)
    except OSError as problem:
        remove_tree(directory)
        raise EnvironmentFault(
            f"the upload cannot be unpacked: {problem.strerror or problem}", rule="upload.disk"
        ) from problem
    except BaseException:
        remove_tree(directory)
        raise


class _Inflated:
    """What a compressed file holds; reading more than ``most`` bytes of it is refused."""

    def __init__(self, file: BinaryIO, most: int) -> None:
        self._file = gzip.GzipFile(fileobj=file, mode="rb")
        self._left = most

    def read(self, size: int, /) -> bytes:
        pieces = []
        while size > 0 and (data := self._some(size)):
            pieces.append(data)
            size -= len(data)
        return b"".join(pieces)

    def _some(self, size: int) -> bytes:
        try:
            data = self._file.read(size)
        except EOFError as problem:
            raise cut_off() from problem
        except (gzip.BadGzipFile, zlib.error) as problem:
            raise UsageError(
                f"the upload is not compressed with gzip, or damaged: {problem}",
                rule="upload.malformed",
                hint="send a tar.gz archive",
            ) from problem
        self._left -= len(data)
        if self._left < 0:
            raise _large("it unpacks to more than is allowed")
        return data


@dataclass(slots=True)
class _Unpacking:
    directory: Path
    bounds: UploadBounds
    known: dict[tuple[str, ...], Entry] = field(default_factory=dict)
    size: int = 0
    followed: int = 0

    def all(self, file: BinaryIO) -> int:
        most = self.bounds.unpacked_bytes + self.bounds.entries * _ENTRY_COST
        archive = Archive(_Inflated(file, most))
        for entry in archive.entries():
            parts = self._parts(entry)
            if parts:
                self._take(parts, entry, archive)
        for parts, entry in self.known.items():
            if entry.kind == "link":
                self._refuse_leading_out(parts, entry)
        return len(self.known)

    def _parts(self, entry: Entry) -> tuple[str, ...]:
        """Return the place of an entry, after a look at every part of its name."""
        name = entry.name
        if "\0" in name or "\0" in entry.target:
            raise refused(name, "has a name with a zero byte")
        if name.startswith("/"):
            raise refused(name, "has an absolute name")
        parts = tuple(part for part in name.split("/") if part not in {"", "."})
        if ".." in parts:
            raise refused(name, "has a name that leads upwards")
        if not parts and entry.kind != "directory":
            raise refused(name, "has no name")
        if _is_long(name):
            raise refused(name, "has a name that is too long")
        if len(parts) > self.bounds.depth:
            raise refused(name, f"is more than {self.bounds.depth} directories deep")
        return parts

    def _take(self, parts: tuple[str, ...], entry: Entry, archive: Archive) -> None:
        for end in range(1, len(parts)):
            self._make_directory(parts[:end], entry.name)
        if entry.kind == "directory":
            self._make_directory(parts, entry.name)
            return
        if parts in self.known:
            raise refused(entry.name, "is there twice")
        self._note(parts, entry)
        place = self.directory.joinpath(*parts)
        try:
            if entry.kind == "link":
                self._link(entry, place)
            else:
                self._write(entry, place, archive.content())
        except FileExistsError:
            # A file system that does not tell large letters from small ones.
            raise refused(entry.name, "is there twice") from None

    def _make_directory(self, parts: tuple[str, ...], name: str) -> None:
        there = self.known.get(parts)
        if there is not None:
            if there.kind != "directory":
                raise refused(name, f"stands below a {there.kind}, or in its place")
            return
        self._note(parts, Entry("/".join(parts), "directory", 0, executable=False, target=""))
        try:
            self.directory.joinpath(*parts).mkdir(mode=0o755)
        except FileExistsError:
            raise refused(name, "is there twice") from None

    def _note(self, parts: tuple[str, ...], entry: Entry) -> None:
        self.known[parts] = entry
        self.size += entry.size
        if len(self.known) > self.bounds.entries:
            raise _large(f"it has more than {self.bounds.entries} entries")
        if self.size > self.bounds.unpacked_bytes:
            raise _large(f"its files have more than {self.bounds.unpacked_bytes} bytes")

    def _link(self, entry: Entry, place: Path) -> None:
        if entry.target.startswith("/"):
            raise refused(entry.name, "is a link to an absolute path")
        if not entry.target or _is_long(entry.target):
            raise refused(entry.name, "is a link to nothing, or to a name that is too long")
        os.symlink(entry.target, place)

    def _write(self, entry: Entry, place: Path, content: Iterator[bytes]) -> None:
        with open(os.open(place, _NEW_FILE, 0o600), "wb") as file:
            file.writelines(content)
            os.fchmod(file.fileno(), 0o755 if entry.executable else 0o644)

    def _refuse_leading_out(self, parts: tuple[str, ...], entry: Entry) -> None:
        """Follow a link as the system would; links on its way are followed, too."""
        here = list(parts[:-1])
        ahead = entry.target.split("/")[::-1]
        followed = 1
        while ahead:
            part = ahead.pop()
            self.followed += 1
            if self.followed > MAX_FOLLOWED:
                raise _large("its links lead along too many names")
            if part in {"", "."}:
                continue
            if part == "..":
                if not here:
                    raise refused(entry.name, "is a link that leads out of it")
                here.pop()
                continue
            here.append(part)
            found = self.known.get(tuple(here))
            if found is not None and found.kind == "link":
                followed += 1
                if followed > MAX_LINKS:
                    return  # the system goes no further, either
                here.pop()
                ahead += found.target.split("/")[::-1]


def _is_long(path: str) -> bool:
    data = os.fsencode(path)
    return len(data) > MAX_PATH_BYTES or any(
        len(part) > MAX_NAME_BYTES for part in data.split(b"/")
    )


def _large(why: str) -> UsageError:
    return UsageError(f"the upload is too large: {why}", rule="upload.large")
