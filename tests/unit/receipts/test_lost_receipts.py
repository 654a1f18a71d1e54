"""Evidence that was wiped does not verify, and a home that never ran a tool does."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coilclaw.agent.receipts.book import ReceiptBook, intents_path
from coilclaw.agent.receipts.verification import verify
from coilclaw.kernel.atomic_file import anchor_path
from coilclaw.kernel.errors import JournalDamaged
from tests.unit.receipts.test_receipts import fill, gone, intent, receipt
from tests.unit.storage.worlds import fork, reap


class Home:
    """The logs and the keys of a home."""

    def __init__(self, root: Path) -> None:
        self.keys = root / "keys"
        self.logs = root / "log"

    def book(self) -> ReceiptBook:
        made = ReceiptBook(
            self.logs / "receipts.log", key_path=self.keys / "journal.key", marked=True
        )
        made.create()
        return made

    def filled(self, count: int = 2) -> ReceiptBook:
        with self.book() as book:
            fill(book, count)
        return self.book()

    def marks(self) -> list[Path]:
        return sorted(self.keys.glob("*.mark"))


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def files(book: ReceiptBook, *, receipts: bool = True, intents: bool = True) -> Iterator[Path]:
    for path, wanted in ((book.path, receipts), (intents_path(book.path), intents)):
        if wanted:
            yield from (path, anchor_path(path))


def empty(book: ReceiptBook) -> None:
    for path in (book.path, intents_path(book.path)):
        path.write_bytes(b"")
        anchor_path(path).unlink()


def remove(book: ReceiptBook) -> None:
    for path in files(book):
        path.unlink()


def remove_folder(book: ReceiptBook) -> None:
    shutil.rmtree(book.path.parent)


def remove_receipts(book: ReceiptBook) -> None:
    for path in files(book, intents=False):
        path.unlink()


def remove_intents(book: ReceiptBook) -> None:
    for path in files(book, receipts=False):
        path.unlink()


WIPES = (empty, remove, remove_folder, remove_receipts, remove_intents)


@pytest.mark.parametrize("wipe", WIPES)
def test_wiped_logs_are_missing(home: Home, wipe: Callable[[ReceiptBook], None]) -> None:
    book = home.filled()
    assert verify(book, gone).ok
    wipe(book)
    found = verify(book, gone)
    assert (found.ok, found.missing, found.nothing) == (False, True, False)
    assert "are missing" in found.problems[0]


@pytest.mark.parametrize("wipe", WIPES)
def test_a_wiped_log_is_not_written_over(home: Home, wipe: Callable[[ReceiptBook], None]) -> None:
    book = home.filled()
    wipe(book)
    book.create()
    with pytest.raises(JournalDamaged):
        book.intend(intent(9))
    with pytest.raises(JournalDamaged):
        book.add(receipt(9, "", "denied"))


def test_a_home_that_never_ran_a_tool_has_nothing_to_verify(home: Home) -> None:
    found = verify(home.book(), gone)
    assert (found.ok, found.nothing, found.missing) == (True, True, False)


def test_a_home_of_denials_alone_has_no_intents_and_is_whole(home: Home) -> None:
    with home.book() as book:
        book.add(receipt(1, "", "denied"))
    found = verify(home.book(), gone)
    assert (found.ok, found.receipts, found.intents) == (True, 1, 0)


def test_a_log_gone_without_its_anchor_is_missing(home: Home) -> None:
    book = home.filled()
    book.path.unlink()
    assert verify(book, gone).missing


def test_the_memory_knows_where_the_keys_were_wiped_too(home: Home) -> None:
    book = home.filled()
    remove_folder(book)
    shutil.rmtree(home.keys)
    assert verify(book, gone, lambda: True).missing
    assert verify(book, gone, lambda: False).nothing


def test_a_log_that_was_begun_anew_is_noticed(home: Home) -> None:
    with home.book() as running:
        fill(running, 2)
        remove(running)
        # The process has checked the marks, and does not look again.
        running.add(receipt(7, running.intend(intent(7))))
    found = verify(home.book(), gone)
    assert (found.ok, found.missing, found.receipts) == (False, False, 1)
    assert "was replaced" in found.problems[0]


def test_a_new_log_can_be_begun_on_purpose(home: Home) -> None:
    book = home.filled()
    remove(book)
    for mark in home.marks():
        mark.rename(mark.with_suffix(".old"))
    fill(book, 1)
    assert verify(book, gone).ok


@pytest.mark.parametrize("change", [b'"first_hash":"0', b'"key_id":"0', b'"log":"0'])
def test_an_edited_mark_is_noticed(home: Home, change: bytes) -> None:
    book = home.filled()
    mark = home.marks()[0]
    start = mark.read_bytes().index(change[:-1])
    data = bytearray(mark.read_bytes())
    data[start + len(change) - 1] ^= 1
    mark.write_bytes(bytes(data))
    assert "was edited" in verify(book, gone).problems[0]
    with pytest.raises(JournalDamaged):
        book.add(receipt(9, "", "denied"))


def test_the_mark_of_another_log_is_no_mark(home: Home) -> None:
    book = home.filled()
    one, other = home.marks()
    one.write_bytes(other.read_bytes())
    assert "was edited" in verify(book, gone).problems[0]


def test_a_log_of_an_older_version_is_marked_by_the_next_append(home: Home) -> None:
    with ReceiptBook(home.book().path, key_path=home.keys / "journal.key") as older:
        fill(older, 2)
    assert home.marks() == []
    with home.book() as book:
        fill(book, 1)
    remove(book)
    assert verify(home.book(), gone).missing


def test_a_home_that_was_moved_still_knows(home: Home, tmp_path: Path) -> None:
    home.filled()
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    for folder in (home.keys, home.logs):
        folder.rename(moved / folder.name)
    there = Home(moved)
    assert verify(there.book(), gone).ok
    remove(there.book())
    assert verify(there.book(), gone).missing


def test_many_processes_agree_on_the_marks(home: Home) -> None:
    home.book()

    def work() -> None:
        with home.book() as book:
            fill(book, 3)

    children = [fork(work) for _ in range(8)]
    assert [reap(child) for child in children] == [0] * 8
    assert len(home.marks()) == 2
    assert verify(home.book(), gone).receipts == 24


def test_a_kill_during_the_first_calls_never_looks_like_a_wipe(home: Home, tmp_path: Path) -> None:
    """Kill a process at each thing that it asks of the file system, until one gets through."""
    survived = False
    for number in range(1, 200):
        home = Home(tmp_path / str(number))
        status = reap(fork(lambda: _fill_until(home, number)))  # noqa: B023 - runs at once
        found = verify(home.book(), gone)
        assert (found.problems, found.missing) == ((), False), number
        with home.book() as book:
            fill(book, 1)
        assert verify(home.book(), gone).problems == ()
        assert len(home.marks()) == 2
        if status == 0:
            survived = True
            break
    assert survived
    assert number > 20


def _fill_until(home: Home, number: int) -> None:
    home.book()
    left = [number]

    def count(event: str, _: tuple[object, ...]) -> None:
        if event in {"open", "os.link", "os.remove", "os.rename", "fcntl.flock"}:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)
    with home.book() as book:
        fill(book, 1)
