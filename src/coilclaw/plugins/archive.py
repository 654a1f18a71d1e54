"""Reading an archive into memory: nothing is written, and nothing in it is believed.

Only plain files and directories are taken, with the executable bit and no other. Sizes are bounded
by what is really read, whatever the headers say.
"""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING, Final

from coilclaw.domain.treepath import shown
from coilclaw.errors import EnvironmentFault, UsageError
from coilclaw.plugins.files import (
    MAX_FILES,
    MAX_TOTAL_BYTES,
    Collection,
    refused,
    too_large,
    unwrapped,
)

if TYPE_CHECKING:
    from pathlib import Path
    from tarfile import TarFile, TarInfo
    from zipfile import ZipFile, ZipInfo

    from coilclaw.plugins.files import PluginFile

MAX_ARCHIVE_BYTES: Final = 32 * 2**20
MAX_ENTRIES: Final = 4 * MAX_FILES
"""Entries of any kind: directories and the like come on top of the files."""
MAX_RATIO: Final = 200
RATIO_FREE_BYTES: Final = 2**20
"""What an archive may unpack to whatever its ratio: small files compress well."""
MAX_XZ_MEMORY: Final = 128 * 2**20

_TAR_OVERHEAD: Final = 2 * 2**20 + MAX_ENTRIES * 1024
_ENTRY: Final = b"PK\x01\x02"
_ENCRYPTED: Final = 0x1
_UNIX: Final = 3
SUFFIXES: Final = (".zip", ".tar.gz", ".tgz", ".tar.xz")


def read(path: Path) -> tuple[PluginFile, ...]:
    """Return the files of an archive, or refuse all of it."""
    name = path.name.lower()
    if not name.endswith(SUFFIXES):
        raise UsageError(
            f"{path} is neither a directory nor an archive that can be installed",
            rule="plugin.source",
            hint=f"archives end in {', '.join(SUFFIXES)}",
        )
    data = _content(path)
    collection = Collection()
    if name.endswith(".zip"):
        _read_zip(data, collection)
    else:
        unpacked = _gunzipped(data) if name.endswith("gz") else _unxzed(data)
        _read_tar(unpacked, collection)
    _refuse_ratio(collection.total, len(data))
    return unwrapped(collection.files())


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_ARCHIVE_BYTES + 1)
    except OSError as problem:
        raise EnvironmentFault(
            f"cannot read {path}: {problem.strerror}", rule="plugin.source"
        ) from problem
    if len(data) > MAX_ARCHIVE_BYTES:
        raise refused("plugin.bounds", f"the archive is larger than {MAX_ARCHIVE_BYTES:,} bytes")
    return data


def _refuse_ratio(unpacked: int, packed: int) -> None:
    if unpacked > RATIO_FREE_BYTES and unpacked > MAX_RATIO * packed:
        raise refused("plugin.bounds", f"it unpacks to more than {MAX_RATIO} times its size")


def _read_zip(data: bytes, collection: Collection) -> None:
    import io
    import zipfile
    import zlib

    # Counted before they are parsed: each entry becomes an object.
    if data.count(_ENTRY) > MAX_ENTRIES:
        raise refused("plugin.bounds", f"the archive has more than {MAX_ENTRIES} entries")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for info in archive.infolist():
                _take_zip_entry(archive, info, collection)
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError) as problem:
        raise _damaged(problem) from problem


def _take_zip_entry(archive: ZipFile, info: ZipInfo, collection: Collection) -> None:
    import zipfile

    name = info.filename
    if info.orig_filename != name:
        raise refused("plugin.name", f"{shown(info.orig_filename)} holds a NUL")
    if info.flag_bits & _ENCRYPTED:
        raise refused("plugin.archive", f"{shown(name)} is encrypted")
    mode = info.external_attr >> 16 if info.create_system == _UNIX else 0
    kind = stat.S_IFMT(mode)
    if name.endswith("/"):
        if kind not in {0, stat.S_IFDIR} or info.file_size:
            raise refused("plugin.kind", f"{shown(name)} is no plain directory")
        collection.directory(name)
        return
    if kind not in {0, stat.S_IFREG}:
        raise refused("plugin.kind", f"{shown(name)} is a link, a device or another special file")
    if info.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
        raise refused("plugin.archive", f"{shown(name)} is packed in an unusual way")
    collection.expect(name)
    with archive.open(info) as member:
        content = member.read(collection.room + 1)
        if len(content) > collection.room:
            raise too_large(name)
    collection.add(name, content, executable=bool(mode & 0o100))


def _gunzipped(data: bytes) -> bytes:
    import gzip
    import io
    import zlib

    limit = MAX_TOTAL_BYTES + _TAR_OVERHEAD
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            unpacked = file.read(limit + 1)
    except (OSError, EOFError, zlib.error) as problem:
        raise _damaged(problem) from problem
    return _fitting(unpacked, limit, len(data))


def _unxzed(data: bytes) -> bytes:
    import lzma

    limit = MAX_TOTAL_BYTES + _TAR_OVERHEAD
    unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MAX_XZ_MEMORY)
    try:
        unpacked = unpacker.decompress(data, limit + 1)
    except lzma.LZMAError as problem:
        raise _damaged(problem) from problem
    if not unpacker.eof and len(unpacked) <= limit:
        raise refused("plugin.archive", "the archive ends too early")
    if unpacker.unused_data:
        raise refused("plugin.archive", "something follows the archive")
    return _fitting(unpacked, limit, len(data))


def _fitting(unpacked: bytes, limit: int, packed: int) -> bytes:
    if len(unpacked) > limit:
        raise refused("plugin.bounds", f"the archive unpacks to more than {limit:,} bytes")
    _refuse_ratio(len(unpacked), packed)
    return unpacked


def _read_tar(data: bytes, collection: Collection) -> None:
    import io
    import tarfile

    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
            reached = -1
            for _ in range(MAX_ENTRIES):
                info = archive.next()
                if info is None:
                    return
                # A header may lead back to where the reader came from.
                if info.size < 0 or info.offset <= reached:
                    raise refused("plugin.archive", "the archive leads in a circle")
                reached = info.offset
                _take_tar_entry(archive, info, collection)
    except (tarfile.TarError, EOFError, ValueError, RecursionError, OSError) as problem:
        raise _damaged(problem) from problem
    raise refused("plugin.bounds", f"the archive has more than {MAX_ENTRIES} entries")


def _take_tar_entry(archive: TarFile, info: TarInfo, collection: Collection) -> None:
    import tarfile

    if info.type == tarfile.DIRTYPE:
        # `tar c .` begins with the directory itself.
        if info.name not in {".", "./"}:
            collection.directory(info.name)
        return
    if info.type not in {tarfile.REGTYPE, tarfile.AREGTYPE} or info.issparse():
        raise refused(
            "plugin.kind", f"{shown(info.name)} is a link, a device or another special file"
        )
    collection.expect(info.name)
    if info.size > collection.room:
        raise too_large(info.name)
    member = archive.extractfile(info)
    content = b"" if member is None else member.read(collection.room + 1)
    if len(content) != info.size:
        raise refused("plugin.archive", "the archive ends too early")
    collection.add(info.name, content, executable=bool(info.mode & 0o100))


def _damaged(problem: Exception) -> Exception:
    what = str(problem)[:200] or type(problem).__name__
    return refused("plugin.archive", f"the archive cannot be read: {shown(what)}")
