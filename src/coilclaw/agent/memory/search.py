"""Search the memory: candidates from the index, confirmed in the texts, then ranked.

The newest matches are ranked, at least ``RANKED`` of them, by BM25. Terms rank higher as whole
words or beginnings of words, together as in the query, and in recent conversations.
"""

from __future__ import annotations

import math
import re
import unicodedata
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from coilclaw.agent.memory.rows import clean, indexed_up_to, searched_text
from coilclaw.kernel import Recollection, UsageError

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable

MAX_WORD: Final = 128
"""Characters of the longest word that is indexed; hexadecimal SHA-512 just fits."""

# Scripts that put no space between words: every character is a token, as punctuation is.
_UNSPACED: Final = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u312f\u31a0-\u4dbf\u4e00-\ua4cf"
    "\uf900-\ufaff\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
_TOKEN: Final = re.compile(rf"[^\W{_UNSPACED}]+|\S")

# The index drops ASCII characters outside of words, so they are stored under other code points. A
# text with these code points matches too often in the index, and is then checked itself.
_INDEXED: Final = {
    chr(code): chr(0xE000 + code)
    for code in range(0x80)
    if not chr(code).isalnum() and chr(code) != "_"
}


def fold(text: str) -> str:
    """Return the folded form in which texts and queries are compared."""
    folded = text.casefold()
    return folded if folded.isascii() else unicodedata.normalize("NFC", folded)


def terms(query: str) -> tuple[str, ...]:
    """Return the distinct terms of a query, folded."""
    return tuple(dict.fromkeys(fold(clean(query)).split()))


def tokens(folded: str) -> list[str]:
    """Return the words and single other characters of a folded text, without white space."""
    return _TOKEN.findall(folded)


def is_word(token: str) -> bool:
    """Return whether a token is a word, of which a query may name a part."""
    return _TOKEN.fullmatch(f"{token}0") is not None  # another letter or digit would extend it


def join_tokens(sequence: list[str]) -> str:
    """Return tokens in the form of the full-text index."""
    name = _INDEXED.get
    return " ".join([name(token, token) for token in sequence])


MAX_TERMS: Final = 16
"""Terms that are looked up in the index, longest first; the texts are checked for all terms."""
MAX_TERM_CHARS: Final = 256
"""Characters of a term that are looked up in the index."""
MAX_WORDS: Final = 2000
"""Words that contain a term; a term in more words is found quickly in the newest texts."""
MAX_ENDINGS: Final = 200
"""Words that end with the beginning of a term; with more of them it does not narrow the search."""

_TRIGRAM: Final = 3
_WORDS: Final = "SELECT listed.word FROM words AS listed WHERE"
_BY_TRIGRAM: Final = """
SELECT listed.word FROM word_trigrams CROSS JOIN words AS listed ON listed.id = word_trigrams.rowid
WHERE word_trigrams MATCH :trigrams AND
"""
_CONTAINS: Final = "instr(listed.word, :part) > 1"
_ENDS: Final = "substr(listed.word, -length(:part)) = :part AND listed.word <> :part"


def question(connection: sqlite3.Connection, terms: tuple[str, ...]) -> str | None:
    """Return the full-text query for some terms; ``None`` if only the texts can decide."""
    longest = sorted(terms, key=len, reverse=True)[:MAX_TERMS]
    clauses = [_clause(connection, tokens(term[:MAX_TERM_CHARS])) for term in longest]
    return " AND ".join(f"({clause})" for clause in clauses if clause is not None) or None


def _clause(connection: sqlite3.Connection, parts: list[str]) -> str | None:
    """Return the full-text query for one term.

    In a text, the first token of the term may be the end of a longer word and the last one the
    beginning of one; the tokens between them match exactly.
    """
    first, rest = parts[0], parts[1:]
    if not is_word(first):
        return _phrase(parts)
    condition, most = (_ENDS, MAX_ENDINGS) if rest else (_CONTAINS, MAX_WORDS)
    words = _words(connection, first, condition, most)
    if words is None:
        return _phrase(rest) if rest else None
    either = " OR ".join([_quote_tokens([first]) if rest else _phrase([first]), *words])
    return f"({either}) AND {_phrase(rest)}" if rest else either


def _words(
    connection: sqlite3.Connection, part: str, condition: str, most: int
) -> list[str] | None:
    """Return the quoted words that contain a part by a condition; ``None`` if too many do."""
    if len(part) > MAX_WORD:
        return []
    source = _WORDS if len(part) < _TRIGRAM else _BY_TRIGRAM
    starts = range(len(part) - _TRIGRAM + 1)
    distinct = dict.fromkeys(part[start : start + _TRIGRAM] for start in starts)
    trigrams = " AND ".join(f'"{trigram}"' for trigram in distinct)
    rows = connection.execute(
        f"{source} {condition} LIMIT :bound",
        {"part": part, "trigrams": trigrams, "bound": most + 1},
    ).fetchall()
    return None if len(rows) > most else [_quote_tokens([word]) for (word,) in rows]


def _phrase(parts: list[str]) -> str:
    """Return the query for consecutive tokens; a last word may be the beginning of a longer one."""
    return _quote_tokens(parts) + ("*" if is_word(parts[-1]) else "")


def _quote_tokens(parts: list[str]) -> str:
    # The result of `indexed` has no quotation marks.
    return f'"{join_tokens(parts)}"'


