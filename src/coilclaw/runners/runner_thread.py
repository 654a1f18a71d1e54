"""``RunnerThread``: the thread of an agent that is our own code.

The two threads take turns: the agent waits at each part until the caller comes back for the
next one, so that what the tree looks like at a part is what the part left. Once it is told to stop,
the agent can report nothing and start nothing.
"""

from __future__ import annotations

import queue
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import CoilClawError
from coilclaw.runners.runner import Ending
from coilclaw.workspace import Cancellation

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from coilclaw.kernel import Budget, Part
    from coilclaw.runners.runner import Deadline, Means, Status

LOOK_EVERY_S: Final = 0.05
LEAVE_S: Final = 3.0
"""How long an agent that was told to stop is waited for: its model may be about to answer."""


class RunnerHalted(BaseException):
    """Ends the thread of an agent that was told to stop.

    No ``Exception``: nothing between here and the end of the thread may take it for a failure.
    """


class RunnerThread:
    """What the agent's thread and the one that watches share."""

    def __init__(self) -> None:
        self._said: queue.SimpleQueue[Part | None] = queue.SimpleQueue()
        self._taken = threading.Semaphore(0)
        self._lock = threading.Lock()
        self._halted: tuple[Status, str] | None = None
        self._call: Cancellation | None = None
        self.ending: Ending | None = None
        self.failure: BaseException | None = None

    def say(self, part: Part) -> None:
        """Hand a part over, and wait until the caller has taken it."""
        self.check()
        self._said.put(part)
        self._taken.acquire()
        self.check()

    def check(self) -> None:
        """Raise ``RunnerHalted`` if the agent was told to stop."""
        if self._halted is not None:
            raise RunnerHalted

    @contextmanager
    def calling(self) -> Iterator[Cancellation]:
        """Yield the cancellation of a long call; it is cancelled when the agent is told to stop."""
        call = Cancellation()
        with self._lock:
            self.check()
            self._call = call
        try:
            yield call
        finally:
            with self._lock:
                self._call = None

    def halt(self, status: Status, reason: str) -> None:
        """Tell the agent to stop; the first reason stands."""
        with self._lock:
            if self._halted is None:
                self._halted = (status, reason)
            if self._call is not None:
                self._call.cancel(reason)
        self._taken.release()

    def perform(self, work: Callable[[RunnerThread], Ending]) -> None:
        """Run ``work`` in the thread of the agent, and keep its ending or failure."""
        try:
            self.ending = work(self)
        except RunnerHalted:
            pass
        except BaseException as problem:  # noqa: BLE001 - raised again in the thread that watches
            self.failure = problem
        finally:
            self._said.put(None)

    def parts(
        self, means: Means, deadline: Deadline, budget: Budget
    ) -> Generator[Part, None, None]:
        """Yield the parts of the agent until it ends or is told to stop."""
        said = 0
        while self._halted is None:
            try:
                part = self._said.get(timeout=LOOK_EVERY_S)
            except queue.Empty:
                self._look(means, deadline)
                continue
            if part is None:
                return
            if budget.parts is not None and said >= budget.parts:
                self.halt("exhausted", f"the budget of {budget.parts} parts is used up")
                return
            said += 1
            yield part
            self._look(means, deadline)
            self._taken.release()

    def _look(self, means: Means, deadline: Deadline) -> None:
        if means.cancel.cancelled:
            self.halt("aborted", f"cancelled: {means.cancel.reason}")
        elif deadline.passed:
            self.halt("exhausted", deadline.reason)

    def read_ending(self) -> Ending:
        """Return how it ended, or raise what went wrong."""
        if self._halted is not None:
            # What a call that was cancelled had to say about it is no failure of its own.
            if self.failure is not None and not isinstance(self.failure, CoilClawError):
                raise self.failure
            return Ending(*self._halted)
        if self.failure is not None:
            raise self.failure
        assert self.ending is not None, "an agent that neither ended nor failed was halted"
        return self.ending


def perform_in_thread(
    work: Callable[[RunnerThread], Ending],
    means: Means,
    deadline: Deadline,
    budget: Budget,
    *,
    leave_s: float = LEAVE_S,
) -> Generator[Part, None, Ending]:
    """Run ``work`` in a thread of its own, and yield the parts that it reports.

    A model cannot be interrupted. A thread that still waits for one after ``leave_s`` is left
    behind, and ends at the answer, because its next call checks whether it was halted.
    """
    if means.cancel.cancelled:
        return Ending("aborted", f"cancelled: {means.cancel.reason}")
    stage = RunnerThread()
    # A daemon: a model that takes its time must not keep the program from ending.
    thread = threading.Thread(target=stage.perform, args=(work,), name="agent", daemon=True)
    thread.start()
    over = False
    try:
        yield from stage.parts(means, deadline, budget)
        over = True
    finally:
        if not over:
            stage.halt("aborted", "the caller no longer waits for it")
        thread.join(leave_s)
    return stage.read_ending()
