"""Receipts as they stand in the log, for whoever wants to check them without us."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coilclaw.receipts.book import intents_path
from coilclaw.storage.verify import raw_lines

if TYPE_CHECKING:
    from typing import BinaryIO

    from coilclaw.receipts.book import ReceiptBook


def export(book: ReceiptBook, target: BinaryIO, *, intents: bool = False) -> int:
    """Write the lines byte for byte, since making them anew could hide an edit; return how many."""
    count = 0
    for line in raw_lines(intents_path(book.path) if intents else book.path):
        target.write(line)
        count += 1
    return count
