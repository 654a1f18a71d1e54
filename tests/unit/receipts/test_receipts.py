from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from coilclaw.agent.receipts.book import (
    Intent,
    Receipt,
    ReceiptBook,
    Status,
    export_receipts,
    intents_path,
)
from coilclaw.agent.receipts.verification import OpenIntent, verify
from coilclaw.kernel.atomic_file import anchor_path
from coilclaw.kernel.canonical_json import digest_bytes, encode_record
from coilclaw.kernel.errors import UsageError

CONTRIB = Path(__file__).parents[3] / "contrib" / "verify_receipts.py"


@pytest.fixture
def book(tmp_path: Path) -> ReceiptBook:
    made = ReceiptBook(tmp_path / "log" / "receipts.log", key_path=tmp_path / "keys" / "k")
    made.create()
    return made


def intent(number: int, process: str = "1:1") -> Intent:
    return Intent(
        f"intent-{number}", "2026-01-01T00:00:00Z", "conv", "time", "a", "low", "p", "policy x",
        process,
    )  # fmt: skip


def receipt(number: int, intent_hash: str, status: Status = "allowed") -> Receipt:
    return Receipt(
        f"receipt-{number}", "2026-01-01T00:00:01Z", "conv", "time", "a", "r", status, "low",
        intent_hash, "p", "none", "policy x",
    )  # fmt: skip


def fill(book: ReceiptBook, count: int) -> None:
    for number in range(1, count + 1):
        book.add(receipt(number, book.intend(intent(number, f"{os.getpid()}:1"))))


def gone(_: str) -> bool:
    return False


def contrib(book: ReceiptBook, *options: str) -> subprocess.CompletedProcess[str]:
    """The verdict of the program that knows nothing of us."""
    return subprocess.run(
        [sys.executable, "-I", CONTRIB, *options, book.path, intents_path(book.path)],
        capture_output=True,
        text=True,
        check=False,
    )


def edit(path: Path, change: Callable[[list[bytes]], list[bytes]]) -> None:
    path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))


def test_receipts_that_nobody_touched_are_valid(book: ReceiptBook) -> None:
    fill(book, 5)
    book.add(receipt(6, "", "denied"))
    found = verify(book, gone)
    assert (found.ok, found.receipts, found.intents, found.problems) == (True, 6, 5, ())
    assert contrib(book).stdout == "valid: 6 receipts\n"


def swapped(lines: list[bytes]) -> list[bytes]:
    return [lines[1], lines[0], *lines[2:]]


@pytest.mark.parametrize(
    ("name", "change", "number"),
    [
        ("edit", lambda lines: [lines[0], lines[1].replace(b"time", b"tame"), lines[2]], 2),
        ("delete", lambda lines: [lines[0], lines[2]], 2),
        ("insert", lambda lines: [lines[0], lines[0], *lines[1:]], 2),
        ("reorder", swapped, 1),
        ("spaces", lambda lines: [lines[0], lines[1].replace(b":", b": ", 1), lines[2]], 2),
        ("garbage", lambda lines: [lines[0], b"{]\n", lines[2]], 2),
    ],
)
def test_the_first_broken_link_is_named_by_number(
    book: ReceiptBook, name: str, change: Callable[[list[bytes]], list[bytes]], number: int
) -> None:
    fill(book, 3)
    edit(book.path, change)
    found = verify(book, gone)
    assert not found.ok
    assert found.broken_at == number
    assert f"at receipt {number}" in found.problems[0]
    elsewhere = contrib(book)
    assert elsewhere.returncode == 1
    assert f"invalid chain at receipt {number}" in elsewhere.stderr


def test_an_edited_intent_is_named(book: ReceiptBook) -> None:
    fill(book, 3)
    edit(
        intents_path(book.path),
        lambda lines: [lines[0], lines[1].replace(b"low", b"lot"), lines[2]],
    )
    found = verify(book, gone)
    assert "invalid chain at intent 2" in found.problems[0]
    assert contrib(book).returncode == 1


def test_a_log_cut_off_at_its_end_is_noticed(book: ReceiptBook) -> None:
    fill(book, 3)
    edit(book.path, lambda lines: lines[:2])
    found = verify(book, gone)
    assert found.broken_at == 3
    # Without the key nobody can tell, but the intent that lost its receipt shows.
    assert "an intent without a receipt" in contrib(book).stderr


def test_both_logs_rewritten_with_new_hashes_are_noticed(book: ReceiptBook, tmp_path: Path) -> None:
    fill(book, 3)
    other = ReceiptBook(tmp_path / "other" / "receipts.log", key_path=tmp_path / "other" / "k")
    other.create()
    fill(other, 2)
    other.add(receipt(3, other.intend(intent(3, "7:7"))))
    for here, there in (
        (book.path, other.path),
        (intents_path(book.path), intents_path(other.path)),
    ):
        here.write_bytes(there.read_bytes())
    assert contrib(book).returncode == 0
    assert not verify(book, gone).ok


