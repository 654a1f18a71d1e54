"""``ReceiptBook``: the journals of intents and receipts."""

from __future__ import annotations

import hmac
import json
import os
from collections import deque
from dataclasses import asdict, dataclass
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from coilclaw.kernel import (
    EnvironmentFault,
    JournalDamaged,
    UsageError,
    create_private,
    digest_bytes,
    encode_record,
    explain_os_errors,
    read_private,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path
    from typing import BinaryIO, Self

    from coilclaw.kernel import Journal

Status: TypeAlias = Literal["allowed", "denied", "failed"]
Happened: TypeAlias = Literal["yes", "no", "unknown"]

RECEIPT_HASH: Final = "receipt_hash"
INTENT_HASH: Final = "intent_hash"
ID_FIELD: Final = "id"
SETTLES: Final = "settles"
"""The field of a settlement with the hash of its intent; receipts do not have it."""
MAX_NAME_CHARS: Final = 128
_LATER: Final = frozenset({"turn_id", "call_id", "lookup"})


@dataclass(frozen=True, slots=True)
class CallRecord:
    """The base of the records of a call."""

    def record(self) -> dict[str, object]:
        """Return the fields; newer optional fields only if they have a value."""
        return {name: value for name, value in asdict(self).items() if value or name not in _LATER}


@dataclass(frozen=True, slots=True)
class Intent(CallRecord):
    """A call that is about to be made; on the disk before it starts."""

    id: str
    timestamp: str
    conversation_id: str
    tool: str
    args_hash: str
    risk: str
    policy_hash: str
    approval: str
    process: str
    """The process that makes it, as pid and start time: without a receipt it runs or crashed."""
    turn_id: str = ""
    call_id: str = ""
    """The id that the model gave to the call."""
    lookup: str = ""
    """Where to find out after a crash whether the call had its effect; empty if nowhere.

    ``nothing``: it has no effect. ``request``: it asks a server, and its fate stays unknown.
    ``change TREE/ID``: the journal of changes. ``start BOOT``: a mark that is set before a
    process starts.
    """


@dataclass(frozen=True, slots=True)
class Receipt(CallRecord):
    """The result of one attempted call."""

    id: str
    timestamp: str
    conversation_id: str
    tool: str
    args_hash: str
    result_hash: str
    status: Status
    risk: str
    intent_hash: str
    """The hash of the intent; empty for a call that ended before its intent."""
    policy_hash: str
    sandbox: str
    """The sandbox that was enforced while it ran."""
    approval: str
    """Who or what decided, such as ``policy RULE`` or ``person ann yes RULE``."""


@dataclass(frozen=True, slots=True)
class Settlement(CallRecord):
    """The fate of a call that a crash ended between its intent and its receipt."""

    id: str
    timestamp: str
    settles: str
    """The hash of the intent."""
    intent: str
    conversation_id: str
    tool: str
    happened: Happened
    note: str
    by: str
    """``lookup`` if the program found it out, or ``person NAME``."""


def calls_line(intent: Mapping[str, object]) -> tuple[str, str] | None:
    """Return the sequence that a call belongs to: a process makes one call of it at a time.

    Return ``None`` for clients of MCP, which may make several calls at once.
    """
    conversation = str(intent.get("conversation_id"))
    if conversation.startswith("mcp-"):
        return None
    return str(intent.get("process")), conversation


def shorten_name(name: str) -> str:
    """Return a name from a model as valid text of bounded length, for a record."""
    return name.encode("utf-8", "replace").decode("utf-8")[:MAX_NAME_CHARS]


def name_call(call_id: str) -> str:
    """Return the name of a call in its intent: its id, or the hash of an id that does not fit."""
    name = shorten_name(call_id)
    return name if name == call_id else digest_bytes(call_id.encode("utf-8", "backslashreplace"))


def parse_line(line: bytes) -> dict[str, object]:
    """Return a line of a log as an object; empty if it is damaged, which verification reports."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


FORMAT: Final = "coilclaw.receipts.mark.v1"
_NAME_CHARS: Final = 16


class LogMark:
    """A record of how a log began, kept apart from the log to detect its replacement."""

    def __init__(self, log: Path, *, hash_field: str, key_path: Path) -> None:
        self._log = log.absolute()
        self._hash_field = hash_field
        self._key_path = key_path.absolute()
        # Relative, so that the mark stays valid when the home is moved.
        place = os.fsencode(os.path.relpath(self._log, self._key_path.parent))
        self._place = digest_bytes(place)
        self.path: Final = self._key_path.with_name(
            f"{self._log.name}.{self._place[:_NAME_CHARS]}.mark"
        )
        self._settled = False

    def check(self) -> None:
        """Raise ``JournalDamaged`` if the log was emptied or has another first record."""
        from coilclaw.kernel import anchor_path

        problem = None if self._settled else self.find_problem()
        if problem is not None:
            raise JournalDamaged(
                problem,
                hint="restore the log; to start a new one on purpose, move it, "
                f"{anchor_path(self._log).name} and {self.path} away together and keep them "
                "as evidence",
            )

    def settle(self) -> None:
        """Create the mark once the log has its first record."""
        if not self._settled and (first := self._first()) is not None:
            create_private(self.path, self._render(first))
            self._settled = True

    def find_problem(self) -> str | None:
        """Return a sentence if the log is not the one that was marked, or ``None``."""
        raw = read_private(self.path)
        if raw is None:
            return None
        try:
            known = json.loads(raw)["first_hash"]
        except (ValueError, RecursionError, TypeError, KeyError):
            known = None
        vouched = isinstance(known, str) and read_private(self._key_path) is not None
        if not vouched or not hmac.compare_digest(raw, self._render(known)):
            return f"{self.path} was edited or created with another key"
        first = self._first()
        if first is None:
            return f"the records of {self._log} are missing: {self.path.name} proves they existed"
        if first != known:
            return f"{self._log} was replaced: its first record is not the one this home knows"
        return None

    def _first(self) -> str | None:
        """Return the hash in the first line, unverified."""
        from coilclaw.kernel import journal_verification as journals

        return next(journals.list_hashes(self._log, hash_field=self._hash_field), None)

    def _render(self, first: str) -> bytes:
        key = read_private(self._key_path)
        if key is None:
            raise EnvironmentFault(f"the key {self._key_path} is missing", rule="file.io")
        body = {
            "first_hash": first,
            "format": FORMAT,
            "key_id": sha256(key).hexdigest()[:16],
            "log": self._place,
        }
        mac = hmac.new(key, encode_record(body), sha256).hexdigest()
        return encode_record({**body, "mac": mac}) + b"\n"


__all__ = ["Intent", "Receipt", "ReceiptBook", "Status", "intents_path"]


def intents_path(receipts: Path) -> Path:
    """Return the path of the intents that belong to a log of receipts."""
    return receipts.with_name(f"{receipts.stem}.intents{receipts.suffix}")


class ReceiptBook:
    """Writes and reads the records of tool calls. Creating the object touches no file.

    With ``marked``, the first record of each log is noted beside the key, so that an emptied log is
    detected. ``after`` is called after each receipt is on the disk, and does not raise.
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
        # A conversation without tools does not need the import.
        from coilclaw.kernel import Journal

        return Journal(path, hash_field=hash_field, id_field=ID_FIELD, key_path=self.key_path)

    @cached_property
    def marks(self) -> tuple[LogMark, ...]:
        """The marks of the receipts and of the intents; empty if marks are switched off."""
        if not self._marked:
            return ()
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
        """Create the directories that the journals need."""
        hint = "see receipts.path in the configuration"
        doing = f"create the directory of {self.path}"
        with explain_os_errors(doing, rule="receipts.create", hint=hint):
            for folder in (self.path.parent, self.key_path.parent):
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def intend(self, intent: Intent) -> str:
        """Write an intent to the disk and return its hash."""
        return self._append(self._intents, intent.record())

    def add(self, receipt: Receipt) -> None:
        """Write a receipt to the disk."""
        self._append(self._receipts, receipt.record())
        if self._after is not None:
            self._after(self)

    def _append(self, journal: Journal, record: dict[str, object]) -> str:
        # Both logs are checked: a call must not begin if its receipt cannot be written.
        for mark in self.marks:
            mark.check()
        made = journal.append(record)
        for mark in self.marks:
            mark.settle()
        return made

    def settle(self, settlement: Settlement) -> None:
        """Write a settlement to the disk, into the chain of receipts."""
        self._append(self._receipts, settlement.record())

    def mark_start(self, intent_id: str) -> None:
        """Set a mark that the call is about to start a process.

        It survives this process but not a crash of the machine, so intents name the boot.
        """
        mark = self._start_mark(intent_id)
        mark.parent.mkdir(exist_ok=True, mode=0o700)
        mark.touch(mode=0o600)

    def has_start_mark(self, intent_id: str) -> bool:
        """Return whether the call was about to start a process."""
        return self._start_mark(intent_id).exists()

    def clear_start_mark(self, intent_id: str) -> None:
        """Remove the mark of a call that has its receipt or its settlement."""
        self._start_mark(intent_id).unlink(missing_ok=True)

    def _start_mark(self, intent_id: str) -> Path:
        return self.key_path.parent / "started" / intent_id

    def entries(self) -> Iterator[dict[str, object]]:
        """Stream receipts and settlements, oldest first, unverified."""
        return self._receipts.read()

    def receipts(self) -> Iterator[dict[str, object]]:
        """Stream all receipts, oldest first, unverified."""
        return (entry for entry in self.entries() if SETTLES not in entry)

    def last(self, limit: int) -> tuple[dict[str, object], ...]:
        """Return the newest receipts, oldest first."""
        return tuple(deque(self.receipts(), maxlen=limit))

    def find(self, text: str) -> dict[str, object]:
        """Return the receipt or settlement whose id is, or begins with, ``text``.

        Raise ``UsageError`` if none or several match.
        """
        found: list[dict[str, object]] = []
        for receipt in self.entries():
            name = str(receipt.get(ID_FIELD))
            if name == text:
                return receipt
            if text and (name.startswith(text) or name.removeprefix("receipt-").startswith(text)):
                found.append(receipt)
        if len(found) == 1:
            return found[0]
        count = f"{len(found)} receipts begin" if found else "no receipt begins"
        raise UsageError(
            f"{count} with {text!r}", rule="receipt.unknown", hint="see 'coilclaw receipt list'"
        )

    def intents(self) -> Iterator[dict[str, object]]:
        """Stream all intents, oldest first, unverified."""
        return self._intents.read()


def export_receipts(book: ReceiptBook, target: BinaryIO, *, intents: bool = False) -> int:
    """Write the lines unchanged, since rendering could hide an edit; return their number."""
    from coilclaw.kernel import read_raw_lines

    count = 0
    for line in read_raw_lines(intents_path(book.path) if intents else book.path):
        target.write(line)
        count += 1
    return count
