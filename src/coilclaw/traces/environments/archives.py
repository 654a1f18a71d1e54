"""Untrusted archives: read as streams, or unpacked into a directory of their own.

Names, sizes and kinds are bounded before they are used, whatever an archive claims about itself.
An upload is unpacked whole or leaves nothing: nothing is written through a link, outside the
directory, or twice, and what is unusual is refused.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import shutil
import tarfile
import zlib
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, cast

from coilclaw.kernel import EnvironmentFault, UsageError, quote_text
from coilclaw.workspace import remove_tree

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAX_STREAM_BYTES: Final = 4 * 2**30
"""Of an archive, unpacked, whatever of it is wanted."""
MAX_MEMBERS: Final = 500_000
MAX_NAME: Final = 4096
MAX_HEADER_BYTES: Final = 2**16
MAX_MEMORY: Final = 256 * 2**20
"""For a decompressor."""
CHUNK: Final = 2**16

Kind: TypeAlias = Literal["file", "directory", "link", "special"]

_EXTENSIONS: Final = frozenset({b"L", b"K", b"x", b"g", b"X"})
_AR: Final = b"!<arch>\n"
_AR_HEADER: Final = 60


class Readable(Protocol):
    """Anything that bytes come from, in order."""

    def read(self, size: int, /) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Member:
    """One entry of an archive; ``contents`` can be read until the next one is asked for."""

    name: str
    kind: Kind
    contents: Readable | None = None


class BoundedHeader(tarfile.TarInfo):
    """A header whose extensions are bounded: they are read into memory whole."""

    def _proc_member(self, tar: tarfile.TarFile) -> object:
        if self.type in _EXTENSIONS and self.size > MAX_HEADER_BYTES:
            raise tarfile.ReadError(f"a header of {self.size} bytes")
        return super()._proc_member(tar)  # type: ignore[misc]


class LimitedStream(io.RawIOBase):
    """The first bytes of a stream; reading on ends there, or raises the error that is given."""

    def __init__(self, raw: Readable, size: int, beyond: Exception | None = None) -> None:
        self._raw = raw
        self._left = size
        self._beyond = beyond

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        wanted = len(buffer) if self._beyond else min(len(buffer), self._left)
        data = self._raw.read(wanted) if wanted else b""
        self._left -= len(data)
        if self._left < 0 and self._beyond:
            raise self._beyond
        buffer[: len(data)] = data
        return len(data)


class _XzStream:
    """The contents of an xz stream, unpacked with bounded memory; several may follow each other."""

    def __init__(self, raw: Readable) -> None:
        self._raw = raw
        self._decoder: lzma.LZMADecompressor | None = self._begin()

    def _begin(self) -> lzma.LZMADecompressor:
        return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MAX_MEMORY)

    def read(self, size: int, /) -> bytes:
        data = b""
        while self._decoder is not None:
            if self._decoder.eof:
                data = self._decoder.unused_data or self._raw.read(CHUNK)
                self._decoder = self._begin() if data.strip(b"\0") else None
                continue
            if not data and self._decoder.needs_input and not (data := self._raw.read(CHUNK)):
                raise EOFError("the compressed data end too soon")
            made = self._decoder.decompress(data, size)
            data = b""
            if made:
                return made
        return b""


@contextmanager
def map_archive_errors(what: str) -> Iterator[None]:
    """Raise one kind of error for whatever a damaged archive makes the readers raise."""
    try:
        yield
    except (tarfile.TarError, lzma.LZMAError, zlib.error, EOFError, gzip.BadGzipFile) as problem:
        raise refuse_archive(f"it is damaged or cut off ({problem})", what) from problem
    except (ValueError, OverflowError) as problem:
        raise refuse_archive(f"it is not understood ({problem})", what) from problem
    except OSError as problem:  # also what the decompressors say of bad data
        why = problem.strerror or problem
        raise refuse_archive(f"it cannot be read ({why})", what) from problem


def refuse_archive(why: str, what: str, hint: str | None = None) -> UsageError:
    """Return the error for an archive."""
    message = f"cannot unpack {quote_text(what)}: {why}"
    return UsageError(message, rule="fixtures.archive", hint=hint)


def read_members(raw: Readable, what: str) -> Iterator[Member]:
    """Yield the entries of a tar archive or Debian package, in order, with safe names only."""
    too_large = refuse_archive(f"it is larger than {MAX_STREAM_BYTES} bytes unpacked", what)
    stream = io.BufferedReader(LimitedStream(raw, MAX_STREAM_BYTES, too_large))
    if stream.peek(len(_AR)).startswith(_AR):
        yield from read_members(_open_package(stream, what), what)
        return
    bounded = LimitedStream(_decompress(stream, what), MAX_STREAM_BYTES, too_large)
    with tarfile.open(fileobj=bounded, mode="r|", tarinfo=BoundedHeader) as tar:
        count = 0
        while (header := next_header(tar)) is not None:
            count += 1
            if count > MAX_MEMBERS:
                raise refuse_archive(f"it has more than {MAX_MEMBERS} entries", what)
            name, kind = _check_name(header.name, what), _kind_of(header)
            yield Member(name, kind, tar.extractfile(header) if kind == "file" else None)


def next_header(tar: tarfile.TarFile) -> tarfile.TarInfo | None:
    """Return the next header of an archive, which would otherwise keep all of them."""
    header = tar.next()
    tar.members.clear()  # type: ignore[attr-defined]
    return header


def _decompress(stream: io.BufferedReader[LimitedStream], what: str) -> Readable:
    head = stream.peek(8)
    if head.startswith(b"\xfd7zXZ"):
        return _XzStream(stream)
    if head.startswith(b"\x1f\x8b"):
        return gzip.GzipFile(mode="rb", fileobj=stream)
    if head.startswith(b"BZh"):
        return bz2.BZ2File(cast("IO[bytes]", stream))
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        hint = "unpack it by hand and give the directory"
        raise refuse_archive("zstd is not understood here", what, hint)
    return stream


def _open_package(stream: io.BufferedReader[LimitedStream], what: str) -> Readable:
    """Return the archive of the files in a Debian package, which is an ``ar`` archive of three."""
    stream.read(len(_AR))
    for _ in range(16):
        header = stream.read(_AR_HEADER)
        digits = header[48:58].strip()
        if header[58:] != b"`\n" or not digits.isdigit():
            break
        size = int(digits)
        if header.startswith(b"data.tar"):
            return LimitedStream(stream, size)
        size += size % 2
        if size > MAX_MEMORY or len(stream.read(size)) < size:
            break
    raise refuse_archive("it is a Debian package without data", what)


def _check_name(name: str, what: str) -> str:
    pieces = [piece for piece in name.split("/") if piece not in ("", ".")]
    if name.startswith("/") or ".." in pieces:
        raise refuse_archive(f"it names {quote_text(name[:200])}, which leads out of it", what)
    if len(name) > MAX_NAME or any(len(piece) > 255 for piece in pieces) or "\0" in name:
        raise refuse_archive(
            f"it names {quote_text(name[:200])}…, which is not a name of a file", what
        )
    return "/".join(pieces)


def _kind_of(header: tarfile.TarInfo) -> Kind:
    if header.isreg():
        return "file"
    if header.isdir():
        return "directory"
    return "link" if header.issym() or header.islnk() else "special"


MAX_NAME_BYTES: Final = 255
MAX_PATH_BYTES: Final = 2000
MAX_LINKS: Final = 40
"""Links in a row that the system follows."""
MAX_FOLLOWED: Final = 2_000_000
"""Names on the way of all links together, those of links that they lead to included."""
_ENTRY_COST: Final = 2048
"""Bytes of an archive beside contents that one entry may take, on average."""
_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_KINDS: Final = {
    tarfile.REGTYPE: "file",
    tarfile.AREGTYPE: "file",
    tarfile.CONTTYPE: "file",
    tarfile.DIRTYPE: "directory",
    tarfile.SYMTYPE: "link",
}
_REFUSED_KINDS: Final = {
    tarfile.LNKTYPE: "a hard link",
    tarfile.CHRTYPE: "a device",
    tarfile.BLKTYPE: "a device",
    tarfile.FIFOTYPE: "a pipe",
}


@dataclass(frozen=True, slots=True)
class UploadBounds:
    """How much one upload may be."""

    unpacked_bytes: int = 2 * 2**30
    """Of all files together."""
    entries: int = 100_000
    """Files, links and directories, those that are only named by what is in them included."""
    depth: int = 64


class _Header(BoundedHeader):
    """A header that has to be whole; no sparse file is read, whichever form it has."""

    @classmethod
    def fromtarfile(cls, tar: tarfile.TarFile) -> _Header:
        try:
            return super().fromtarfile(tar)
        except tarfile.HeaderError as problem:
            if type(problem).__name__ == "EOFHeaderError":
                raise  # it is the end; tarfile itself would take other errors for it, too
            raise _refuse_form(str(problem)) from problem

    def _refuse_sparse(self, *_: Any) -> None:
        raise _refuse_entry(self.name, "is a sparse file")

    _proc_sparse = _proc_gnusparse_00 = _proc_gnusparse_01 = _proc_gnusparse_10 = _refuse_sparse


def unpack_upload(archive: Path, directory: Path, bounds: UploadBounds) -> int:
    """Unpack a ``tar.gz`` into a directory that is made for it; return how many entries it has."""
    directory.mkdir(mode=0o700)
    with ExitStack() as undo:
        undo.callback(remove_tree, directory)
        try:
            with archive.open("rb") as file, gzip.GzipFile(fileobj=file, mode="rb") as inflated:
                count = _Unpacking(directory, bounds).take_all(inflated)
        except (gzip.BadGzipFile, zlib.error) as problem:
            message = f"the upload is not compressed with gzip, or damaged: {problem}"
            hint = "send a tar.gz archive"
            raise UsageError(message, rule="upload.malformed", hint=hint) from problem
        except EOFError as problem:
            raise _refuse_form("it is cut off") from problem
        except (tarfile.TarError, ValueError, OverflowError) as problem:
            raise _refuse_form(str(problem)) from problem
        except OSError as problem:
            message = f"the upload cannot be unpacked: {problem.strerror or problem}"
            raise EnvironmentFault(message, rule="upload.disk") from problem
        undo.pop_all()
    return count


@dataclass(slots=True)
class _Unpacking:
    directory: Path
    bounds: UploadBounds
    kinds: dict[tuple[str, ...], str] = field(default_factory=dict)
    targets: dict[tuple[str, ...], str] = field(default_factory=dict)
    size: int = 0
    followed: int = 0

    def take_all(self, stream: Readable) -> int:
        most = self.bounds.unpacked_bytes + self.bounds.entries * _ENTRY_COST
        bounded = LimitedStream(stream, most, _refuse_size("it unpacks to more than is allowed"))
        with tarfile.open(
            fileobj=bounded, mode="r|", tarinfo=_Header, encoding="utf-8", errors="surrogateescape"
        ) as tar:
            while (header := next_header(tar)) is not None:
                for key in {"path", "linkpath", "size"} & tar.pax_headers.keys():
                    raise _refuse_form(f"one {key} is said of all its entries")
                self._take(self._check(header), header, tar)
            tail = 0
            assert tar.fileobj is not None
            while data := tar.fileobj.read(CHUNK):
                tail += len(data)
                if any(data):
                    raise _refuse_form("data follow its end")
            if tail < tarfile.BLOCKSIZE:
                raise _refuse_form("it is cut off")
        for parts in self.targets:
            self._refuse_leading_out(parts)
        return len(self.kinds)

    def _check(self, header: tarfile.TarInfo) -> tuple[str, ...]:
        """Return the place of an entry, after a look at its kind and every part of its name."""
        name, kind = header.name, _KINDS.get(header.type)
        parts = tuple(part for part in name.split("/") if part not in {"", "."})
        if header.size < 0:
            raise _refuse_form(f"{quote_text(name)} has {header.size} bytes")
        refusals = {
            "is a sparse file": any(key.startswith("GNU.sparse.") for key in header.pax_headers),
            f"is {_REFUSED_KINDS.get(header.type, 'of no kind that is known')}": kind is None,
            "is a file with the name of a directory": kind == "file" and name.endswith("/"),
            "has a name with a zero byte": "\0" in name or "\0" in header.linkname,
            "has an absolute name": name.startswith("/"),
            "has a name that leads upwards": ".." in parts,
            "has no name": not parts and kind != "directory",
            "has a name that is too long": _is_long(name),
            f"is more than {self.bounds.depth} directories deep": len(parts) > self.bounds.depth,
        }
        for why, refused in refusals.items():
            if refused:
                raise _refuse_entry(name, why)
        return parts

    def _take(self, parts: tuple[str, ...], header: tarfile.TarInfo, tar: tarfile.TarFile) -> None:
        kind, place = _KINDS[header.type], self.directory.joinpath(*parts)
        above = len(parts) + (kind == "directory")
        try:
            for end in range(1, above):
                self._make_directory(parts[:end], header.name)
            if kind == "directory":
                return
            if parts in self.kinds:
                raise FileExistsError
            if kind == "link":
                self._note(parts, kind)
                target = header.linkname
                if target.startswith("/"):
                    raise _refuse_entry(header.name, "is a link to an absolute path")
                if not target or _is_long(target):
                    raise _refuse_entry(
                        header.name, "is a link to nothing, or to a name that is too long"
                    )
                os.symlink(target, place)
                self.targets[parts] = target
                return
            self._note(parts, kind, header.size)
            content = tar.extractfile(header)
            assert content is not None
            with open(os.open(place, _NEW_FILE, 0o600), "wb") as file:
                shutil.copyfileobj(content, file)
                os.fchmod(file.fileno(), 0o755 if header.mode & 0o111 else 0o644)
        except FileExistsError:
            # Also on a file system that does not tell large letters from small ones.
            raise _refuse_entry(header.name, "is there twice") from None

    def _make_directory(self, parts: tuple[str, ...], name: str) -> None:
        there = self.kinds.get(parts)
        if there is None:
            self._note(parts, "directory")
            self.directory.joinpath(*parts).mkdir(mode=0o755)
        elif there != "directory":
            raise _refuse_entry(name, f"is below a {there}, or in its place")

    def _note(self, parts: tuple[str, ...], kind: str, size: int = 0) -> None:
        self.kinds[parts] = kind
        self.size += size
        if len(self.kinds) > self.bounds.entries:
            raise _refuse_size(f"it has more than {self.bounds.entries} entries")
        if self.size > self.bounds.unpacked_bytes:
            raise _refuse_size(f"its files have more than {self.bounds.unpacked_bytes} bytes")

    def _refuse_leading_out(self, parts: tuple[str, ...]) -> None:
        """Follow a link as the system would; links on its way are followed, too."""
        here = list(parts[:-1])
        ahead = self.targets[parts].split("/")[::-1]
        links = 1
        while ahead:
            part = ahead.pop()
            self.followed += 1
            if self.followed > MAX_FOLLOWED:
                raise _refuse_size("its links lead along too many names")
            if part == "..":
                if not here:
                    raise _refuse_entry("/".join(parts), "is a link that leads out of it")
                here.pop()
            elif part not in {"", "."}:
                here.append(part)
                if (target := self.targets.get(tuple(here))) is not None:
                    links += 1
                    if links > MAX_LINKS:
                        return  # the system goes no further, either
                    here.pop()
                    ahead += target.split("/")[::-1]


def _is_long(path: str) -> bool:
    data = os.fsencode(path)
    return len(data) > MAX_PATH_BYTES or any(
        len(part) > MAX_NAME_BYTES for part in data.split(b"/")
    )


def _refuse_form(why: str) -> UsageError:
    return UsageError(f"the upload is not a usable tar archive: {why}", rule="upload.malformed")


def _refuse_entry(name: str, why: str) -> UsageError:
    message = f"{quote_text(name[:200])} in the upload {why}"
    hint = "an upload holds files, directories, and links to what is inside it"
    return UsageError(message, rule="upload.entry", hint=hint)


def _refuse_size(why: str) -> UsageError:
    return UsageError(f"the upload is too large: {why}", rule="upload.large")
