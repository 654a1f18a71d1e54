"""``Journal``: append-only records, chained by hash, synced, and shared by threads and processes.

Beside the journal ``NAME`` stand ``NAME.anchor`` (where it ends, under a key) and, after crashes,
``NAME.torn-1``… (what they left after the last whole record).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Self

from coilclaw.errors import EnvironmentFault
from coilclaw.storage import anchor as anchors
from coilclaw.storage.chain import Flaw, Form, Head, lines, parse_line
from coilclaw.storage.descriptor import this_process
from coilclaw.storage.group import GroupCommit
from coilclaw.storage.tail import UNSYNCED, Tail, damaged
from coilclaw.storage.torn import Recovered
from coilclaw.storage.view import View, open_view

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from coilclaw.storage.chain import Draft

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
        self._form = Form(hash_field, id_field)
        self._key_path = key_path.absolute()
        self._timeout_s = timeout_s
        self._writers: dict[object, _Writer] = {}
        self._poison: str | None = None
        self._recovered: tuple[Recovered, ...] = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def recovered(self) -> tuple[Recovered, ...]:
        """What this object found torn at the end of the journal, and where it is kept."""
        return self._recovered

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
        writer = self._writers.get(this_process()) or self._writer()
        return writer.group.submit((self._form.draft(record),))[0]

    def append_all(self, records: Iterable[Mapping[str, object]]) -> tuple[str, ...]:
        """Add records in one write and one sync; a crash may leave the first few of them."""
        drafts = tuple(self._form.draft(record) for record in records)
        return self._writer().group.submit(drafts) if drafts else ()

    def read(self, start: int = 0) -> Iterator[dict[str, object]]:
        """Stream the records from number ``start`` (from 0) that were there when reading began.

        Nothing is verified, except that what a crash left at the end does not show.
        """
        with open_view(self.path) as view:
            if view.file is None:
                if anchors.covers_records(view.anchor):
                    raise damaged(self.path, "it is gone, and its anchor is still there")
                return
            anchored = _anchored_size(view)
            offset = 0
            previous: object = None
            for number, line in enumerate(lines(view.file, 0, view.size)):
                covered = offset < anchored
                offset += len(line)
                if number < start:
                    continue
                record = self._covered(line, number) if covered else self._chained(line, previous)
                if record is None:
                    return
                previous = record.get(self._form.hash_field)
                yield record

    def _covered(self, line: bytes, number: int) -> dict[str, object]:
        record = parse_line(line)
        if isinstance(record, Flaw):
            raise damaged(self.path, f"line {number + 1} cannot be read: {record.what}")
        return record

    def _chained(self, line: bytes, previous: object) -> dict[str, object] | None:
        link = self._form.check(line, strict=True)
        if isinstance(link, Flaw) or (previous is not None and previous != link.previous):
            return None
        return link.record

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
            writer = self._writers.setdefault(process, _Writer(self._commit))
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
                f"this process may not append to {self.path} any more: {self._poison}",
                rule="journal.poisoned",
                hint="what is on the disk is unknown; start again, and verify the journal",
            )
        try:
            tail, head = self._begin(writer)
            results = self._extend(tail, head, batch)
            tail.end()
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

    def _begin(self, writer: _Writer) -> tuple[Tail, Head]:
        head = None if writer.tail is None else writer.tail.begin()
        if writer.tail is None or head is None:
            writer.drop()
            writer.tail = Tail(
                self.path,
                self._form,
                self._key_path,
                timeout_s=self._timeout_s,
                report=self._report,
            )
            head = writer.tail.head
        return writer.tail, head

    def _extend(
        self, tail: Tail, head: Head, batch: Sequence[tuple[Draft, ...] | None]
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
            tail.extend(data, Head(head.count + len(sealed), head.size + len(data), previous))
        return results

    def _report(self, recovered: Recovered) -> None:
        self._recovered += (recovered,)


class _Writer:
    """What one process needs to append."""

    def __init__(
        self,
        commit: Callable[[_Writer, Sequence[tuple[Draft, ...] | None]], list[tuple[str, ...]]],
    ) -> None:
        self.group: GroupCommit[tuple[Draft, ...] | None, tuple[str, ...]] = GroupCommit(
            partial(commit, self)
        )
        self.tail: Tail | None = None

    def drop(self) -> None:
        tail, self.tail = self.tail, None
        if tail is not None:
            tail.close()


def _anchored_size(view: View) -> int:
    """Return up to where lines must be whole; all of them, where no anchor says."""
    statement = None if view.anchor is None else anchors.parse(view.anchor)
    return view.size if statement is None else statement.head.size
