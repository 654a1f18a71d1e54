"""The bytes of a journal: its lines, the keyed anchor beside it, and one consistent view of both.

A line is the RFC 8785 form of the caller's record with two more fields: ``previous_hash``, and the
record's own hash under the name the caller gave. The hash is the SHA-256 of the line's bytes with
the hash member cut out, so checking needs no encoder. The cut is unambiguous: the text cut out
holds the hash itself, and a line that held it a second time would have to contain its own SHA-256.

The anchor says where the journal ends. It is one line of canonical JSON, padded to one disk sector
and rewritten in place by a single write under the journal's lock: a reader that holds the lock, a
kill at any instant and a power cut all leave one whole statement. It cannot be made without the
key, so the journal cannot be shortened unseen. It does not defend against putting back an old
journal together with its old anchor.
"""

from __future__ import annotations

import fcntl
import hmac
import json
import os
import re
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, BinaryIO, Final, Literal

from coilclaw.kernel.atomic_file import anchor_path, open_regular
from coilclaw.kernel.canonical_json import encode_record
from coilclaw.kernel.errors import UsageError, explain_os_errors
from coilclaw.kernel.file_lock import lock_file
from coilclaw.kernel.strict_json import MAX_INTEGER

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

PREVIOUS: Final = "previous_hash"
FIRST_HASH: Final = "0" * 64
"""What the first record names as its predecessor's hash."""

MAX_LINE_BYTES: Final = 16 * 2**20
_DRAIN_BYTES: Final = 64 * 2**10
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


@dataclass(frozen=True, slots=True)
class JournalHead:
    """Where a journal ends: after how many records and bytes, and with which hash."""

    count: int = 0
    size: int = 0
    last_hash: str = FIRST_HASH


@dataclass(frozen=True, slots=True)
class Draft:
    """A record that is checked and encoded, and waits for its predecessor's hash."""

    opening: bytes
    closing: bytes
    cut: int
    """Where the hash member goes."""


@dataclass(frozen=True, slots=True)
class JournalLink:
    """A line whose own hash is right."""

    previous: str
    own: str
    record: dict[str, object]


@dataclass(frozen=True, slots=True)
class LineFlaw:
    """What is wrong with a line by itself."""

    reason: Literal["unparsable", "edited"]
    what: str
    previous: str | None = None
    record: dict[str, object] | None = None


