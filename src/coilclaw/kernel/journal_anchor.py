"""The keyed head anchor: a statement beside a journal of where it ends, which no one can forge;
and one consistent view of both files.

It is one line of canonical JSON, padded to one disk sector and rewritten in place by a single
write under the journal's lock: a reader that holds the lock, a kill at any instant and a power cut
all leave one whole statement. Without the key none can be made, and the
journal cannot be shortened unseen. It does not defend against putting back an old journal together
with its old anchor.
"""

from __future__ import annotations

import fcntl
import hmac
import json
import os
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, BinaryIO, Final

from coilclaw.kernel.atomic_file import anchor_path, open_regular
from coilclaw.kernel.errors import explain_os_errors
from coilclaw.kernel.file_lock import lock_file
from coilclaw.kernel.journal_line import JournalHead
from coilclaw.kernel.strict_json import MAX_INTEGER

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def torn_path(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.torn-{number}")


ANCHOR_BYTES: Final = 512
KEY_BYTES: Final = 32
FORMAT: Final = "coilclaw.journal.anchor.v1"
_FIELDS: Final = {"bytes", "count", "format", "key_id", "last_hash", "mac"}


@dataclass(frozen=True, slots=True)
class Statement:
    """What an anchor says; who signed it is for the holder of the key to check."""

    head: JournalHead
    key_id: str


class Signer:
    """Makes and recognises the anchors of one key, by HMAC-SHA256."""

    def __init__(self, key: bytes) -> None:
        self.key_id: Final = sha256(key).hexdigest()[:16]
        """Names the key without giving it away."""
        self._key = key

    def render(self, head: JournalHead) -> bytes:
        """Return the exact bytes of the anchor for a head."""
        # Hexadecimal and integers need no escaping, so that this is canonical JSON already. An
        # encoder would take a good part of the time of an append.
        body = (
            f'{{"bytes":{head.size},"count":{head.count},"format":"{FORMAT}",'
            f'"key_id":"{self.key_id}","last_hash":"{head.last_hash}"}}'
        )
        mac = hmac.digest(self._key, body.encode("ascii"), "sha256").hex()
        # The signature is the last member, and the line is as long as a sector.
        return f'{body[:-1]},"mac":"{mac}"}}'.ljust(ANCHOR_BYTES - 1).encode("ascii") + b"\n"


def parse_anchor(raw: bytes) -> Statement | None:
    """Return what an anchor says; ``None`` where the bytes do not have its form.

    Only who holds the key can tell whether they are exactly what a ``Signer`` rendered.
    """
    if len(raw) != ANCHOR_BYTES or not raw.isascii():
        return None
    try:
        record = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    if type(record) is not dict or set(record) != _FIELDS or record["format"] != FORMAT:
        return None
    count, size = record["count"], record["bytes"]
    last_hash, name, _ = texts = (record["last_hash"], record["key_id"], record["mac"])
    if any(type(number) is not int or not 0 <= number <= MAX_INTEGER for number in (count, size)):
        return None
    if any(type(text) is not str or not text.isascii() or not text.isalnum() for text in texts):
        return None
    head = JournalHead(count, size, last_hash)
    return Statement(head, name)


def covers_records(raw: bytes | None) -> bool:
    """Whether there is an anchor for records, or one that cannot be read."""
    statement = None if raw is None else parse_anchor(raw)
    return raw is not None and (statement is None or statement.head.count > 0)


@dataclass(frozen=True, slots=True)
class JournalView:
    """A journal's file, how long it was when no one was writing, and its anchor at that moment."""

    file: BinaryIO | None
    size: int
    anchor: bytes | None

    @property
    def statement(self) -> Statement | None:
        """What the anchor says, if it can be read."""
        return None if self.anchor is None else parse_anchor(self.anchor)


@contextmanager
def open_journal_view(path: Path) -> Iterator[JournalView]:
    """Open a journal for reading; its lock is held only while the view is taken."""
    with explain_os_errors(f"read {path}", rule="journal.io"), ExitStack() as on_failure:
        file = open_regular(path, rule="journal.io")
        size = 0
        if file is not None:
            on_failure.enter_context(file)
            lock_file(file.fileno(), path, shared=True)
            size = os.fstat(file.fileno()).st_size
        view = JournalView(file, size, read_anchor(anchor_path(path)))
        if file is not None:
            fcntl.flock(file.fileno(), fcntl.LOCK_UN)
        opened = on_failure.pop_all()
    with opened:
        yield view


def read_anchor(path: Path) -> bytes | None:
    """Return the bytes of an anchor file, or a little more than it may hold."""
    file = open_regular(path, rule="journal.io")
    if file is None:
        return None
    with file:
        return file.read(ANCHOR_BYTES + 1)
