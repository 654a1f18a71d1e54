"""The tables of a memory database, version by version; a version that was released never changes.

``turns`` is what is kept; the rest is made from it. How the index was chosen: prototypes with one
text column, 1,000,000 texts of 350 bytes (385 MB without any index), SQLite 3.40, words and parts
of words with at most 100 hits:

    index                                    insert      size   a query, found or not
    none: LIKE, which knows ASCII case only    2 us         -   208 to 435 ms
    words of the text (FTS5 unicode61)        16 us   +122 MB   0.1 to 1.3 ms, no parts of words
    trigrams of the text (FTS5, no detail)    56 us   +225 MB   0.7 to 5.5 ms, from 3 characters on
    words, and trigrams of distinct words     61 us   +217 MB   0.2 to 0.4 ms

Trigrams of the text with their positions, the default, took 3.7 times the space on 100,000 texts.
The last way is ours: it ranks like a word index, and costs less than words and trigrams of the text
do together. A part of a word is looked up among the distinct words, of which there were 400,000. As
built, with all columns and with a look at every text found, such a search takes 0.5 to 2.5 ms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coilclaw.storage.sqlite import Layout

if TYPE_CHECKING:
    import sqlite3

_VERSION_1: Final = (
    """\
CREATE TABLE turns (
    id INTEGER PRIMARY KEY,
    conversation_id TEXT NOT NULL,
    turn_id TEXT NOT NULL,
    timestamp TEXT NOT NULL,
    role TEXT NOT NULL,
    content TEXT NOT NULL,
    tool_calls TEXT NOT NULL,
    tool_results TEXT NOT NULL,
    provider TEXT NOT NULL,
    model TEXT NOT NULL,
    metadata TEXT NOT NULL
) STRICT""",
    "CREATE INDEX turns_by_conversation ON turns (conversation_id, turn_id)",
    """\
CREATE TABLE conversations (
    conversation_id TEXT PRIMARY KEY,
    started TEXT NOT NULL,
    last TEXT NOT NULL,
    title TEXT NOT NULL
) STRICT, WITHOUT ROWID""",
    "CREATE INDEX conversations_by_last ON conversations (last, conversation_id)",
    # The tokens of each turn, as memory.tokens makes them, in their order.
    """\
CREATE VIRTUAL TABLE turn_tokens USING fts5(
    tokens, content='', tokenize="ascii tokenchars '_'"
)""",
    # Every word that occurs anywhere, and the trigrams by which it is found.
    "CREATE TABLE words (id INTEGER PRIMARY KEY, word TEXT NOT NULL UNIQUE) STRICT",
    """\
CREATE VIRTUAL TABLE word_trigrams USING fts5(
    word, content='', detail=none, tokenize='trigram case_sensitive 1'
)""",
    # Turns with a word too long to be listed: a search looks at their text.
    "CREATE TABLE long_worded (turn INTEGER PRIMARY KEY) STRICT",
)

LAYOUT: Final = Layout(
    noun="memory",
    application_id=0x43_4C_41_57,  # "CLAW"
    migrations=(_VERSION_1,),
)


def newest(connection: sqlite3.Connection) -> int:
    """The number of the newest turn."""
    (number,) = connection.execute("SELECT coalesce(max(id), 0) FROM turns").fetchone()
    return int(number)


def indexed_up_to(connection: sqlite3.Connection) -> int:
    """The number of the last turn that the index knows; those after it wait to be indexed."""
    (number,) = connection.execute(
        "SELECT coalesce(max(id), 0) FROM turn_tokens_docsize"
    ).fetchone()
    return int(number)
