"""``GroupCommit``: threads that come together share one commit.

The first to come leads: it commits everything that waits, its own included. Whoever comes while it
works waits for the next round, which the first of them leads. After a round that served several,
the next waits a moment until all are back: they are on their way, and one commit for all takes
less than one for the quickest and one for the rest. Whoever completes the round leads it. A thread
that is alone never waits.

Those that were served wake one another in turn. Only one of them can run at a time anyway, and
threads that are all woken at once just go back to sleep until the interpreter is free.
"""

from __future__ import annotations

import copy
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from coilclaw.errors import CoilClawError, EnvironmentFault

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

GATHER_S: Final = 500e-6
"""How long a leader waits at most for others to come back."""

Item = TypeVar("Item")
Result = TypeVar("Result")


class _Ticket(Generic[Item, Result]):
    """One thread's request. Its ``gate`` opens when there is something new, or for no reason."""

    __slots__ = ("error", "gate", "gone", "item", "leads", "result", "served", "to_wake")

    def __init__(self, item: Item) -> None:
        self.item = item
        self.gate = threading.Lock()
        self.gate.acquire()
        self.leads = self.served = self.gone = False
        self.to_wake: _Ticket[Item, Result] | None = None
        self.result: Result | None = None
        self.error: BaseException | None = None

    def open(self) -> None:
        with suppress(RuntimeError):  # it is open already
            self.gate.release()

    def pass_on(self) -> None:
        """Wake the next of those that were served together."""
        if self.to_wake is not None:
            self.to_wake.open()
            self.to_wake = None


class GroupCommit(Generic[Item, Result]):
    """Runs ``commit`` in one thread at a time, for the requests of all that wait.

    An interrupt may reach the main thread between any two calls, and must not leave others waiting
    for ever. So a thread that is interrupted does its duty once more: every change of state can be
    repeated, and what is not this thread's to change is left alone.
    """

    def __init__(
        self, commit: Callable[[Sequence[Item]], Sequence[Result]], *, gather_s: float = GATHER_S
    ) -> None:
        self._commit = commit
        self._gather_s = gather_s
        self._mutex = threading.Lock()
        self._waiting: list[_Ticket[Item, Result]] = []
        self._leader: object = None
        """Whose turn it is to commit; nobody else may pass that on."""
        self._gathering: _Ticket[Item, Result] | None = None
        """The leader, as long as it waits for company."""
        self._expected = 1

    def submit(self, item: Item) -> Result:
        """Return this item's result once it is committed; raise what went wrong with its batch."""
        alone = object()
        ticket: _Ticket[Item, Result] | None = None
        try:
            with self._mutex:
                if self._leader is None and self._expected == 1:
                    self._leader = alone
                else:
                    ticket = _Ticket(item)
                    self._line_up(ticket)
            if ticket is not None:
                return self._wait(ticket)
            result = self._commit((item,))[0]
            self._hand_over(alone)
        except BaseException:
            self._hand_over(alone)
            if ticket is not None:
                self._abandon(ticket)
            raise
        return result

    def _line_up(self, ticket: _Ticket[Item, Result]) -> None:
        self._waiting.append(ticket)
        full = len(self._waiting) >= self._expected
        if self._leader is None:
            self._leader = ticket
            ticket.leads = True
        elif self._gathering is not None and full:
            # Taking over is quicker than waking the one that gathers.
            self._gathering.leads = False
            self._gathering = None
            self._leader = ticket
            ticket.leads = True

    def _wait(self, ticket: _Ticket[Item, Result]) -> Result:
        while not ticket.served:
            if not ticket.leads:
                ticket.gate.acquire()
            elif self._gather(ticket):
                self._lead(ticket)
        ticket.pass_on()
        if ticket.error is not None:
            raise _for_this_thread(ticket.error) from ticket.error
        assert ticket.result is not None
        return ticket.result

    def _gather(self, ticket: _Ticket[Item, Result]) -> bool:
        """Wait a moment for company; return whether the lead is still ours."""
        with self._mutex:
            if not ticket.leads:
                return False
            self._leader = ticket
            if len(self._waiting) >= self._expected:
                return True
            self._gathering = ticket
        ticket.gate.acquire(timeout=self._gather_s)
        with self._mutex:
            if self._gathering is ticket:
                self._gathering = None
                return True
        return False

    def _lead(self, own: _Ticket[Item, Result]) -> None:
        batch: list[_Ticket[Item, Result]] = []
        try:
            with self._mutex:
                batch, self._waiting = self._waiting, []
            results = self._commit([ticket.item for ticket in batch])
            for ticket, result in zip(batch, results, strict=True):
                ticket.result = result
            self._finish(own, batch)
        except BaseException as error:
            for ticket in batch:
                if ticket.result is None:
                    ticket.error = error
            self._finish(own, batch)
            raise

    def _finish(self, own: _Ticket[Item, Result], batch: list[_Ticket[Item, Result]]) -> None:
        """Begin to wake those that were served, and let the next one lead."""
        with self._mutex:
            if self._leader is own:
                self._expected = max(1, len(batch) + len(self._waiting))
            last = own
            own.served = True
            for ticket in batch:
                if ticket is not own and not ticket.gone:
                    ticket.served = True
                    last.to_wake = ticket
                    last = ticket
            own.pass_on()
        self._hand_over(own)

    def _hand_over(self, own: object) -> None:
        """Let the first that waits lead, if the lead is ours."""
        with self._mutex:
            if self._leader is not own:
                return
            if self._waiting:
                self._waiting[0].leads = True
                self._waiting[0].open()
                self._leader = self._waiting[0]
            else:
                self._leader = None

    def _abandon(self, ticket: _Ticket[Item, Result]) -> None:
        """Take a thread out of the line, and let others have what it had to do."""
        with self._mutex:
            ticket.gone = True
            if ticket in self._waiting:
                self._waiting.remove(ticket)
            if self._gathering is ticket:
                self._gathering = None
            ticket.pass_on()
        self._hand_over(ticket)


def _for_this_thread(error: BaseException) -> BaseException:
    # An exception carries the traceback of where it was raised, so each thread needs its own.
    if isinstance(error, CoilClawError):
        return copy.copy(error)
    return EnvironmentFault(
        "the thread that was writing this record for all was interrupted; "
        "whether the record was written is unknown",
        rule="journal.interrupted",
    )
