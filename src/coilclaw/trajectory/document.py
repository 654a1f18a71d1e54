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

from coilclaw.errors import EnvironmentFault, UsageError
from coilclaw.storage.atomic import sync_directory

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from coilclaw.domain.messages import Json

HEAD_BYTES: Final = 2**16
"""The smallest place for the head."""
_PARTS: Final = b',"parts":['
_TAIL: Final = b"\n]}\n"
# A line begins with something that is no part of it, so that no beginning of it, written over the
# tail, can be taken for a part, and the line before it stays whole.
_FIRST: Final = b"\n "
_NEXT: Final = b"\n,"
_CHUNK: Final = 2**20


class Document:
    """The document of one trajectory while it is being recorded; one writer at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = -1
        self._head_bytes = 0
        self._end = 0
        self._parts = 0

    def rebuild(self, head: Mapping[str, Json], parts: Iterable[Mapping[str, Json]]) -> None:
        """Write the whole document from what the journal holds, and put it in place at once."""
        encoded = _encoded(head)
        room = _room(len(encoded) + len(_PARTS))
        temporary = self.path.with_name(f".{self.path.name}.tmp")
        count, size = 0, room
        try:
            with temporary.open("wb") as file:
                file.write(_placed(encoded, room))
                for part in parts:
                    line = (_NEXT if count else _FIRST) + line_of(part)
                    file.write(line)
                    size += len(line)
                    count += 1
                size += file.write(_TAIL)
                file.flush()
                os.fdatasync(file.fileno())
            os.replace(temporary, self.path)
            sync_directory(self.path.parent)
            self.close()
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError as problem:
            raise self._fault(problem) from problem
        self._head_bytes, self._end, self._parts = room, size, count

    def append(self, part: Mapping[str, Json]) -> None:
        """Add a part; the journal has it already."""
        data = (_NEXT if self._parts else _FIRST) + line_of(part) + _TAIL
        at = self._end - len(_TAIL)
        self._write(data, at)
        self._end = at + len(data)
        self._parts += 1

    def set_head(self, head: Mapping[str, Json]) -> None:
        """Say anew what stands before the parts."""
        encoded = _encoded(head)
        if len(encoded) + len(_PARTS) > self._head_bytes:
            self._move(encoded)
        else:
            self._write(_placed(encoded, self._head_bytes), 0)
        self.sync()

    def sync(self) -> None:
        """Make it durable; the parts in between need not be, since the journal is."""
        try:
            os.fdatasync(self._descriptor)
        except OSError as problem:
            raise self._fault(problem) from problem

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _move(self, encoded: bytes) -> None:
        """Copy the parts behind a larger head."""
        room = _room(len(encoded) + len(_PARTS))
        temporary = self.path.with_name(f".{self.path.name}.tmp")
        try:
            with temporary.open("wb") as file:
                file.write(_placed(encoded, room))
                at = self._head_bytes
                while piece := os.pread(self._descriptor, _CHUNK, at):
                    file.write(piece)
                    at += len(piece)
                file.flush()
                os.fdatasync(file.fileno())
            os.replace(temporary, self.path)
            sync_directory(self.path.parent)
            os.close(self._descriptor)
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError as problem:
            raise self._fault(problem) from problem
        self._end += room - self._head_bytes
        self._head_bytes = room

    def _write(self, data: bytes, at: int) -> None:
        try:
            written = os.pwrite(self._descriptor, data, at)
            while written < len(data):
                written += os.pwrite(self._descriptor, data[written:], at + written)
        except OSError as problem:
            raise self._fault(problem) from problem

    def _fault(self, problem: OSError) -> EnvironmentFault:
        return EnvironmentFault(f"cannot write {self.path}: {problem.strerror}", rule="trace.write")


def line_of(part: Mapping[str, Json]) -> bytes:
    """One part as it stands in the document; sorted, since the journal is, to the byte the same."""
    text = json.dumps(part, separators=(",", ":"), ensure_ascii=False, sort_keys=True)
    return text.encode("utf-8")


def exactly(data: bytes) -> Json:
    """Read JSON in which no name stands twice, which others might read in another way."""
    value: Json = json.loads(data, object_pairs_hook=_once)
    return value


def _once(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name stands twice in an object")
    return found


def is_whole(data: bytes) -> bool:
    """Whether a document ends as one does; a kill in the middle of a write leaves it torn."""
    return data.endswith(_TAIL)


def parse(data: bytes, where: str) -> dict[str, Json]:
    """Read a document; of one with a torn tail, everything up to the tear."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as problem:
        value = _mended(data)
        if value is None:
            raise UsageError(
                f"{where} is no trace: {problem}",
                rule="trace.json",
                hint="resuming the trajectory writes it anew from its journal",
            ) from problem
    if not isinstance(value, dict):
        raise UsageError(f"{where} is no trace: it is no JSON object", rule="trace.json")
    return cast("dict[str, Json]", value)


def _mended(data: bytes) -> dict[str, Json] | None:
    """What can be read of a document that was cut off in the middle of a part."""
    head, found, rest = data.partition(_PARTS + b"\n")
    value = _object(head + b"}") if found else None
    if value is None:
        return None
    parts: list[Json] = []
    for line in rest.split(b"\n"):
        part = _object(line[1:])
        if part is None:
            break  # the tear: what stands before it is whole
        parts.append(part)
    value["parts"] = parts
    return value


def _object(data: bytes) -> dict[str, Json] | None:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _encoded(head: Mapping[str, Json]) -> bytes:
    """The head as an object that is still open."""
    return json.dumps(head, separators=(",", ":"), ensure_ascii=False).encode("utf-8")[:-1]


def _placed(encoded: bytes, room: int) -> bytes:
    return encoded + b" " * (room - len(encoded) - len(_PARTS)) + _PARTS


def _room(size: int) -> int:
    room = HEAD_BYTES
    while room < size:
        room *= 2
    return room
