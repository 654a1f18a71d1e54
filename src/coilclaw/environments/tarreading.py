"""Reading a tar archive entry by entry, strictly: what is unusual is refused, never guessed at.

One block of 512 bytes is one header. Long names come as records before it, in the form of POSIX
(``x``) or of GNU (``L``, ``K``); the end is two blocks of zeros, and nothing stands behind it.
"""

from __future__ import annotations

import tarfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias

from coilclaw.domain.treepath import shown
from coilclaw.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

BLOCK: Final = 512
MAX_RECORDS_BYTES: Final = 2**20
"""Of one extended header."""
CHUNK: Final = 2**16

Kind: TypeAlias = Literal["file", "directory", "link"]

_ENCODING: Final = ("utf-8", "surrogateescape")
_FILES: Final = frozenset({tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE})
_OTHERS: Final = {
    tarfile.LNKTYPE: "a hard link",
    tarfile.CHRTYPE: "a device",
    tarfile.BLKTYPE: "a device",
    tarfile.FIFOTYPE: "a pipe",
    tarfile.GNUTYPE_SPARSE: "a sparse file",
}


class Source(Protocol):
    """Where the archive comes from; a read gives fewer bytes only at the end."""

    def read(self, size: int, /) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry; the content of a file is read before the next entry is."""

    name: str
    kind: Kind
    size: int
    executable: bool
    target: str


class Archive:
    """The entries of an archive, in its order."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._left = 0
        """Bytes of the current file that nobody has read."""
        self._padding = 0

    def entries(self) -> Iterator[Entry]:
        """Yield each entry; the archive is whole when this ends."""
        told: dict[str, str] = {}
        while (block := self._block()) is not None:
            header = _header(block)
            if header.type in {tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE}:
                told |= _records(self._whole(header))
            elif header.type == tarfile.XGLTYPE:
                _refuse_global(_records(self._whole(header)))
            elif header.type in {tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK}:
                key = "path" if header.type == tarfile.GNUTYPE_LONGNAME else "linkpath"
                told[key] = _text(self._whole(header).split(b"\0", 1)[0])
            else:
                entry = _entry(header, told)
                told = {}
                self._left, self._padding = entry.size, -entry.size % BLOCK
                yield entry
                self._skip()
        if told:
            raise cut_off()
        self._refuse_more()

    def content(self) -> Iterator[bytes]:
        """Yield what the current file holds, piece by piece."""
        while self._left:
            data = self._source.read(min(self._left, CHUNK))
            if not data:
                raise cut_off()
            self._left -= len(data)
            yield data

    def _skip(self) -> None:
        for _ in self.content():
            pass
        if len(self._source.read(self._padding)) < self._padding:
            raise cut_off()
        self._padding = 0

    def _block(self) -> bytes | None:
        """Return the next header, or ``None`` at the end."""
        block = self._source.read(BLOCK)
        if len(block) < BLOCK:
            raise cut_off()
        if any(block):
            return block
        if len(second := self._source.read(BLOCK)) < BLOCK:
            raise cut_off()
        if any(second):
            raise malformed("it goes on after its end")
        return None

    def _whole(self, header: tarfile.TarInfo) -> bytes:
        if not 0 <= header.size <= MAX_RECORDS_BYTES:
            raise malformed(f"an extended header has {header.size} bytes")
        padded = header.size + -header.size % BLOCK
        data = self._source.read(padded)
        if len(data) < padded:
            raise cut_off()
        return data[: header.size]

    def _refuse_more(self) -> None:
        """Read to the end of the source, where only padding may stand."""
        while data := self._source.read(CHUNK):
            if any(data):
                raise malformed("it goes on after its end")


def malformed(why: str) -> UsageError:
    return UsageError(f"the upload is no usable tar archive: {why}", rule="upload.malformed")


def cut_off() -> UsageError:
    return malformed("it is cut off")


def _header(block: bytes) -> tarfile.TarInfo:
    try:
        return tarfile.TarInfo.frombuf(block, *_ENCODING)
    except (tarfile.HeaderError, ValueError) as problem:
        raise malformed(f"{problem}") from problem


def _entry(header: tarfile.TarInfo, told: dict[str, str]) -> Entry:
    name = told.get("path", header.name)
    size = _number(told["size"]) if "size" in told else header.size
    if any(key.startswith("GNU.sparse.") for key in told):
        raise refused(name, "is a sparse file")
    if header.type in {tarfile.DIRTYPE, tarfile.SYMTYPE}:
        kind: Kind = "directory" if header.type == tarfile.DIRTYPE else "link"
        # What their size says means nothing; no content follows them.
        return Entry(name, kind, 0, executable=False, target=told.get("linkpath", header.linkname))
    if header.type not in _FILES:
        raise refused(name, f"is {_OTHERS.get(header.type, 'of no kind that is known')}")
    if name.endswith("/"):
        raise refused(name, "is a file with the name of a directory")
    if size < 0:
        raise malformed(f"{shown(name)} has {size} bytes")
    return Entry(name, "file", size, executable=bool(header.mode & 0o111), target="")


def refused(name: str, why: str) -> UsageError:
    """The error for one entry that cannot be taken."""
    return UsageError(
        f"{shown(name[:200])} in the upload {why}",
        rule="upload.entry",
        hint="an upload holds files, directories, and links to what is inside it",
    )


def _records(data: bytes) -> dict[str, str]:
    """Read records of the form ``LENGTH KEY=VALUE`` with a line end, which LENGTH counts, too."""
    found: dict[str, str] = {}
    at = 0
    while at < len(data):
        digits, space, _ = data[at : at + 12].partition(b" ")
        length = int(digits) if space and digits.isdigit() else 0
        record = data[at : at + length]
        key, equals, value = record[len(digits) + 1 : -1].partition(b"=")
        if len(record) < max(length, 5) or not record.endswith(b"\n") or not equals:
            raise malformed("an extended header cannot be read")
        found[_text(key)] = _text(value)
        at += length
    return found


def _refuse_global(records: dict[str, str]) -> None:
    for key in ("path", "linkpath", "size"):
        if key in records:
            raise malformed(f"one {key} is said of all its entries")


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 20):
        raise malformed("a size is no number")
    return int(text)


def _text(data: bytes) -> str:
    return data.decode(*_ENCODING)
