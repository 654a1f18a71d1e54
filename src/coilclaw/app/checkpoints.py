"""Checkpoints as the configuration wants them, and how far the last one is behind."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coilclaw.app.home import signing_key_path
from coilclaw.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from coilclaw.config.values import Config
    from coilclaw.receipts.book import ReceiptBook
    from coilclaw.runtime.checkpoint_writer import CheckpointWriter
    from coilclaw.storage.signing import SigningKey


@dataclass(frozen=True, slots=True)
class CheckpointLag:
    """Where checkpoints go, which one was the last, and how many receipts came since."""

    place: str
    size: int
    time: str
    behind: int
    late: bool
    """Whether one should have been written since."""
    problem: str
    """What kept the last one from being written; empty where nothing did."""

    @property
    def sentence(self) -> str:
        """Say it all, for a person."""
        last = f"after {self.size} receipts" if self.size else "none yet"
        since = f"receipts since: {self.behind}" if self.size else f"receipts: {self.behind}"
        why = f"; {self.problem}" if self.problem else ""
        return f"last checkpoint: {last}, {since}{why}"


def checkpoint_writer(
    config: Config, home: Path, environ: Mapping[str, str]
) -> CheckpointWriter | None:
    """Return what writes checkpoints; ``None`` where the configuration names no place."""
    place = config.receipts.checkpoint
    if place is None:
        return None
    from datetime import UTC, datetime

    from coilclaw.runtime.checkpoint_writer import CheckpointWriter

    return CheckpointWriter(
        place,
        config.receipts.checkpoint_every,
        home=home,
        environ=environ,
        signing_key=lambda: find_signing_key(home),
        now=lambda: datetime.now(UTC),
    )


def find_signing_key(home: Path) -> SigningKey | None:
    """Return the key of this home; ``None`` where none was made."""
    from coilclaw.storage import signing

    return signing.find(signing_key_path(home))


def find_lag(config: Config, home: Path, book: ReceiptBook, receipts: int) -> CheckpointLag | None:
    """Say how far the last checkpoint is behind; ``None`` where none are written."""
    place = config.receipts.checkpoint
    if place is None:
        return None
    from coilclaw.receipts.log_checkpoint import read_origin
    from coilclaw.runtime.checkpoint_writer import read_state

    state = read_state(home)
    size = state.size if state.origin == read_origin(book) else 0
    behind = max(0, receipts - size)
    return CheckpointLag(
        str(place),
        size,
        state.time if size else "",
        behind,
        behind >= config.receipts.checkpoint_every,
        state.problem,
    )


def examine_lag(home: Path, environ: Mapping[str, str] = os.environ) -> CheckpointLag | None:
    """Look by the anchor alone; a configuration that cannot be read is another matter."""
    from coilclaw.app.agentwiring import key_path, open_config
    from coilclaw.receipts.book import ReceiptBook
    from coilclaw.storage.verify import read_head

    if not (home / "config.toml").exists():
        return None
    try:
        config = open_config(home, environ)
    except UsageError:
        return None
    if config.receipts.checkpoint is None:
        return None
    with ReceiptBook(config.receipts.path, key_path=key_path(home)) as book:
        head = read_head(book.path, key_path=book.key_path)
        return find_lag(config, home, book, 0 if head is None else head[0])
