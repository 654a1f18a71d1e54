"""Settle calls that a crash ended, by evidence or by the word of a person."""

from __future__ import annotations

import json
import logging
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from coilclaw.agent.receipts.book import (
    ID_FIELD,
    INTENT_HASH,
    Settlement,
    calls_line,
    intents_path,
    parse_line,
)
from coilclaw.kernel import FileLock, UsageError, valid_text, write_atomic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from coilclaw.agent.receipts.book import Happened, ReceiptBook

MEMO: Final = "receipts.open.json"
OVERTAKEN: Final = "overtaken"
"""Marks an open intent whose process made a later call, so that no crash explains its state."""
_OWN: Final = re.compile(rb'"intent_hash":"([0-9a-f]{64})"')
_NAMED: Final = re.compile(rb'"(?:intent_hash|settles)":"([0-9a-f]{64})"')
"""Quotes inside a text are escaped, so that no text matches like a field."""
_TAIL_BYTES: Final = 96
"""Bytes before the stored position that must be unchanged: they hold the hash of a record."""


@dataclass(slots=True)
class _Place:
    """How far a log was read, and the last bytes before that position."""

    offset: int = 0
    tail: str = ""


def find_open(book: ReceiptBook) -> tuple[dict[str, object], ...]:
    """Return the intents without a receipt or a settlement, oldest first."""
    memo = book.key_path.with_name(MEMO)
    receipts, intents, waiting = _recall(memo)
    if not (_fits(book.path, receipts) and _fits(intents_path(book.path), intents)):
        receipts, intents, waiting = _Place(), _Place(), {}
    since = (receipts.offset, intents.offset)
    # Receipts first, so that the intent of each is among the intents that are read afterwards.
    named: set[bytes] = set()
    for line in _advance(book.path, receipts):
        named.update(_NAMED.findall(line))
    for name in [name for name in waiting if name.encode("ascii", "replace") in named]:
        del waiting[name]
    _add_open(waiting, _advance(intents_path(book.path), intents), named)
    if since != (receipts.offset, intents.offset):
        read = [[place.offset, place.tail] for place in (receipts, intents)]
        kept = json.dumps({"read": read, "open": list(waiting.values())})
        write_atomic(memo, kept.encode("ascii"), mode=0o600)
    return tuple(waiting.values())


def _add_open(
    waiting: dict[str, dict[str, object]], lines: Iterator[bytes], named: set[bytes]
) -> None:
    """Add the intents that no record names; mark one whose process made a later call."""
    last = {place: name for name, one in waiting.items() if (place := calls_line(one))}
    for line in lines:
        found = _OWN.search(line)
        closed = found is not None and found[1] in named
        if closed and not last:
            continue
        intent = parse_line(line)
        place = calls_line(intent)
        if place is not None and (before := last.pop(place, None)) is not None:
            waiting[before][OVERTAKEN] = True
        if not closed:
            name = str(intent.get(INTENT_HASH))
            waiting[name] = intent
            if place is not None:
                last[place] = name


def _advance(path: Path, place: _Place) -> Iterator[bytes]:
    """Yield the lines after a position and advance it; stop before an incomplete record."""
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


def _fits(path: Path, place: _Place) -> bool:
    """Return whether a log still holds the bytes before the position."""
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
    """Return the stored positions; empty ones if the memo is damaged, to read the logs again."""
    try:
        kept = json.loads(memo.read_bytes())
        receipts, intents = (_Place(int(offset), str(tail)) for offset, tail in kept["read"])
        waiting = {str(intent[INTENT_HASH]): dict(intent) for intent in kept["open"]}
        if all(one.offset >= len(bytes.fromhex(one.tail)) for one in (receipts, intents)):
            return receipts, intents, waiting
    except (FileNotFoundError, ValueError, KeyError, TypeError, RecursionError):
        pass
    return _Place(), _Place(), {}


_log = logging.getLogger(__name__)

BY_LOOKUP: Final = "lookup"
MAX_NOTE_CHARS: Final = 1000
LEAST_PREFIX: Final = 4
"""Characters of an id that are enough to name an intent."""


@dataclass(frozen=True, slots=True)
class SettlementFinding:
    """The established fate of a call that a crash ended."""

    happened: Happened
    note: str


