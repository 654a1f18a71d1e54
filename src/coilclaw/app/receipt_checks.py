"""The verification of a home's receipts, with everything that the home knows of them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from coilclaw.app.agentwiring import key_path, open_config
from coilclaw.memory.store import Memory
from coilclaw.receipts.book import ReceiptBook

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from coilclaw.receipts.verification import Verification


def verify_home(home: Path, environ: Mapping[str, str] = os.environ) -> Verification:
    """Verify the receipts that the configuration of a home names."""
    config = open_config(home, environ)
    with ReceiptBook(config.receipts.path, key_path=key_path(home), marked=True) as book:
        return verify_receipts(book, config.memory.path)


def verify_receipts(book: ReceiptBook, memory: Path) -> Verification:
    """Replay the logs; where they are empty, ask the marks and the memory whether they always were.

    Nothing is written: a memory that is not there is not made either.
    """
    from coilclaw.receipts.verification import verify
    from coilclaw.runtime.identity import alive

    return verify(book, alive, lambda: _tells_of_receipts(memory))


def _tells_of_receipts(memory: Path) -> bool:
    if not memory.exists():
        return False
    with Memory(memory) as opened:
        return opened.tells_of_receipts()
