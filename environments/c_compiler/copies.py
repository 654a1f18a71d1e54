"""Looking through what a build made for compilers that were not written by who submitted it."""

from __future__ import annotations

import hashlib
import mmap
import os
import stat
import struct
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from compilers import MARKS, on_this_machine
from likeness import is_like, unpacked

if TYPE_CHECKING:
    from collections.abc import Iterator

    from likeness import Data

MAX_FILES: Final = 200_000
MAX_BYTES: Final = 4 * 2**30
_ELF: Final = b"\x7fELF"
_ARCHIVES: Final = (b"!<arch>\n", b"!<thin>\n")
_SMALLEST: Final = 4096
_NOTE: Final = 4
_BUILD_ID: Final = 3
_LONGEST_NOTE: Final = 1 << 16


def another_compiler(tree: Path) -> str | None:
    """Say which file below a directory is a compiler of this machine, or a copy of one."""
    size = 0
    try:
        for number, path in enumerate(_files(tree)):
            size += path.lstat().st_size
            if number >= MAX_FILES or size > MAX_BYTES:
                return f"there are more than {MAX_FILES} files or {MAX_BYTES} bytes to look through"
            why = _judged(path)
            if why is not None:
                return f"{path.relative_to(tree)} {why}"
    except OSError as problem:
        return f"not everything can be looked through ({problem.strerror})"
    return None


def _files(tree: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(tree, onerror=_refuse):
        folders.sort()
        for name in sorted([*names, *folders]):
            path = Path(place, name)
            if name in names or path.is_symlink():
                yield path


def _refuse(problem: OSError) -> None:
    raise problem


def _judged(path: Path) -> str | None:
    real = os.path.realpath(path)
    if path.is_symlink():
        return f"leads to {real}" if Path(real) in on_this_machine() else None
    try:
        known = path.lstat()
        if not stat.S_ISREG(known.st_mode) or known.st_size < _SMALLEST:
            return None
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            why = _recognized(data, known.st_size)
            inner = unpacked(data) if why is None else None
            return _recognized(inner, len(inner)) if inner else why
    except OSError as problem:
        return f"cannot be read: {problem.strerror}"


def _recognized(data: Data, size: int) -> str | None:
    code = data[:8] in _ARCHIVES or data[:4] == _ELF
    for name, marks in MARKS if code else ():
        if all(data.find(mark) >= 0 for mark in marks):
            return f"carries the marks of {name}"
    build_id = _build_id(data)
    for original in on_this_machine():
        if build_id and build_id == _build_id_of(original):
            return f"is built as {original} was"
        if size == original.stat().st_size and hashlib.sha256(data).digest() == _digest(original):
            return f"is a copy of {original}"
        if is_like(data, size, original):
            return f"is for the most part a copy of {original}"
    return None


@cache
def _digest(path: Path) -> bytes:
    return hashlib.sha256(path.read_bytes()).digest()


@cache
def _build_id_of(path: Path) -> bytes | None:
    with open(path, "rb") as file:
        return _build_id(file.read(_LONGEST_NOTE))


def _build_id(data: Data) -> bytes | None:
    """The build id of a 64-bit little-endian ELF file, which stands near its beginning."""
    if data[:6] != _ELF + b"\x02\x01":
        return None
    try:
        (headers,) = struct.unpack_from("<Q", data, 32)
        size, count = struct.unpack_from("<HH", data, 54)
        for number in range(count):
            at = headers + number * size
            kind, _, offset, _, _, length = struct.unpack_from("<IIQQQQ", data, at)
            found = _in_notes(data[offset : offset + min(length, _LONGEST_NOTE)])
            if kind == _NOTE and found:
                return found
    except struct.error:
        return None  # cut short, or no program at all
    return None


def _in_notes(notes: bytes) -> bytes | None:
    at = 0
    while at + 12 <= len(notes):
        names, size, kind = struct.unpack_from("<III", notes, at)
        begin = at + 12 + (names + 3 & ~3)
        if kind == _BUILD_ID and notes[at + 12 : at + 12 + names] == b"GNU\0":
            return notes[begin : begin + size]
        at = begin + (size + 3 & ~3)
    return None
