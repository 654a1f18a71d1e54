"""Verifying receipts: both chains, and that intents and receipts belong together.

Memory stays constant however long the logs are: receipts come in about the order of their intents,
so only the intents that still wait for theirs are kept.
"""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.errors import VerificationFailed
from coilclaw.receipts.book import intents_path
from coilclaw.receipts.records import ID_FIELD, INTENT_HASH, RECEIPT_HASH
from coilclaw.storage import verify as journals
from coilclaw.storage.paths import anchor_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from coilclaw.receipts.book import ReceiptBook
    from coilclaw.storage.verify import JournalReport

MAX_NAMED: Final = 100
"""How many intents without a receipt are named one by one."""


@dataclass(frozen=True, slots=True)
class OpenIntent:
    """An intent without a receipt: still running, or the process died in the middle."""

    id: str
    timestamp: str
    tool: str
    conversation_id: str
    running: bool


@dataclass(frozen=True, slots=True)
class Verification:
    """What was found; ``problems`` are sentences, in the order in which a person should read."""

    receipts: int
    intents: int
    broken_at: int | None
    """The number of the first receipt that does not hold, from 1."""
    problems: tuple[str, ...]
    open_intents: tuple[OpenIntent, ...]
    more_open: int = 0
    anchor: str = "valid"
    unanchored: int = 0
    torn_bytes: int = 0

    @property
    def ok(self) -> bool:
        crashed = any(not intent.running for intent in self.open_intents)
        # What stands after the anchor may be a crash's, and is not vouched for by the key.
        after = self.unanchored or self.torn_bytes
        return not (self.problems or crashed or self.more_open or after)


def verify(book: ReceiptBook, alive: Callable[[str], bool]) -> Verification:
    """Replay both logs; ``alive`` says whether the process that an intent names still runs."""
    if not book.path.exists() and not intents_path(book.path).exists():
        raise VerificationFailed(
            f"there is no log of receipts at {book.path}",
            rule="receipts.missing",
            hint="no tool was called yet, or receipts.path names another file",
        )
    matching = _Matching(intents_path(book.path))
    report = _checked(book.path, RECEIPT_HASH, book.key_path, matching.observe)
    intents = _checked(intents_path(book.path), INTENT_HASH, book.key_path, None)
    problems = [*_chain("receipt", report), *_chain("intent", intents), *matching.problems]
    waiting = matching.rest()
    found, more = _open(book, waiting, alive) if waiting else ((), 0)
    broken = report.break_.number if report and report.break_ else None
    return Verification(
        receipts=report.records if report else 0,
        intents=intents.records if intents else 0,
        broken_at=broken if broken is not None else matching.broken_at,
        problems=tuple(problems),
        open_intents=found,
        more_open=more,
        anchor=report.anchor if report else "missing",
        unanchored=report.unanchored if report else 0,
        torn_bytes=report.torn_bytes if report else 0,
    )


def _checked(
    path: Path, hash_field: str, key_path: Path, observe: journals.Observe | None
) -> JournalReport | None:
    begun = path.exists() and path.stat().st_size > 0
    if not begun and not anchor_path(path).exists():
        # Never written, or killed while it was being made: nothing was in it yet.
        return None
    return journals.verify(
        path, hash_field=hash_field, id_field=ID_FIELD, key_path=key_path, observe=observe
    )


def _chain(what: str, report: JournalReport | None) -> Iterator[str]:
    if report is not None and report.break_ is not None:
        broken = report.break_
        where = f" at {what} {broken.number}" if broken.number else ""
        name = f" ({broken.id})" if broken.id else ""
        yield f"invalid chain{where}{name}: {broken.sentence}"


class _Matching:
    """Joins receipts with their intents while both stream by."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._begin()

    def _begin(self) -> None:
        self.problems: list[str] = []
        self.broken_at: int | None = None
        self._waiting: dict[str, None] = {}
        self._intents = journals.hashes(self._path, hash_field=INTENT_HASH)

    def observe(self, number: int, receipt: Mapping[str, object]) -> None:
        if number == 1:
            self._begin()
        wanted = receipt.get(INTENT_HASH)
        if not isinstance(wanted, str) or not wanted:
            if receipt.get("status") == "allowed":
                self._problem(number, "says that a call was made, and names no intent")
            return
        if wanted in self._waiting:
            del self._waiting[wanted]
            return
        for intent in self._intents:
            if intent == wanted:
                return
            self._waiting[intent] = None
        self._problem(
            number, "names an intent that is not in the log of intents, or names it twice"
        )

    def rest(self) -> frozenset[str]:
        """The intents that no receipt names."""
        for intent in self._intents:
            self._waiting[intent] = None
        return frozenset(self._waiting)

    def _problem(self, number: int, what: str) -> None:
        if self.broken_at is None:
            self.broken_at = number
            self.problems.append(f"receipt {number} {what}")


def _open(
    book: ReceiptBook, waiting: frozenset[str], alive: Callable[[str], bool]
) -> tuple[tuple[OpenIntent, ...], int]:
    """Name the intents without a receipt; some may have got theirs while we were reading."""
    late = set(deque(journals.hashes(book.path, hash_field=INTENT_HASH), maxlen=MAX_NAMED))
    found: list[OpenIntent] = []
    more = 0
    for line in journals.raw_lines(intents_path(book.path)):
        intent = _lenient(line)
        if intent.get(INTENT_HASH) not in waiting or intent.get(INTENT_HASH) in late:
            continue
        if len(found) == MAX_NAMED:
            more += 1
            continue
        found.append(
            OpenIntent(
                str(intent.get(ID_FIELD)),
                str(intent.get("timestamp")),
                str(intent.get("tool")),
                str(intent.get("conversation_id")),
                alive(str(intent.get("process"))),
            )
        )
    return tuple(found), more


def _lenient(line: bytes) -> Mapping[str, object]:
    """A line of a log that may be damaged, which is reported elsewhere."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
