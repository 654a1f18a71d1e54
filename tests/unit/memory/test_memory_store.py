"""What is kept comes back as it was, and what is cleared is gone from the files."""

from __future__ import annotations

import logging
import sqlite3
import stat
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from coilclaw.agent.memory.rows import COLUMNS
from coilclaw.agent.memory.store import INDEXED_AT_ONCE, ConversationSummary, Memory
from coilclaw.kernel.errors import EnvironmentFault, LockTimeout, UsageError
from coilclaw.kernel.messages import Json, ToolCall, TurnRecord
from tests.unit.memory.turns import exchange, said, time


def test_nothing_is_touched_before_the_first_use(tmp_path: Path) -> None:
    with Memory(tmp_path / "d" / "memory.sqlite"):
        assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_database_is_a_fault(tmp_path: Path) -> None:
    path = tmp_path / "memory.sqlite"
    path.write_text("not at all\n" * 100)
    for use in (Memory(path).create, Memory(path).conversations, Memory(path).clear):
        with pytest.raises(EnvironmentFault) as caught:
            use()
        assert caught.value.rule == "database.damaged"
        assert caught.value.hint is not None
    assert path.read_text() == "not at all\n" * 100


def test_a_newer_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "memory.sqlite"
    with Memory(path) as memory:
        memory.create()
    with sqlite3.connect(path) as other:
        other.execute("PRAGMA user_version = 99")
    other.close()
    with pytest.raises(EnvironmentFault) as caught, Memory(path) as memory:
        memory.append([said("x")])
    assert caught.value.rule == "database.newer"


def test_a_row_that_was_never_ours_is_a_fault(tmp_path: Path) -> None:
    path = tmp_path / "memory.sqlite"
    with Memory(path) as memory:
        memory.append(exchange())
        with sqlite3.connect(path) as other:
            other.execute("UPDATE turns SET tool_calls = '[{\"x\": 1}]' WHERE id = 2")
        other.close()
        with pytest.raises(EnvironmentFault) as caught:
            memory.conversation("c-1")
    assert caught.value.rule == "memory.row"


def test_creating_makes_a_private_file_and_may_be_repeated(memory: Memory) -> None:
    with memory:
        memory.create()
        memory.append(exchange())
        memory.create()
    with memory:
        memory.create()
        assert memory.conversation("c-1") == tuple(exchange())
    assert stat.S_IMODE(memory.path.stat().st_mode) == 0o600


def test_the_columns_are_those_specified(memory: Memory) -> None:
    with memory:
        memory.append(exchange())
    connection = sqlite3.connect(memory.path)
    names = [row[1] for row in connection.execute("PRAGMA table_info(turns)")]
    (row,) = connection.execute(f"SELECT {', '.join(COLUMNS)} FROM turns WHERE id = 3")
    connection.close()
    assert names == ["id", *COLUMNS]
    assert row == (
        "c-1",
        "t-1",
        "2026-01-01T00:00:02.000000Z",
        "tool",
        "",
        "[]",
        (
            '[{"call_id":"call-1","tool":"file_read","success":true,'
            '"output":"def hold():\\n    ...\\n","receipt_id":"receipt-1"},'
            '{"call_id":"call-2","tool":"shell","success":false,"output":"",'
            '"error":"broken arguments"}]'
        ),
        "",
        "",
        "{}",
    )


def test_a_conversation_comes_back_as_it_was(memory: Memory) -> None:
    with memory:
        memory.append(exchange("c-2"))
        memory.append(exchange()[:2])
        memory.append([])
        memory.append(exchange()[2:])
        assert memory.conversation("c-1") == tuple(exchange())
        assert memory.conversation("c-1", last=2) == tuple(exchange()[2:])
        assert memory.conversation("c-1", last=100) == tuple(exchange())
        assert memory.conversation("c-1", last=0) == ()
        assert memory.conversation("c") == ()


def test_surrogates_are_joined_or_replaced(memory: Memory) -> None:
    call = ToolCall("1", "shell", {"command": "cat \udcff"})
    with memory:
        memory.append([replace(said("\ud83e\udd8a and \udcff"), tool_calls=(call,))])
        (kept,) = memory.conversation("c-1")
        assert len(memory.search("and \udcff")) == len(memory.search("\U0001f98a")) == 1
    assert kept.content == "\U0001f98a and \ufffd"
    assert kept.tool_calls == (ToolCall("1", "shell", {"command": "cat \ufffd"}),)


