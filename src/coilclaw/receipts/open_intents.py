"""Find the intents that have neither a receipt nor a settlement, without reading whole logs again.

How far both logs were read is remembered in a file beside the key. The file saves time and proves
nothing: where it does not fit the logs, they are read from the beginning.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.receipts.book import intents_path
from coilclaw.receipts.records import INTENT_HASH, SETTLES, calls_line
from coilclaw.storage.atomic import write_atomic

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from coilclaw.receipts.book import ReceiptBook

MEMO: Final = "receipts.open.json"
OVERTAKEN: Final = "overtaken"
"""Marks an open intent whose process went on: a crash cannot have kept its receipt away."""
_TAIL_BYTES: Final = 96
"""Bytes before the remembered place that must still be there: they hold the hash of a record."""


@dataclass(slots=True)
class _Place:
    """How far a log was read, and the last bytes before that place."""

    offset: int = 0
    tail: str = ""


def find_open(book: ReceiptBook) -> tuple[dict[str, object], ...]:
    """Return the intents without a receipt or a settlement, oldest first."""
    memo = book.key_path.with_name(MEMO)
    receipts, intents, waiting = _recall(memo)
    if not (_fits(book.path, receipts) and _fits(intents_path(book.path), intents)):
        receipts, intents, waiting = _Place(), _Place(), {}
    since = (receipts.offset, intents.offset)
    # Receipts first: the intent of each is then among the intents that are read after them.
    named: set[object] = set()
    for record in _advance(book.path, receipts):
        named.update((record.get(INTENT_HASH), record.get(SETTLES)))
    lines = {line: name for name, one in waiting.items() if (line := calls_line(one))}
    for record in _advance(intents_path(book.path), intents):
        name, line = str(record.get(INTENT_HASH)), calls_line(record)
        if line is not None:
            if (before_it := waiting.get(lines.get(line, ""))) is not None:
                before_it[OVERTAKEN] = True
            lines[line] = name
        waiting[name] = record
    for intent in named & waiting.keys():
        del waiting[str(intent)]
    if since != (receipts.offset, intents.offset):
        _remember(memo, receipts, intents, waiting)
    return tuple(waiting.values())


def _advance(path: Path, place: _Place) -> Iterator[dict[str, object]]:
    """Yield the records after a place and move it; stop before what is not a whole record."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        file.seek(place.offset)
        last = b""
        for line in file:
            record = _parse(line)
            if record is None:
                break
            yield record
            place.offset += len(line)
            last = line
        if last:
            place.tail = last[-_TAIL_BYTES:].hex()


def _parse(line: bytes) -> dict[str, object] | None:
    if not line.endswith(b"\n"):
        return None
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _fits(path: Path, place: _Place) -> bool:
    """Whether a log still holds what was read of it."""
    tail = bytes.fromhex(place.tail)
    if not place.offset:
        return True
    try:
        with path.open("rb") as file:
            file.seek(place.offset - len(tail))
            return file.read(len(tail)) == tail
    except OSError:
        return False


def _recall(memo: Path) -> tuple[_Place, _Place, dict[str, dict[str, object]]]:
    try:
        kept = json.loads(memo.read_bytes())
        places = [_Place(int(offset), str(tail)) for offset, tail in kept["read"]]
        waiting = {str(intent[INTENT_HASH]): dict(intent) for intent in kept["open"]}
        receipts, intents = places
        for place in places:
            bytes.fromhex(place.tail)
    except FileNotFoundError:
        return _Place(), _Place(), {}
    except (ValueError, KeyError, TypeError, RecursionError):
        # Whatever is wrong with it, the logs say the same again.
        return _Place(), _Place(), {}
    if any(place.offset < len(place.tail) // 2 for place in places):
        return _Place(), _Place(), {}
    return receipts, intents, waiting


def _remember(
    memo: Path, receipts: _Place, intents: _Place, waiting: Mapping[str, dict[str, object]]
) -> None:
    kept = {
        "read": [[place.offset, place.tail] for place in (receipts, intents)],
        "open": list(waiting.values()),
    }
    write_atomic(memo, json.dumps(kept).encode("ascii"), mode=0o600)
