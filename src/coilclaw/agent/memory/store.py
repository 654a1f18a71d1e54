"""``Memory``: stored conversations, and the search in them."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from coilclaw.agent.memory.rows import (
    COLUMNS,
    LAYOUT,
    clean,
    from_row,
    indexed_up_to,
    newest,
    to_row,
)
from coilclaw.kernel import BUSY_S, Database

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from coilclaw.kernel import Recollection, TurnRecord

TITLE_CHARS: Final = 120
"""Characters of a conversation's title, at most."""

_log = logging.getLogger(__name__)

INDEXED_AT_ONCE: Final = 64
"""Records that are indexed together, which is much cheaper than one by one."""

_BATCH: Final = 500
_COLUMNS: Final = ", ".join(COLUMNS)
_MARKS: Final = ", ".join("?" * (len(COLUMNS) + 1))
_APPEND: Final = f"INSERT INTO turns (id, {_COLUMNS}) VALUES ({_MARKS})"  # noqa: S608 - no input in it
_MENTION: Final = """
INSERT INTO conversations (conversation_id, started, last, title) VALUES (?1, ?2, ?2, ?3)
ON CONFLICT DO UPDATE SET
    started = min(started, excluded.started),
    last = max(last, excluded.last),
    title = CASE title WHEN '' THEN excluded.title ELSE title END
"""
_CONVERSATION: Final = f"""
SELECT {_COLUMNS} FROM turns WHERE id IN (
    SELECT id FROM turns WHERE conversation_id = ? ORDER BY id DESC LIMIT ?
) ORDER BY id
"""  # noqa: S608 - no input in it
_SUMMARIES: Final = """
SELECT conversation_id, started, last, (
    SELECT count(DISTINCT turn_id) FROM turns
    WHERE turns.conversation_id = conversations.conversation_id
), title
FROM conversations
WHERE ?2 IS NULL OR ?2 = (
    SELECT coalesce(json_extract(metadata, '$.asker'), '') FROM turns
    WHERE turns.conversation_id = conversations.conversation_id ORDER BY turns.id LIMIT 1
)
ORDER BY last DESC, conversation_id DESC LIMIT ?1
"""
_OWNER: Final = """
SELECT coalesce(json_extract(metadata, '$.asker'), '') FROM turns
WHERE conversation_id = ? ORDER BY id LIMIT 1
"""
_LAST_ASKER: Final = """
SELECT coalesce(json_extract(metadata, '$.asker'), '') FROM turns
WHERE conversation_id = ? AND role = 'user' ORDER BY id DESC LIMIT 1
"""
_EXPORT: Final = f"SELECT id, {_COLUMNS} FROM turns WHERE id > ? ORDER BY id LIMIT ?"  # noqa: S608 - no input in it
# Quotation marks in an output are escaped, so that no output matches like a receipt.
_WITH_RECEIPT: Final = (
    """SELECT 1 FROM turns WHERE instr(tool_results, ',"receipt_id":"') > 0 LIMIT 1"""
)
_CLEAR: Final = (
    "DELETE FROM turns",
    "DELETE FROM conversations",
    "DELETE FROM words",
    "DELETE FROM long_worded",
    "INSERT INTO turn_tokens (turn_tokens) VALUES ('delete-all')",
    "INSERT INTO word_trigrams (word_trigrams) VALUES ('delete-all')",
)


@dataclass(frozen=True, slots=True)
class ConversationSummary:
    """A conversation in a list."""

    conversation_id: str
    started: str
    last: str
    turns: int
    title: str
    """The first line of the user's first message."""


