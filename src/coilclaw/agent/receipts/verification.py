"""Verify receipts: both chains, and that intents and receipts match.

Memory use does not grow with the logs: receipts follow roughly in the order of their intents, so
only the intents that still lack a receipt are kept.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, get_args

from coilclaw.agent.receipts.book import (
    ID_FIELD,
    INTENT_HASH,
    RECEIPT_HASH,
    SETTLES,
    Happened,
    calls_line,
    intents_path,
    parse_line,
)
from coilclaw.kernel import (
    Checkpoint,
    UsageError,
    VerificationFailed,
    anchor_path,
    from_base64,
    to_base64,
)
from coilclaw.kernel import journal_verification as journals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from coilclaw.agent.receipts.book import ReceiptBook
    from coilclaw.kernel import JournalReport

ORIGIN: Final = "coilclaw/receipts/"
TIME: Final = "time"
INTENTS: Final = "intents"
_NAME_CHARS: Final = 32


def take_checkpoint(book: ReceiptBook, time: str) -> Checkpoint:
    """Return a checkpoint of the receipts as their anchors record them; fail on an empty log."""
    head = journals.read_head(book.path, key_path=book.key_path)
    origin = read_origin(book)
    if head is None or head[0] == 0 or origin is None:
        raise UsageError(
            f"{book.path} has no receipts to create a checkpoint of", rule="checkpoint.empty"
        )
    extensions = [f"{TIME} {time}"]
    intents = journals.read_head(intents_path(book.path), key_path=book.key_path)
    if intents is not None and intents[0]:
        extensions.append(f"{INTENTS} {intents[0]} {to_base64(intents[1])}")
    return Checkpoint(origin, head[0], head[1], tuple(extensions))


def read_origin(book: ReceiptBook) -> str | None:
    """Return the origin of this log in checkpoints; ``None`` while the log is empty."""
    first = next(journals.list_hashes(book.path, hash_field=RECEIPT_HASH), None)
    return None if first is None else f"{ORIGIN}{first[:_NAME_CHARS]}"


def is_of_receipts(checkpoint: Checkpoint) -> bool:
    """Return whether a checkpoint is about receipts, of any home."""
    return checkpoint.origin.startswith(ORIGIN)


def find_departures(book: ReceiptBook, checkpoints: Iterable[Checkpoint]) -> tuple[str, ...]:
    """Return a sentence for each checkpoint of receipts that the logs do not extend.

    The hashes in the logs are not verified here.
    """
    origin = read_origin(book)
    receipts: dict[int, list[tuple[str, str]]] = {}
    intents: dict[int, list[tuple[str, str]]] = {}
    problems = []
    for one in checkpoints:
        when = one.find(TIME) or "an unknown time"
        if origin is not None and one.origin != origin:
            problems.append(
                f"the checkpoint of {one.size} receipts of {when} belongs to another log: "
                "another home, or a history that was rewritten from its beginning"
            )
            continue
        receipts.setdefault(one.size, []).append((one.root, when))
        stated = one.find(INTENTS)
        if stated is not None:
            count, _, encoded = stated.partition(" ")
            root = from_base64(encoded)
            if root is None or not count.isascii() or not count.isdigit():
                problems.append(f"the checkpoint of {when} has an unreadable line about intents")
            else:
                intents.setdefault(int(count), []).append((root, when))
    there = intents_path(book.path)
    problems += _departures("receipt", book.path, RECEIPT_HASH, receipts)
    problems += _departures("intent", there, INTENT_HASH, intents)
    return tuple(problems)


def _departures(
    what: str, path: Path, hash_field: str, expected: Mapping[int, list[tuple[str, str]]]
) -> Iterator[str]:
    waiting = {size: stated for size, stated in expected.items() if size}
    count = 0
    for count, found in enumerate(journals.list_hashes(path, hash_field=hash_field), 1):
        for root, when in waiting.pop(count, ()):
            if root != found:
                yield (
                    f"{what} {count} is not the one of the checkpoint of {when}: "
                    "the history was forked or rewritten"
                )
    for size, stated in sorted(waiting.items()):
        for _, when in stated:
            yield (
                f"there are {count} {what}s, and the checkpoint of {when} says {size}: "
                "the log was rolled back"
            )


MAX_NAMED: Final = 100
"""Intents without a receipt that are listed one by one."""


@dataclass(frozen=True, slots=True)
class OpenIntent:
    """An intent without a receipt: its call runs, or its process died during the call."""

    id: str
    timestamp: str
    tool: str
    conversation_id: str
    running: bool
    overtaken: bool = False
    """Whether its process made a later call in the conversation, which rules out a crash."""


@dataclass(frozen=True, slots=True)
class ReceiptVerification:
    """The findings; ``problems`` are sentences, the most important first."""

    receipts: int
    intents: int
    broken_at: int | None
    """The number of the first invalid receipt, from 1."""
    problems: tuple[str, ...]
    open_intents: tuple[OpenIntent, ...]
    more_open: int = 0
    anchor: str = "valid"
    unanchored: int = 0
    """Records of both logs after their anchors."""
    torn_bytes: int = 0
    missing: bool = False
    """Whether a log has no records although the home once had some."""
    settlements: int = 0
    unsettled: int = 0
    """Calls that a crash ended and whose fate is not settled."""

    @property
    def nothing(self) -> bool:
        """Whether no tool was called yet, so that nothing can be verified."""
        return self.ok and not self.receipts and not self.intents

    @property
    def ok(self) -> bool:
        """Whether the logs are intact; what a crash left unsettled or torn does not count."""
        # The key does not vouch for records after the anchor.
        return not (self.problems or self.unanchored)

    @property
    def settled(self) -> bool:
        """Whether the logs are intact and no crash left anything to settle or repair."""
        return self.ok and not (self.unsettled or self.torn_bytes)


def verify(
    book: ReceiptBook,
    alive: Callable[[str], bool],
    remembered: Callable[[], bool] = lambda: False,
) -> ReceiptVerification:
    """Replay both logs and return the findings.

    ``alive`` returns whether the process of an intent still runs. ``remembered`` returns whether
    the rest of the home refers to receipts; it is called only if both logs are empty and no mark
    decides.
    """
    matching = _Matching(intents_path(book.path))
    report = _verify_chain(book.path, RECEIPT_HASH, book.key_path, matching.observe)
    intents = _verify_chain(intents_path(book.path), INTENT_HASH, book.key_path, None)
    lost, missing = _find_lost(book, (report, intents), remembered)
    logs = (("receipt", book.path, report), ("intent", intents_path(book.path), intents))
    problems = [*lost, *(_describe_break(what, one) for what, _, one in logs if one and one.break_)]
    problems += matching.problems
    for what, path, one in logs:
        # An interrupted write leaves a partial line; whole lines were written by another program.
        if (
            one
            and one.torn_bytes
            and deque(journals.read_raw_lines(path), maxlen=1)[0].endswith(b"\n")
        ):
            problems.append(
                f"{one.torn_bytes} bytes at the end are not {what}s, and not a torn line"
            )
    waiting = matching.rest()
    found, more, unsettled = _open(book, waiting, alive) if waiting else ((), 0, 0)
    problems += [
        f"{intent.id} has no receipt, though its process made a later call: the receipt was lost "
        "or removed"
        for intent in found
        if intent.overtaken and not intent.running
    ]
    broken = report.break_.number if report and report.break_ else None
    return ReceiptVerification(
        receipts=report.records - matching.settlements if report else 0,
        intents=intents.records if intents else 0,
        broken_at=broken if broken is not None else matching.broken_at,
        problems=tuple(problems),
        open_intents=found,
        more_open=more,
        anchor=report.anchor if report else "missing",
        unanchored=sum(one.unanchored for one in (report, intents) if one),
        torn_bytes=sum(one.torn_bytes for one in (report, intents) if one),
        missing=missing,
        settlements=matching.settlements,
        unsettled=unsettled,
    )


def _find_lost(
    book: ReceiptBook,
    reports: tuple[JournalReport | None, JournalReport | None],
    remembered: Callable[[], bool],
) -> tuple[list[str], bool]:
    """Return the contradictions between the marks and the logs, and whether a log was emptied."""
    logs = (book.path, intents_path(book.path))
    known = tuple(mark.find_problem() for mark in book.marks) or (None, None)
    missing = any(
        not _has_records(log) and (problem is not None or (report is not None and not report.ok))
        for log, report, problem in zip(logs, reports, known, strict=True)
    )
    problems = [problem for problem in known if problem is not None]
    # Another process may make its first call meanwhile, so the logs are checked last.
    if (
        not any((missing, *map(_has_records, logs)))
        and remembered()
        and not any(map(_has_records, logs))
    ):
        return [f"the records of {book.path} are missing: the memory refers to receipts"], True
    return problems, missing


def _has_records(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def _verify_chain(
    path: Path, hash_field: str, key_path: Path, observe: journals.Observe | None
) -> JournalReport | None:
    if not _has_records(path) and not anchor_path(path).exists():
        # Never written, or the process was killed before the first record.
        return None
    try:
        return journals.verify_journal(
            path, hash_field=hash_field, id_field=ID_FIELD, key_path=key_path, observe=observe
        )
    except VerificationFailed as problem:
        gone = journals.JournalBreak(0, None, "truncated", problem.message)
        return journals.JournalReport(False, 0, 0, 0, "missing", gone)


def _describe_break(what: str, report: JournalReport) -> str:
    broken = report.break_
    assert broken is not None, "only a broken chain is described"
    where = f" at {what} {broken.number}" if broken.number else ""
    name = f" ({broken.id})" if broken.id else ""
    return f"invalid chain{where}{name}: {broken.sentence}"


class _Matching:
    """Matches receipts with their intents while both are streamed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._begin()

    def _begin(self) -> None:
        self.problems: list[str] = []
        self.broken_at: int | None = None
        self.settlements = 0
        self._waiting: dict[str, None] = {}
        self._settled: set[str] = set()
        self._intents = journals.list_hashes(self._path, hash_field=INTENT_HASH)

    def observe(self, number: int, receipt: Mapping[str, object]) -> None:
        if number == 1:
            self._begin()
        if SETTLES in receipt:
            self.settlements += 1
            self._observe_settlement(number, receipt)
            return
        wanted = receipt.get(INTENT_HASH)
        if not isinstance(wanted, str) or not wanted:
            if receipt.get("status") == "allowed":
                self._problem(number, "records a call that was made, but names no intent")
            return
        if wanted in self._settled:
            # Its process was alive but not visible here: its own receipt takes precedence.
            self._settled.discard(wanted)
        elif not self._take(wanted):
            self._problem(
                number, "names an intent that is not in the log of intents, or names it twice"
            )

    def _observe_settlement(self, number: int, settlement: Mapping[str, object]) -> None:
        wanted = str(settlement[SETTLES])
        if settlement.get("happened") not in get_args(Happened):
            self._problem(number, "settles a call, but does not say whether it happened")
        elif not self._take(wanted):
            self._problem(number, "settles an intent that is not open in the log of intents")
        else:
            self._settled.add(wanted)

    def _take(self, wanted: str) -> bool:
        """Match an open intent with its record; return whether the intent exists."""
        if wanted in self._waiting:
            del self._waiting[wanted]
            return True
        for intent in self._intents:
            if intent == wanted:
                return True
            self._waiting[intent] = None
        return False

    def rest(self) -> frozenset[str]:
        """Return the intents that no receipt names."""
        for intent in self._intents:
            self._waiting[intent] = None
        return frozenset(self._waiting)

    def _problem(self, number: int, what: str) -> None:
        if self.broken_at is None:
            self.broken_at = number
            self.problems.append(f"receipt {number} {what}")


