"""Reading foreign archives as streams: tar in any usual compression, and Debian packages.

Nothing is written here, and nothing of an archive is believed: names, sizes and kinds are bounded
before they are used, whoever made them.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import tarfile
import zlib
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Final, Literal, Protocol, TypeAlias, cast

from coilclaw.domain.treepath import shown
from coilclaw.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MAX_STREAM_BYTES: Final = 4 * 2**30
"""Of an archive, unpacked, whatever of it is wanted."""
MAX_MEMBERS: Final = 500_000
MAX_NAME: Final = 4096
MAX_HEADER_BYTES: Final = 2**16
MAX_MEMORY: Final = 256 * 2**20
"""For a decompressor."""

Kind: TypeAlias = Literal["file", "directory", "link", "special"]

_CHUNK: Final = 2**16
_AR: Final = b"!<arch>\n"
_AR_HEADER: Final = 60
_MAGIC_BYTES: Final = 8
_ZSTD: Final = b"\x28\xb5\x2f\xfd"


class Readable(Protocol):
    """Anything that bytes come from, in order."""

    def read(self, size: int, /) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Member:
    """One entry of an archive; ``contents`` can be read until the next one is asked for."""

    name: str
    kind: Kind
    contents: Readable | None = None


@contextmanager
def understood(what: str) -> Iterator[None]:
    """Turn whatever a damaged archive makes of the readers into one error."""
    try:
        yield
    except (tarfile.TarError, lzma.LZMAError, zlib.error, EOFError, gzip.BadGzipFile) as problem:
        raise refused(f"it is damaged or cut off ({problem})", what) from problem
    except (ValueError, OverflowError) as problem:
        raise refused(f"it is not understood ({problem})", what) from problem
    except OSError as problem:  # also what the decompressors say of bad data
        raise refused(f"it cannot be read ({problem.strerror or problem})", what) from problem


def refused(why: str, what: str) -> UsageError:
    """The error for an archive."""
    return UsageError(f"cannot unpack {shown(what)}: {why}", rule="fixtures.archive")


def members(raw: Readable, what: str) -> Iterator[Member]:
    """Yield the entries of a tar archive or Debian package, in order; every name is a safe one."""
    head, stream = _peeked(raw)
    if head.startswith(_AR):
        yield from members(_package_data(stream, what), what)
        return
    bounded = _Bounded(_unpacked(head, stream, what), what)
    with tarfile.open(fileobj=bounded, mode="r|", tarinfo=_Header) as tar:  # type: ignore[call-overload]
        count = 0
        while (header := tar.next()) is not None:
            tar.members.clear()  # it would keep all of them
            count += 1
            if count > MAX_MEMBERS:
                raise refused(f"it has more than {MAX_MEMBERS} entries", what)
            name = _safe(header.name, what)
            kind = _kind(header)
            yield Member(name, kind, tar.extractfile(header) if kind == "file" else None)


class _Header(tarfile.TarInfo):
    """A header whose extensions are bounded: they are read into memory whole."""

    _EXTENSIONS = (*b"LKxgX",)

    def _proc_member(self, tar: tarfile.TarFile) -> object:
        if ord(self.type) in self._EXTENSIONS and self.size > MAX_HEADER_BYTES:
            raise tarfile.ReadError(f"a header of {self.size} bytes")
        return super()._proc_member(tar)  # type: ignore[misc]


class _Bounded:
    """A stream that may not be longer than any archive that we want."""

    def __init__(self, raw: Readable, what: str) -> None:
        self._raw = raw
        self._what = what
        self._left = MAX_STREAM_BYTES

    def read(self, size: int, /) -> bytes:
        data = self._raw.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise refused(f"it is larger than {MAX_STREAM_BYTES} bytes unpacked", self._what)
        return data


class _Chained:
    """A stream whose first bytes have been looked at already, and that may end early."""

    def __init__(self, head: bytes, raw: Readable, size: int | None = None) -> None:
        self._head = head
        self._raw = raw
        self._left = size

    def read(self, size: int, /) -> bytes:
        wanted = size if self._left is None else min(size, self._left)
        data = self._head[:wanted] or (self._raw.read(wanted) if wanted else b"")
        self._head = self._head[len(data) :] if self._head else b""
        if self._left is not None:
            self._left -= len(data)
        return data


class _Decoder(Protocol):
    """What the decompressors of xz and bzip2 have in common."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


class _Decoded:
    """A stream of what another holds, compressed; one block after another may stand in it."""

    def __init__(self, raw: Readable, make: Callable[[], _Decoder]) -> None:
        self._raw = raw
        self._make = make
        self._decoder: _Decoder | None = make()

    def read(self, size: int, /) -> bytes:
        data = b""
        while self._decoder is not None:
            if self._decoder.eof:
                data = self._decoder.unused_data or self._raw.read(_CHUNK)
                self._decoder = self._make() if data.strip(b"\0") else None
                continue
            if not data and self._decoder.needs_input:
                data = self._raw.read(_CHUNK)
                if not data:
                    raise EOFError("the compressed data end too soon")
            made = self._decoder.decompress(data, size)
            data = b""
            if made:
                return made
        return b""


def _peeked(raw: Readable) -> tuple[bytes, Readable]:
    head = _exactly(raw, _MAGIC_BYTES)
    return head, _Chained(head, raw)


def _unpacked(head: bytes, stream: Readable, what: str) -> Readable:
    if head.startswith(b"\xfd7zXZ"):
        return _Decoded(stream, lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MAX_MEMORY))
    if head.startswith(b"\x1f\x8b"):
        return gzip.GzipFile(mode="rb", fileobj=cast("BinaryIO", stream))  # it reads, no more
    if head.startswith(b"BZh"):
        return _Decoded(stream, bz2.BZ2Decompressor)
    if head.startswith(_ZSTD):
        raise UsageError(
            f"cannot unpack {shown(what)}: zstd is not understood here",
            rule="fixtures.archive",
            hint="unpack it by hand and give the directory",
        )
    return stream


def _package_data(stream: Readable, what: str) -> Readable:
    """The files' own archive in a Debian package, which is an ``ar`` archive of three."""
    if _exactly(stream, len(_AR)) != _AR:
        raise refused("it is no Debian package", what)
    for _ in range(16):
        header = _exactly(stream, _AR_HEADER)
        if len(header) < _AR_HEADER or header[58:] != b"`\n":
            break
        name, digits = header[:16].decode("ascii", "replace").strip(), header[48:58].strip()
        if not digits.isdigit():
            break
        if name.startswith("data.tar"):
            return _Chained(b"", stream, int(digits))
        left = int(digits) + int(digits) % 2
        if left > MAX_MEMORY or len(_exactly(stream, left)) < left:
            break
    raise refused("it is a Debian package without data", what)


def _exactly(raw: Readable, size: int) -> bytes:
    """Read so many bytes, fewer only at the end."""
    data = b""
    while len(data) < size and (more := raw.read(size - len(data))):
        data += more
    return data


def _safe(name: str, what: str) -> str:
    pieces = [piece for piece in name.split("/") if piece not in ("", ".")]
    if name.startswith("/") or ".." in pieces:
        raise refused(f"it names {shown(name[:200])}, which leads out of it", what)
    if len(name) > MAX_NAME or any(len(piece) > 255 for piece in pieces) or "\0" in name:
        raise refused(f"it names {shown(name[:200])}…, which is no name of a file", what)
    return "/".join(pieces)


def _kind(header: tarfile.TarInfo) -> Kind:
    if header.isreg():
        return "file"
    if header.isdir():
        return "directory"
    return "link" if header.issym() or header.islnk() else "special"
