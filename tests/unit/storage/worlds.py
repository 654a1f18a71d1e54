"""Small journals to work on, and forked children that work on them."""

from __future__ import annotations

import os
import signal
import traceback
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from coilclaw.kernel.journal import Journal
from coilclaw.kernel.journal_verification import JournalReport, verify_journal
from tests.support.children import PATIENCE_S

HASH_FIELD = "receipt_hash"
ID_FIELD = "id"


@dataclass(frozen=True, slots=True)
class World:
    """A directory with one journal and its key."""

    directory: Path

    @property
    def path(self) -> Path:
        return self.directory / "receipts.jsonl"

    @property
    def anchor(self) -> Path:
        return self.directory / "receipts.jsonl.anchor"

    @property
    def key(self) -> Path:
        return self.directory / "key"

    def journal(self) -> Journal:
        return Journal(self.path, hash_field=HASH_FIELD, id_field=ID_FIELD, key_path=self.key)

    def fill(self, count: int, start: int = 1) -> World:
        with self.journal() as journal:
            journal.append_all(record(number) for number in range(start, start + count))
        return self

    def verify(self) -> JournalReport:
        return verify_journal(
            self.path, hash_field=HASH_FIELD, id_field=ID_FIELD, key_path=self.key
        )

    def lines(self) -> list[bytes]:
        return self.path.read_bytes().splitlines(keepends=True)

    def put(self, lines: Iterable[bytes]) -> None:
        self.path.write_bytes(b"".join(lines))

    def names(self) -> set[str]:
        return set(os.listdir(self.directory))


def record(number: int) -> dict[str, object]:
    return {
        "id": f"r-{number}",
        "tool": "shell",
        "arguments": '{"argv":["ls"]}',
        "number": number,
        "ok": True,
    }


def sound(records: int, *, unanchored: int = 0, torn_bytes: int = 0) -> JournalReport:
    return JournalReport(
        ok=True,
        records=records,
        unanchored=unanchored,
        torn_bytes=torn_bytes,
        anchor="valid",
        break_=None,
    )


def fork(work: Callable[[], None]) -> int:
    """Run some work in a forked child, which ends with 0 if nothing went wrong."""
    with warnings.catch_warnings():
        # Newer Pythons warn when threads exist; the child touches none of theirs.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child:
        return child
    code = 1
    signal.alarm(int(10 * PATIENCE_S))  # a child that hangs fails its test
    try:
        work()
        code = 0
    finally:  # whatever happens, the child must not go on as a second test run
        if code:
            traceback.print_exc()
        os._exit(code)


def reap(child: int) -> int:
    """Wait for a child and return its exit code, negative for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
