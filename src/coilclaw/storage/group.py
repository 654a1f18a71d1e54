"""``GroupCommit``: threads that come together share one commit.

The first to come leads: it commits everything that waits, its own included. Whoever comes while it
works waits for the next round, which the first of them leads. After a round that served several,
the leader waits a moment for as many to come back: they are on their way, and one commit for all
takes less than one for the quickest and one for the rest. A thread that is alone never waits.
"""

from __future__ import annotations

import copy
import threading
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from coilclaw.errors import CoilClawError, EnvironmentFault

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

GATHER_S: Final = 500e-6
"""How long a leader waits at most for others to come back."""

Item = TypeVar("Item")
Result = TypeVar("Result")


class _Ticket(Generic[Item, Result]):
    """One thread's request: ``gate`` opens when it is done, or when it is its turn to lead."""

    __slots__ = ("error", "gate", "item", "leads", "result")

    def __init__(self, item: Item) -> None:
        self.item = item
        self.gate: threading.Lock | None = None
        self.leads = False
        self.result: Result | None = None
        self.error: BaseException | None = None


class GroupCommit(Generic[Item, Result]):
    """Runs ``commit`` in one thread at a time, for the requests of all that wait."""

    def __init__(self, commit: Callable[[Sequence[Item]], Sequence[Result]]) -> None:
        self._commit = commit
        self._mutex = threading.Lock()
        self._waiting: list[_Ticket[Item, Result]] = []
        self._busy = False
        self._expected = 1
        self._gathered: threading.Lock | None = None

    def submit(self, item: Item) -> Result:
        """Return this item's result once it is committed; raise what went wrong with its batch."""
        alone = False
        try:  # an interrupt may come at any instant, and must not leave all others waiting
            with self._mutex:
                alone = not self._busy and self._expected == 1
                ticket = None if alone else self._line_up(item)
                self._busy = True
            return self._commit((item,))[0] if ticket is None else self._wait(ticket)
        finally:
            if alone:
                with self._mutex:
                    self._appoint()

    def _line_up(self, item: Item) -> _Ticket[Item, Result]:
        ticket: _Ticket[Item, Result] = _Ticket(item)
        self._waiting.append(ticket)
        if not self._busy:
            ticket.leads = True
        else:
            ticket.gate = _closed()
            if self._gathered is not None and len(self._waiting) >= self._expected:
                self._gathered.release()
                self._gathered = None
        return ticket

    def _wait(self, ticket: _Ticket[Item, Result]) -> Result:
        try:
            if ticket.gate is not None:
                ticket.gate.acquire()
            if ticket.leads:
                self._gather()
                self._lead(ticket)
        except BaseException:
            self._abandon(ticket)
            raise
        if not ticket.leads and ticket.error is not None:
            raise _for_this_thread(ticket.error) from ticket.error
        assert ticket.result is not None
        return ticket.result

    def _gather(self) -> None:
        with self._mutex:
            if len(self._waiting) >= self._expected:
                return
            gathered = self._gathered = _closed()
        gathered.acquire(timeout=GATHER_S)

    def _lead(self, own: _Ticket[Item, Result]) -> None:
        batch: list[_Ticket[Item, Result]] = []
        try:
            with self._mutex:
                batch, self._waiting, self._gathered = self._waiting, [], None
                self._expected = len(batch)
            results = self._commit([ticket.item for ticket in batch])
            for ticket, result in zip(batch, results, strict=True):
                ticket.result = result
        except BaseException as error:
            for ticket in batch:
                ticket.error = error
            raise
        finally:
            for ticket in batch:
                if ticket is not own and ticket.gate is not None:
                    ticket.gate.release()
            with self._mutex:
                self._appoint()

    def _appoint(self) -> None:
        """Let the first that waits lead."""
        if not self._waiting:
            self._busy = False
            return
        ticket = self._waiting[0]
        ticket.leads = True
        if ticket.gate is not None:
            ticket.gate.release()

    def _abandon(self, ticket: _Ticket[Item, Result]) -> None:
        with self._mutex:
            if ticket in self._waiting:
                self._waiting.remove(ticket)
                if ticket.leads:
                    self._gathered = None
                    self._appoint()


def _closed() -> threading.Lock:
    gate = threading.Lock()
    gate.acquire()
    return gate


def _for_this_thread(error: BaseException) -> BaseException:
    # An exception carries the traceback of where it was raised, so each thread needs its own.
    if isinstance(error, CoilClawError):
        return copy.copy(error)
    return EnvironmentFault(
        "the thread that was writing this record for all was interrupted; "
        "whether the record was written is unknown",
        rule="journal.interrupted",
    )
