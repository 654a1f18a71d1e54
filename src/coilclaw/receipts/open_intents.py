"""Find the intents that have neither a receipt nor a settlement, without reading whole logs again.

How far both logs were read is remembered in a file beside the key. The file saves time and proves
nothing: where it does not fit the logs, they are read from the beginning.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.receipts.book import intents_path
from coilclaw.receipts.records import INTENT_HASH, calls_line
from coilclaw.storage.atomic import write_atomic

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from coilclaw.receipts.book import ReceiptBook

MEMO: Final = "receipts.open.json"
OVERTAKEN: Final = "overtaken"
"""Marks an open intent whose process went on: a crash cannot have kept its receipt away."""
_OWN: Final = re.compile(rb'"intent_hash":"([0-9a-f]{64})"')
_NAMED: Final = re.compile(rb'"(?:intent_hash|settles)":"([0-9a-f]{64})"')
"""Quotes inside of text are escaped, so that no text passes for a field."""
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
    named: set[bytes] = set()
    for line in _advance(book.path, receipts):
        named.update(_NAMED.findall(line))
    for name in [name for name in waiting if name.encode("ascii", "replace") in named]:
        del waiting[name]
    _add_open(waiting, _advance(intents_path(book.path), intents), named)
    if since != (receipts.offset, intents.offset):
        _remember(memo, receipts, intents, waiting)
    return tuple(waiting.values())


def _add_open(
    waiting: dict[str, dict[str, object]], lines: Iterator[bytes], named: set[bytes]
) -> None:
    """Add the intents that nothing names; an open one whose process went on is marked."""
    last = {place: name for name, one in waiting.items() if (place := calls_line(one))}
    for line in lines:
        found = _OWN.search(line)
        closed = found is not None and found[1] in named
        if closed and not last:
            continue
        intent = _parse(line)
        place = calls_line(intent)
        if place is not None and (before := last.pop(place, None)) is not None:
            waiting[before][OVERTAKEN] = True
        if not closed:
            name = str(intent.get(INTENT_HASH))
            waiting[name] = intent
            if place is not None:
                last[place] = name


def _advance(path: Path, place: _Place) -> Iterator[bytes]:
    """Yield the lines after a place and move it; stop before what is not a whole record."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        file.seek(place.offset)
        last = b""
        for line in file:
            if not (line.startswith(b"{") and line.endswith(b"}\n")):
                break
            yield line
            place.offset += len(line)
            last = line
        if last:
            place.tail = last[-_TAIL_BYTES:].hex()


def _parse(line: bytes) -> dict[str, object]:
    """Parse a line; one that is damaged names nothing, and verification says so."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


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
