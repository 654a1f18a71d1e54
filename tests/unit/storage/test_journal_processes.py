"""Many processes, and processes that are killed at any instant."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from functools import partial

from coilclaw.kernel.journal import Journal
from tests.support.scale import scaled
from tests.unit.storage.worlds import HASH_FIELD, World, fork, reap, record, sound


def _hashes(world: World) -> list[str]:
    return [str(entry[HASH_FIELD]) for entry in world.journal().read()]


def test_sixteen_processes_build_one_chain(world: World) -> None:
    turns = scaled(full=500, default=100)
    journal = world.journal()
    journal.open()
    start, go = os.pipe()

    def work() -> None:
        os.close(go)
        os.read(start, 1)
        mine = [journal.append({"id": f"{os.getpid()}-{turn}"}) for turn in range(turns)]
        (world.directory / f"told-{os.getpid()}").write_text(" ".join(mine))

    children = [fork(work) for _ in range(16)]
    os.close(go)  # end of file lets all of them start at once
    os.close(start)
    assert [reap(child) for child in children] == [0] * 16
    assert world.verify() == sound(16 * turns)
    chain = _hashes(world)
    places = {value: place for place, value in enumerate(chain)}
    told = [(world.directory / f"told-{child}").read_text().split() for child in children]
    assert sorted(value for mine in told for value in mine) == sorted(chain)
    for mine in told:
        assert [places[value] for value in mine] == sorted(places[value] for value in mine)


def test_many_processes_may_be_the_first(world: World) -> None:
    for name in range(5):
        fresh = World(world.directory / str(name))
        fresh.directory.mkdir()
        children = [fork(partial(_append_one, fresh)) for _ in range(8)]
        assert [reap(child) for child in children] == [0] * 8
        assert fresh.verify() == sound(8)


def _append_one(world: World) -> None:
    world.journal().append(record(1))


def _with_text(text: str, number: int) -> dict[str, object]:
    return {"id": f"v-{number}", "text": text}


class Victim:
    """A child that appends until it is killed, and tells every hash before it goes on."""

    def __init__(self, journal: Journal, make: Callable[[int], dict[str, object]]) -> None:
        self._told, tell = os.pipe()

        def work() -> None:
            os.close(self._told)
            number = 0
            while True:
                number += 1
                os.write(tell, journal.append(make(number)).encode())

        self.pid = fork(work)
        os.close(tell)
        self.hashes: list[str] = []

    def listen(self, count: int) -> None:
        """Wait until the child has told so many hashes, or has ended."""
        while len(self.hashes) < count:
            text = os.read(self._told, 64)
            if not text:
                return
            self.hashes.append(text.decode())

    def kill(self) -> list[str]:
        os.kill(self.pid, signal.SIGKILL)
        assert reap(self.pid) == -signal.SIGKILL
        self.listen(10**9)
        os.close(self._told)
        return self.hashes


def _moment(chance: random.Random, longest_s: float) -> None:
    """Let a random time pass without giving up the processor for longer than that."""
    end = time.perf_counter() + chance.uniform(0, longest_s)
    while time.perf_counter() < end:
        pass


def test_a_kill_at_any_instant_loses_nothing_that_was_told(world: World) -> None:
    chance = random.Random(20240229)
    journal = world.journal()
    told = [journal.append(record(0))]
    for trial in range(scaled(full=200, default=60)):
        victim = Victim(journal, record)
        victim.listen(chance.randrange(6))
        _moment(chance, 5e-4)
        told += victim.kill()
        told.append(journal.append(record(trial)))  # the object goes on where others left off
        if trial % 5 == 0:
            fresh = world.journal()
            told.append(fresh.append(record(trial)))
            fresh.close()
        report = world.verify()
        assert (report.ok, report.unanchored, report.torn_bytes) == (True, 0, 0), report
    chain = _hashes(world)
    places = {value: place for place, value in enumerate(chain)}
    assert [places[value] for value in told] == sorted(places[value] for value in told)
    assert len(chain) >= len(told)


def test_a_kill_in_the_middle_of_a_long_write_tears_a_line_that_is_kept(world: World) -> None:
    chance = random.Random(20240303)
    text = "x" * (12 * 2**20)
    for trial in range(scaled(full=30, default=5)):
        fresh = World(world.directory / str(trial))
        fresh.directory.mkdir()
        journal = fresh.journal()
        told = [journal.append(record(1))]
        size = fresh.path.stat().st_size
        victim = Victim(journal, partial(_with_text, text))
        while fresh.path.stat().st_size == size:
            pass
        _moment(chance, 1e-3)
        told += victim.kill()
        left = fresh.path.read_bytes()
        told.append(journal.append(record(2)))
        torn = [kept.path.read_bytes() for kept in journal.recovered]
        assert b"".join([*fresh.lines()[:-1], *torn]) == left
        assert fresh.verify() == sound(len(fresh.lines()))
        assert [value for value in _hashes(fresh) if value in told] == told
        journal.close()
        shutil.rmtree(fresh.directory)


def test_a_kill_while_a_torn_end_is_moved_aside_loses_nothing_of_it(world: World) -> None:
    chance = random.Random(20240304)
    torn = b"x" * (2 * 2**20)
    journal = world.journal()
    journal.append(record(0))
    for trial in range(1, scaled(full=60, default=15) + 1):
        with world.path.open("ab") as file:
            file.write(torn)
        child = fork(world.journal().open)
        _moment(chance, 4e-3)
        os.kill(child, signal.SIGKILL)
        assert reap(child) in {0, -signal.SIGKILL}
        journal.append(record(trial))
        kept = [path for path in world.directory.iterdir() if ".torn-" in path.name]
        assert kept
        assert all(path.read_bytes() == torn for path in kept)
        assert world.verify() == sound(trial + 1)
        for path in kept:
            path.unlink()


def test_kills_among_processes_that_go_on_lose_nothing(world: World) -> None:
    chance = random.Random(20240301)
    journal = world.journal()
    journal.open()
    told: list[str] = []
    crowd = [Victim(journal, record) for _ in range(4)]
    for _ in range(scaled(full=60, default=20)):
        victim = crowd.pop(0)
        victim.listen(chance.randrange(4))
        _moment(chance, 1e-3)
        told += victim.kill()
        crowd.append(Victim(journal, record))
    for victim in crowd:
        told += victim.kill()
    told.append(journal.append(record(1)))
    report = world.verify()
    assert (report.ok, report.unanchored, report.torn_bytes) == (True, 0, 0), report
    assert set(told) <= set(_hashes(world))
    assert len(set(told)) == len(told)


def test_a_kill_during_the_very_first_append_leaves_a_journal_that_works(world: World) -> None:
    chance = random.Random(20240302)
    world.journal().open()  # so that everything that will be used is loaded
    for trial in range(scaled(full=60, default=20)):
        fresh = World(world.directory / str(trial))
        fresh.directory.mkdir()
        victim = Victim(fresh.journal(), record)
        _moment(chance, 4e-3)
        told = victim.kill()
        journal = fresh.journal()
        told.append(journal.append(record(1)))
        journal.close()
        assert fresh.verify().ok
        assert [value for value in _hashes(fresh) if value in told] == told