def test_a_call_without_an_intent_is_noticed(book: ReceiptBook) -> None:
    fill(book, 1)
    book.add(receipt(2, ""))
    found = verify(book, gone)
    assert (found.broken_at, found.problems) == (
        2,
        ("receipt 2 records a call that was made, but names no intent",),
    )
    assert "receipt 2: a call was made" in contrib(book).stderr


def test_a_receipt_for_somebody_elses_intent_is_noticed(book: ReceiptBook) -> None:
    fill(book, 1)
    book.add(receipt(2, "f" * 64))
    assert verify(book, gone).broken_at == 2
    assert "receipt 2: its intent is not there" in contrib(book).stderr


def test_one_intent_serves_one_receipt(book: ReceiptBook) -> None:
    once = book.intend(intent(1))
    book.add(receipt(1, once))
    book.add(receipt(2, once))
    assert verify(book, gone).broken_at == 2
    assert "receipt 2: names the intent of receipt 1" in contrib(book).stderr


def test_receipts_may_come_in_another_order_than_their_intents(book: ReceiptBook) -> None:
    hashes = [book.intend(intent(number)) for number in range(4)]
    for number in (2, 0, 3, 1):
        book.add(receipt(number, hashes[number]))
    assert verify(book, gone).ok
    assert contrib(book).returncode == 0


def test_an_intent_whose_process_is_gone_is_a_crash(book: ReceiptBook) -> None:
    fill(book, 2)
    book.intend(intent(3, "3:3"))
    found = verify(book, gone)
    crashed = OpenIntent("intent-3", "2026-01-01T00:00:00Z", "time", "conv", running=False)
    assert (found.problems, found.open_intents) == ((), (crashed,))
    assert (found.ok, found.unsettled, found.settled) == (True, 1, False)
    elsewhere = contrib(book)
    assert "unsettled: an intent without a receipt: intent-3 time" in elsewhere.stderr
    assert elsewhere.returncode == 0


def test_an_intent_whose_process_runs_is_none(book: ReceiptBook) -> None:
    fill(book, 2)
    book.intend(intent(3, "9:9"))
    found = verify(book, lambda process: process == "9:9")
    assert found.ok
    assert [one.running for one in found.open_intents] == [True]


@pytest.mark.parametrize("lost", ["receipts", "intents"])
def test_a_log_that_is_gone_with_its_anchor_is_noticed(book: ReceiptBook, lost: str) -> None:
    fill(book, 2)
    path = book.path if lost == "receipts" else intents_path(book.path)
    path.unlink()
    anchor_path(path).unlink()
    assert not verify(book, gone).ok


def test_verifying_writes_nothing(book: ReceiptBook) -> None:
    fill(book, 2)
    book.close()
    before = {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in book.path.parent.iterdir()}
    verify(book, gone)
    assert {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in book.path.parent.iterdir()} == before


def test_a_receipt_has_the_specified_fields(book: ReceiptBook) -> None:
    fill(book, 1)
    (record,) = book.receipts()
    assert set(record) == {
        "id", "timestamp", "conversation_id", "tool", "args_hash", "result_hash", "status", "risk",
        "previous_hash", "receipt_hash", "intent_hash", "policy_hash", "sandbox", "approval",
    }  # fmt: skip


def test_export_gives_the_bytes_as_they_stand(book: ReceiptBook) -> None:
    fill(book, 3)
    edit(book.path, lambda lines: [lines[0], lines[1].replace(b":", b": ", 1), lines[2]])
    out = io.BytesIO()
    assert export_receipts(book, out) == 3
    assert out.getvalue() == book.path.read_bytes()
    intents = io.BytesIO()
    assert export_receipts(book, intents, intents=True) == 3
    assert intents.getvalue() == intents_path(book.path).read_bytes()


def test_a_receipt_is_found_by_the_beginning_of_its_id(book: ReceiptBook) -> None:
    fill(book, 12)
    assert book.find("receipt-1")["id"] == "receipt-1"
    assert book.find("12")["id"] == "receipt-12"
    for text in ("receipt-99", "receipt", ""):
        with pytest.raises(UsageError):
            book.find(text)


def test_the_last_ones_come_oldest_first(book: ReceiptBook) -> None:
    fill(book, 5)
    assert [one["id"] for one in book.last(2)] == ["receipt-4", "receipt-5"]


def test_only_the_owner_can_read_the_logs(book: ReceiptBook) -> None:
    fill(book, 1)
    for path in (book.path, intents_path(book.path)):
        assert os.stat(path).st_mode & 0o077 == 0


def test_the_program_without_us_can_be_read_at_one_sitting() -> None:
    assert len(CONTRIB.read_text().splitlines()) <= 300