_BATCH: Final = 10_000
"""Turns in memory at once."""
_WAITING: Final = """
SELECT id, content, tool_calls, tool_results FROM turns WHERE id > ? ORDER BY id LIMIT ?
"""


def index(connection: sqlite3.Connection) -> None:
    """Index every new turn, within the transaction of the caller."""
    last = indexed_up_to(connection)
    while rows := connection.execute(_WAITING, (last, _BATCH)).fetchall():
        words: set[str] = set()
        entries, long_worded = [], []
        for number, content, calls, results in rows:
            sequence = tokens(fold(searched_text(content, calls, results)))
            distinct = set(sequence)
            words |= {token for token in distinct if 1 < len(token) <= MAX_WORD}
            if any(len(token) > MAX_WORD for token in distinct):
                sequence = [token[:MAX_WORD] for token in sequence]
                long_worded.append((number,))
            entries.append((number, join_tokens(sequence)))
        connection.executemany("INSERT INTO turn_tokens (rowid, tokens) VALUES (?, ?)", entries)
        connection.executemany("INSERT INTO long_worded (turn) VALUES (?)", long_worded)
        (known,) = connection.execute("SELECT coalesce(max(id), 0) FROM words").fetchone()
        connection.executemany(
            "INSERT OR IGNORE INTO words (word) VALUES (?)", [(word,) for word in sorted(words)]
        )
        connection.execute(
            "INSERT INTO word_trigrams (rowid, word) SELECT id, word FROM words WHERE id > ?",
            (known,),
        )
        last = rows[-1][0]


WIDTH: Final = 160
"""Characters of an excerpt, at most."""

_LEAD: Final = 48
_GAP: Final = "…"


def excerpt(text: str, term: str) -> str:
    """Return the surroundings of a folded term on one line, with ``…`` where text was left out."""
    folded = fold(text)
    place = folded.find(term)
    if place > 0 and len(folded) != len(text):
        place = _original_place(text, place)
    start = max(0, place - _LEAD)
    # White space is collapsed below, so a longer piece may be needed to fill the width.
    piece = " ".join(text[start : start + 4 * WIDTH].split())
    before = _GAP if text[:start].strip() else ""
    room = WIDTH - len(before) - len(_GAP)
    whole = len(piece) <= room and not text[start + 4 * WIDTH :].strip()
    return before + (piece if whole else piece[:room] + _GAP)


def _original_place(text: str, place: int) -> int:
    """Return the position in a text that corresponds to ``place`` in its folded form."""
    low, high = 0, len(text)
    while low < high:
        middle = (low + high) // 2
        if len(fold(text[:middle])) < place:
            low = middle + 1
        else:
            high = middle
    return low


MAX_QUERY_CHARS: Final = 2**20
RANKED: Final = 500
"""The minimum number of matches that are ranked."""
WHOLE: Final = 4.0
"""The factor of a term that is a whole word or a whole part of an identifier."""
START: Final = 2.0
"""The factor of a term that begins a word."""
PHRASE: Final = 2.0
"""The factor of several terms that appear together as in the query."""
RECENCY: Final = 1.0
"""The gain of the newest conversation over a very old one."""
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


def search(
    connection: sqlite3.Connection,
    query: str,
    limit: int,
    wanted_in: Callable[[str], bool] = lambda _: True,
) -> tuple[Recollection, ...]:
    """Return the turns that contain every term of the query, best first.

    ``wanted_in`` returns whether the turns of a conversation are wanted.
    """
    if limit < 1:
        raise UsageError(
            f"the limit of a search is {limit}, but must be 1 or more", rule="memory.limit"
        )
    if len(query) > MAX_QUERY_CHARS:
        raise UsageError(
            f"the query has {len(query)} characters; the maximum is {MAX_QUERY_CHARS}",
            rule="memory.query",
        )
    wanted, phrase = terms(query), " ".join(fold(clean(query)).split())
    if not wanted:
        return ()
    asked = question(connection, wanted)
    # Newest first, with some duplicates.
    rows: Iterable[tuple[Any, ...]] = (
        connection.execute(_ALL)
        if asked is None
        else chain(connection.execute(_BY_INDEX, (asked,)), connection.execute(_LONG_WORDED))
    )
    matches: dict[int, tuple[Recollection, str]] = {}
    for number, conversation, turn, timestamp, role, content, calls, results, age, value in rows:
        text = searched_text(content, calls, results)
        folded = fold(text)
        if not all(term in folded for term in wanted) or not wanted_in(conversation):
            continue
        score = max(value, _LEAST_RELEVANCE) * _standing(folded, wanted, phrase)
        if age is not None:  # a time that SQLite can read
            score *= 1.0 + RECENCY * math.exp2(-age / HALF_LIFE_DAYS)
        found = Recollection(conversation, turn, timestamp, role, "", score)
        matches.setdefault(number, (found, text))
        if len(matches) == max(limit, RANKED):
            break
    ranked = sorted(matches, key=lambda number: (-matches[number][0].score, -number))[:limit]
    longest = max(wanted, key=len)
    return tuple(
        replace(found, excerpt=excerpt(text, longest))
        for found, text in (matches[number] for number in ranked)
    )


def _standing(folded: str, wanted: tuple[str, ...], phrase: str) -> float:
    """Return the average factor for the positions of the terms."""
    asked = wanted[:MAX_TERMS]
    factor = sum(_best_place(folded, term) for term in asked) / len(asked)
    return factor * PHRASE if len(wanted) > 1 and phrase in folded else factor


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
