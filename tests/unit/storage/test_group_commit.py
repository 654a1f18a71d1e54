"""Group commit: shared rounds, shared failures, and interrupts that leave nobody waiting."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence

import pytest

from coilclaw.kernel.errors import EnvironmentFault, LockTimeout
from coilclaw.kernel.journal import GroupCommit
from tests.support.children import PATIENCE_S
from tests.unit.storage.worlds import fork, reap


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


class Rounds:
    """A commit that records its batches; the first one waits until it is told to go on."""

    def __init__(self, failures: Sequence[BaseException | None] = ()) -> None:
        self.batches: list[list[int]] = []
        self.go = threading.Event()
        self.failures = list(failures)
        self.group: GroupCommit[int, int] = GroupCommit(self.commit)

    def commit(self, batch: Sequence[int]) -> list[int]:
        self.batches.append(list(batch))
        if len(self.batches) == 1:
            assert self.go.wait(PATIENCE_S)
        failure = self.failures.pop(0) if self.failures else None
        if failure is not None:
            raise failure
        return [item * 10 for item in batch]

    def wait_for_line(self, length: int) -> None:
        _until(lambda: len(self.group._waiting) == length)

    def first_and_others(self, others: int) -> dict[int, object]:
        """Submit 0, and 1, 2, 3… while it is being committed; return what each got."""
        results: dict[int, object] = {}

        def work(item: int) -> None:
            try:
                results[item] = self.group.submit(item)
            except (EnvironmentFault, KeyboardInterrupt) as problem:
                results[item] = problem

        threads = [threading.Thread(target=work, args=(item,)) for item in range(others + 1)]
        threads[0].start()
        _until(lambda: len(self.batches) == 1)
        for number, thread in enumerate(threads[1:], 1):
            thread.start()
            self.wait_for_line(number)
        self.go.set()
        for thread in threads:
            thread.join(PATIENCE_S)
        return results


def test_a_failure_reaches_everybody_in_the_batch_and_nobody_else() -> None:
    fault = LockTimeout("taken", hint="wait")
    rounds = Rounds([None, fault])
    results = rounds.first_and_others(3)
    assert rounds.batches == [[0], [1, 2, 3]]
    assert results[0] == 0
    errors = [results[item] for item in (1, 2, 3)]
    assert all(type(error) is LockTimeout for error in errors)
    assert len({id(error) for error in errors}) == 3  # each thread has its own, with its traceback
    shown = [(e.message, e.rule, e.hint) for e in errors if isinstance(e, LockTimeout)]
    assert shown == [("taken", "lock.timeout", "wait")] * 3
    assert rounds.group.submit(9) == 90


def test_an_unexpected_end_of_the_leader_reaches_its_followers_as_a_fault() -> None:
    rounds = Rounds([None, KeyboardInterrupt()])
    results = rounds.first_and_others(2)
    # Either of the two that waited may lead the round.
    leader, follower = sorted((results[1], results[2]), key=lambda end: type(end).__name__)[::-1]
    assert isinstance(leader, KeyboardInterrupt)
    assert isinstance(follower, EnvironmentFault)
    assert follower.rule == "journal.interrupted"
    assert rounds.group.submit(9) == 90


def test_a_failure_of_one_alone_lets_the_next_go_on() -> None:
    rounds = Rounds([ValueError("bad")])
    rounds.go.set()
    with pytest.raises(ValueError, match="bad"):
        rounds.group.submit(1)
    assert rounds.group.submit(2) == 20


def test_those_that_come_while_one_commits_share_the_next_round() -> None:
    rounds = Rounds()
    assert rounds.first_and_others(7) == {item: item * 10 for item in range(8)}
    assert rounds.batches == [[0], [1, 2, 3, 4, 5, 6, 7]]


def test_a_leader_does_not_wait_for_company_that_does_not_come() -> None:
    rounds = Rounds()
    rounds.first_and_others(3)
    began = time.monotonic()
    assert [rounds.group.submit(item) for item in range(20)] == [item * 10 for item in range(20)]
    assert time.monotonic() - began < PATIENCE_S
    assert rounds.batches[2:] == [[item] for item in range(20)]


def test_many_threads_get_their_own_results() -> None:
    group: GroupCommit[int, int] = GroupCommit(lambda batch: [item * 10 for item in batch])
    results: dict[int, int] = {}

    def work(start: int) -> None:
        for item in range(start, start + 200):
            results[item] = group.submit(item)

    threads = [threading.Thread(target=work, args=(1000 * n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert results == {1000 * n + i: 10 * (1000 * n + i) for n in range(8) for i in range(200)}


@pytest.mark.parametrize("waiting_behind", [0, 2])
def test_an_interrupted_waiter_leaves_the_line(waiting_behind: int) -> None:
    def work() -> None:
        rounds = Rounds()
        results: dict[int, int] = {}

        def submit(item: int) -> None:
            results[item] = rounds.group.submit(item)

        threads = [threading.Thread(target=submit, args=(0,), daemon=True)]
        threads[0].start()
        _until(lambda: len(rounds.batches) == 1)

        def interrupt() -> None:
            rounds.wait_for_line(1)
            for number in range(waiting_behind):
                threads.append(threading.Thread(target=submit, args=(2 + number,), daemon=True))
                threads[-1].start()
                rounds.wait_for_line(2 + number)
            os.kill(os.getpid(), signal.SIGINT)

        signal.signal(signal.SIGINT, signal.default_int_handler)
        threading.Thread(target=interrupt, daemon=True).start()
        with pytest.raises(KeyboardInterrupt):
            rounds.group.submit(1)
        rounds.go.set()
        for thread in threads:
            thread.join(PATIENCE_S)
        items = [0, *range(2, 2 + waiting_behind)]
        assert results == {item: item * 10 for item in items}
        assert rounds.group.submit(9) == 90

    assert reap(fork(work)) == 0
