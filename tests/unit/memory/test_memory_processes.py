"""Many processes at once, and processes that are killed at any instant."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import time as clock
from pathlib import Path

from coilclaw.agent.memory.store import Memory
from coilclaw.kernel.messages import TurnRecord
from tests.support.scale import scaled
from tests.unit.memory.turns import said
from tests.unit.storage.worlds import fork, reap


def batch(name: str, number: int) -> list[TurnRecord]:
    """Three records that are appended together, with words of their own."""
    return [said(f"{name} part{part} of batch{number}x", name, f"{number}") for part in range(3)]


def sound(path: Path) -> bool:
    connection = sqlite3.connect(path)
    try:
        whole = connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        connection.execute("INSERT INTO turn_tokens (turn_tokens) VALUES ('integrity-check')")
        connection.execute("INSERT INTO word_trigrams (word_trigrams) VALUES ('integrity-check')")
    finally:
        connection.close()
    return whole


def test_eight_processes_append_at_once_and_nothing_is_lost(memory: Memory) -> None:
    count = scaled(full=200, default=40)
    with memory:
        memory.create()
        start, go = os.pipe()

        def work() -> None:
            os.close(go)
            os.read(start, 1)
            for number in range(count):
                memory.append(batch(f"p{os.getpid()}", number))

        children = [fork(work) for _ in range(8)]
        os.close(go)  # end of file lets all of them start at once
        os.close(start)
        assert [reap(child) for child in children] == [0] * 8
        for child in children:
            name = f"p{child}"
            expected = [record for number in range(count) for record in batch(name, number)]
            assert memory.conversation(name) == tuple(expected)
            assert len(memory.search(name, limit=10_000)) == 3 * count
        assert len(memory.conversations()) == 8
    assert sound(memory.path)


class Writer:
    """A child that appends batches until it is killed, and tells each one it has appended."""

    def __init__(self, memory: Memory, name: str) -> None:
        self._told, tell = os.pipe()

        def work() -> None:
            os.close(self._told)
            number = 0
            while True:
                memory.append(batch(name, number))
                os.write(tell, b"x")
                number += 1

        self.pid = fork(work)
        os.close(tell)

    def kill_after(self, seconds: float) -> int:
        """Kill it so long after its first append; return how many it told."""
        told = len(os.read(self._told, 1))
        until = clock.perf_counter() + seconds
        while clock.perf_counter() < until:
            pass
        os.kill(self.pid, signal.SIGKILL)
        assert reap(self.pid) == -signal.SIGKILL
        while piece := os.read(self._told, 4096):
            told += len(piece)
        os.close(self._told)
        return told


def test_a_killed_writer_leaves_whole_appends_and_a_memory_that_goes_on(memory: Memory) -> None:
    chance = random.Random(20260102)
    with memory:
        memory.create()
        for number in range(scaled(full=200, default=40)):
            name = f"victim{number}x"
            told = Writer(memory, name).kill_after(chance.random() * 4e-3)
            kept = memory.conversation(name)
            done = len(kept) // 3
            # The last one may have been on disk already, and not yet told.
            assert done in {told, told + 1}
            assert kept == tuple(r for each in range(done) for r in batch(name, each))
            assert len(memory.search(name, limit=1000)) == len(kept)
            memory.append([said("goes on", name, "after")])
            assert memory.conversation(name, last=1)[0].turn_id == "after"
    assert sound(memory.path)


def test_a_kill_while_the_database_is_made_leaves_one_that_can_be_made(tmp_path: Path) -> None:
    chance = random.Random(7)
    for number in range(scaled(full=200, default=30)):
        path = tmp_path / str(number) / "memory.sqlite"
        start, go = os.pipe()

        def work(path: Path = path, start: int = start, go: int = go) -> None:
            os.close(go)
            os.read(start, 1)
            Memory(path).append([said("first")])
            signal.pause()

        child = fork(work)
        os.close(start)
        os.close(go)
        until = clock.perf_counter() + chance.random() * 12e-3
        while clock.perf_counter() < until:
            pass
        os.kill(child, signal.SIGKILL)
        assert reap(child) == -signal.SIGKILL
        with Memory(path) as memory:
            memory.append([said("second")])
            assert [record.content for record in memory.conversation("c-1")] in (
                ["first", "second"],
                ["second"],
            )
        assert sound(path)


def test_a_killed_clear_clears_everything_or_nothing(memory: Memory) -> None:
    chance = random.Random(11)
    for _ in range(scaled(full=100, default=15)):
        with memory:
            if len(memory.conversation("c-1")) > 2000:
                memory.clear()  # where no child gets that far, it would grow past all limits
            memory.append([said("quokka " * 50, turn=str(turn)) for turn in range(200)])
            kept = len(memory.conversation("c-1"))
        start, go = os.pipe()

        def work(start: int = start, go: int = go) -> None:
            os.close(go)
            os.read(start, 1)
            memory.clear()
            signal.pause()

        child = fork(work)
        os.close(start)
        os.close(go)
        until = clock.perf_counter() + chance.random() * 15e-3
        while clock.perf_counter() < until:
            pass
        os.kill(child, signal.SIGKILL)
        assert reap(child) == -signal.SIGKILL
        with memory:
            left = len(memory.conversation("c-1"))
            assert left in {0, kept}
            assert len(memory.search("quokka", limit=10_000)) == left
    with memory:
        memory.clear()
    assert b"quokka" not in memory.path.read_bytes()
    assert sound(memory.path)
