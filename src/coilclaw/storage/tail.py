"""The end of a journal that is open for appending, and its lock.

What is trusted is the anchor, and what this process has seen itself. Records after the anchor are
what a crash leaves when it comes between a record's sync and the anchor's rewrite: they are taken
over if they chain. Everything else that does not fit is damage, and damage is never written over.
"""

from __future__ import annotations

import logging
import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from coilclaw.errors import EnvironmentFault, JournalDamaged
from coilclaw.storage import anchor as anchors
from coilclaw.storage.atomic import (
    create_private,
    read_private,
    sync_data,
    sync_directory,
    write_all,
    write_atomic,
)
from coilclaw.storage.chain import MAX_LINE_BYTES, Flaw, Form, Head, lines
from coilclaw.storage.descriptor import (
    close_unshared,
    lock,
    open_unshared,
    this_process,
    unlock,
)
from coilclaw.storage.paths import anchor_path
from coilclaw.storage.torn import Recovered, set_aside
from coilclaw.storage.view import read_anchor

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

UNSYNCED: Final = "journal.sync"
"""The rule of a fault after which nobody knows what is on the disk."""

_LOG: Final = logging.getLogger(__name__)
_APPEND: Final = os.O_RDWR | os.O_APPEND | os.O_NONBLOCK
_LOOK_BACK_BYTES: Final = 4096


