"""The pool: bounds, order, errors, and an early end."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from coilclaw.kernel.errors import EnvironmentFault
from coilclaw.traces.evaluation.evaluation import FinishedJob, perform, processors
from tests.support.children import PATIENCE_S


def test_an_error_of_ours_is_an_outcome_and_the_others_go_on() -> None:
    broken = EnvironmentFault("no disk", rule="test.disk")

    def work(job: int) -> int:
        if job == 3:
            raise broken
        return job * job

    found = sorted(perform(range(6), work, workers=3), key=lambda done: done.job)
    assert found == [
        FinishedJob(0, 0),
        FinishedJob(1, 1),
        FinishedJob(2, 4),
        FinishedJob(3, error=broken),
        FinishedJob(4, 16),
        FinishedJob(5, 25),
    ]


def test_any_other_error_ends_the_whole_and_is_raised() -> None:
    stopped = threading.Event()
    begun: list[int] = []

    def work(job: int) -> int:
        begun.append(job)
        if job == 1:
            raise ValueError("a bug")
        return job

    with pytest.raises(ValueError, match="a bug"):
        list(perform(range(1000), work, workers=1, stop=stopped.set))
    assert stopped.is_set()
    assert begun == [0, 1]


def test_never_more_than_the_workers_at_once_and_as_many_as_they_are() -> None:
    together = threading.Barrier(3)
    guard = threading.Lock()
    now, most = 0, 0

    def work(job: int) -> int:
        nonlocal now, most
        with guard:
            now += 1
            most = max(most, now)
        together.wait(timeout=PATIENCE_S)
        with guard:
            now -= 1
        return job

    assert {done.value for done in perform(range(9), work, workers=3)} == set(range(9))
    assert most == 3


def test_closing_it_stops_those_under_way_and_begins_no_other() -> None:
    stopped = threading.Event()
    begun: list[int] = []

    def work(job: int) -> int:
        begun.append(job)
        if job:
            assert stopped.wait(timeout=PATIENCE_S)
        return job

    going = perform(range(100), work, workers=2, stop=stopped.set)
    assert next(going).job == 0
    going.close()
    assert stopped.is_set()
    assert len(begun) <= 3
    assert not [one for one in threading.enumerate() if one.name.startswith("fleet-")]


def test_a_whole_run_stops_nothing() -> None:
    stopped = threading.Event()
    assert len(list(perform(range(4), str, workers=8, stop=stopped.set))) == 4
    assert not stopped.is_set()


def test_no_job_and_no_worker_are_fine() -> None:
    assert list(perform([], str, workers=0)) == []
    assert [done.value for done in perform([1], str, workers=-5)] == ["1"]


def test_what_the_listing_of_jobs_raises_is_raised() -> None:
    def jobs() -> Iterator[int]:
        yield 1
        raise KeyError("list")

    with pytest.raises(KeyError):
        list(perform(jobs(), str, workers=2))


def test_there_is_a_processor() -> None:
    assert processors() >= 1