def test_the_program_without_us_knows_wrong_usage(tmp_path: Path) -> None:
    for arguments in ([], [str(tmp_path / "missing")]):
        done = subprocess.run(
            [sys.executable, "-I", str(CONTRIB), *arguments], capture_output=True, check=False
        )
        assert done.returncode == 2


def test_a_line_naming_a_key_twice_is_noticed_without_us(book: ReceiptBook) -> None:
    fill(book, 1)
    line = book.path.read_bytes()
    book.path.write_bytes(line.replace(b'"tool":', b'"tool":"x","tool":', 1))
    assert json.loads(book.path.read_bytes())["tool"] == "time"
    assert "canonical" in contrib(book).stderr


def test_receipts_added_without_the_key_are_noticed(book: ReceiptBook) -> None:
    fill(book, 2)
    book.close()
    last = json.loads(book.path.read_bytes().splitlines()[-1])
    forged = {**last, "id": "receipt-forged", "status": "denied", "intent_hash": ""}
    forged["previous_hash"] = forged.pop("receipt_hash")
    own = digest_bytes(encode_record(forged))
    with book.path.open("ab") as file:
        file.write(encode_record({**forged, "receipt_hash": own}) + b"\n")
    found = verify(book, gone)
    assert (found.ok, found.problems, found.unanchored) == (False, (), 1)


@pytest.mark.parametrize("field", ["status", "intent_hash"])
def test_a_field_that_is_no_text_is_broken_without_us(book: ReceiptBook, field: str) -> None:
    fill(book, 2)
    first, last = map(json.loads, book.path.read_bytes().splitlines())
    forged = {**last, field: ["x"]}
    del forged["receipt_hash"]
    own = {**forged, "receipt_hash": digest_bytes(encode_record(forged))}
    book.path.write_bytes(encode_record(first) + b"\n" + encode_record(own) + b"\n")
    told = contrib(book)
    assert (told.returncode, "broken: invalid chain at receipt 2" in told.stderr) == (1, True)


@pytest.mark.parametrize("mark", [b"[]", b"{}", b"\xff", b"[" * 100_000])
def test_what_is_no_mark_is_broken_without_us(book: ReceiptBook, mark: bytes) -> None:
    fill(book, 1)
    path = book.path.with_name("some.mark")
    path.write_bytes(mark)
    told = contrib(book, "--mark", str(path))
    assert (told.returncode, told.stderr) == (1, f"broken: {path} is not a mark\n")
    first = json.loads(book.path.read_bytes())["receipt_hash"]
    path.write_text(json.dumps({"first_hash": first}))
    assert contrib(book, "--mark", str(path)).returncode == 0


def test_intents_added_without_the_key_are_noticed(book: ReceiptBook) -> None:
    fill(book, 2)
    book.close()
    path = intents_path(book.path)
    forged = {**json.loads(path.read_bytes().splitlines()[-1]), "id": "intent-forged"}
    forged["previous_hash"] = forged.pop("intent_hash")
    with path.open("ab") as file:
        file.write(
            encode_record({**forged, "intent_hash": digest_bytes(encode_record(forged))}) + b"\n"
        )
    found = verify(book, gone)
    assert (found.ok, found.unanchored, found.unsettled) == (False, 1, 1)


@pytest.mark.parametrize(("tail", "ok"), [(b'{"approval":"po', True), (b"nonsense\n", False)])
def test_what_stands_at_the_end_of_the_intents_is_said(
    book: ReceiptBook, tail: bytes, ok: bool
) -> None:
    fill(book, 2)
    book.close()
    with intents_path(book.path).open("ab") as file:
        file.write(tail)
    found = verify(book, gone)
    assert (found.ok, found.settled, found.torn_bytes) == (ok, False, len(tail))
    fill(book, 1)
    assert verify(book, gone).settled


def test_a_torn_line_at_the_end_is_said_and_not_broken(book: ReceiptBook) -> None:
    fill(book, 2)
    book.close()
    with book.path.open("ab") as file:
        file.write(b'{"approval":"po')
    found = verify(book, gone)
    assert (found.ok, found.settled, found.torn_bytes) == (True, False, 15)
    elsewhere = contrib(book)
    assert elsewhere.returncode == 0
    assert "unsettled: invalid chain at receipt 3: the line is not complete" in elsewhere.stderr
    fill(book, 1)
    assert verify(book, gone).settled


@pytest.mark.parametrize("garbage", [b"\n", b"nonsense\n", b"[" * 100_000 + b"\n"])
def test_garbage_at_the_end_is_noticed_by_both(book: ReceiptBook, garbage: bytes) -> None:
    fill(book, 2)
    book.close()
    with book.path.open("ab") as file:
        file.write(garbage)
    found = verify(book, gone)
    assert (found.ok, found.torn_bytes) == (False, len(garbage))
    assert contrib(book).returncode == 1
    assert "Traceback" not in contrib(book).stderr
