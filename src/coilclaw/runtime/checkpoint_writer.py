"""``CheckpointWriter``: one checkpoint every so many receipts, and one for each sealed run.

A checkpoint that cannot be written costs no receipt. It is logged, and noted beside our state, so
that ``receipt verify`` and ``doctor`` can say how far behind the last one is.
"""

from __future__ import annotations

import json
import logging
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.errors import CoilClawError, LockTimeout
from coilclaw.receipts.log_checkpoint import take_checkpoint
from coilclaw.runtime.checkpoint_sink import write_checkpoint
from coilclaw.runtime.identity import stamp
from coilclaw.storage import checkpoint as notes
from coilclaw.storage import verify as journals
from coilclaw.storage.atomic import read_private, write_atomic
from coilclaw.storage.lock import FileLock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime
    from pathlib import Path

    from coilclaw.receipts.book import ReceiptBook
    from coilclaw.runtime.checkpoint_place import CheckpointPlace
    from coilclaw.storage.checkpoint import Checkpoint
    from coilclaw.storage.signing import SigningKey

STATE: Final = "checkpoint.json"
RETRY_S: Final = 60.0
"""How long a place that failed is left alone, so that calls do not wait for it each time."""
_LOCK_S: Final = 1.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CheckpointState:
    """The last checkpoint of the receipts that was written, and what failed since."""

    origin: str = ""
    size: int = 0
    time: str = ""
    problem: str = ""


def read_state(home: Path) -> CheckpointState:
    """Return what is noted; nothing, where nothing readable is."""
    raw = read_private(home / STATE)
    try:
        value = json.loads(raw or b"{}")
        state = CheckpointState(**value)
    except (ValueError, RecursionError, TypeError):
        return CheckpointState(problem=f"{STATE} cannot be read")
    texts = (state.origin, state.time, state.problem)
    if type(state.size) is not int or not all(type(text) is str for text in texts):
        return CheckpointState(problem=f"{STATE} cannot be read")
    return state


class CheckpointWriter:
    """Writes checkpoints for one home. Making it touches nothing."""

    def __init__(
        self,
        place: CheckpointPlace,
        every: int,
        *,
        home: Path,
        environ: Mapping[str, str],
        signing_key: Callable[[], SigningKey | None],
        now: Callable[[], datetime],
    ) -> None:
        self._place = place
        self._every = every
        self._home = home
        self._environ = environ
        self._signing_key = signing_key
        self._now = now
        self._known = 0
        self._not_before = 0.0

    def after_receipt(self, book: ReceiptBook) -> None:
        """Write a checkpoint, if enough receipts came since the last; never raise for its sake."""
        try:
            head = journals.read_head(book.path, key_path=book.key_path)
            count = 0 if head is None else head[0]
            if count - self._known >= self._every and time.monotonic() >= self._not_before:
                self._write_due(book, count)
        except LockTimeout:
            _log.info("another process writes the checkpoint")
        except CoilClawError as problem:
            self._failed(problem)

    def after_seal(self, checkpoint: Checkpoint) -> None:
        """Write the checkpoint of a run that was sealed; never raise for its sake."""
        try:
            self._write(checkpoint)
        except CoilClawError as problem:
            self._failed(problem)

    def _write_due(self, book: ReceiptBook, count: int) -> None:
        with FileLock(self._home / f"{STATE}.lock", timeout_s=_LOCK_S):
            checkpoint = take_checkpoint(book, stamp(self._now()))
            state = read_state(self._home)
            # The log may have been begun anew on purpose, and then counts from the beginning.
            written = state.size if state.origin == checkpoint.origin else 0
            if count - written >= self._every:
                self._write(checkpoint)
                written = checkpoint.size
                self._save(
                    CheckpointState(checkpoint.origin, written, checkpoint.extensions[0][5:])
                )
        self._known = written

    def _write(self, checkpoint: Checkpoint) -> None:
        text = notes.render(checkpoint, self._signing_key())
        write_checkpoint(self._place, text, home=self._home, environ=self._environ)
        _log.info(
            "checkpoint written: %s %d",
            checkpoint.origin,
            checkpoint.size,
            extra={
                "event": "checkpoint_written",
                "fields": {"origin": checkpoint.origin, "size": checkpoint.size},
            },
        )

    def _failed(self, problem: CoilClawError) -> None:
        self._not_before = time.monotonic() + RETRY_S
        _log.warning(
            "checkpoint not written: %s",
            problem.message,
            extra={"event": "checkpoint_failed", "fields": {"rule": problem.rule}},
        )
        state = read_state(self._home)
        self._save(CheckpointState(state.origin, state.size, state.time, problem.message))

    def _save(self, state: CheckpointState) -> None:
        try:
            data = json.dumps(asdict(state), sort_keys=True).encode("utf-8") + b"\n"
            write_atomic(self._home / STATE, data, mode=0o600)
        except CoilClawError as problem:
            _log.warning(
                "the state of checkpoints cannot be kept: %s",
                problem.message,
                extra={"event": "checkpoint_failed", "fields": {"rule": problem.rule}},
            )
