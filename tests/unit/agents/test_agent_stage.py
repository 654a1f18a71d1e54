"""An agent of ours in a thread of its own."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from coilclaw.kernel.errors import ProviderNetwork
from coilclaw.kernel.messages import Budget, Part
from coilclaw.runners.runner import Deadline, Ending
from coilclaw.runners.runner_thread import RunnerThread, perform_in_thread
from tests.support.children import PATIENCE_S
from tests.support.performing import Performance, finish


def _budget(**fields: float) -> tuple[Deadline, Budget]:
    budget = Budget(**{"wall_s": 10 * PATIENCE_S, **fields})  # type: ignore[arg-type]  # parts is whole
    return Deadline.of(budget), budget


def test_it_waits_at_each_part_until_somebody_comes_back(tmp_path: Path) -> None:
    done: list[int] = []

    def work(stage: RunnerThread) -> Ending:
        for number in range(3):
            done.append(number)
            stage.say(Part("text", str(number)))
        return Ending("done")

    seen = []
    for part in perform_in_thread(work, Performance.make(tmp_path).means(), *_budget()):
        time.sleep(0.05)
        seen.append((part.text, len(done)))
    assert seen == [("0", 1), ("1", 2), ("2", 3)]


def test_what_goes_wrong_is_raised_where_it_is_watched(tmp_path: Path) -> None:
    def work(stage: RunnerThread) -> Ending:
        stage.say(Part("text", "a"))
        raise ProviderNetwork("gone", provider="p")

    generator = perform_in_thread(work, Performance.make(tmp_path).means(), *_budget())
    assert next(generator).text == "a"
    with pytest.raises(ProviderNetwork):
        next(generator)


def test_cancelling_ends_a_call_and_nothing_follows(tmp_path: Path) -> None:
    performance = Performance.make(tmp_path)
    said: list[str] = []

    def work(stage: RunnerThread) -> Ending:
        with stage.calling() as cancel:
            until = time.monotonic() + PATIENCE_S
            while not cancel.cancelled and time.monotonic() < until:
                time.sleep(0.005)
        said.append(cancel.reason or "")
        stage.say(Part("text", "too late"))
        said.append("never")
        return Ending("done")

    timer = threading.Timer(0.1, performance.cancel.cancel, ("enough",))
    timer.start()
    parts, ending = finish(perform_in_thread(work, performance.means(), *_budget()))
    timer.join()
    assert (parts, ending) == ([], Ending("aborted", "cancelled: enough"))
    assert said == ["cancelled: enough"]


def test_time_and_parts_are_limits(tmp_path: Path) -> None:
    def forever(stage: RunnerThread) -> Ending:
        while True:
            stage.say(Part("text", "again"))
            time.sleep(0.01)

    means = Performance.make(tmp_path).means()
    parts, ending = finish(perform_in_thread(forever, means, *_budget(parts=3)))
    assert (len(parts), ending.status) == (3, "exhausted")
    _, ending = finish(perform_in_thread(forever, means, *_budget(wall_s=0.2)))
    assert ending == Ending("exhausted", "the time of 0.2 s is used up")


def test_closing_ends_the_thread(tmp_path: Path) -> None:
    before = threading.active_count()

    def work(stage: RunnerThread) -> Ending:
        stage.say(Part("text", "a"))
        return Ending("done")

    generator = perform_in_thread(work, Performance.make(tmp_path).means(), *_budget())
    next(generator)
    generator.close()
    assert threading.active_count() == before


def test_who_does_not_come_back_is_left_behind_and_can_do_nothing_more(tmp_path: Path) -> None:
    performance = Performance.make(tmp_path)
    answered, after = threading.Event(), list[str]()

    def work(stage: RunnerThread) -> Ending:
        performance.cancel.cancel("enough")
        answered.wait(PATIENCE_S)
        try:
            stage.say(Part("text", "late"))
            after.append("said")
        finally:
            after.append("ended")
        return Ending("done")

    generator = perform_in_thread(work, performance.means(), *_budget(), leave_s=0.05)
    parts, ending = finish(generator)
    assert (parts, ending) == ([], Ending("aborted", "cancelled: enough"))
    (thread,) = [thread for thread in threading.enumerate() if thread.name == "agent"]
    answered.set()
    thread.join(PATIENCE_S)
    assert after == ["ended"]


def test_who_was_cancelled_before_does_not_begin(tmp_path: Path) -> None:
    performance = Performance.make(tmp_path)
    performance.cancel.cancel("no")

    def work(stage: RunnerThread) -> Ending:
        raise AssertionError

    parts, ending = finish(perform_in_thread(work, performance.means(), *_budget()))
    assert (parts, ending.status) == ([], "aborted")
