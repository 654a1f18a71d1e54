"""``receipt verify`` of a long log, against reading, parsing and hashing the same lines."""

from __future__ import annotations

import json
import os
import resource
import tempfile
import time
from hashlib import sha256
from pathlib import Path
from typing import Final

from bench.measurement import Measurement
from coilclaw.agent.receipts.book import (
    INTENT_HASH,
    RECEIPT_HASH,
    Intent,
    Receipt,
    ReceiptBook,
    intents_path,
)
from coilclaw.agent.receipts.verification import verify
from coilclaw.kernel.journal import Journal

RECEIPTS: Final = 1_000_000
CHUNK: Final = 10_000
TARGET: Final = 3.0
MEMORY_TARGET_MIB: Final = 32


def run() -> list[Measurement]:
    """Measure both logs of a million calls."""
    count = int(os.environ.get("COILCLAW_BENCH_RECEIPTS", RECEIPTS))
    with tempfile.TemporaryDirectory(prefix="coilclaw-bench-") as folder:
        book = _filled(Path(folder), count)
        bare = _bare(book.path) + _bare(intents_path(book.path))
        ours, grown = _measured(book)
    size = f"{count} receipts and as many intents: bare {bare:.2f} s, verify {ours:.2f} s"
    return [
        Measurement("receipt verify", ours / bare, f"<= {TARGET}", ours <= TARGET * bare, size),
        Measurement(
            "receipt verify, memory (MiB)",
            grown,
            f"<= {MEMORY_TARGET_MIB}",
            grown <= MEMORY_TARGET_MIB,
            f"growth of the largest resident size over {count} receipts",
        ),
    ]


def _filled(folder: Path, count: int) -> ReceiptBook:
    book = ReceiptBook(folder / "receipts.log", key_path=folder / "keys" / "key")
    book.create()
    key = {"key_path": book.key_path, "id_field": "id"}
    intents = Journal(intents_path(book.path), hash_field=INTENT_HASH, **key)  # type: ignore[arg-type]
    receipts = Journal(book.path, hash_field=RECEIPT_HASH, **key)  # type: ignore[arg-type]
    for first in range(0, count, CHUNK):
        numbers = range(first, min(count, first + CHUNK))
        hashes = intents.append_all(_intent(number).record() for number in numbers)
        receipts.append_all(
            _receipt(number, intent).record()
            for number, intent in zip(numbers, hashes, strict=True)
        )
    intents.close()
    receipts.close()
    return book


def _intent(number: int) -> Intent:
    return Intent(
        f"intent-{number:016x}", "2026-01-01T00:00:00.000000Z", "conv-0123456789abcdef", "time",
        "a" * 64, "low", "b" * 64, "policy consults.clock", "12345:67890",
    )  # fmt: skip


def _receipt(number: int, intent_hash: str) -> Receipt:
    return Receipt(
        f"receipt-{number:016x}", "2026-01-01T00:00:00.000001Z", "conv-0123456789abcdef", "time",
        "a" * 64, "c" * 64, "allowed", "low", intent_hash, "b" * 64, "none",
        "policy consults.clock",
    )  # fmt: skip


def _bare(path: Path) -> float:
    began = time.perf_counter()
    with path.open("rb") as file:
        for line in file:
            json.loads(line)
            sha256(line).hexdigest()
    return time.perf_counter() - began


def _measured(book: ReceiptBook) -> tuple[float, float]:
    """Seconds and MiB, in a process of its own."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        began = time.perf_counter()
        found = verify(book, lambda _: False)
        took = time.perf_counter() - began
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        os.write(write, json.dumps([found.ok, took, grown]).encode())
        os._exit(0)
    os.close(write)
    with open(read, "rb") as file:
        ok, took, grown = json.loads(file.read())
    os.waitpid(pid, 0)
    assert ok, "the log that was just written does not verify"
    return took, grown
