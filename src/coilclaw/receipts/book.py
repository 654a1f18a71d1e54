"""``ReceiptBook``: the journals of intents and receipts, side by side."""

from __future__ import annotations

from collections import deque
from functools import cached_property
from typing import TYPE_CHECKING

from coilclaw.errors import EnvironmentFault, UsageError
from coilclaw.receipts.records import (
    ID_FIELD,
    INTENT_HASH,
    RECEIPT_HASH,
    SETTLES,
    Intent,
    Receipt,
    Status,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import Self

    from coilclaw.receipts.log_mark import LogMark
    from coilclaw.receipts.records import Settlement
    from coilclaw.storage.journal import Journal

__all__ = ["Intent", "Receipt", "ReceiptBook", "Status", "intents_path"]


def intents_path(receipts: Path) -> Path:
    """Where the intents of a receipts log stand."""
    return receipts.with_name(f"{receipts.stem}.intents{receipts.suffix}")


class ReceiptBook:
    """Writes and reads the records of tool calls. Making it touches nothing.

    ``marked`` keeps beside the key what each log began with, so that emptied logs are noticed.
    ``after`` is told of each receipt once it is on the disk, and does not raise.
    """

    def __init__(
        self,
        path: Path,
        *,
        key_path: Path,
        marked: bool = False,
        after: Callable[[ReceiptBook], None] | None = None,
    ) -> None:
        self.path = path
        self.key_path = key_path
        self._marked = marked
        self._after = after

    @cached_property
    def _receipts(self) -> Journal:
        return self._journal(self.path, RECEIPT_HASH)

    @cached_property
    def _intents(self) -> Journal:
        return self._journal(intents_path(self.path), INTENT_HASH)

    def _journal(self, path: Path, hash_field: str) -> Journal:
        # A conversation without tools needs none, and should not pay for it.
        from coilclaw.storage.journal import Journal

        return Journal(path, hash_field=hash_field, id_field=ID_FIELD, key_path=self.key_path)

    @cached_property
    def marks(self) -> tuple[LogMark, ...]:
        """The marks of the receipts and of the intents; none where none are kept."""
        if not self._marked:
            return ()
        from coilclaw.receipts.log_mark import LogMark

        logs = ((self.path, RECEIPT_HASH), (intents_path(self.path), INTENT_HASH))
        return tuple(LogMark(log, hash_field=field, key_path=self.key_path) for log, field in logs)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for name in ("_receipts", "_intents"):
            if name in self.__dict__:
                getattr(self, name).close()

    def create(self) -> None:
        """Make the directories that the journals need."""
        try:
            for folder in (self.path.parent, self.key_path.parent):
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as problem:
            raise EnvironmentFault(
                f"cannot create the directory of {self.path}: {problem.strerror}",
                rule="receipts.create",
                hint="see receipts.path in the configuration",
            ) from problem

    def intend(self, intent: Intent) -> str:
        """Put an intent on the disk and return its hash."""
        return self._append(self._intents, intent.record())

    def add(self, receipt: Receipt) -> None:
        """Put a receipt on the disk."""
        self._append(self._receipts, receipt.record())
        if self._after is not None:
            self._after(self)

    def _append(self, journal: Journal, record: dict[str, object]) -> str:
        # Both are checked: a call whose receipt cannot be written must not begin.
        for mark in self.marks:
            mark.check()
        made = journal.append(record)
        for mark in self.marks:
            mark.settle()
        return made

    def settle(self, settlement: Settlement) -> None:
        """Put a settlement on the disk, into the chain of receipts."""
        self._append(self._receipts, settlement.record())

    def mark_start(self, intent_id: str) -> None:
        """Leave a mark that the call is about to start a process.

        It outlives this process, and not a crash of the machine: intents name the boot.
        """
        mark = self._start_mark(intent_id)
        mark.parent.mkdir(exist_ok=True, mode=0o700)
        mark.touch(mode=0o600)

    def has_start_mark(self, intent_id: str) -> bool:
        """Say whether the call was about to start a process."""
        return self._start_mark(intent_id).exists()

    def clear_start_mark(self, intent_id: str) -> None:
        """Forget the mark of a call that has its receipt or its settlement."""
        self._start_mark(intent_id).unlink(missing_ok=True)

    def _start_mark(self, intent_id: str) -> Path:
        return self.key_path.parent / "started" / intent_id

    def entries(self) -> Iterator[dict[str, object]]:
        """Stream receipts and settlements, oldest first, unverified."""
        return self._receipts.read()

    def receipts(self) -> Iterator[dict[str, object]]:
        """Stream all receipts, oldest first, unverified."""
        return (entry for entry in self.entries() if SETTLES not in entry)

    def settlements(self) -> Iterator[dict[str, object]]:
        """Stream all settlements, oldest first, unverified."""
        return (entry for entry in self.entries() if SETTLES in entry)

    def last(self, limit: int) -> tuple[dict[str, object], ...]:
        """The newest receipts, oldest of them first."""
        return tuple(deque(self.receipts(), maxlen=limit))

    def find(self, text: str) -> dict[str, object]:
        """Return the one receipt or settlement whose id is, or begins with, ``text``."""
        found: list[dict[str, object]] = []
        for receipt in self.entries():
            name = str(receipt.get(ID_FIELD))
            if name == text:
                return receipt
            if text and (name.startswith(text) or name.removeprefix("receipt-").startswith(text)):
                found.append(receipt)
        if len(found) == 1:
            return found[0]
        what = "there is no receipt" if not found else f"{len(found)} receipts begin with"
        raise UsageError(
            f"{what} {text!r}", rule="receipt.unknown", hint="see 'coilclaw receipt list'"
        )

    def intents(self) -> Iterator[dict[str, object]]:
        """Stream all intents, oldest first, unverified."""
        return self._intents.read()