@dataclass(frozen=True, slots=True)
class JournalForm:
    """The field names of one journal, and with them the exact shape of its lines."""

    hash_field: str
    id_field: str | None = None
    _mark: str = field(
        init=False, repr=False, compare=False, default_factory=lambda: os.urandom(32).hex()
    )
    """Stands for both hashes while a record is encoded; random, so that no record can hold it."""
    _member: bytes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in (self.hash_field, self.id_field):
            if name is not None and (name == PREVIOUS or not _NAME.fullmatch(name)):
                raise UsageError(f"{name!r} cannot name a journal's field", rule="journal.field")
        if self.hash_field == self.id_field:
            raise UsageError("a journal's hash and id need two fields", rule="journal.field")
        shape = '"%s":"%%b",' if self.hash_field < PREVIOUS else ',"%s":"%%b"'
        object.__setattr__(self, "_member", (shape % self.hash_field).encode("ascii"))

    def draft(self, record: Mapping[str, object]) -> Draft:
        """Check and encode a record; ``UsageError`` says what a journal does not take."""
        if PREVIOUS in record or self.hash_field in record:
            name = PREVIOUS if PREVIOUS in record else self.hash_field
            raise UsageError(
                f"record has a field {name!r}, which the journal adds", rule="journal.reserved"
            )
        marked = encode_record({**record, PREVIOUS: self._mark, self.hash_field: self._mark})
        # A mark is as long as the hash that takes its place; the newline comes on top.
        if len(marked) >= MAX_LINE_BYTES:
            raise UsageError(
                f"record takes {len(marked) + 1} bytes; a journal's line holds {MAX_LINE_BYTES}",
                rule="journal.long",
            )
        before, between, after = marked.split(self._mark.encode("ascii"))
        # What is cut off each time is the rest of the hash member: its name, quotes and comma.
        rest = len(self.hash_field) + 4
        if self.hash_field < PREVIOUS:
            return Draft(before[:-rest] + between[2:], after, len(before) - rest)
        cut = len(before) + len(FIRST_HASH) + len(between) - rest - 1
        return Draft(before, between[: -rest - 1] + after[1:], cut)

    def seal(self, draft: Draft, previous: str) -> tuple[bytes, str]:
        """Return the line of a draft that follows ``previous``, and its hash."""
        body = draft.opening + previous.encode("ascii") + draft.closing
        own = sha256(body).hexdigest()
        member = self._member % own.encode("ascii")
        return b"%b%b%b\n" % (body[: draft.cut], member, body[draft.cut :]), own

    def check(self, line: bytes, *, strict: bool = False) -> JournalLink | LineFlaw:
        """Check a line by itself; ``strict`` also proves that all of it is canonical.

        Without ``strict`` that follows from the hash, unless the writer of the line made both.
        """
        record = parse_line(line)
        if isinstance(record, LineFlaw):
            return record
        previous, own = record.get(PREVIOUS), record.get(self.hash_field)
        if type(previous) is not str or type(own) is not str:
            name = self.hash_field if type(own) is not str else PREVIOUS
            return LineFlaw("edited", f"it has no {name}", None, record)
        before, found, after = line.partition(self._member % own.encode("utf-8", "replace"))
        body = sha256(before)
        body.update(memoryview(after)[:-1])
        # The keys' order matters for the hash member alone: all else is under the hash.
        if not found or body.hexdigest() != own or list(record) != sorted(record):
            if _has_twins(line):
                return LineFlaw("unparsable", "it names a key twice", previous, record)
            return LineFlaw(
                "edited", f"its content does not have its {self.hash_field}", previous, record
            )
        if strict and not _is_canonical(record, line):
            return LineFlaw("edited", "it is not in canonical form", previous, record)
        return JournalLink(previous, own, record)

    def identify(self, record: Mapping[str, object] | None) -> str | None:
        """Return a record's id for messages."""
        if record is None or self.id_field is None:
            return None
        value = record.get(self.id_field)
        return str(value) if isinstance(value, str | int) else None


def read_lines(file: BinaryIO, start: int, end: int) -> Iterator[bytes]:
    """Stream the lines between two offsets; of one that is too long only the beginning is kept."""
    file.seek(start)
    left = end - start
    while left > 0:
        line = file.readline(min(left, MAX_LINE_BYTES + 1))
        if not line:
            return
        left -= len(line)
        if len(line) > MAX_LINE_BYTES:
            piece = line
            while piece and left > 0 and not piece.endswith(b"\n"):
                piece = file.readline(min(left, _DRAIN_BYTES))
                left -= len(piece)
        yield line


def parse_line(line: bytes) -> dict[str, object] | LineFlaw:
    """Return the record on a line, unchecked."""
    if len(line) > MAX_LINE_BYTES:
        return LineFlaw("unparsable", f"it is longer than {MAX_LINE_BYTES} bytes")
    if not line.endswith(b"\n"):
        return LineFlaw("unparsable", "it does not end with a newline")
    try:
        record = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError):
        return LineFlaw("unparsable", "it is not JSON")
    if type(record) is not dict:
        return LineFlaw("unparsable", "it is not a JSON object")
    return record


def _is_canonical(record: dict[str, object], line: bytes) -> bool:
    try:
        return encode_record(record) == line[:-1]
    except UsageError:
        return False


def _has_twins(line: bytes) -> bool:
    twins = False

    def collect(pairs: list[tuple[str, object]]) -> None:
        nonlocal twins
        twins = twins or len({key for key, _ in pairs}) < len(pairs)

    json.loads(line.decode("utf-8"), object_pairs_hook=collect)
    return twins


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
