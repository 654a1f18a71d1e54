"""``perform``: independent jobs, several at a time, each outcome yielded as it comes.

Nothing is kept here: the caller writes each outcome down as it comes, so that a kill costs only
the jobs that were under way. The work of a job is expected to wait for a process of its own, so
threads are enough.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from coilclaw.kernel import CoilClawError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

MAX_WORKERS: Final = 256

Job = TypeVar("Job")
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class FinishedJob(Generic[Job, Value]):
    """One job and its outcome: a value, or the error that prevented it."""

    job: Job
    value: Value | None = None
    error: CoilClawError | None = None


def processors() -> int:
    """Return how many processors this process may use."""
    return max(1, len(os.sched_getaffinity(0)))


def perform(
    jobs: Iterable[Job],
    work: Callable[[Job], Value],
    *,
    workers: int,
    stop: Callable[[], None] = lambda: None,
) -> Generator[FinishedJob[Job, Value], None, None]:
    """Do every job, at most ``workers`` at once, and yield each when it is over, in any order.

    An error of ours is an outcome; anything else that a job raises ends the whole, and is raised
    here. When it ends early, also because the caller closes it or is interrupted, no further job
    begins, ``stop`` is called, and those under way are waited for.
    """
    from concurrent.futures import ThreadPoolExecutor, as_completed

    ended = threading.Event()

    def attempt(job: Job) -> FinishedJob[Job, Value] | None:
        if ended.is_set():
            return None
        try:
            return FinishedJob(job, value=work(job))
        except CoilClawError as problem:
            return FinishedJob(job, error=problem)
        except BaseException:
            ended.set()
            raise

    most = max(1, min(workers, MAX_WORKERS))
    with ThreadPoolExecutor(most, thread_name_prefix="fleet") as pool:
        try:
            for done in as_completed([pool.submit(attempt, job) for job in jobs]):
                if (finished := done.result()) is not None:
                    yield finished
        except BaseException:
            ended.set()
            pool.shutdown(wait=False, cancel_futures=True)
            stop()
            raise
