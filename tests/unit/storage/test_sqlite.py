"""The one way to a database: what is refused, what a transaction promises, what a version is."""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
from pathlib import Path

import pytest

from coilclaw.kernel.database import Database, Layout
from coilclaw.kernel.errors import EnvironmentFault, LockTimeout
from tests.support.scale import scaled
from tests.unit.storage.worlds import fork, reap

ONE = ("CREATE TABLE notes (text TEXT NOT NULL)", "INSERT INTO notes VALUES ('first')")
TWO = ("ALTER TABLE notes ADD COLUMN author TEXT NOT NULL DEFAULT 'nobody'",)
APPLICATION = 0x1234
V1 = Layout("note", APPLICATION, (ONE,))
V2 = Layout("note", APPLICATION, (ONE, TWO))


def rows(database: Database) -> list[tuple[object, ...]]:
    with database.read() as connection:
        return connection.execute("SELECT * FROM notes ORDER BY rowid").fetchall()


def add(database: Database, text: str) -> None:
    with database.write() as connection:
        connection.execute("INSERT INTO notes (text) VALUES (?)", (text,))


def state(path: Path) -> tuple[bytes, int] | None:
    return (path.read_bytes(), path.stat().st_mode) if path.is_file() else None


def refused(path: Path, layout: Layout = V1) -> tuple[str, str]:
    """The rule and the sentence with which a file is refused; it is left as it was."""
    before = state(path)
    with pytest.raises(EnvironmentFault) as caught, Database(path, layout) as database:
        database.open()
    assert state(path) == before
    return caught.value.rule, caught.value.message


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    path.write_bytes(b"These are my holiday plans. " * 100)
    rule, message = refused(path)
    assert rule == "database.damaged"
    assert str(path) in message


def test_a_damaged_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    with Database(path, V1) as database:
        for number in range(500):
            add(database, f"{number} " * 50)
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xa5" * (len(content) - 4096)
    path.write_bytes(content)
    with pytest.raises(EnvironmentFault) as caught, Database(path, V1) as database:
        rows(database)
    assert caught.value.rule == "database.damaged"


def test_a_newer_database_is_refused_and_a_known_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    with Database(path, V2) as database:
        database.open()
    assert refused(path, V1) == (
        "database.newer",
        f"{path} has version 2, and this CoilClaw knows versions up to 1",
    )
    with Database(path, V2) as database:
        assert rows(database) == [("first", "nobody")]


def test_a_database_of_somebody_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE theirs (x)")
    other.close()
    assert refused(path)[0] == "database.foreign"
    marked = tmp_path / "marked"
    with Database(marked, Layout("list", 0x77, (("CREATE TABLE list (x)",),))) as database:
        database.open()
    assert refused(marked) == (
        "database.foreign",
        f"{marked} is a database, but not a note database of CoilClaw",
    )


def test_what_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    assert {refused(path)[0] for path in tmp_path.iterdir()} == {"database.io"}
    assert not (tmp_path / "nowhere").exists()


def test_a_place_that_cannot_be_written_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert refused(tmp_path / "file" / "notes")[0] == "database.io"


def test_nothing_is_touched_before_the_first_use(tmp_path: Path) -> None:
    with Database(tmp_path / "d" / "notes", V1):
        pass
    assert list(tmp_path.iterdir()) == []


def test_files_are_private_whatever_the_umask(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        with Database(tmp_path / "d" / "notes", V1) as database:
            add(database, "secret")
            modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in (tmp_path / "d").iterdir()}
    finally:
        os.umask(old)
    assert modes == {"notes": 0o600, "notes-wal": 0o600, "notes-shm": 0o600}
    assert stat.S_IMODE((tmp_path / "d").stat().st_mode) == 0o700


