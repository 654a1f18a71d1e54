"""Searching a million turns, against a ``LIKE`` scan of the same table.

``COILCLAW_BENCH_TURNS`` sets another number of turns.
"""

from __future__ import annotations

import itertools
import os
import random
import sqlite3
import statistics
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from bench.measurement import Measurement
from coilclaw.agent.memory.store import Memory
from coilclaw.kernel.messages import TurnRecord

TURNS: Final = int(os.environ.get("COILCLAW_BENCH_TURNS", "1000000"))
BATCH: Final = 10_000
RECORDS_PER_CONVERSATION: Final = 20
SCAN_ROUNDS: Final = 3
SEARCH_ROUNDS: Final = 15
TARGET: Final = 50.0

_PLANTED: Final = {"zanzibarine": 100, "quokkabase": 20, "lock_detector": 60, "axolotlish": 1}
_QUERIES: Final = (
    ("a word with 100 hits", "zanzibarine"),
    ("a word with 20 hits", "quokkabase"),
    ("a word with 1 hit", "axolotlish"),
    ("a word that is nowhere", "nosuchwordanywhere"),
    ("a part of a word", "anzibarin"),
    ("a part of an identifier", "ock_detec"),
)


def _library() -> str:
    """Return some megabytes of text as people and models write it: the standard library's."""
    paths = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    return "\n".join(path.read_text(encoding="utf-8", errors="replace") for path in paths)


def _texts() -> Iterator[str]:
    """Yield pieces of 350 bytes on average, a third of them with a number of their own."""
    chance = random.Random(1)
    library = _library()
    places = random.Random(2)
    planted: dict[int, str] = {}
    for term, count in _PLANTED.items():
        planted |= dict.fromkeys(places.sample(range(TURNS), min(count, TURNS)), term)
    for number in range(TURNS):
        size = chance.randrange(60, 640)
        start = chance.randrange(len(library) - size)
        text = library[start : start + size]
        if number % 3 == 0:
            text += f" {chance.getrandbits(32):08x}"
        if number in planted:
            text = f"{text[:50]} {planted[number]} {text[50:]}"
        yield text


def _records() -> Iterator[TurnRecord]:
    for number, text in enumerate(_texts()):
        conversation, place = divmod(number, RECORDS_PER_CONVERSATION)
        day, second = divmod(conversation * 60, 86400)
        yield TurnRecord(
            f"conversation-{conversation:08d}",
            f"turn-{number // 2:08d}",
            f"2026-{1 + day // 28 % 12:02d}-{1 + day % 28:02d}T{second // 3600:02d}:"
            f"{second // 60 % 60:02d}:{place:02d}.000000Z",
            "assistant" if number % 2 else "user",
            text,
        )


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _build(memory: Memory) -> float:
    """Fill the memory; return the seconds it took, those for making up the texts left out."""
    spent = 0.0
    records = _records()
    while batch := list(itertools.islice(records, BATCH)):
        start = time.perf_counter()
        memory.append(batch)
        spent += time.perf_counter() - start
    return spent


def _compared(memory: Memory, scan: sqlite3.Connection, what: str, term: str) -> Measurement:
    like = "SELECT id FROM turns WHERE content LIKE ? ESCAPE '\\'"
    pattern = "%" + term.replace("_", "\\_") + "%"

    def by_scan() -> None:
        scan.execute(like, (pattern,)).fetchall()

    hits = len(memory.search(term, limit=100))
    floor = statistics.median(_seconds(by_scan) for _ in range(SCAN_ROUNDS))
    ours = statistics.median(_seconds(lambda: memory.search(term)) for _ in range(SEARCH_ROUNDS))
    return Measurement(
        f"LIKE scan / memory search for {what}",
        floor / ours,
        f">= {TARGET:g}",
        floor / ours >= TARGET,
        f"{floor * 1e3:.0f} ms / {ours * 1e3:.2f} ms, {hits} hits in {TURNS} turns",
    )


def run() -> list[Measurement]:
    """Build the database through ``Memory.append``, then measure each query against the scan."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("COILCLAW_BENCH_DIR")) as folder:
        path = Path(folder, "memory.sqlite")
        with Memory(path) as memory:
            spent = _build(memory)
            print(
                f"  {TURNS} turns in {spent:.0f} s, {spent / TURNS * 1e6:.0f} us each; "
                f"{path.stat().st_size / 1e6:.0f} MB",
                file=sys.stderr,
                flush=True,
            )
            scan = sqlite3.connect(path)
            try:
                return [_compared(memory, scan, what, term) for what, term in _QUERIES]
            finally:
                scan.close()
