"""git's binary patches: base-85 lines, zlib and delta instructions, every size bounded first."""

from __future__ import annotations

import base64
import re
import zlib
from dataclasses import dataclass
from hashlib import sha1
from typing import TYPE_CHECKING, Final, Literal

from coilclaw.changes.operations import Limits, PatchBinary
from coilclaw.errors import AnswerError, PlanRefused

if TYPE_CHECKING:
    from coilclaw.changes.cursor import Cursor

START: Final = "GIT binary patch"
MAX_BYTES: Final = Limits().file_bytes
"""Largest content or delta that is ever inflated, and largest result of a delta."""
ABSENT: Final = "0" * 40
"""The blob id that stands for no file."""

_HALF: Final = re.compile(r"(literal|delta) ([0-9]{1,10})")
_LINE_BYTES: Final = 52
_LENGTHS: Final = {
    letter: length
    for length, letter in enumerate("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", 1)
}


@dataclass(frozen=True, slots=True)
class Half:
    """One direction of a binary patch, inflated."""

    method: Literal["literal", "delta"]
    data: bytes


def blob_id(content: bytes) -> str:
    """Return the id that git gives to a content."""
    head = b"blob %d\0" % len(content)
    return sha1(head + content, usedforsecurity=False).hexdigest()


def inflate(packed: bytes, size: int, *, line: int | None = None, path: str | None = None) -> bytes:
    """Unpack data that must come to exactly ``size`` bytes; never more than that is unpacked."""
    if not 0 <= size <= MAX_BYTES:
        raise _malformed(f"{size:,} bytes are more than the bound of {MAX_BYTES:,}", line, path)
    unpacker = zlib.decompressobj()
    try:
        data = unpacker.decompress(packed, size + 1)
    except zlib.error as problem:
        raise _malformed("the packed data is damaged", line, path) from problem
    if len(data) != size or not unpacker.eof or unpacker.unused_data:
        raise _malformed(f"the packed data does not hold the stated {size:,} bytes", line, path)
    return data


def parse(cursor: Cursor, path: str) -> Half:
    """Read a binary patch and return its forward half; the way back is only checked."""
    cursor.take()
    forward = _half(cursor, path)
    if forward is None:
        raise cursor.failure("corrupt", "a binary patch needs 'literal N' or 'delta N'", path=path)
    _half(cursor, path)
    return forward


def render(half: Half) -> list[str]:
    """Return the lines of a binary patch that has the forward half only."""
    packed = zlib.compress(half.data, 9)
    lines = [START, f"{half.method} {len(half.data)}"]
    letters = list(_LENGTHS)
    for start in range(0, len(packed), _LINE_BYTES):
        chunk = packed[start : start + _LINE_BYTES]
        lines.append(letters[len(chunk) - 1] + base64.b85encode(chunk, pad=True).decode("ascii"))
    return [*lines, ""]


def result(base: bytes | None, operation: PatchBinary) -> bytes:
    """Return the content a binary patch leaves (``b""`` if it deletes); both blob ids must hold."""
    path = str(operation.path)
    line = operation.source.line if operation.source else None
    found = ABSENT if base is None else blob_id(base)
    if found != operation.old_id:
        raise PlanRefused(
            f"the binary patch of '{path}' is for content {operation.old_id[:10]}, but the file "
            + ("is not there" if base is None else f"has {found[:10]}"),
            rule="binary.base",
            path=path,
            line=line,
        )
    if operation.delete or operation.new_id == ABSENT:
        if operation.delete and operation.new_id == ABSENT:
            return b""
        raise _malformed("a binary patch deletes a file and gives it content", line, path)
    if operation.method == "delta":
        content = apply_delta(base or b"", operation.data, line=line, path=path)
    else:
        content = operation.data
    if blob_id(content) != operation.new_id:
        raise PlanRefused(
            f"the binary patch of '{path}' does not give the content {operation.new_id[:10]} "
            "that it states",
            rule="binary.result",
            path=path,
            line=line,
        )
    return content


def apply_delta(
    base: bytes, delta: bytes, *, line: int | None = None, path: str | None = None
) -> bytes:
    """Follow delta instructions; the result has exactly the size that the delta states."""
    base_size, at = _size(delta, 0)
    size, at = _size(delta, at)
    if base_size != len(base):
        raise PlanRefused(
            f"the delta is for {base_size:,} bytes, but the file has {len(base):,}",
            rule="binary.base",
            path=path,
            line=line,
        )
    if size > MAX_BYTES:
        raise _malformed(f"{size:,} bytes are more than the bound of {MAX_BYTES:,}", line, path)
    out = bytearray()
    while at < len(delta):
        piece, at = _instruction(base, delta, at)
        if not piece or len(out) + len(piece) > size:
            raise _malformed("a delta instruction is out of bounds", line, path)
        out += piece
    if len(out) != size:
        raise _malformed(
            f"the delta gives {len(out):,} bytes instead of the stated {size:,}", line, path
        )
    return bytes(out)


def _half(cursor: Cursor, path: str) -> Half | None:
    number = cursor.number
    head = _HALF.fullmatch(cursor.peek() or "")
    if head is None:
        return None
    cursor.take()
    size = int(head[2])
    if size > MAX_BYTES:
        raise _malformed(f"{size:,} bytes are more than the bound of {MAX_BYTES:,}", number, path)
    packed = bytearray()
    while line := cursor.peek():
        packed += _decoded(cursor, line, path)
        cursor.take()
    if cursor.peek() is not None:
        cursor.take()
    data = inflate(bytes(packed), size, line=number, path=path)
    return Half("literal" if head[1] == "literal" else "delta", data)


def _decoded(cursor: Cursor, line: str, path: str) -> bytes:
    length = _LENGTHS.get(line[0])
    if length is None or len(line) - 1 != (length + 3) // 4 * 5:
        raise cursor.failure(
            "corrupt", "a line of the binary patch has the wrong length", path=path
        )
    try:
        return base64.b85decode(line[1:])[:length]
    except ValueError as problem:
        raise cursor.failure(
            "corrupt", "a line of the binary patch is not base 85", path=path
        ) from problem


def _size(delta: bytes, at: int) -> tuple[int, int]:
    """Read a size: seven bits a byte, the lowest first. A size that is cut off is too large."""
    value = 0
    for shift in range(0, 35, 7):
        byte = delta[at] if at < len(delta) else 0xFF
        at += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            break
    return value, at


def _instruction(base: bytes, delta: bytes, at: int) -> tuple[bytes, int]:
    """Read one instruction: the bytes it adds (none when it is out of bounds) and where it ends."""
    code = delta[at]
    at += 1
    if not code & 0x80:
        piece, at = delta[at : at + code], at + code
        return (piece if len(piece) == code else b""), at
    fields = bytearray(7)
    for bit in range(7):
        if code & (1 << bit):
            fields[bit] = delta[at] if at < len(delta) else 0xFF
            at += 1
    start = int.from_bytes(fields[:4], "little")
    length = int.from_bytes(fields[4:], "little") or 0x10000
    piece = base[start : start + length]
    return (piece if len(piece) == length and at <= len(delta) else b""), at


def _malformed(what: str, line: int | None = None, path: str | None = None) -> AnswerError:
    where = f"line {line}: " if line is not None else ""
    return AnswerError(
        f"{where}in the binary patch, {what}", rule="git.corrupt", line=line, path=path
    )