def test_a_file_that_others_may_read_becomes_private(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    with Database(path, V1) as database:
        database.open()
    path.chmod(0o644)
    with Database(path, V1) as database:
        database.open()
        modes = {stat.S_IMODE(p.stat().st_mode) for p in tmp_path.iterdir()}
    assert modes == {0o600}


def test_every_connection_has_the_settings(tmp_path: Path) -> None:
    asked = ("journal_mode", "synchronous", "secure_delete", "trusted_schema", "busy_timeout")
    with Database(tmp_path / "notes", V1, busy_s=7) as database, database.read() as connection:
        found = {name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in asked}
    assert found == {
        "journal_mode": "wal",
        "synchronous": 2,
        "secure_delete": 1,
        "trusted_schema": 0,
        "busy_timeout": 7000,
    }


def test_a_write_that_raises_leaves_nothing(tmp_path: Path) -> None:
    with Database(tmp_path / "notes", V1) as database:
        with pytest.raises(EnvironmentFault), database.write() as connection:
            connection.executemany("INSERT INTO notes VALUES (?)", [("half",), (None,)])
        assert rows(database) == [("first",)]
        add(database, "second")
        assert rows(database) == [("first",), ("second",)]


def test_a_reading_transaction_cannot_write(tmp_path: Path) -> None:
    with Database(tmp_path / "notes", V1) as database:
        with pytest.raises(EnvironmentFault), database.read() as connection:
            connection.execute("INSERT INTO notes VALUES ('x')")
        add(database, "second")
        assert rows(database) == [("first",), ("second",)]


def test_a_reader_sees_one_state_and_holds_nobody_up(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    with Database(path, V1) as reader, Database(path, V1, busy_s=0.05) as writer:
        with reader.read() as connection:
            before = connection.execute("SELECT count(*) FROM notes").fetchone()
            add(writer, "second")
            assert connection.execute("SELECT count(*) FROM notes").fetchone() == before == (1,)
        assert rows(reader) == [("first",), ("second",)]


def test_a_second_writer_waits_only_so_long(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    with Database(path, V1) as first, Database(path, V1, busy_s=0.05) as second:
        second.open()
        with first.write():
            with pytest.raises(LockTimeout) as caught:
                add(second, "x")
            assert caught.value.rule == "database.busy"
        add(second, "y")
        assert rows(first) == [("first",), ("y",)]


def test_an_older_version_is_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    with Database(path, V1) as database:
        add(database, "second")
    with Database(path, V2) as database:
        assert rows(database) == [("first", "nobody"), ("second", "nobody")]


def test_a_migration_that_fails_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    with Database(path, V1) as database:
        database.open()
    broken = Layout("note", APPLICATION, (ONE, (*TWO, "CREATE TABLE notes (again)")))
    with pytest.raises(EnvironmentFault), Database(path, broken) as database:
        database.open()
    with Database(path, V1) as database:
        assert rows(database) == [("first",)]


@pytest.mark.parametrize("number", range(scaled(full=40, default=5)))
def test_many_processes_may_be_the_first(tmp_path: Path, number: int) -> None:
    path = tmp_path / "notes"
    start, go = os.pipe()

    def work() -> None:
        os.close(go)
        os.read(start, 1)
        with Database(path, V2) as database:
            add(database, str(os.getpid()))

    children = [fork(work) for _ in range(8)]
    os.close(go)  # end of file lets all of them start at once
    os.close(start)
    assert [reap(child) for child in children] == [0] * 8
    with Database(path, V2) as database:
        assert sorted(str(text) for text, _ in rows(database)) == sorted(
            ["first", *map(str, children)]
        )
    assert {p.name for p in tmp_path.iterdir()} == {"notes"}


def test_a_forked_child_and_its_parent_go_on(tmp_path: Path) -> None:
    """Each has its own connection: what one writes after the other has closed is not lost."""
    with Database(tmp_path / "notes", V1) as database:
        add(database, "before")
        ready, tell = os.pipe()

        def work() -> None:
            add(database, "child opens")
            os.write(tell, b"x")
            os.read(wait, 1)
            add(database, "child goes on")

        wait, release = os.pipe()
        child = fork(work)
        os.read(ready, 1)
        add(database, "parent")
        database.close()  # the last one to close removes the log, and the child is not closed
        os.write(release, b"x")
        assert reap(child) == 0
        for descriptor in (ready, tell, wait, release):
            os.close(descriptor)
        assert [text for (text,) in rows(database)] == [
            "first",
            "before",
            "child opens",
            "parent",
            "child goes on",
        ]


def test_a_child_forked_within_a_transaction_may_not_go_on(tmp_path: Path) -> None:
    with Database(tmp_path / "notes", V1) as database:
        with database.write() as connection:
            connection.execute("INSERT INTO notes VALUES ('parent')")

            def work() -> None:
                with pytest.raises(EnvironmentFault) as caught:
                    add(database, "child")
                assert caught.value.rule == "database.forked"

            assert reap(fork(work)) == 0
        assert rows(database) == [("first",), ("parent",)]


def test_fork_waits_for_the_transaction_of_another_thread(tmp_path: Path) -> None:
    with Database(tmp_path / "notes", V1) as database:
        inside, leave = threading.Event(), threading.Event()

        def write() -> None:
            with database.write() as connection:
                inside.set()
                leave.wait(0.1)
                connection.execute("INSERT INTO notes VALUES ('thread')")

        thread = threading.Thread(target=write)
        thread.start()
        inside.wait()
        assert reap(fork(lambda: add(database, "child"))) == 0
        thread.join()
        assert rows(database) == [("first",), ("thread",), ("child",)]


def test_threads_share_a_database(tmp_path: Path) -> None:
    with Database(tmp_path / "notes", V1) as database:

        def work() -> None:
            for number in range(20):
                add(database, str(number))

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(rows(database)) == 161


def test_scrubbing_waits_for_readers_only_so_long(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    with Database(path, V1, busy_s=0.05) as database, Database(path, V1) as reader:
        add(database, "kept secret")
        with reader.read() as connection:
            connection.execute("SELECT * FROM notes").fetchall()
            with database.write() as writing:
                writing.execute("DELETE FROM notes")
            with pytest.raises(LockTimeout) as caught:
                database.scrub()
            assert caught.value.rule == "database.busy"
        database.scrub()
        assert not any(b"kept secret" in p.read_bytes() for p in tmp_path.iterdir())
