"""``Document``: ``agent_trace.json``, valid JSON after every part, at the same cost for each.

The file is a head of a fixed size, padded with blanks, which holds everything but the parts; then
one line a part; then the closing brackets. A new part is written over the brackets, in one write. A
new head is written over the old one; if it has outgrown its place, which doubles each time, the
file is written anew. What a kill in the middle of a write leaves torn, the journal repairs.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Final, cast

from coilclaw.kernel import Json, UsageError, explain_os_errors, sync_directory

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path


HEAD_BYTES: Final = 2**16
"""The smallest place for the head."""
_PARTS: Final = b',"parts":['
_TAIL: Final = b"\n]}\n"
# A line begins with something that is no part of it, so that no beginning of it, written over the
# tail, can be taken for a part, and the line before it stays whole.
_FIRST: Final = b"\n "
_NEXT: Final = b"\n,"
_CHUNK: Final = 2**20


class TraceDocument:
    """The document of one trajectory while it is being recorded; one writer at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = -1
        self._head_bytes = 0
        self._end = 0
        self._parts = 0

    def rebuild(self, head: Mapping[str, Json], parts: Iterable[Mapping[str, Json]]) -> None:
        """Write the whole document from what the journal holds, and put it in place at once."""
        count = 0

        def lines() -> Iterator[bytes]:
            nonlocal count
            for part in parts:
                yield (_NEXT if count else _FIRST) + encode_part(part)
                count += 1
            yield _TAIL

        self._write_anew(_encode_head(head), lines())
        self._parts = count

    def append(self, part: Mapping[str, Json]) -> None:
        """Add a part; the journal has it already."""
        data = (_NEXT if self._parts else _FIRST) + encode_part(part) + _TAIL
        at = self._end - len(_TAIL)
        self._write(data, at)
        self._end = at + len(data)
        self._parts += 1

    def set_head(self, head: Mapping[str, Json]) -> None:
        """Replace what precedes the parts."""
        encoded = _encode_head(head)
        if len(encoded) + len(_PARTS) > self._head_bytes:
            self._write_anew(encoded, self._read_parts())
        else:
            self._write(_place_head(encoded, self._head_bytes), 0)
        self.sync()

    def sync(self) -> None:
        """Make it durable; the parts in between need not be, since the journal is."""
        with self._explain_errors():
            os.fdatasync(self._descriptor)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _write_anew(self, encoded: bytes, rest: Iterable[bytes]) -> None:
        """Write a head, in a place that is large enough, and what follows; put it in place."""
        room = HEAD_BYTES
        while room < len(encoded) + len(_PARTS):
            room *= 2
        temporary = self.path.with_name(f".{self.path.name}.tmp")
        with self._explain_errors():
            with temporary.open("wb") as file:
                file.write(_place_head(encoded, room))
                file.writelines(rest)
                file.flush()
                os.fdatasync(file.fileno())
                self._head_bytes, self._end = room, file.tell()
            os.replace(temporary, self.path)
            sync_directory(self.path.parent)
            self.close()
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)

    def _read_parts(self) -> Iterator[bytes]:
        """Yield everything behind the head, as it stands there."""
        at = self._head_bytes
        while piece := os.pread(self._descriptor, _CHUNK, at):
            yield piece
            at += len(piece)

    def _write(self, data: bytes, at: int) -> None:
        with self._explain_errors():
            written = os.pwrite(self._descriptor, data, at)
            while written < len(data):
                written += os.pwrite(self._descriptor, data[written:], at + written)

    def _explain_errors(self) -> AbstractContextManager[None]:
        return explain_os_errors(f"write {self.path}", rule="trace.write")


def encode_part(part: Mapping[str, Json]) -> bytes:
    """Encode a part as the document holds it, with sorted keys like the journal."""
    text = json.dumps(part, separators=(",", ":"), ensure_ascii=False, sort_keys=True)
    return text.encode("utf-8")


def is_whole(data: bytes) -> bool:
    """Return whether a document is complete; a kill during a write leaves it torn."""
    return data.endswith(_TAIL)


def parse_trace(data: bytes, where: str) -> dict[str, Json]:
    """Read a document; of one with a torn tail, everything up to the tear."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as problem:
        value = _mend(data)
        if value is None:
            message = f"{where} is not a trace: {problem}"
            hint = "resuming the trajectory writes it anew from its journal"
            raise UsageError(message, rule="trace.json", hint=hint) from problem
    if not isinstance(value, dict):
        raise UsageError(f"{where} is not a trace: it is not a JSON object", rule="trace.json")
    return cast("dict[str, Json]", value)


def _mend(data: bytes) -> dict[str, Json] | None:
    """Return what can be read of a document that was cut off in the middle of a part."""
    head, found, rest = data.partition(_PARTS + b"\n")
    value = _read_object(head + b"}") if found else None
    if value is None:
        return None
    parts: list[Json] = []
    for line in rest.split(b"\n"):
        part = _read_object(line[1:])
        if part is None:
            break  # the tear: what stands before it is whole
        parts.append(part)
    value["parts"] = parts
    return value


def _read_object(data: bytes) -> dict[str, Json] | None:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _encode_head(head: Mapping[str, Json]) -> bytes:
    """Return the head as an object that is still open."""
    return json.dumps(head, separators=(",", ":"), ensure_ascii=False).encode("utf-8")[:-1]


def _place_head(encoded: bytes, room: int) -> bytes:
    return encoded + b" " * (room - len(encoded) - len(_PARTS)) + _PARTS
