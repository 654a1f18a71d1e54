"""Searching: candidates from the index, certainty from the texts, then the ranking.

The newest matches are ranked, ``RANKED`` of them or as many as are asked for: by BM25,
more where terms are whole words or begin one, more where they stand together as in the query, and
more in recent conversations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from coilclaw.domain.turns import Recollection
from coilclaw.errors import UsageError
from coilclaw.memory.candidates import MAX_TERMS, question
from coilclaw.memory.excerpt import excerpt
from coilclaw.memory.rows import clean, searched_text
from coilclaw.memory.tokens import fold, terms

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable, Iterator

MAX_QUERY_CHARS: Final = 2**20
RANKED: Final = 500
"""Matches that are ranked at least, if there are so many."""
WHOLE: Final = 4.0
"""What a term gains that is a whole word, or a whole part of an identifier."""
START: Final = 2.0
"""What a term gains that begins one."""
PHRASE: Final = 2.0
"""What several terms gain that stand together as in the query."""
RECENCY: Final = 1.0
"""What the newest conversation gains over one of long ago."""
HALF_LIFE_DAYS: Final = 30.0

_LEAST_RELEVANCE: Final = 1e-6
_PLACES: Final = 20
_FIELDS: Final = """
SELECT turns.id, turns.conversation_id, turn_id, timestamp, role, content, tool_calls, tool_results,
    (SELECT julianday(max(last)) FROM conversations) - julianday(conversations.last)
"""
_CONVERSATION: Final = """
CROSS JOIN conversations ON conversations.conversation_id = turns.conversation_id
"""
_BY_INDEX: Final = f"""
{_FIELDS}, -bm25(turn_tokens)
FROM turn_tokens CROSS JOIN turns ON turns.id = turn_tokens.rowid {_CONVERSATION}
WHERE turn_tokens MATCH ? ORDER BY turn_tokens.rowid DESC
"""
_LONG_WORDED: Final = f"""
{_FIELDS}, 0.0
FROM long_worded CROSS JOIN turns ON turns.id = long_worded.turn {_CONVERSATION}
ORDER BY long_worded.turn DESC
"""
_ALL: Final = f"""
{_FIELDS}, 0.0 FROM turns {_CONVERSATION} ORDER BY turns.id DESC
"""


@dataclass(frozen=True, slots=True)
class _Query:
    terms: tuple[str, ...]
    phrase: str

    @classmethod
    def of(cls, query: str) -> _Query:
        return cls(terms(query), " ".join(fold(clean(query)).split()))


@dataclass(frozen=True, slots=True)
class _Match:
    id: int
    recollection: Recollection
    """Without its excerpt, which only those that are shown need."""
    text: str


def search(
    connection: sqlite3.Connection,
    query: str,
    limit: int,
    wanted_in: Callable[[str], bool] = lambda _: True,
) -> tuple[Recollection, ...]:
    """Return the turns that contain every term of the query, best first.

    ``wanted_in`` is asked of each conversation whether its turns are wanted.
    """
    if limit < 1:
        raise UsageError(f"a search for {limit} results finds nothing", rule="memory.limit")
    if len(query) > MAX_QUERY_CHARS:
        raise UsageError(
            f"a query may have {MAX_QUERY_CHARS} characters, and this one has {len(query)}",
            rule="memory.query",
        )
    asked = _Query.of(query)
    if not asked.terms:
        return ()
    wanted = max(limit, RANKED)
    matches: dict[int, _Match] = {}
    for match in _matches(_rows(connection, asked.terms), asked):
        if not wanted_in(match.recollection.conversation_id):
            continue
        matches.setdefault(match.id, match)
        if len(matches) == wanted:
            break
    ranked = sorted(matches.values(), key=lambda match: (-match.recollection.score, -match.id))
    return tuple(_shown(match, asked.terms) for match in ranked[:limit])


def _rows(connection: sqlite3.Connection, wanted: tuple[str, ...]) -> Iterable[tuple[Any, ...]]:
    """Yield all rows that can match, the newest first, some of them twice."""
    asked = question(connection, wanted)
    if asked is None:
        return connection.execute(_ALL)
    return chain(connection.execute(_BY_INDEX, (asked,)), connection.execute(_LONG_WORDED))


def _matches(rows: Iterable[tuple[Any, ...]], query: _Query) -> Iterator[_Match]:
    for number, conversation, turn, timestamp, role, content, calls, results, age, value in rows:
        text = searched_text(content, calls, results)
        folded = fold(text)
        if not all(term in folded for term in query.terms):
            continue
        score = max(value, _LEAST_RELEVANCE) * _recency(age) * _standing(folded, query)
        found = Recollection(conversation, turn, timestamp, role, "", score)
        yield _Match(number, found, text)


def _standing(folded: str, query: _Query) -> float:
    """Return the factor for where the terms stand, on the average over all of them."""
    asked = query.terms[:MAX_TERMS]
    factor = sum(_best_place(folded, term) for term in asked) / len(asked)
    return factor * PHRASE if len(query.terms) > 1 and query.phrase in folded else factor


def _best_place(folded: str, term: str) -> float:
    best, place = 1.0, folded.find(term)
    for _ in range(_PLACES):
        if place < 0:
            break
        end = place + len(term)
        if not (folded[place - 1 : place].isalnum() and term[0].isalnum()):
            if not (folded[end : end + 1].isalnum() and term[-1].isalnum()):
                return WHOLE
            best = START
        place = folded.find(term, place + 1)
    return best


def _recency(age_days: float | None) -> float:
    """Return the factor for a conversation so much older than the newest one."""
    if age_days is None:
        return 1.0  # its time is none that SQLite can read
    return 1.0 + RECENCY * math.exp2(-age_days / HALF_LIFE_DAYS)


def _shown(match: _Match, wanted: tuple[str, ...]) -> Recollection:
    found = match.recollection
    return Recollection(
        found.conversation_id,
        found.turn_id,
        found.timestamp,
        found.role,
        excerpt(match.text, max(wanted, key=len)),
        found.score,
    )