def damaged(path: Path, what: str) -> JournalDamaged:
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
        form: Form,
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

    def __del__(self) -> None:
        self.close()

    def begin(self) -> Head | None:
        """Take the lock, learn what others did since, put right what a crash left.

        ``None`` means that the names stand for other files now, which are to be opened instead.
        """
        lock(self._data, self._path, timeout_s=self._timeout_s)
        try:
            data, anchor = os.stat(self._name), os.stat(self._anchor_name)
        except FileNotFoundError:
            return None
        if (data.st_ino, data.st_dev, anchor.st_ino, anchor.st_dev) != self._identity:
            return None
        raw = os.pread(self._anchor, anchors.ANCHOR_BYTES + 1, 0)
        if data.st_size != self.head.size or raw != self._raw:
            self._catch_up(raw, data.st_size)
        return self.head

    def end(self) -> None:
        unlock(self._data)

    def extend(self, data: bytes, head: Head) -> None:
        """Write and sync lines that lead to ``head``, then the anchor, or leave all as it was.

        After a fault with the rule ``UNSYNCED`` it is unknown which of both is on the disk.
        """
        raw = self._signer.render(head)
        try:
            written = os.write(self._data, data)
            if written < len(data):
                write_all(self._data, data[written:])
        except OSError as problem:
            self._take_back()
            raise self._fault("write to", problem) from problem
        try:
            sync_data(self._data)
        except OSError as problem:
            self._take_back()
            raise self._unsynced(problem) from problem
        try:
            self._state(head, raw)
        except OSError as problem:
            self._take_back()
            raise self._fault("rewrite the anchor of", problem) from problem

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
            lock(self._data, self._path, timeout_s=self._timeout_s)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(self._data), os.lstat(self._path)):
                    return
            self.close()  # somebody moved it aside while we waited

    def _create_locked(self, key_path: Path) -> bool:
        """Create the journal, unless somebody else does; nobody sees it before it is locked.

        The anchor comes first: a journal without one was tampered with, also an empty one.
        """
        if anchors.covers_records(read_anchor(self._anchor_path)):
            if os.path.lexists(self._path):
                return False  # another process made it, and has already written to it
            raise damaged(self._path, f"it is gone, and {self._anchor_path.name} is still there")
        temporary = self._path.with_name(f".coilclaw-{os.urandom(8).hex()}.tmp")
        self._data = open_unshared(temporary, _APPEND | os.O_CREAT | os.O_EXCL)
        try:
            lock(self._data, temporary)
            signer = anchors.Signer(create_private(key_path, os.urandom(anchors.KEY_BYTES)))
            create_private(self._anchor_path, signer.render(Head()))
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
                raise damaged(self._path, f"it has records but no anchor {self._anchor_path.name}")
            self._signer = anchors.Signer(create_private(key_path, os.urandom(anchors.KEY_BYTES)))
            raw = self._signer.render(Head())
            write_atomic(self._anchor_path, raw, mode=0o600)
        else:
            self._signer = anchors.Signer(self._read_key(key_path))
        anchored = self._trusted(raw)
        self._anchor = open_unshared(self._anchor_path, os.O_RDWR)
        data, anchor = os.fstat(self._data), os.fstat(self._anchor)
        self._identity = (data.st_ino, data.st_dev, anchor.st_ino, anchor.st_dev)
        self.head, self._raw = anchored, raw
        self._check_anchored(anchored, size)
        self._advance(anchored, size)

    def _read_key(self, key_path: Path) -> bytes:
        key = read_private(key_path)
        if key is None:
            raise damaged(self._path, f"the key {key_path} of its anchor is missing")
        return key

    def _trusted(self, raw: bytes) -> Head:
        statement = anchors.parse(raw)
        if statement is None:
            raise damaged(self._path, f"{self._anchor_path.name} is not an anchor")
        if statement.key_id != self._signer.key_id:
            raise damaged(
                self._path,
                f"{self._anchor_path.name} was made with key {statement.key_id}, "
                f"not with key {self._signer.key_id}",
            )
        if not self._signer.made(statement):
            raise damaged(self._path, f"{self._anchor_path.name} was edited")
        return statement.head

    def _check_anchored(self, anchored: Head, size: int) -> None:
        """Compare the last record that the anchor covers, without reading those before it."""
        if size < anchored.size:
            raise damaged(
                self._path,
                f"it has {size} bytes, and its anchor says {anchored.count} records in "
                f"{anchored.size} bytes",
            )
        if anchored.count == 0:
            return
        link = self._form.check(self._line_before(anchored.size))
        if isinstance(link, Flaw) or link.own != anchored.last_hash:
            raise damaged(self._path, f"record {anchored.count} is not the one that was anchored")

    def _line_before(self, end: int) -> bytes:
        reach = _LOOK_BACK_BYTES
        while True:
            start = max(0, end - reach)
            piece = os.pread(self._data, end - start, start)
            newline = piece.rfind(b"\n", 0, len(piece) - 1)
            if newline >= 0 or start == 0 or reach > MAX_LINE_BYTES:
                return piece[newline + 1 :]
            reach *= 2

    def _catch_up(self, raw: bytes, size: int) -> None:
        if size < self.head.size:
            raise damaged(
                self._path,
                f"it has {size} bytes, and had {self.head.size} when this process wrote",
            )
        anchored = self._trusted(raw)
        if anchored.count <= self.head.count and anchored != self.head:
            raise damaged(
                self._path,
                f"its anchor says {anchored.count} records, and said {self.head.count} before",
            )
        self._advance(anchored, size)

    def _advance(self, anchored: Head, size: int) -> None:
        """Walk from the known head to the end of the file; set aside what is no record."""
        head = self.head
        with open(self._data, "rb", closefd=False) as file:
            for line in lines(file, head.size, size):
                covered = head.count < anchored.count
                link = self._form.check(line, strict=not covered)
                if isinstance(link, Flaw) or link.previous != head.last_hash:
                    if covered:
                        what = (
                            link.what if isinstance(link, Flaw) else "it does not follow the last"
                        )
                        raise damaged(self._path, f"record {head.count + 1} is wrong: {what}")
                    break
                head = Head(head.count + 1, head.size + len(line), link.own)
                if head.count == anchored.count and head != anchored:
                    raise damaged(
                        self._path, f"record {head.count} is not the one that was anchored"
                    )
        if head.count < anchored.count:
            raise damaged(
                self._path, f"it has {head.count} records, and its anchor says {anchored.count}"
            )
        if head.size < size:
            self._set_aside(head)
        raw = self._signer.render(head)
        if head != anchored:
            self._sync()  # whoever wrote these records may have died before syncing them
            self._state(head, raw)
        self.head, self._raw = head, raw

    def _set_aside(self, head: Head) -> None:
        recovered = set_aside(self._path, self._data, head.size, head.count + 1)
        self._report(recovered)
        _LOG.warning(
            "%s ended in %d bytes that are no record after record %d; they are kept in %s",
            self._path,
            recovered.size,
            head.count,
            recovered.path,
        )

    def _state(self, head: Head, raw: bytes) -> None:
        if os.pwrite(self._anchor, raw, 0) != len(raw):
            raise OSError(0, "only a part was written")
        self.head, self._raw = head, raw

    def _take_back(self) -> None:
        try:
            os.ftruncate(self._data, self.head.size)
            os.fsync(self._data)
        except OSError as problem:
            raise self._unsynced(problem) from problem

    def _sync(self) -> None:
        try:
            sync_data(self._data)
        except OSError as problem:
            raise self._unsynced(problem) from problem

    def _unsynced(self, problem: OSError) -> EnvironmentFault:
        return EnvironmentFault(f"cannot sync {self._path}: {problem.strerror}", rule=UNSYNCED)

    def _fault(self, doing: str, problem: OSError) -> EnvironmentFault:
        return EnvironmentFault(
            f"cannot {doing} {self._path}: {problem.strerror}; nothing was appended",
            rule="journal.write",
            hint="make room on the disk, then try again",
        )
