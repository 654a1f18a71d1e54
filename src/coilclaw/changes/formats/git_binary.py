"""git's binary patches: base-85 lines, zlib and delta instructions, every size bounded first."""

from __future__ import annotations

import base64
import re
import zlib
from hashlib import sha1
from string import ascii_lowercase, ascii_uppercase
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from coilclaw.changes.operations import AnswerLimits, PatchBinary
from coilclaw.kernel import AnswerError, PlanRefused

if TYPE_CHECKING:
    from coilclaw.changes.formats.answer_text import Cursor

START: Final = "GIT binary patch"
MAX_BYTES: Final = AnswerLimits().file_bytes
"""Largest content or delta that is ever inflated, and largest result of a delta."""
ABSENT: Final = "0" * 40
"""The blob id that stands for no file."""
LENGTHS: Final = ascii_uppercase + ascii_lowercase
"""What a line of packed data begins with: the letter for the number of its bytes, from 1."""

Half: TypeAlias = tuple[Literal["literal", "delta"], bytes]
"""One direction of a binary patch: its method and its inflated data."""

_HALF: Final = re.compile(r"(literal|delta) ([0-9]{1,10})")


def blob_id(content: bytes) -> str:
    """Return the id that git gives to a content."""
    return sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def inflate(packed: bytes, size: int, *, line: int | None = None, path: str | None = None) -> bytes:
    """Unpack data that must come to exactly ``size`` bytes; never more than that is unpacked."""
    _check_size(size, line, path)
    unpacker = zlib.decompressobj()
    try:
        data = unpacker.decompress(packed, size + 1)
    except zlib.error as problem:
        raise _malformed_error("the packed data is damaged", line, path) from problem
    if len(data) != size or not unpacker.eof or unpacker.unused_data:
        raise _malformed_error(
            f"the packed data does not hold the stated {size:,} bytes", line, path
        )
    return data


def parse(cursor: Cursor, path: str) -> Half:
    """Read a binary patch and return its forward half; the way back is only checked."""
    cursor.take()
    forward = _parse_half(cursor, path)
    if forward is None:
        raise cursor.failure("corrupt", "a binary patch needs 'literal N' or 'delta N'", path=path)
    _parse_half(cursor, path)
    return forward


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
    if operation.delete != (operation.new_id == ABSENT):
        raise _malformed_error("a binary patch deletes a file and gives it content", line, path)
    if operation.delete:
        return b""
    content = operation.data
    if operation.method == "delta":
        content = apply_delta(base or b"", operation.data, line=line, path=path)
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
    base_size, at = _read_size(delta, 0)
    size, at = _read_size(delta, at)
    if base_size != len(base):
        message = f"the delta is for {base_size:,} bytes, but the file has {len(base):,}"
        raise PlanRefused(message, rule="binary.base", path=path, line=line)
    _check_size(size, line, path)
    out = bytearray()
    while at < len(delta):
        piece, at = _read_instruction(base, delta, at)
        if not piece or len(out) + len(piece) > size:
            raise _malformed_error("a delta instruction is out of bounds", line, path)
        out += piece
    if len(out) != size:
        message = f"the delta gives {len(out):,} bytes instead of the stated {size:,}"
        raise _malformed_error(message, line, path)
    return bytes(out)


def _parse_half(cursor: Cursor, path: str) -> Half | None:
    number = cursor.number
    head = _HALF.fullmatch(cursor.peek() or "")
    if head is None:
        return None
    cursor.take()
    size = int(head[2])
    _check_size(size, number, path)
    packed = bytearray()
    while line := cursor.peek():
        length = LENGTHS.find(line[0]) + 1
        if length == 0 or len(line) - 1 != (length + 3) // 4 * 5:
            message = "a line of the binary patch has the wrong length"
            raise cursor.failure("corrupt", message, path=path)
        try:
            packed += base64.b85decode(line[1:])[:length]
        except ValueError as problem:
            message = "a line of the binary patch is not base 85"
            raise cursor.failure("corrupt", message, path=path) from problem
        cursor.take()
    if cursor.peek() is not None:
        cursor.take()
    data = inflate(bytes(packed), size, line=number, path=path)
    return "literal" if head[1] == "literal" else "delta", data


def _read_size(delta: bytes, at: int) -> tuple[int, int]:
    """Read a size: seven bits a byte, the lowest first. A size that is cut off is too large."""
    value = 0
    for shift in range(0, 35, 7):
        byte = delta[at] if at < len(delta) else 0xFF
        at += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            break
    return value, at


def _read_instruction(base: bytes, delta: bytes, at: int) -> tuple[bytes, int]:
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


def _check_size(size: int, line: int | None, path: str | None) -> None:
    if not 0 <= size <= MAX_BYTES:
        raise _malformed_error(
            f"{size:,} bytes are more than the bound of {MAX_BYTES:,}", line, path
        )


def _malformed_error(what: str, line: int | None, path: str | None) -> AnswerError:
    where = f"line {line}: " if line is not None else ""
    return AnswerError(
        f"{where}in the binary patch, {what}", rule="git.corrupt", line=line, path=path
    )