class Memory:
    """The conversations in one database file, which the first use creates.

    Threads may share one object; a forked child gets a connection of its own.
    """

    def __init__(self, path: Path, *, busy_s: float = BUSY_S) -> None:
        self._database = Database(path, LAYOUT, busy_s=busy_s)

    @property
    def path(self) -> Path:
        return self._database.path

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def create(self) -> None:
        """Create the database, or migrate it to the newest version."""
        self._database.open()

    def close(self) -> None:
        self._database.close()

    def append(self, records: Sequence[TurnRecord]) -> None:
        """Store some records, all or none; they are on the disk when this returns."""
        if not records:
            return
        rows = [to_row(record) for record in records]
        with self._database.write() as connection:
            last = newest(connection)
            numbered = [(number, *row) for number, row in enumerate(rows, start=last + 1)]
            connection.executemany(_APPEND, numbered)
            titles = (_title(row[4]) if row[3] == "user" else "" for row in rows)
            mentions = [(row[0], row[2], title) for row, title in zip(rows, titles, strict=True)]
            connection.executemany(_MENTION, mentions)
            if last + len(rows) - indexed_up_to(connection) >= INDEXED_AT_ONCE:
                _index(connection)
        _log.info(
            "memory persisted: %d records",
            len(records),
            extra={
                "event": "memory_persisted",
                "fields": {
                    "conversation_id": records[-1].conversation_id,
                    "records": len(records),
                },
            },
        )

    def conversation(
        self, conversation_id: str, *, last: int | None = None
    ) -> tuple[TurnRecord, ...]:
        """Return the records of a conversation, or the ``last`` ones, oldest first."""
        with self._database.read() as connection:
            rows = connection.execute(_CONVERSATION, (clean(conversation_id), _row_limit(last)))
            return tuple(from_row(row) for row in rows)

    def owner(self, conversation_id: str) -> str | None:
        """Return who started a conversation: empty for the operator, ``None`` if unknown."""
        return self._asker(_OWNER, conversation_id)

    def last_asker(self, conversation_id: str) -> str | None:
        """Return the author of the last message in a conversation, like ``owner``."""
        return self._asker(_LAST_ASKER, conversation_id)

    def _asker(self, query: str, conversation_id: str) -> str | None:
        with self._database.read() as connection:
            row = connection.execute(query, (clean(conversation_id),)).fetchone()
        return None if row is None else str(row[0])

    def conversations(
        self, limit: int | None = None, *, owner: str | None = None
    ) -> tuple[ConversationSummary, ...]:
        """Return the newest conversations, newest first, of one owner or of all."""
        with self._database.read() as connection:
            rows = connection.execute(_SUMMARIES, (_row_limit(limit), owner))
            return tuple(ConversationSummary(*row) for row in rows)

    def beginning_with(self, prefix: str, limit: int) -> tuple[str, ...]:
        """Return the ids of conversations that begin with a prefix, sorted."""
        with self._database.read() as connection:
            rows = connection.execute(
                "SELECT conversation_id FROM conversations WHERE conversation_id >= ?1 "
                "AND substr(conversation_id, 1, length(?1)) = ?1 ORDER BY conversation_id LIMIT ?2",
                (clean(prefix), limit),
            )
            return tuple(conversation_id for (conversation_id,) in rows)

    def search(
        self, query: str, *, limit: int = 20, owner: str | None = None
    ) -> tuple[Recollection, ...]:
        """Return the records that contain every term of the query, best first.

        With an ``owner``, search only its conversations.
        """
        from coilclaw.agent.memory.search import search

        with self._database.read() as connection:
            behind = newest(connection) - indexed_up_to(connection)
        if behind:
            with self._database.write() as connection:
                _index(connection)
        with self._database.read() as connection:
            return search(connection, query, limit, _owner_filter(connection, owner))

    def tells_of_receipts(self) -> bool:
        """Return whether any stored tool result names its receipt."""
        with self._database.read() as connection:
            return connection.execute(_WITH_RECEIPT).fetchone() is not None

    def clear(self) -> int:
        """Delete all records, also from the free pages of the files; return their number."""
        with self._database.write() as connection:
            (count,) = connection.execute("SELECT count(*) FROM turns").fetchone()
            for statement in _CLEAR:
                connection.execute(statement)
        self._database.scrub()
        assert isinstance(count, int)
        return count

    def export(self) -> Iterator[TurnRecord]:
        """Yield every record in its order, reading a bounded number at a time."""
        last = 0
        while True:
            with self._database.read() as connection:
                rows = connection.execute(_EXPORT, (last, _BATCH)).fetchall()
            if not rows:
                return
            yield from (from_row(row[1:]) for row in rows)
            last = rows[-1][0]


def _owner_filter(connection: sqlite3.Connection, owner: str | None) -> Callable[[str], bool]:
    """Return a test for the conversations of an owner; without one, it accepts all."""
    if owner is None:
        return lambda _: True
    known: dict[str, bool] = {}

    def is_wanted(conversation_id: str) -> bool:
        if conversation_id not in known:
            row = connection.execute(_OWNER, (conversation_id,)).fetchone()
            known[conversation_id] = row is not None and row[0] == owner
        return known[conversation_id]

    return is_wanted


def _index(connection: sqlite3.Connection) -> None:
    # A short conversation without a search does not need the import.
    from coilclaw.agent.memory.search import index

    index(connection)


def _title(content: str) -> str:
    """Return the first line that is not blank."""
    return next((line[:TITLE_CHARS] for line in map(str.strip, content.splitlines()) if line), "")


def _row_limit(limit: int | None) -> int:
    return -1 if limit is None else max(0, limit)
