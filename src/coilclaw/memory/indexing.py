"""Bringing the index up to the newest turn: many at once, or the few that a search waits for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.memory.rows import searched_text
from coilclaw.memory.schema import indexed_up_to
from coilclaw.memory.tokens import MAX_WORD, fold, indexed, tokens

if TYPE_CHECKING:
    import sqlite3

_BATCH: Final = 10_000
"""Turns that are held in memory at once."""
_WAITING: Final = """
SELECT id, content, tool_calls, tool_results FROM turns WHERE id > ? ORDER BY id LIMIT ?
"""


@dataclass(frozen=True, slots=True)
class _Entry:
    """What the index holds of one turn."""

    id: int
    tokens: str
    words: frozenset[str]
    long_worded: bool

    @classmethod
    def of(cls, number: int, content: str, calls: str, results: str) -> _Entry:
        sequence = tokens(fold(searched_text(content, calls, results)))
        distinct = set(sequence)
        words = frozenset(token for token in distinct if 1 < len(token) <= MAX_WORD)
        long_worded = any(len(token) > MAX_WORD for token in distinct)
        if long_worded:
            sequence = [token[:MAX_WORD] for token in sequence]
        return cls(number, indexed(sequence), words, long_worded)


def index(connection: sqlite3.Connection) -> None:
    """Index every turn that is not yet, within the transaction of the caller."""
    last = indexed_up_to(connection)
    while True:
        rows = connection.execute(_WAITING, (last, _BATCH)).fetchall()
        if not rows:
            return
        _add(connection, [_Entry.of(*row) for row in rows])
        last = rows[-1][0]


def _add(connection: sqlite3.Connection, entries: list[_Entry]) -> None:
    connection.executemany(
        "INSERT INTO turn_tokens (rowid, tokens) VALUES (?, ?)",
        [(entry.id, entry.tokens) for entry in entries],
    )
    connection.executemany(
        "INSERT INTO long_worded (turn) VALUES (?)",
        [(entry.id,) for entry in entries if entry.long_worded],
    )
    (known,) = connection.execute("SELECT coalesce(max(id), 0) FROM words").fetchone()
    words = sorted(frozenset().union(*(entry.words for entry in entries)))
    connection.executemany(
        "INSERT OR IGNORE INTO words (word) VALUES (?)", [(word,) for word in words]
    )
    connection.execute(
        "INSERT INTO word_trigrams (rowid, word) SELECT id, word FROM words WHERE id > ?", (known,)
    )
