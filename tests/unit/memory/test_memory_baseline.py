"""The database of version 1, which stays readable for ever."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

from coilclaw.agent.memory.rows import LAYOUT
from coilclaw.agent.memory.store import ConversationSummary, Memory
from tests.unit.memory.turns import exchange, said, time

BASELINE = Path(__file__).parents[2] / "baselines" / "v1" / "memory"
RECORDS = [
    *exchange("c-1"),
    said("Der Fuchs \U0001f98a liest 東京都, Straße für Straße", "c-2", "t-1", time(9)),
    said("0123456789abcdef" * 20, "c-2", "t-2", time(10)),
]


def schema(path: Path) -> str:
    """What we wrote of a database's schema, with its marks in the header; the file is only read."""
    connection = sqlite3.connect(f"{path.as_uri()}?immutable=1", uri=True)
    statements = [
        sql
        for name, sql in connection.execute("SELECT name, sql FROM sqlite_schema")
        # The tables behind an index are SQLite's own.
        if sql and not name.startswith(("turn_tokens_", "word_trigrams_"))
    ]
    marks = [
        f"PRAGMA {name} = {connection.execute(f'PRAGMA {name}').fetchone()[0]}"
        for name in ("application_id", "user_version")
    ]
    connection.close()
    return ";\n".join([*sorted(statements), *marks, ""])


def test_a_memory_of_the_first_version_is_read_and_continued(tmp_path: Path) -> None:
    path = tmp_path / "memory.sqlite"
    shutil.copyfile(BASELINE / "memory.sqlite", path)
    with Memory(path) as memory:
        assert list(memory.export()) == RECORDS
        assert memory.conversations() == (
            ConversationSummary("c-2", time(9), time(10), 2, RECORDS[4].content),
            ConversationSummary("c-1", time(0), time(3), 1, "Read the file,"),
        )
        for query in ("fuch", "京都", "STRASSE", "ef01", "\U0001f98a"):
            assert {hit.conversation_id for hit in memory.search(query)} == {"c-2"}, query
        assert [hit.role for hit in memory.search("hold():")] == ["tool"]
        memory.append([said("Der Fuchs geht weiter", "c-2", "t-3", time(11))])
        assert [hit.turn_id for hit in memory.search("fuchs weiter")] == ["t-3"]
        assert len(memory.search("fuchs")) == 2


def test_the_schema_of_version_1_is_made_the_same_today(tmp_path: Path) -> None:
    assert len(LAYOUT.migrations) == 1, "a newer version needs a baseline of its own"
    with Memory(tmp_path / "memory.sqlite") as memory:
        memory.create()
    assert schema(tmp_path / "memory.sqlite") == (BASELINE / "schema.sql").read_text()
    assert schema(BASELINE / "memory.sqlite") == (BASELINE / "schema.sql").read_text()
