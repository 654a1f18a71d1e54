"""``Journal``: append-only records, chained by hash, synced, and shared by threads and processes.

Beside the journal ``NAME`` stand ``NAME.anchor`` (where it ends, under a key) and, after crashes,
``NAME.torn-1``… (what they left after the last whole record).
"""

from __future__ import annotations

import copy
import threading
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from coilclaw.kernel.errors import CoilClawError, EnvironmentFault
from coilclaw.kernel.file_lock import this_process
from coilclaw.kernel.journal_format import (
    JournalForm,
    JournalHead,
    LineFlaw,
    covers_records,
    open_journal_view,
    parse_line,
    read_lines,
)
from coilclaw.kernel.journal_tail import UNSYNCED, Recovered, Tail, damaged_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from coilclaw.kernel.journal_format import Draft


Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(eq=False, slots=True)
class _Ticket(Generic[Item, Result]):
    """One thread's request, and its outcome."""

    item: Item
    served: bool = False
    result: Result | None = None
    error: BaseException | None = None


@dataclass(eq=False, slots=True)
class GroupCommit(Generic[Item, Result]):
    """Runs ``commit`` in one thread at a time, for the requests of all that wait.

    The first to come leads: it commits everything that waits, its own included. Threads that come
    while it works wait for the next round, which the first of them to wake leads.
    """

    commit: Callable[[Sequence[Item]], Sequence[Result]]
    _turn: threading.Condition = field(
        init=False, default_factory=lambda: threading.Condition(threading.Lock())
    )
    _waiting: list[_Ticket[Item, Result]] = field(init=False, default_factory=list)
    _leader: _Ticket[Item, Result] | None = field(init=False, default=None)

    def submit(self, item: Item) -> Result:
        """Return this item's result once it is committed; raise what went wrong with its batch."""
        own = _Ticket[Item, Result](item)
        batch: list[_Ticket[Item, Result]] = []
        try:
            with self._turn:
                self._waiting.append(own)
                while self._leader is not None and not own.served:
                    self._turn.wait()
                if not own.served:
                    self._leader, batch, self._waiting = own, self._waiting, []
            if batch:
                results = self.commit([ticket.item for ticket in batch])
                for ticket, result in zip(batch, results, strict=True):
                    ticket.result = result
                self._finish(own, batch)
        except BaseException as error:
            for ticket in batch:
                if ticket.result is None and ticket.error is None:
                    ticket.error = error
            # An interrupt may come between any two calls, and must not leave others waiting.
            self._finish(own, batch)
            raise
        if own.error is not None:
            raise _copy_for_this_thread(own.error) from own.error
        assert own.result is not None
        return own.result

    def _finish(self, own: _Ticket[Item, Result], batch: list[_Ticket[Item, Result]]) -> None:
        """Leave the line, wake the others and let one of them lead; it may be done again."""
        with self._turn:
            for ticket in batch:
                ticket.served = True
            if own in self._waiting:
                self._waiting.remove(own)
            if self._leader is own:
                self._leader = None
            self._turn.notify_all()


def _copy_for_this_thread(error: BaseException) -> BaseException:
    # An exception carries the traceback of where it was raised, so each thread needs its own.
    if isinstance(error, CoilClawError):
        return copy.copy(error)
    return EnvironmentFault(
        "the thread that was writing this record for all was interrupted; "
        "whether the record was written is unknown",
        rule="journal.interrupted",
    )


__all__ = ["Journal", "Recovered"]


