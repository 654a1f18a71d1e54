"""Read an archive into memory, without writing anything or trusting its headers.

Only plain files and directories are accepted, with the executable bit and no other. Sizes are
bounded by the bytes that are read, whatever the headers say.
"""

from __future__ import annotations

import gzip
import io
import lzma
import stat
import tarfile
import zipfile
import zlib
from typing import TYPE_CHECKING, Final

from coilclaw.agent.plugins.files import (
    MAX_FILES,
    MAX_TOTAL_BYTES,
    Collection,
    refusal_error,
    strip_top_directory,
    too_large,
)
from coilclaw.kernel import UsageError, explain_os_errors, quote_text

if TYPE_CHECKING:
    from pathlib import Path

    from coilclaw.agent.plugins.files import PluginFile

MAX_ARCHIVE_BYTES: Final = 32 * 2**20
MAX_ENTRIES: Final = 4 * MAX_FILES
"""Entries of any kind, directories included."""
MAX_RATIO: Final = 200
RATIO_FREE_BYTES: Final = 2**20
"""Unpacked size below which the ratio is not checked: small files compress well."""
MAX_XZ_MEMORY: Final = 128 * 2**20

_TAR_OVERHEAD: Final = 2 * 2**20 + MAX_ENTRIES * 1024
_ENTRY: Final = b"PK\x01\x02"
_ENCRYPTED: Final = 0x1
_UNIX: Final = 3
SUFFIXES: Final = (".zip", ".tar.gz", ".tgz", ".tar.xz")


def read_archive(path: Path) -> tuple[PluginFile, ...]:
    """Return the files of an archive; raise ``DeniedError`` if any of them is refused."""
    name = path.name.lower()
    if not name.endswith(SUFFIXES):
        raise UsageError(
            f"{path} is neither a directory nor an archive that can be installed",
            rule="plugin.source",
            hint=f"archives end in {', '.join(SUFFIXES)}",
        )
    with explain_os_errors(f"read {path}", rule="plugin.source"), path.open("rb") as file:
        data = file.read(MAX_ARCHIVE_BYTES + 1)
    if len(data) > MAX_ARCHIVE_BYTES:
        raise refusal_error(
            "plugin.bounds", f"the archive is larger than {MAX_ARCHIVE_BYTES:,} bytes"
        )
    collection = Collection()
    if name.endswith(".zip"):
        _read_zip(data, collection)
    else:
        _read_tar(_decompress(data, is_gzip=name.endswith("gz")), collection)
    _refuse_ratio(collection.total, len(data))
    return strip_top_directory(collection.files())


def _refuse_ratio(unpacked: int, packed: int) -> None:
    if unpacked > RATIO_FREE_BYTES and unpacked > MAX_RATIO * packed:
        raise refusal_error("plugin.bounds", f"it unpacks to more than {MAX_RATIO} times its size")


def _read_zip(data: bytes, collection: Collection) -> None:
    # Counted before they are parsed: each entry becomes an object.
    if data.count(_ENTRY) > MAX_ENTRIES:
        raise refusal_error("plugin.bounds", f"the archive has more than {MAX_ENTRIES} entries")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for info in archive.infolist():
                _take_zip_entry(archive, info, collection)
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError) as problem:
        raise _damaged_error(problem) from problem


def _take_zip_entry(
    archive: zipfile.ZipFile, info: zipfile.ZipInfo, collection: Collection
) -> None:
    name = info.filename
    if info.orig_filename != name:
        raise refusal_error("plugin.name", f"{quote_text(info.orig_filename)} holds a NUL")
    if info.flag_bits & _ENCRYPTED:
        raise refusal_error("plugin.archive", f"{quote_text(name)} is encrypted")
    mode = info.external_attr >> 16 if info.create_system == _UNIX else 0
    kind = stat.S_IFMT(mode)
    if name.endswith("/"):
        if kind not in {0, stat.S_IFDIR} or info.file_size:
            raise refusal_error("plugin.kind", f"{quote_text(name)} is not a plain directory")
        collection.directory(name)
        return
    if kind not in {0, stat.S_IFREG}:
        raise refusal_error(
            "plugin.kind", f"{quote_text(name)} is a link, a device or another special file"
        )
    if info.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
        raise refusal_error("plugin.archive", f"{quote_text(name)} is packed in an unusual way")
    collection.expect(name)
    with archive.open(info) as member:
        content = member.read(collection.room + 1)
        if len(content) > collection.room:
            raise too_large(name)
    collection.add(name, content, executable=bool(mode & 0o100))


def _decompress(data: bytes, *, is_gzip: bool) -> bytes:
    limit = MAX_TOTAL_BYTES + _TAR_OVERHEAD
    unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MAX_XZ_MEMORY)
    try:
        if is_gzip:
            unpacked = gzip.GzipFile(fileobj=io.BytesIO(data)).read(limit + 1)
        else:
            unpacked = unpacker.decompress(data, limit + 1)
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as problem:
        raise _damaged_error(problem) from problem
    if len(unpacked) > limit:
        raise refusal_error("plugin.bounds", f"the archive unpacks to more than {limit:,} bytes")
    if not is_gzip and not unpacker.eof:
        raise refusal_error("plugin.archive", "the archive ends too early")
    if not is_gzip and unpacker.unused_data:
        raise refusal_error("plugin.archive", "something follows the archive")
    _refuse_ratio(len(unpacked), len(data))
    return unpacked


def _read_tar(data: bytes, collection: Collection) -> None:
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
            reached = -1
            for _ in range(MAX_ENTRIES):
                info = archive.next()
                if info is None:
                    return
                # A header may point back to an entry that was read before.
                if info.size < 0 or info.offset <= reached:
                    raise refusal_error("plugin.archive", "the archive leads in a circle")
                reached = info.offset
                _take_tar_entry(archive, info, collection)
    except (tarfile.TarError, EOFError, ValueError, RecursionError, OSError) as problem:
        raise _damaged_error(problem) from problem
    raise refusal_error("plugin.bounds", f"the archive has more than {MAX_ENTRIES} entries")


def _take_tar_entry(
    archive: tarfile.TarFile, info: tarfile.TarInfo, collection: Collection
) -> None:
    if info.type == tarfile.DIRTYPE:
        # `tar c .` begins with the directory itself.
        if info.name not in {".", "./"}:
            collection.directory(info.name)
        return
    if info.type not in {tarfile.REGTYPE, tarfile.AREGTYPE} or info.issparse():
        what = "is a link, a device or another special file"
        raise refusal_error("plugin.kind", f"{quote_text(info.name)} {what}")
    collection.expect(info.name)
    if info.size > collection.room:
        raise too_large(info.name)
    member = archive.extractfile(info)
    content = b"" if member is None else member.read(collection.room + 1)
    if len(content) != info.size:
        raise refusal_error("plugin.archive", "the archive ends too early")
    collection.add(info.name, content, executable=bool(info.mode & 0o100))


def _damaged_error(problem: Exception) -> Exception:
    what = str(problem)[:200] or type(problem).__name__
    return refusal_error("plugin.archive", f"the archive cannot be read: {quote_text(what)}")