def test_what_is_nested_too_deeply_is_refused_and_nothing_of_it_kept(memory: Memory) -> None:
    deep: Json = []
    for _ in range(100_000):
        deep = [deep]
    with memory:
        with pytest.raises(UsageError) as caught:
            memory.append([said("x"), replace(said("y"), metadata={"deep": deep})])
        assert caught.value.rule == "memory.depth"
        assert memory.conversations() == ()
    while isinstance(deep, list) and deep:
        deep = deep[0]  # or the interpreter takes it apart by recursion


def test_records_are_indexed_together_and_found_before(memory: Memory) -> None:
    with memory:
        for number in range(INDEXED_AT_ONCE + 10):
            memory.append([said(f"number{number}")])
            if number % 7 == 0:
                assert [one.excerpt for one in memory.search(f"number{number}")] == [
                    f"number{number}"
                ]
        with sqlite3.connect(memory.path) as other:
            (indexed,) = other.execute("SELECT max(id) FROM turn_tokens_docsize").fetchone()
        other.close()
        assert 0 < indexed < INDEXED_AT_ONCE + 10
        assert len(memory.search("number", limit=1000)) == INDEXED_AT_ONCE + 10


def test_an_append_is_all_or_nothing(memory: Memory) -> None:
    with memory:
        memory.append([said("kept")])
        with sqlite3.connect(memory.path) as other:
            other.execute(
                "CREATE TRIGGER full BEFORE INSERT ON turns WHEN new.content = 'second' "
                "BEGIN SELECT RAISE(ABORT, 'as if the disk were full'); END"
            )
        other.close()
        with pytest.raises(EnvironmentFault):
            memory.append([said("half"), said("second")])
        assert [record.content for record in memory.export()] == ["kept"]
        assert memory.search("half") == ()
        memory.append([said("goes on")])
        assert len(memory.conversation("c-1")) == 2


def test_conversations_are_listed_newest_first(memory: Memory) -> None:
    with memory:
        memory.append(exchange("c-1"))
        memory.append([said("x" * 500, "c-2", "t-1", time(30))])
        memory.append([replace(said("again", "c-1", "t-2", time(60)), role="assistant")])
        memory.append([replace(said("no user", "c-3", "t-1", time(10)), role="assistant")])
        first = ConversationSummary("c-1", time(0), time(60), 2, "Read the file,")
        second = ConversationSummary("c-2", time(30), time(30), 1, "x" * 120)
        third = ConversationSummary("c-3", time(10), time(10), 1, "")
        assert memory.conversations() == (first, second, third)
        assert memory.conversations(limit=2) == (first, second)


def test_ids_are_found_by_their_beginning(memory: Memory) -> None:
    with memory:
        memory.append([said("x", name) for name in ("ab-1", "ab-2", "ab_%", "b", "Ä-1")])
        assert memory.beginning_with("ab", 10) == ("ab-1", "ab-2", "ab_%")
        assert memory.beginning_with("ab", 2) == ("ab-1", "ab-2")
        assert memory.beginning_with("ab-2", 10) == ("ab-2",)
        assert memory.beginning_with("a_", 10) == memory.beginning_with("%", 10) == ()
        assert memory.beginning_with("Ä", 10) == ("Ä-1",)


def test_export_gives_everything_in_order(memory: Memory) -> None:
    records = [said(f"text {number}", f"c-{number % 7}", f"t-{number}") for number in range(1203)]
    with memory:
        memory.append(records)
        assert list(memory.export()) == records
        assert list(Memory(memory.path.with_name("other")).export()) == []


def test_appending_tells_what_was_persisted(
    memory: Memory, caplog: pytest.LogCaptureFixture
) -> None:
    with memory, caplog.at_level(logging.INFO, "coilclaw.agent.memory"):
        memory.append(exchange())
    (entry,) = caplog.records
    assert entry.getMessage() == "memory persisted: 4 records"
    assert entry.__dict__["event"] == "memory_persisted"
    assert entry.__dict__["fields"] == {"conversation_id": "c-1", "records": 4}


SECRETS = ("Quokkageheimnis", "swordfish/hunter2", "пароль", "x" * 140)


def filled(memory: Memory, count: int = 300) -> None:
    """Keep secrets in every column that is searched, in rows that were moved and merged."""
    for start in range(0, count, 20):
        memory.append(
            [
                TurnRecord(
                    f"Quokkageheimnis-{number}",
                    "t",
                    time(number),
                    "user",
                    f"{number} " + " ".join(SECRETS) + " filler" * 100,
                    (ToolCall("1", "shell", {"command": SECRETS[1]}),),
                )
                for number in range(start, start + 20)
            ]
        )


