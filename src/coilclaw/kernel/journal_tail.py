"""The end of a journal that is open for appending, and its lock.

What is trusted is the anchor, and what this process has seen itself. Records after the anchor are
what a crash leaves when it comes between a record's sync and the anchor's rewrite: they are taken
over if they chain. Everything else that does not fit is damage, and damage is never written over.
"""

from __future__ import annotations

import fcntl
import hmac
import logging
import os
import stat
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Final

from coilclaw.kernel.atomic_file import (
    anchor_path,
    create_private,
    read_private,
    sync_data,
    sync_directory,
    write_all,
    write_atomic,
)
from coilclaw.kernel.errors import EnvironmentFault, JournalDamaged
from coilclaw.kernel.file_lock import (
    close_unshared,
    lock_file,
    open_unshared,
    this_process,
)
from coilclaw.kernel.journal_format import (
    ANCHOR_BYTES,
    KEY_BYTES,
    MAX_LINE_BYTES,
    JournalForm,
    JournalHead,
    LineFlaw,
    Signer,
    covers_records,
    parse_anchor,
    read_anchor,
    read_lines,
    torn_path,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

UNSYNCED: Final = "journal.sync"
"""The rule of a fault after which no one knows what is on the disk."""

_LOG: Final = logging.getLogger(__name__)
_APPEND: Final = os.O_RDWR | os.O_APPEND | os.O_NONBLOCK
_LOOK_BACK_BYTES: Final = 4096
_COPY_BYTES: Final = 2**20


@dataclass(frozen=True, slots=True)
class Recovered:
    """Bytes that were not a whole record, moved out of the journal."""

    path: Path
    """Where they are kept."""
    size: int
    record: int
    """The number, from 1, of the record that they would have begun."""


def damaged_error(path: Path, what: str) -> JournalDamaged:
    """Say what is wrong with a journal, and what a person can do."""
    return JournalDamaged(
        f"{path} is damaged: {what}",
        hint=(
            "verify it to see what happened; to start a new journal, move this one and "
            f"{anchor_path(path).name} aside together and keep both as evidence"
        ),
    )


class Tail:
    """Descriptors of a journal and its anchor, and the head both agreed on.

    The lock is on the journal itself: it is taken by making the object and by ``begin``, and let go
    by ``end`` and ``close``. Another process belongs to it only with an object of its own.
    """

    def __init__(
        self,
        path: Path,
        form: JournalForm,
        key_path: Path,
        *,
        timeout_s: float,
        report: Callable[[Recovered], None],
    ) -> None:
        self._path = path
        self._anchor_path = anchor_path(path)
        self._name, self._anchor_name = os.fspath(path), os.fspath(self._anchor_path)
        self._form = form
        self._timeout_s = timeout_s
        self._report = report
        self._data = self._anchor = -1
        self._process = this_process()
        try:
            self._open_locked(key_path)
            self._open_anchored(key_path)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of everything; what was open when this process was forked is closed already."""
        descriptors, self._data, self._anchor = (self._data, self._anchor), -1, -1
        if self._process is this_process():
            for descriptor in descriptors:
                if descriptor >= 0:
                    close_unshared(descriptor)

    __del__ = close

    def begin(self) -> JournalHead | None:
        """Take the lock, learn what others did since, put right what a crash left.

        ``None`` means that the names stand for other files now, which are to be opened instead.
        """
        lock_file(self._data, self._path, timeout_s=self._timeout_s)
        try:
            data, anchor = os.stat(self._name), os.stat(self._anchor_name)
        except FileNotFoundError:
            return None
        if (data.st_ino, data.st_dev, anchor.st_ino, anchor.st_dev) != self._identity:
            return None
        raw = os.pread(self._anchor, ANCHOR_BYTES + 1, 0)
        if data.st_size != self.head.size or raw != self._raw:
            self._catch_up(raw, data.st_size)
        return self.head

    def end(self) -> None:
        """Let go of the lock."""
        fcntl.flock(self._data, fcntl.LOCK_UN)

    def extend(self, data: bytes, head: JournalHead) -> None:
        """Write and sync lines that lead to ``head``, then the anchor, or leave all as it was.

        After a fault with the rule ``UNSYNCED`` it is unknown which of both is on the disk.
        """
        raw = self._signer.render(head)
        with self._taking_back("write to"):
            write_all(self._data, data)
        with self._taking_back(None):
            sync_data(self._data)
        with self._taking_back("rewrite the anchor of"):
            self._state(head, raw)

    @contextmanager
    def _taking_back(self, doing: str | None) -> Iterator[None]:
        """Cut the journal back to its head when the block fails; ``None``: while it was synced."""
        try:
            yield
        except OSError as problem:
            with self._syncing():
                os.ftruncate(self._data, self.head.size)
                os.fsync(self._data)
            if doing is None:
                raise self._unsynced_error(problem) from problem
            raise EnvironmentFault(
                f"cannot {doing} {self._path}: {problem.strerror}; nothing was appended",
                rule="journal.write",
                hint="make room on the disk, then try again",
            ) from problem

    @contextmanager
    def _syncing(self) -> Iterator[None]:
        try:
            yield
        except OSError as problem:
            raise self._unsynced_error(problem) from problem

    def _unsynced_error(self, problem: OSError) -> EnvironmentFault:
        return EnvironmentFault(f"cannot sync {self._path}: {problem.strerror}", rule=UNSYNCED)

    def _open_locked(self, key_path: Path) -> None:
        """Open the journal that has the name once the lock is ours; create it where none was."""
        while True:
            try:
                self._data = open_unshared(self._path, _APPEND)
            except FileNotFoundError:
                if self._create_locked(key_path):
                    return
                continue
            if not stat.S_ISREG(os.fstat(self._data).st_mode):
                raise EnvironmentFault(f"{self._path} is not a regular file", rule="journal.io")
            lock_file(self._data, self._path, timeout_s=self._timeout_s)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(self._data), os.lstat(self._path)):
                    return
            self.close()  # a process moved it aside while we waited

    def _create_locked(self, key_path: Path) -> bool:
        """Create the journal, unless another process does; no one sees it before it is locked.

        The anchor comes first: a journal without one was tampered with, also an empty one.
        """
        if covers_records(read_anchor(self._anchor_path)):
            if os.path.lexists(self._path):
                return False  # another process made it, and has already written to it
            raise self._damaged_error(f"it is gone, and {self._anchor_path.name} is still there")
        temporary = self._path.with_name(f".coilclaw-{os.urandom(8).hex()}.tmp")
        self._data = open_unshared(temporary, _APPEND | os.O_CREAT | os.O_EXCL)
        try:
            lock_file(self._data, temporary)
            signer = Signer(create_private(key_path, os.urandom(KEY_BYTES)))
            create_private(self._anchor_path, signer.render(JournalHead()))
            os.link(temporary, self._path, follow_symlinks=False)
        except FileExistsError:
            self.close()
            return False
        finally:
            os.unlink(temporary)
        sync_directory(self._path.parent)
        return True

    def _open_anchored(self, key_path: Path) -> None:
        raw = read_anchor(self._anchor_path)
        size = os.fstat(self._data).st_size
        if raw is None:
            if size:
                raise self._damaged_error(f"it has records but no anchor {self._anchor_path.name}")
            self._signer = Signer(create_private(key_path, os.urandom(KEY_BYTES)))
            raw = self._signer.render(JournalHead())
            write_atomic(self._anchor_path, raw, mode=0o600)
        else:
            key = read_private(key_path)
            if key is None:
                raise self._damaged_error(f"the key {key_path} of its anchor is missing")
            self._signer = Signer(key)
        anchored = self._verify_anchor(raw)
        self._anchor = open_unshared(self._anchor_path, os.O_RDWR)
        data, anchor = os.fstat(self._data), os.fstat(self._anchor)
        self._identity = (data.st_ino, data.st_dev, anchor.st_ino, anchor.st_dev)
        self.head, self._raw = anchored, raw
        self._check_anchored(anchored, size)
        self._advance(anchored, size)

    def _damaged_error(self, what: str) -> JournalDamaged:
        return damaged_error(self._path, what)

    def _verify_anchor(self, raw: bytes) -> JournalHead:
        statement = parse_anchor(raw)
        if statement is None:
            raise self._damaged_error(f"{self._anchor_path.name} is not an anchor")
        if statement.key_id != self._signer.key_id:
            raise self._damaged_error(
                f"{self._anchor_path.name} was made with key {statement.key_id}, "
                f"not with key {self._signer.key_id}",
            )
        if not hmac.compare_digest(self._signer.render(statement.head), raw):
            raise self._damaged_error(f"{self._anchor_path.name} was edited")
        return statement.head

    def _check_anchored(self, anchored: JournalHead, size: int) -> None:
        """Compare the last record that the anchor covers, without reading those before it."""
        if size < anchored.size:
            raise self._damaged_error(
                f"it has {size} bytes, and its anchor says {anchored.count} records in "
                f"{anchored.size} bytes",
            )
        if anchored.count == 0:
            return
        reach = _LOOK_BACK_BYTES
        while True:
            start = max(0, anchored.size - reach)
            piece = os.pread(self._data, anchored.size - start, start)
            newline = piece.rfind(b"\n", 0, len(piece) - 1)
            if newline >= 0 or start == 0 or reach > MAX_LINE_BYTES:
                break
            reach *= 2
        link = self._form.check(piece[newline + 1 :])
        if isinstance(link, LineFlaw) or link.own != anchored.last_hash:
            raise self._damaged_error(f"record {anchored.count} is not the one that was anchored")

    def _catch_up(self, raw: bytes, size: int) -> None:
        if size < self.head.size:
            raise self._damaged_error(
                f"it has {size} bytes, and had {self.head.size} when this process wrote",
            )
        anchored = self._verify_anchor(raw)
        if anchored.count <= self.head.count and anchored != self.head:
            raise self._damaged_error(
                f"its anchor says {anchored.count} records, and said {self.head.count} before",
            )
        self._advance(anchored, size)

    def _advance(self, anchored: JournalHead, size: int) -> None:
        """Walk from the known head to the end of the file; set aside what is not a record."""
        head = self.head
        with open(self._data, "rb", closefd=False) as file:
            for line in read_lines(file, head.size, size):
                covered = head.count < anchored.count
                link = self._form.check(line, strict=not covered)
                if isinstance(link, LineFlaw) or link.previous != head.last_hash:
                    if covered:
                        what = getattr(link, "what", "it does not follow the last")
                        raise self._damaged_error(f"record {head.count + 1} is wrong: {what}")
                    break
                head = JournalHead(head.count + 1, head.size + len(line), link.own)
                if head.count == anchored.count and head != anchored:
                    raise self._damaged_error(
                        f"record {head.count} is not the one that was anchored"
                    )
        if head.count < anchored.count:
            raise self._damaged_error(
                f"it has {head.count} records, and its anchor says {anchored.count}"
            )
        if head.size < size:
            self._set_aside(head)
        raw = self._signer.render(head)
        if head != anchored:
            with self._syncing():  # the process that wrote these records may have died before
                sync_data(self._data)
            self._state(head, raw)
        self.head, self._raw = head, raw

    def _set_aside(self, head: JournalHead) -> None:
        """Move everything after ``head`` out of the journal, whose lock we hold.

        A kill in the middle leaves the bytes in the journal, in the copy, or in both.
        """
        names = (torn_path(self._path, number) for number in count(1))
        kept = next(name for name in names if not os.path.lexists(name))
        temporary = self._path.with_name(f".coilclaw-{os.urandom(8).hex()}.tmp")
        end = head.size
        try:
            with open(
                temporary, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)
            ) as copy:
                while piece := os.pread(self._data, _COPY_BYTES, end):
                    write_all(copy.fileno(), piece)
                    end += len(piece)
                os.fsync(copy.fileno())
            os.rename(temporary, kept)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
        sync_directory(self._path.parent)
        os.ftruncate(self._data, head.size)
        os.fsync(self._data)
        self._report(Recovered(kept, end - head.size, head.count + 1))
        _LOG.warning(
            "%s ended in %d bytes that are not a record after record %d; they are kept in %s",
            *(self._path, end - head.size, head.count, kept),
        )

    def _state(self, head: JournalHead, raw: bytes) -> None:
        if os.pwrite(self._anchor, raw, 0) != len(raw):
            raise OSError(0, "only a part was written")
        self.head, self._raw = head, raw
