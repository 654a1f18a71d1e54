"""Receipts of version 1, which stay readable and verifiable for ever, with us and without us."""

from __future__ import annotations

import shutil
from pathlib import Path

from coilclaw.agent.receipts.book import Intent, Receipt, ReceiptBook, Status
from coilclaw.agent.receipts.verification import verify

BASELINE = Path(__file__).parents[2] / "baselines" / "v1" / "receipts"


def fill(book: ReceiptBook) -> None:
    """The calls that were made when the baseline was written."""
    for number, (tool, status, risk, approval, sandbox) in enumerate(CALLS, 1):
        intent_hash = ""
        if status != "denied":
            intent_hash = book.intend(
                Intent(
                    f"intent-{number:016x}", f"2026-05-12T14:00:0{number}.000000Z", "conv-1", tool,
                    "a" * 64, risk, "b" * 64, approval, "4242:1000",
                )
            )  # fmt: skip
        book.add(
            Receipt(
                f"receipt-{number:016x}", f"2026-05-12T14:00:0{number}.500000Z", "conv-1", tool,
                "a" * 64, "c" * 64, status, risk, intent_hash, "b" * 64, sandbox, approval,
            )
        )  # fmt: skip


CALLS: list[tuple[str, Status, str, str, str]] = [
    ("time", "allowed", "low", "policy consults.clock", "none"),
    ("file_read", "denied", "high", "policy path.forbidden", "none"),
    ("file_write", "allowed", "medium", "person yes path.workspace.write", "none"),
    ("shell", "failed", "low", "policy harmless.ls", "bubblewrap fs=read-only net=blocked"),
    ("wörld \U0001f40d", "denied", "high", "policy tool.unknown", "none"),
]


def test_the_baseline_verifies_where_it_stands() -> None:
    book = ReceiptBook(BASELINE / "tool_receipts.log", key_path=BASELINE / "key")
    found = verify(book, lambda _: False)
    assert (found.ok, found.receipts, found.intents, found.problems) == (True, 5, 3, ())


def test_the_same_calls_are_written_the_same_today(tmp_path: Path) -> None:
    key = tmp_path / "keys" / "key"
    key.parent.mkdir()
    shutil.copyfile(BASELINE / "key", key)
    key.chmod(0o600)
    with ReceiptBook(tmp_path / "log" / "tool_receipts.log", key_path=key) as book:
        book.create()
        fill(book)
    made = {path.name: path.read_bytes() for path in book.path.parent.iterdir()}
    kept = {path.name: path.read_bytes() for path in BASELINE.iterdir() if path.name != "key"}
    assert made == kept