def held(memory: Memory) -> set[str]:
    """The names of the files in which any secret, or the trigrams of one, can be read."""
    forms = [form.casefold().encode() for form in (*SECRETS, "quokk", "пар", "swordfi")]
    found = set()
    for path in memory.path.parent.iterdir():
        content = path.read_bytes().lower()
        found |= {path.name for form in forms if form in content}
        found |= {path.name for form in forms if form.decode().upper().encode() in content}
    return found


def test_clearing_removes_the_text_from_the_files(memory: Memory) -> None:
    with memory:
        filled(memory)
        assert held(memory) >= {"memory.sqlite-wal"}
        assert memory.clear() == 300
        # The connection is still open, and so the log is there.
        assert {path.name for path in memory.path.parent.iterdir()} == {
            "memory.sqlite",
            "memory.sqlite-wal",
            "memory.sqlite-shm",
        }
        assert held(memory) == set()
        assert memory.conversations() == ()
        assert memory.search("quokka") == ()
        assert list(memory.export()) == []
    assert held(memory) == set()
    assert memory.path.stat().st_size < 2**17


def test_a_cleared_memory_goes_on(memory: Memory) -> None:
    with memory:
        assert memory.clear() == 0
        filled(memory, 40)
        assert memory.clear() == 40
        assert memory.clear() == 0
        memory.append(exchange())
        assert memory.conversation("c-1") == tuple(exchange())
        assert [hit.turn_id for hit in memory.search("hold")] == ["t-1", "t-1"]


def test_another_open_memory_does_not_keep_the_text(memory: Memory) -> None:
    with memory, Memory(memory.path) as other:
        filled(memory, 40)
        assert len(other.search("swordfish")) == 20
        memory.clear()
        assert held(memory) == set()
        assert other.search("swordfish") == ()
        other.append([said("swordfish again")])
        assert len(memory.search("swordfish")) == 1


def test_clearing_while_somebody_reads_says_that_it_is_not_done(memory: Memory) -> None:
    with memory:
        filled(memory, 20)
    with Memory(memory.path, busy_s=0.05) as impatient:
        reader = sqlite3.connect(memory.path, isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM turns").fetchone()
        with pytest.raises(LockTimeout):
            impatient.clear()
        reader.execute("COMMIT")
        reader.close()
        assert impatient.clear() == 0
        assert held(memory) == set()


def test_threads_share_a_memory(memory: Memory) -> None:
    with memory:

        def work(name: str) -> None:
            for number in range(10):
                memory.append([said(f"{name} {number}", name, str(number))])
                assert len(memory.conversation(name)) == number + 1
                assert memory.search(name)

        threads = [threading.Thread(target=work, args=(f"thread{n}",)) for n in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert {s.conversation_id: s.turns for s in memory.conversations()} == {
            f"thread{n}": 10 for n in range(6)
        }


def test_a_conversation_belongs_to_whoever_began_it(tmp_path: Path) -> None:
    with Memory(tmp_path / "memory.sqlite") as memory:
        ann: dict[str, Json] = {"asker": "client ann"}
        memory.append([replace(said("zebra one", "of-ann"), metadata=ann)])
        memory.append([said("zebra two", "of-the-operator")])
        # Whoever comes later takes nothing over.
        memory.append([said("zebra three", "of-ann")])
        memory.append([replace(said("zebra four", "of-the-operator"), metadata=ann)])
        owners = [memory.owner(name) for name in ("of-ann", "of-the-operator", "nowhere")]
        assert owners == ["client ann", "", None]
        # The answer to a message belongs to whoever said it last, not to the model.
        memory.append([replace(said("zebra", "of-the-operator"), role="assistant", content="x")])
        asked = [memory.last_asker(name) for name in ("of-ann", "of-the-operator", "nowhere")]
        assert asked == ["", "client ann", None]
        for owner, name, number in (
            ("client ann", "of-ann", 2),
            ("", "of-the-operator", 2),
            ("client bob", "", 0),
        ):
            listed = [one.conversation_id for one in memory.conversations(owner=owner)]
            found = [one.conversation_id for one in memory.search("zebra", owner=owner)]
            assert (listed, found) == ([name][:number], [name] * number)
        assert len(memory.conversations()) == 2
        assert len(memory.search("zebra")) == 4
        assert len(memory.search("zebra", owner="client ann", limit=1)) == 1
