"""Calls that a crash ended: what is settled by looking, by a person, and what verification says."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from coilclaw.agent.receipts.book import ReceiptBook, Settlement, intents_path, name_call
from coilclaw.agent.receipts.settlement import (
    MAX_NOTE_CHARS,
    MEMO,
    SettlementFinding,
    Settling,
    find_open,
)
from coilclaw.agent.receipts.verification import verify
from coilclaw.kernel.errors import UsageError
from tests.unit.receipts.test_receipts import contrib, fill, gone, intent, receipt

RUNNING = "9:9"


@pytest.fixture
def book(tmp_path: Path) -> ReceiptBook:
    made = ReceiptBook(tmp_path / "log" / "receipts.log", key_path=tmp_path / "keys" / "k")
    made.create()
    return made


def settling(book: ReceiptBook) -> Settling:
    numbers = count(1)
    return Settling(
        book, lambda process: process == RUNNING, lambda kind: f"{kind}-{next(numbers)}",
        lambda: "2026-01-02T00:00:00Z",
    )  # fmt: skip


def crash(book: ReceiptBook, number: int, lookup: str = "nothing", process: str = "") -> str:
    return book.intend(replace(intent(number, process or f"{number}:1"), lookup=lookup))


def found_no(_: Mapping[str, object]) -> SettlementFinding:
    return SettlementFinding("no", "looked")


def ids(book: ReceiptBook) -> list[object]:
    return [one["id"] for one in find_open(book)]


def test_what_can_be_looked_up_is_settled_in_the_chain(book: ReceiptBook) -> None:
    fill(book, 2)
    crashed = crash(book, 3)
    assert settling(book).settle_interrupted(found_no) == (
        Settlement("settlement-1", "2026-01-02T00:00:00Z", crashed, "intent-3", "conv", "time",
                   "no", "looked", "lookup"),
    )  # fmt: skip
    fill(book, 1)
    found = verify(book, gone)
    assert (found.problems, found.unsettled, found.settled) == ((), 0, True)
    assert (found.receipts, found.settlements, found.intents) == (3, 1, 4)
    assert [one["happened"] for one in book.entries() if "settles" in one] == ["no"]
    assert len(list(book.receipts())) == 3
    elsewhere = contrib(book)
    assert (elsewhere.returncode, elsewhere.stdout, elsewhere.stderr) == (
        0,
        "valid: 3 receipts\n",
        "",
    )


def test_what_runs_or_cannot_be_looked_up_stays_open(book: ReceiptBook) -> None:
    crash(book, 1, process=RUNNING)
    crash(book, 2, lookup="")
    crash(book, 3)
    assert [
        one.intent
        for one in settling(book).settle_interrupted(
            lambda intent: None if intent["id"] == "intent-3" else found_no(intent)
        )
    ] == []
    assert ids(book) == ["intent-1", "intent-2", "intent-3"]


def test_settling_again_settles_nothing_twice(book: ReceiptBook) -> None:
    crash(book, 1)
    assert len(settling(book).settle_interrupted(found_no)) == 1
    assert settling(book).settle_interrupted(found_no) == ()
    book.key_path.with_name(MEMO).unlink()
    assert settling(book).settle_interrupted(found_no) == ()


def test_many_that_settle_at_once_settle_once(book: ReceiptBook) -> None:
    for number in range(5):
        crash(book, number)
    threads = [
        threading.Thread(target=settling(book).settle_interrupted, args=(found_no,))
        for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = verify(book, gone)
    assert (found.problems, found.settlements, found.unsettled) == ((), 5, 0)


@pytest.mark.parametrize("happened", ["yes", "no", "unknown"])
def test_a_person_settles_by_the_beginning_of_the_id(book: ReceiptBook, happened: str) -> None:
    book.intend(replace(intent(1), id="intent-abcdef"))
    finding = SettlementFinding(happened, "asked \ud800 them")  # type: ignore[arg-type]  # of the parameters
    made = settling(book).settle("abcd", finding, "person ann")
    assert (made.intent, made.happened, made.by) == ("intent-abcdef", happened, "person ann")
    assert made.note == "asked \\ud800 them"
    found = verify(book, gone)
    assert (found.ok, found.settled) == (True, True)
    assert contrib(book).returncode == 0


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("intent-running", "settle.running"),
        ("intent-received", "settle.closed"),
        ("intent-settled", "settle.closed"),
        ("intent-missing", "settle.unknown"),
        ("intent-", "settle.unknown"),
        ("", "settle.unknown"),
        ("twin", "settle.ambiguous"),
    ],
)
def test_what_cannot_be_settled_is_refused(book: ReceiptBook, name: str, rule: str) -> None:
    book.intend(replace(intent(1, RUNNING), id="intent-running"))
    book.add(receipt(1, book.intend(replace(intent(1, "2:1"), id="intent-received"))))
    for number, each in enumerate(("intent-settled", "intent-twin-1", "intent-twin-2"), 3):
        book.intend(replace(intent(1, f"{number}:1"), id=each))
    settling(book).settle("intent-settled", SettlementFinding("no", ""), "person ann")
    before = book.path.read_bytes()
    with pytest.raises(UsageError) as caught:
        settling(book).settle(name, SettlementFinding("yes", ""), "person ann")
    assert caught.value.rule == rule
    assert book.path.read_bytes() == before


def test_a_note_is_bounded(book: ReceiptBook) -> None:
    crash(book, 1)
    with pytest.raises(UsageError) as caught:
        settling(book).settle(
            "intent-1", SettlementFinding("no", "x" * (MAX_NOTE_CHARS + 1)), "person ann"
        )
    assert caught.value.rule == "settle.note"
    settling(book).settle("intent-1", SettlementFinding("no", "x" * MAX_NOTE_CHARS), "person ann")


def test_a_receipt_that_was_removed_is_not_taken_for_a_crash(book: ReceiptBook) -> None:
    """The same process went on in the same conversation, so that it had written the receipt."""
    fill(book, 1)
    crash(book, 2, process="7:7")
    crash(book, 3, process="7:7")
    found = verify(book, gone)
    assert [one.overtaken for one in found.open_intents] == [True, False]
    assert "intent-2 has no receipt, though its process made a later call" in found.problems[0]
    elsewhere = contrib(book)
    assert "broken: a receipt was lost or removed" in elsewhere.stderr
    assert elsewhere.returncode == 1
    assert [one.intent for one in settling(book).settle_interrupted(found_no)] == ["intent-3"]
    assert not verify(book, gone).ok
    settling(book).settle(
        "intent-2", SettlementFinding("unknown", "the disk was full"), "person ann"
    )
    assert verify(book, gone).settled
    assert contrib(book).returncode == 0


def test_calls_that_a_client_makes_at_once_are_a_crash(book: ReceiptBook) -> None:
    fill(book, 1)
    for number in (1, 2):
        book.intend(replace(intent(number, "7:7"), conversation_id="mcp-1", lookup="nothing"))
    assert verify(book, gone).ok
    assert contrib(book).returncode == 0
    assert len(settling(book).settle_interrupted(found_no)) == 2


@pytest.mark.parametrize(
    ("settles", "happened", "sentence"),
    [
        ("f" * 64, "no", "settles an intent that is not open"),
        (None, "no", "settles an intent that is not open"),
        ("", "perhaps", "does not say whether it happened"),
    ],
)
def test_a_settlement_that_is_wrong_is_broken(
    book: ReceiptBook, settles: str | None, happened: str, sentence: str
) -> None:
    received = book.intend(intent(1))
    book.add(receipt(1, received))
    open_one = crash(book, 2)
    wanted = received if settles is None else settles or open_one
    book.settle(
        Settlement("settlement-1", "t", wanted, "i", "conv", "time", happened, "", "person ann")  # type: ignore[arg-type]  # on purpose
    )
    found = verify(book, gone)
    assert sentence in found.problems[0]
    assert contrib(book).returncode == 1


def test_a_receipt_after_its_settlement_counts(book: ReceiptBook) -> None:
    late = crash(book, 1)
    settling(book).settle_interrupted(found_no)
    book.add(receipt(1, late))
    assert verify(book, gone).settled
    assert contrib(book).returncode == 0
    book.add(receipt(2, late))
    assert not verify(book, gone).ok
    assert contrib(book).returncode == 1


def test_looking_again_reads_only_what_is_new(book: ReceiptBook) -> None:
    fill(book, 3)
    crash(book, 4)
    assert ids(book) == ["intent-4"]
    memo = json.loads(book.key_path.with_name(MEMO).read_bytes())
    assert [offset for offset, _ in memo["read"]] == [
        book.path.stat().st_size,
        intents_path(book.path).stat().st_size,
    ]
    # What was read is not read again: nothing of it could be parsed any more.
    for path in (book.path, intents_path(book.path)):
        data = path.read_bytes()
        path.write_bytes(b"x" * (len(data) - 200) + data[-200:])
    assert ids(book) == ["intent-4"]


@pytest.mark.parametrize("memo", [b"", b"{}", b"[" * 9000, b'{"read":[[9,"zz"],[0,""]],"open":[]}'])
def test_a_memo_that_does_not_fit_is_made_again(book: ReceiptBook, memo: bytes) -> None:
    fill(book, 3)
    crash(book, 4)
    book.key_path.with_name(MEMO).write_bytes(memo)
    assert ids(book) == ["intent-4"]


def test_other_logs_at_the_same_place_are_read_from_their_beginning(book: ReceiptBook) -> None:
    fill(book, 3)
    assert ids(book) == []
    book.close()
    for path in (book.path, intents_path(book.path)):
        path.unlink()
        path.with_name(path.name + ".anchor").unlink()
    for number in range(5, 12):
        crash(book, number)
    assert len(ids(book)) == 7


@pytest.mark.parametrize("end", ["", "\ud800"])
def test_calls_whose_ids_differ_have_different_names(end: str) -> None:
    ids = ["call-1", "x" * 128, "x" * 128 + "a" + end, "x" * 128 + "b" + end, "\ud800", "?"]
    names = [name_call(one) for one in ids]
    assert names[:2] == ids[:2]
    assert len(set(names)) == len(ids)
    assert max(map(len, names)) <= 128
