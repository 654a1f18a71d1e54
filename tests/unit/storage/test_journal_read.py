"""Reading: no half line, no damage in silence, no memory that grows."""

from __future__ import annotations

import os
import tracemalloc
from collections import deque

import pytest

from coilclaw.kernel.errors import EnvironmentFault, JournalDamaged
from coilclaw.kernel.file_lock import FileLock
from tests.unit.storage.worlds import World, fork, reap, record


def _numbers(world: World, start: int = 0) -> list[object]:
    return [entry["number"] for entry in world.journal().read(start)]


def test_a_journal_that_is_gone_is_not_an_empty_one(world: World) -> None:
    world.fill(1)
    world.path.unlink()
    with pytest.raises(JournalDamaged, match="it is gone"):
        list(world.journal().read())
    world.anchor.write_bytes(b"nonsense")
    with pytest.raises(JournalDamaged, match="it is gone"):
        list(world.journal().read())


def test_a_journal_without_records_may_be_gone(world: World) -> None:
    world.journal().open()
    world.path.unlink()
    assert list(world.journal().read()) == []


def test_an_edited_hash_is_no_trouble_for_reading(world: World) -> None:
    world.fill(1)
    anchor = world.anchor.read_bytes()
    world.fill(1, start=2)
    world.anchor.write_bytes(anchor)
    lines = world.lines()
    odd = b'{"number":0,"receipt_hash":["x"]}'.ljust(len(lines[0]) - 1) + b"\n"
    world.put([odd, lines[1]])
    assert _numbers(world) == [0]


def test_a_line_that_cannot_be_read_is_named(world: World) -> None:
    world.fill(3)
    lines = world.lines()
    world.put([lines[0], b"x" * len(lines[1][:-1]) + b"\n", lines[2]])
    reader = world.journal().read()
    assert next(reader)["number"] == 1
    with pytest.raises(JournalDamaged, match="line 2 cannot be read: it is not JSON"):
        next(reader)


def test_a_torn_end_that_the_anchor_covers_is_damage(world: World) -> None:
    world.fill(2)
    os.truncate(world.path, world.path.stat().st_size - 1)
    with pytest.raises(JournalDamaged, match="line 2 cannot be read: it does not end"):
        list(world.journal().read())


def test_without_an_anchor_nothing_is_excused(world: World) -> None:
    world.fill(2)
    world.anchor.unlink()
    assert _numbers(world) == [1, 2]
    with world.path.open("ab") as file:
        file.write(b"torn")
    with pytest.raises(JournalDamaged, match="line 3 cannot be read"):
        list(world.journal().read())


def test_what_is_no_file_is_a_fault(world: World) -> None:
    world.path.mkdir()
    with pytest.raises(EnvironmentFault, match="is not a regular file"):
        list(world.journal().read())


def test_what_a_crash_left_does_not_show(world: World) -> None:
    world.fill(2)
    anchor = world.anchor.read_bytes()
    world.fill(2, start=3)
    world.anchor.write_bytes(anchor)
    whole = world.path.read_bytes()
    for torn in (b"", b"{", b"\0" * 100, b'{"a":1}\n', world.lines()[1], b"[" * 9000 + b"\n"):
        world.path.write_bytes(whole + torn)
        assert _numbers(world) == [1, 2, 3, 4]
        assert _numbers(world, 3) == [4]


def test_reading_creates_nothing(world: World) -> None:
    assert list(world.journal().read()) == []
    assert world.names() == set()


def test_records_come_as_they_were_appended(world: World) -> None:
    with world.journal() as journal:
        hashes = journal.append_all(record(number) for number in range(1, 6))
        previous = ("0" * 64, *hashes)
        expected = [
            {**record(n), "receipt_hash": hashes[n - 1], "previous_hash": previous[n - 1]}
            for n in range(1, 6)
        ]
        assert list(journal.read()) == expected
        for start in range(7):
            assert list(journal.read(start)) == expected[start:]


def test_what_is_appended_later_does_not_show(world: World) -> None:
    world.fill(3)
    reader = world.journal().read()
    next(reader)
    world.fill(3, start=4)
    assert [entry["number"] for entry in reader] == [2, 3]


def test_reading_needs_the_lock_only_to_begin(world: World) -> None:
    world.fill(3)
    reader = world.journal().read()
    next(reader)
    with FileLock(world.path):
        assert [entry["number"] for entry in reader] == [2, 3]


def test_readers_beside_writers_see_whole_records_in_order(world: World) -> None:
    world.fill(1)

    def work() -> None:
        with world.journal() as journal:
            for turn in range(60):
                journal.append_all(record(number) for number in range(turn % 7))

    children = [fork(work) for _ in range(3)]
    seen = [0]
    while len(children) > 0:
        if os.waitpid(children[0], os.WNOHANG) != (0, 0):
            children.pop(0)
        previous = "0" * 64
        count = 0
        for entry in world.journal().read():
            assert entry["previous_hash"] == previous
            previous = str(entry["receipt_hash"])
            count += 1
        assert count >= seen[-1]
        seen.append(count)
    assert seen[-1] == 1 + 3 * sum(turn % 7 for turn in range(60))


def _peaks(world: World) -> tuple[int, int]:
    """Return the most memory that reading and verifying took."""
    tracemalloc.start()
    deque(world.journal().read(), maxlen=0)
    reading = tracemalloc.get_traced_memory()[1]
    tracemalloc.reset_peak()
    assert world.verify().ok
    verifying = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return reading, verifying


def test_memory_does_not_grow_with_the_journal(world: World) -> None:
    world.fill(1000)
    _peaks(world)  # whatever is loaded at the first use is loaded now
    small = _peaks(world)
    world.fill(19_000)
    large = _peaks(world)
    assert large[0] < small[0] + 100_000
    assert large[1] < small[1] + 100_000
    assert world.path.stat().st_size > 4_000_000


def test_a_child_reads_what_its_parent_wrote(world: World) -> None:
    journal = world.journal()
    journal.append(record(1))

    def work() -> None:
        assert [entry["number"] for entry in journal.read()] == [1]

    assert reap(fork(work)) == 0