LookUp: TypeAlias = "Callable[[Mapping[str, object]], SettlementFinding | None]"
"""Finds out whether an intent had its effect; ``None`` if that is unknown."""


@dataclass(frozen=True, slots=True)
class Settling:
    """Appends settlements to a book, one process at a time."""

    book: ReceiptBook
    alive: Callable[[str], bool]
    new_id: Callable[[str], str]
    timestamp: Callable[[], str]

    def settle_interrupted(self, look_up: LookUp) -> tuple[Settlement, ...]:
        """Settle the calls whose fate can be looked up; the others stay open for a person."""
        if not any(self._is_interrupted(intent) for intent in find_open(self.book)):
            return ()
        settled = []
        with self._lock():
            # Again under the lock: a process may have written its receipt before it ended.
            for intent in find_open(self.book):
                finding = look_up(intent) if self._is_interrupted(intent) else None
                if finding is not None:
                    settled.append(self._append(intent, finding, BY_LOOKUP))
        return tuple(settled)

    def settle(self, text: str, finding: SettlementFinding, by: str) -> Settlement:
        """Settle the intent whose id is, or begins with, ``text``, on the word of a person."""
        if len(finding.note) > MAX_NOTE_CHARS:
            raise UsageError(
                f"the note is longer than {MAX_NOTE_CHARS} characters", rule="settle.note"
            )
        with self._lock():
            intent = self._find_open_intent(text)
            if self.alive(str(intent.get("process"))):
                raise UsageError(
                    f"{intent[ID_FIELD]} is still running",
                    rule="settle.running",
                    hint="it gets its receipt when it ends",
                )
            return self._append(intent, finding, by)

    def _is_interrupted(self, intent: Mapping[str, object]) -> bool:
        # If its process made a later call, no crash lost the receipt: a person has to judge it.
        ours = bool(intent.get("lookup")) and not intent.get(OVERTAKEN)
        return ours and not self.alive(str(intent.get("process")))

    def _lock(self) -> FileLock:
        return FileLock(self.book.key_path.with_name("receipts.settle.lock"))

    def _find_open_intent(self, text: str) -> Mapping[str, object]:
        """Return the one unsettled intent that the text names; raise if none or several match."""
        fitting = [one for one in find_open(self.book) if _matches_name(one, text)]
        if len(fitting) == 1:
            return fitting[0]
        closed = next((one for one in self.book.intents() if _matches_name(one, text)), None)
        message, rule = f"no intent begins with {text!r}", "settle.unknown"
        hint = "'coilclaw receipt verify' lists the unsettled ones"
        if fitting:
            message, rule = f"{len(fitting)} intents begin with {text!r}", "settle.ambiguous"
            hint = "give more of the id"
        elif closed is not None:
            message = f"{closed[ID_FIELD]} needs no settlement: it has a receipt or is settled"
            rule, hint = "settle.closed", "'coilclaw receipt list' shows it"
        raise UsageError(message, rule=rule, hint=hint)

    def _append(
        self, intent: Mapping[str, object], finding: SettlementFinding, by: str
    ) -> Settlement:
        settlement = Settlement(
            id=self.new_id("settlement"),
            timestamp=self.timestamp(),
            settles=str(intent[INTENT_HASH]),
            intent=str(intent[ID_FIELD]),
            conversation_id=str(intent.get("conversation_id")),
            tool=str(intent.get("tool")),
            happened=finding.happened,
            note=valid_text(finding.note),
            by=by,
        )
        self.book.settle(settlement)
        self.book.clear_start_mark(settlement.intent)
        _log.info(
            "an interrupted call is settled: %s %s, happened: %s",
            settlement.intent,
            settlement.tool,
            settlement.happened,
            extra={
                "event": "call_settled",
                "fields": {"intent": settlement.intent, "happened": settlement.happened},
            },
        )
        return settlement


def _matches_name(intent: Mapping[str, object], text: str) -> bool:
    name = str(intent.get(ID_FIELD))
    short = text.removeprefix("intent-")
    fits = len(short) >= LEAST_PREFIX and name.removeprefix("intent-").startswith(short)
    return name == text or fits
