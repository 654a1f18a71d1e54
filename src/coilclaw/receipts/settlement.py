"""Settle calls that a crash ended: by what can be looked up, or by what a person says."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from coilclaw.errors import UsageError
from coilclaw.receipts.open_intents import OVERTAKEN, find_open
from coilclaw.receipts.records import ID_FIELD, INTENT_HASH, Settlement
from coilclaw.storage.lock import FileLock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from coilclaw.receipts.book import ReceiptBook
    from coilclaw.receipts.records import Happened

_log = logging.getLogger(__name__)

BY_LOOKUP: Final = "lookup"
MAX_NOTE_CHARS: Final = 1000
LEAST_PREFIX: Final = 4
"""Characters of an id that name an intent."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found out about a call that a crash ended."""

    happened: Happened
    note: str


LookUp: TypeAlias = "Callable[[Mapping[str, object]], Finding | None]"
"""Looks up whether an intent had its effect; ``None`` when nothing can tell."""


@dataclass(frozen=True, slots=True)
class Settling:
    """Appends settlements to a book, one process at a time."""

    book: ReceiptBook
    alive: Callable[[str], bool]
    new_id: Callable[[str], str]
    timestamp: Callable[[], str]

    def settle_interrupted(self, look_up: LookUp) -> tuple[Settlement, ...]:
        """Settle what can be looked up; what only a person can say stays open."""
        if not any(self._interrupted(intent) for intent in find_open(self.book)):
            return ()
        settled = []
        with self._lock():
            # Again, since a call may have got its receipt before its process ended.
            for intent in find_open(self.book):
                finding = look_up(intent) if self._interrupted(intent) else None
                if finding is not None:
                    settled.append(self._append(intent, finding, BY_LOOKUP))
        return tuple(settled)

    def settle(self, text: str, finding: Finding, by: str) -> Settlement:
        """Settle the one intent whose id is, or begins with, ``text``, as a person says."""
        if len(finding.note) > MAX_NOTE_CHARS:
            raise UsageError(
                f"the note is longer than {MAX_NOTE_CHARS} characters", rule="settle.note"
            )
        with self._lock():
            intent = self._find(text)
            if self.alive(str(intent.get("process"))):
                raise UsageError(
                    f"{intent[ID_FIELD]} is still running",
                    rule="settle.running",
                    hint="its receipt follows when it ends",
                )
            return self._append(intent, finding, by)

    def _interrupted(self, intent: Mapping[str, object]) -> bool:
        # One whose process went on lost its receipt in another way, which a person has to judge.
        ours = bool(intent.get("lookup")) and not intent.get(OVERTAKEN)
        return ours and not self.alive(str(intent.get("process")))

    def _lock(self) -> FileLock:
        return FileLock(self.book.key_path.with_name("receipts.settle.lock"))

    def _find(self, text: str) -> Mapping[str, object]:
        fitting = [one for one in find_open(self.book) if _named(one, text)]
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            raise UsageError(
                f"{len(fitting)} intents begin with {text!r}",
                rule="settle.ambiguous",
                hint="give more of the id",
            )
        closed = next((one for one in self.book.intents() if _named(one, text)), None)
        if closed is not None:
            raise UsageError(
                f"{closed[ID_FIELD]} needs no settlement: it has a receipt, or is settled",
                rule="settle.closed",
                hint="'coilclaw receipt list' shows it",
            )
        raise UsageError(
            f"there is no intent {text!r}",
            rule="settle.unknown",
            hint="'coilclaw receipt verify' names those that are not settled",
        )

    def _append(self, intent: Mapping[str, object], finding: Finding, by: str) -> Settlement:
        settlement = Settlement(
            id=self.new_id("settlement"),
            timestamp=self.timestamp(),
            settles=str(intent[INTENT_HASH]),
            intent=str(intent[ID_FIELD]),
            conversation_id=str(intent.get("conversation_id")),
            tool=str(intent.get("tool")),
            happened=finding.happened,
            note=finding.note.encode("utf-8", "backslashreplace").decode("utf-8"),
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


def _named(intent: Mapping[str, object], text: str) -> bool:
    name = str(intent.get(ID_FIELD))
    short = text.removeprefix("intent-")
    fits = len(short) >= LEAST_PREFIX and name.removeprefix("intent-").startswith(short)
    return name == text or fits
