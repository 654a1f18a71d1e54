"""The journal, against bare writes of the same bytes and a bare reading of the same lines."""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Final

from bench.measurement import Measurement
from coilclaw.kernel.journal import Journal
from coilclaw.kernel.journal_verification import verify_journal

HASH_FIELD: Final = "receipt_hash"
APPEND_ROUNDS: Final = 40
APPENDS: Final = 60
THREADS: Final = 8
THREAD_APPENDS: Final = 60
RECORDS: Final = 100_000
CHUNK: Final = 5_000
VERIFY_ROUNDS: Final = 7
APPEND_TARGET: Final = 0.6
THREADS_TARGET: Final = 2.0
VERIFY_TARGET: Final = 3.0


def _record(number: int) -> dict[str, object]:
    """About 300 bytes as a line."""
    return {
        "id": f"receipt-{number:08d}",
        "time": "2024-02-29T12:00:00Z",
        "tool": "file_read",
        "args_hash": "a" * 40,
        "exit": 0,
        "ok": True,
    }


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


class _Appending:
    """A bare file and a journal side by side."""

    def __init__(self, place: Path) -> None:
        self._bare = os.open(place / "bare", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._journal = Journal(
            place / "appended", hash_field=HASH_FIELD, key_path=place / "appended.key"
        )
        self._journal.append(_record(0))
        self._line = (place / "appended").read_bytes()

    def close(self) -> None:
        os.close(self._bare)
        self._journal.close()

    def bare(self) -> float:
        """Seconds for one line by write and fdatasync."""
        return _seconds(self._write_lines) / APPENDS

    def single(self) -> float:
        """Seconds for one record by one thread."""
        return _seconds(lambda: self._append(APPENDS)) / APPENDS

    def threaded(self) -> float:
        """Seconds for one record where several threads append at once."""
        ready = threading.Barrier(THREADS + 1)

        def work() -> None:
            ready.wait()
            self._append(THREAD_APPENDS)

        threads = [threading.Thread(target=work) for _ in range(THREADS)]
        for thread in threads:
            thread.start()

        def finish() -> None:
            ready.wait()
            for thread in threads:
                thread.join()

        return _seconds(finish) / (THREADS * THREAD_APPENDS)

    def _write_lines(self) -> None:
        for _ in range(APPENDS):
            os.write(self._bare, self._line)
            os.fdatasync(self._bare)

    def _append(self, count: int) -> None:
        for number in range(count):
            self._journal.append(_record(number))


def _append(place: Path) -> list[Measurement]:
    """Compare rates; each round has its own floor, since the disk's speed changes all the time."""
    appending = _Appending(place)
    rounds = [
        (appending.bare(), appending.single(), appending.threaded(), appending.bare())
        for _ in range(APPEND_ROUNDS)
    ]
    appending.close()
    single = statistics.median((a + b) / 2 / one for a, one, _, b in rounds)
    threaded = statistics.median((a + b) / 2 / many for a, _, many, b in rounds)
    bare = statistics.median(a for a, _, _, _ in rounds) * 1e6
    one = statistics.median(one for _, one, _, _ in rounds) * 1e6
    many = statistics.median(many for _, _, many, _ in rounds) * 1e6
    return [
        Measurement(
            "journal append rate / write+fdatasync",
            single,
            f">= {APPEND_TARGET:g}",
            single >= APPEND_TARGET,
            f"{one:.0f} us against {bare:.0f} us a record",
        ),
        Measurement(
            f"journal append rate, {THREADS} threads / write+fdatasync",
            threaded,
            f">= {THREADS_TARGET:g}",
            threaded >= THREADS_TARGET,
            f"{many:.0f} us against {bare:.0f} us a record",
        ),
    ]


def _verify(place: Path) -> Measurement:
    path, key = place / "verified", place / "verified.key"
    with Journal(path, hash_field=HASH_FIELD, id_field="id", key_path=key) as journal:
        for start in range(0, RECORDS, CHUNK):
            journal.append_all(_record(number) for number in range(start, start + CHUNK))

    def ours() -> None:
        report = verify_journal(path, hash_field=HASH_FIELD, id_field="id", key_path=key)
        assert (report.ok, report.records) == (True, RECORDS)

    def floor() -> None:
        with path.open("rb") as file:
            for line in file:
                json.loads(line)
                sha256(line).hexdigest()

    rounds = [(_seconds(floor), _seconds(ours)) for _ in range(VERIFY_ROUNDS)]
    ratio = statistics.median(mine / bare for bare, mine in rounds)
    bare, mine = (statistics.median(column) for column in zip(*rounds, strict=True))
    return Measurement(
        "journal verify / read, json.loads, SHA-256",
        ratio,
        f"<= {VERIFY_TARGET:g}",
        ratio <= VERIFY_TARGET,
        f"{mine * 1e3:.0f} ms against {bare * 1e3:.0f} ms, {RECORDS} records of "
        f"{path.stat().st_size // RECORDS} bytes",
    )


def run() -> list[Measurement]:
    """Measure, interleaved, and compare by medians."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("COILCLAW_BENCH_DIR")) as folder:
        return [*_append(Path(folder)), _verify(Path(folder))]