class Journal:
    """One journal. Making the object touches nothing; the first append creates what is missing.

    The object may be shared by threads and used after a fork. Directories must exist.
    """

    def __init__(
        self,
        path: Path,
        *,
        hash_field: str,
        id_field: str | None = None,
        key_path: Path,
        timeout_s: float = 60.0,
    ) -> None:
        self.path = path.absolute()  # the process may change its directory
        self._form = JournalForm(hash_field, id_field)
        self._key_path = key_path.absolute()
        self._timeout_s = timeout_s
        self._writers: dict[object, _Writer] = {}
        self._poison: str | None = None
        self._recovered: list[Recovered] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def recovered(self) -> tuple[Recovered, ...]:
        """What this object found torn at the end of the journal, and where it is kept."""
        return tuple(self._recovered)

    def open(self) -> None:
        """Do now what the first append would do: create, check the end, recover from a crash."""
        self._writer().group.submit(())

    def close(self) -> None:
        """Let go of the files; a later append opens them again."""
        writer = self._writer()
        if writer.tail is not None:
            writer.group.submit(None)

    def append(self, record: Mapping[str, object]) -> str:
        """Add one record and return its hash; it is on the disk when this returns."""
        return self._writer().group.submit((self._form.draft(record),))[0]

    def append_all(self, records: Iterable[Mapping[str, object]]) -> tuple[str, ...]:
        """Add records in one write and one sync; a crash may leave the first few of them."""
        drafts = tuple(self._form.draft(record) for record in records)
        return self._writer().group.submit(drafts) if drafts else ()

    def read(self, start: int = 0) -> Iterator[dict[str, object]]:
        """Stream the records from number ``start`` (from 0) that were there when reading began.

        Nothing is verified, except that what a crash left at the end does not show.
        """
        with open_journal_view(self.path) as view:
            if view.file is None:
                if covers_records(view.anchor):
                    raise damaged_error(self.path, "it is gone, and its anchor is still there")
                return
            # Up to the anchor lines must be whole; all of them, where no anchor says.
            statement = view.statement
            anchored = view.size if statement is None else statement.head.size
            offset = 0
            previous: object = None
            for number, line in enumerate(read_lines(view.file, 0, view.size)):
                covered = offset < anchored
                offset += len(line)
                if number < start:
                    continue
                if covered:
                    record = parse_line(line)
                    if isinstance(record, LineFlaw):
                        what = f"line {number + 1} cannot be read: {record.what}"
                        raise damaged_error(self.path, what)
                else:
                    link = self._form.check(line, strict=True)
                    if isinstance(link, LineFlaw) or previous not in (None, link.previous):
                        return
                    record = link.record
                previous = record.get(self._form.hash_field)
                yield record

    def _writer(self) -> _Writer:
        process = this_process()
        writer = self._writers.get(process)
        if writer is None:
            # After a fork: locks that were held at that instant stay behind with the old writer.
            # Each dictionary operation is atomic, so that fresh threads agree without a lock.
            for stale in [other for other in self._writers if other is not process]:
                left = self._writers.pop(stale, None)
                if left is not None:
                    left.drop()
            fresh = _Writer()
            fresh.group = GroupCommit(partial(self._commit, fresh))
            writer = self._writers.setdefault(process, fresh)
        return writer

    def _commit(
        self, writer: _Writer, batch: Sequence[tuple[Draft, ...] | None]
    ) -> list[tuple[str, ...]]:
        closing = None in batch
        if closing and not any(batch):
            writer.drop()
            return [()] * len(batch)
        if self._poison is not None:
            raise EnvironmentFault(
                f"this process can no longer append to {self.path}: {self._poison}",
                rule="journal.poisoned",
                hint="the last write may be incomplete; restart CoilClaw and verify the journal",
            )
        try:
            head = None if writer.tail is None else writer.tail.begin()
            if writer.tail is None or head is None:
                writer.drop()
                writer.tail = Tail(
                    self.path,
                    self._form,
                    self._key_path,
                    timeout_s=self._timeout_s,
                    report=self._recovered.append,
                )
                head = writer.tail.head
            results = self._extend(writer.tail, head, batch)
            writer.tail.end()
        except OSError as problem:
            writer.drop()
            raise EnvironmentFault(
                f"cannot append to {self.path}: {problem.strerror or problem}", rule="journal.io"
            ) from problem
        except BaseException as error:
            # Whatever happened, the lock is let go, and the next append looks at the files afresh.
            writer.drop()
            if isinstance(error, EnvironmentFault) and error.rule == UNSYNCED:
                self._poison = error.message
            raise
        if closing:
            writer.drop()
        return results

    def _extend(
        self, tail: Tail, head: JournalHead, batch: Sequence[tuple[Draft, ...] | None]
    ) -> list[tuple[str, ...]]:
        previous = head.last_hash
        sealed: list[bytes] = []
        results: list[tuple[str, ...]] = []
        for drafts in batch:
            hashes: list[str] = []
            for draft in drafts or ():
                line, previous = self._form.seal(draft, previous)
                sealed.append(line)
                hashes.append(previous)
            results.append(tuple(hashes))
        if sealed:
            data = b"".join(sealed)
            tail.extend(
                data, JournalHead(head.count + len(sealed), head.size + len(data), previous)
            )
        return results


@dataclass(eq=False, slots=True)
class _Writer:
    """What one process needs to append."""

    tail: Tail | None = None
    group: GroupCommit[tuple[Draft, ...] | None, tuple[str, ...]] = field(init=False)

    def drop(self) -> None:
        tail, self.tail = self.tail, None
        if tail is not None:
            tail.close()