def _open(
    book: ReceiptBook, waiting: frozenset[str], alive: Callable[[str], bool]
) -> tuple[tuple[OpenIntent, ...], int, int]:
    """Return the intents without a receipt; some may get theirs during the verification."""
    late = set(deque(journals.list_hashes(book.path, hash_field=INTENT_HASH), maxlen=MAX_NAMED))
    late |= set(deque(journals.list_hashes(book.path, hash_field=SETTLES), maxlen=MAX_NAMED))
    found: list[OpenIntent] = []
    more = unsettled = 0
    lines: dict[tuple[str, str], int] = {}
    for line in journals.read_raw_lines(intents_path(book.path)):
        intent = parse_line(line)
        place = calls_line(intent)
        before = None if place is None else lines.pop(place, None)
        if before is not None:
            found[before] = replace(found[before], overtaken=True)
        if intent.get(INTENT_HASH) not in waiting or intent.get(INTENT_HASH) in late:
            continue
        running = alive(str(intent.get("process")))
        unsettled += not running
        if len(found) == MAX_NAMED:
            more += 1
            continue
        if place is not None:
            lines[place] = len(found)
        found.append(
            OpenIntent(
                str(intent.get(ID_FIELD)),
                str(intent.get("timestamp")),
                str(intent.get("tool")),
                str(intent.get("conversation_id")),
                running,
            )
        )
    return tuple(found), more, unsettled
