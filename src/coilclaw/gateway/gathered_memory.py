"""Many turns that are kept at the same moment share one transaction, and so one sync.

A thread that comes while a transaction is being written waits for the next one, which the first
of them writes for all. What one turn brings is still kept whole or not at all, and is on
the disk when its ``append`` returns.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from coilclaw.agent import Memory
from coilclaw.kernel import CoilClawError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coilclaw.kernel import TurnRecord


class _Waiting:
    """What one thread wants to be kept; ``gate`` opens when it is, or when it is its turn."""

    __slots__ = ("error", "gate", "next", "records", "served")

    def __init__(self, records: Sequence[TurnRecord]) -> None:
        self.records = records
        self.gate = threading.Lock()
        self.gate.acquire()
        self.served = False
        self.error: CoilClawError | None = None
        self.next: _Waiting | None = None
        """Whom to wake then: threads that are all woken at once get in each other's way."""


class GatheredMemory(Memory):
    """A memory that many threads write to; it reads through another one, beside the writing."""

    def __init__(self, reader: Memory) -> None:
        super().__init__(reader.path)
        self._reader = reader
        self._mutex = threading.Lock()
        self._line: list[_Waiting] = []
        self._busy = False
        self._new: set[str] = set()

    def begin(self, conversation_id: str) -> None:
        """Say that a conversation is new, so that it need not be looked up."""
        self._new.add(conversation_id)

    def conversation(
        self, conversation_id: str, *, last: int | None = None
    ) -> tuple[TurnRecord, ...]:
        if conversation_id in self._new:
            self._new.discard(conversation_id)
            return ()
        return self._reader.conversation(conversation_id, last=last)

    def append(self, records: Sequence[TurnRecord]) -> None:
        """Keep some records, with those that others bring meanwhile."""
        own = _Waiting(records)
        with self._mutex:
            self._line.append(own)
            leads, self._busy = not self._busy, True
        if not leads:
            own.gate.acquire()
        if not own.served:
            self._lead(own)
        if own.next is not None:
            own.next.gate.release()
        if own.error is not None:
            raise own.error

    def _lead(self, own: _Waiting) -> None:
        with self._mutex:
            batch, self._line = self._line, []
        try:
            self._keep(batch)
        finally:
            with self._mutex:
                self._busy = bool(self._line)
                following = self._line[0] if self._line else None
            last = own
            for waiting in batch:
                waiting.served = True
                if waiting is not own:
                    last.next = waiting
                    last = waiting
            if following is not None:
                following.gate.release()

    def _keep(self, batch: list[_Waiting]) -> None:
        if len(batch) > 1:
            try:
                super().append([record for waiting in batch for record in waiting.records])
            except CoilClawError:
                # One of them cannot be kept: the others must not suffer for it.
                pass
            else:
                return
        for waiting in batch:
            try:
                super().append(waiting.records)
            except CoilClawError as problem:
                waiting.error = problem
