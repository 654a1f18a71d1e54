"""Checkpoints of the receipts: taking one, and finding histories that do not extend it.

The origin names the hash of the first receipt, so that a checkpoint of another home, or of a
history that was rewritten from its beginning, is told apart without any key. An extension line
says the same about the intents as the checkpoint does about the receipts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coilclaw.errors import UsageError
from coilclaw.receipts.book import intents_path
from coilclaw.receipts.records import INTENT_HASH, RECEIPT_HASH
from coilclaw.storage import verify as journals
from coilclaw.storage.checkpoint import Checkpoint, from_base64, to_base64

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from coilclaw.receipts.book import ReceiptBook

ORIGIN: Final = "coilclaw/receipts/"
TIME: Final = "time"
INTENTS: Final = "intents"
_NAME_CHARS: Final = 32


def take_checkpoint(book: ReceiptBook, time: str) -> Checkpoint:
    """Say how far the receipts are, as the anchors have it."""
    head = journals.read_head(book.path, key_path=book.key_path)
    origin = read_origin(book)
    if head is None or head[0] == 0 or origin is None:
        raise UsageError(
            f"there is no receipt in {book.path} to make a checkpoint of", rule="checkpoint.empty"
        )
    extensions = [f"{TIME} {time}"]
    intents = journals.read_head(intents_path(book.path), key_path=book.key_path)
    if intents is not None and intents[0]:
        extensions.append(f"{INTENTS} {intents[0]} {to_base64(intents[1])}")
    return Checkpoint(origin, head[0], head[1], tuple(extensions))


def read_origin(book: ReceiptBook) -> str | None:
    """Return what checkpoints call this log; ``None`` while it is empty."""
    first = next(journals.hashes(book.path, hash_field=RECEIPT_HASH), None)
    return None if first is None else f"{ORIGIN}{first[:_NAME_CHARS]}"


def is_of_receipts(checkpoint: Checkpoint) -> bool:
    """Tell whether a checkpoint is about receipts, of whatever home."""
    return checkpoint.origin.startswith(ORIGIN)


def find_departures(book: ReceiptBook, checkpoints: Iterable[Checkpoint]) -> tuple[str, ...]:
    """Return a sentence for each checkpoint of receipts that the logs do not extend.

    The hashes are taken as the logs claim them: whether they are true, verification says.
    """
    origin = read_origin(book)
    receipts: dict[int, list[tuple[str, str]]] = {}
    intents: dict[int, list[tuple[str, str]]] = {}
    problems = []
    for one in checkpoints:
        when = one.find(TIME) or "an unknown time"
        if origin is not None and one.origin != origin:
            problems.append(
                f"the checkpoint of {one.size} receipts of {when} is of another log: "
                "another home, or a history that was rewritten from its beginning"
            )
            continue
        receipts.setdefault(one.size, []).append((one.root, when))
        stated = one.find(INTENTS)
        if stated is not None:
            count, _, encoded = stated.partition(" ")
            root = from_base64(encoded)
            if root is None or not count.isascii() or not count.isdigit():
                problems.append(f"the checkpoint of {when} says nothing readable about intents")
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
    for count, found in enumerate(journals.hashes(path, hash_field=hash_field), 1):
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
