"""From the terms of a query to a question that the index can answer.

The answer holds every turn that matches, but for those with overlong words, and maybe more: whoever
asks looks at the texts. Every part of the question is a quoted string of tokens, so that nothing a
query says is understood as an operator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coilclaw.memory.tokens import MAX_WORD, indexed, is_word, tokens

if TYPE_CHECKING:
    import sqlite3

MAX_TERMS: Final = 16
"""Terms that the index is asked for, the longest first; the texts are asked for all of them."""
MAX_TERM_CHARS: Final = 256
"""So much of a term is asked of the index."""
MAX_WORDS: Final = 2000
"""Words that a term may be a part of; what is part of more is soon found in the newest texts."""
MAX_ENDINGS: Final = 200
"""Words that the beginning of a term may be the end of; what ends more of them says nothing."""

_TRIGRAM: Final = 3
_WORDS: Final = "SELECT listed.word FROM words AS listed WHERE"
_BY_TRIGRAM: Final = """
SELECT listed.word FROM word_trigrams CROSS JOIN words AS listed ON listed.id = word_trigrams.rowid
WHERE word_trigrams MATCH :trigrams AND
"""
_CONTAINS: Final = "instr(listed.word, :part) > 1"
_ENDS: Final = "substr(listed.word, -length(:part)) = :part AND listed.word <> :part"


def question(connection: sqlite3.Connection, terms: tuple[str, ...]) -> str | None:
    """Return the full-text question for some terms, ``None`` if only the texts can tell."""
    longest = sorted(terms, key=len, reverse=True)[:MAX_TERMS]
    clauses = [_clause(connection, tokens(term[:MAX_TERM_CHARS])) for term in longest]
    return " AND ".join(f"({clause})" for clause in clauses if clause is not None) or None


def _clause(connection: sqlite3.Connection, parts: list[str]) -> str | None:
    """Return the question for one term.

    In a text, the first token of the term may be the end of a longer word and the last one the
    beginning of one; whatever stands between them is there as it is.
    """
    first, rest = parts[0], parts[1:]
    if not is_word(first):
        return _phrase(parts)
    if rest:
        words = _words(connection, first, _ENDS, MAX_ENDINGS)
        if words is None:
            return _phrase(rest)
        return f"({_any([_quoted([first]), *words])}) AND {_phrase(rest)}"
    words = _words(connection, first, _CONTAINS, MAX_WORDS)
    if words is None:
        return None
    return _any([_phrase([first]), *words])


def _words(
    connection: sqlite3.Connection, part: str, condition: str, most: int
) -> list[str] | None:
    """Return the quoted words that hold a part as the condition says, unless there are too many."""
    if len(part) > MAX_WORD:
        return []
    source = _WORDS if len(part) < _TRIGRAM else _BY_TRIGRAM
    rows = connection.execute(
        f"{source} {condition} LIMIT :bound",
        {"part": part, "trigrams": _trigrams(part), "bound": most + 1},
    ).fetchall()
    return None if len(rows) > most else [_quoted([word]) for (word,) in rows]


def _trigrams(part: str) -> str:
    starts = range(len(part) - _TRIGRAM + 1)
    distinct = dict.fromkeys(part[start : start + _TRIGRAM] for start in starts)
    return " AND ".join(f'"{trigram}"' for trigram in distinct)


def _phrase(parts: list[str]) -> str:
    """Return tokens in a row, the last of which may go on if it is a word."""
    return _quoted(parts) + ("*" if is_word(parts[-1]) else "")


def _quoted(parts: list[str]) -> str:
    # Quotation marks are not among what `indexed` returns.
    return f'"{indexed(parts)}"'


def _any(questions: list[str]) -> str:
    return " OR ".join(questions)
