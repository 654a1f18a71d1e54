"""``perform``: independent jobs, several at a time, each outcome handed over when it is there.

Nothing is kept here: whoever asked writes each outcome down as it comes, so that a kill costs only
the jobs that were under way. The work of a job is expected to wait for a process of its own, so
threads are enough.
"""

from __future__ import annotations

import os
import queue
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from coilclaw.errors import CoilClawError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

MAX_WORKERS: Final = 256

Job = TypeVar("Job")
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Finished(Generic[Job, Value]):
    """One job and what became of it: a value, or why it could not be done."""

    job: Job
    value: Value | None = None
    error: CoilClawError | None = None


def processors() -> int:
    """How many processors this process may use."""
    return max(1, len(os.sched_getaffinity(0)))


def perform(
    jobs: Iterable[Job],
    work: Callable[[Job], Value],
    *,
    workers: int,
    stop: Callable[[], None] = lambda: None,
) -> Generator[Finished[Job, Value], None, None]:
    """Do every job, at most ``workers`` at once, and yield each when it is over, in any order.

    An error of ours is an outcome; anything else that a job raises ends the whole, and is raised
    here. When it ends early, also because the caller closes it or is interrupted, no further job
    begins, ``stop`` is called, and those under way are waited for.
    """
    crew = _Crew(jobs, work)
    threads = [
        threading.Thread(target=crew.work, name=f"fleet-{number}", daemon=True)
        for number in range(max(1, min(workers, MAX_WORKERS)))
    ]
    whole = False
    try:
        for thread in threads:
            thread.start()
        for _ in threads:
            while (said := crew.said.get()) is not None:
                if isinstance(said, BaseException):
                    raise said
                yield said
        whole = True
    finally:
        if not whole:
            crew.stopped = True
            stop()
        for thread in threads:
            if thread.ident is not None:
                thread.join()


class _Crew(Generic[Job, Value]):
    """What the threads of one call share."""

    def __init__(self, jobs: Iterable[Job], work: Callable[[Job], Value]) -> None:
        self._jobs = iter(jobs)
        self._work = work
        self._lock = threading.Lock()
        self.stopped = False
        self.said: queue.SimpleQueue[Finished[Job, Value] | BaseException | None] = (
            queue.SimpleQueue()
        )

    def work(self) -> None:
        """Do one job after the other; ``None`` says that this thread is through."""
        try:
            while not self.stopped:
                with self._lock:
                    job = next(self._jobs)
                self.said.put(self._do(job))
        except StopIteration:
            pass  # nothing is left to do
        except BaseException as problem:  # noqa: BLE001 - raised again where outcomes are taken
            self.said.put(problem)
        self.said.put(None)

    def _do(self, job: Job) -> Finished[Job, Value]:
        try:
            return Finished(job, value=self._work(job))
        except CoilClawError as problem:
            return Finished(job, error=problem)
