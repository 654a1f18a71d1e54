"""Taking the paths of a run: at once, or in turn behind the runs that have or want them."""

from __future__ import annotations

import math
import select
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from coilclaw.contracts.eventtypes import EventType
from coilclaw.domain.treepath import shown
from coilclaw.errors import Stopped
from coilclaw.orchestrator.locks import Held
from coilclaw.workspace.cancel import Waker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from coilclaw.orchestrator.equipment import Equipment
    from coilclaw.orchestrator.locks import Conflict, Lock, Taken
    from coilclaw.orchestrator.run import Run
    from coilclaw.workspace.cancel import Cancellation

LOOK_EVERY_S: Final = 0.5
REMIND_S: Final = 60.0
"""After so long a wait in which nothing changed is told again; then after twice as long."""
MAX_REMIND_S: Final = 3600.0
MAX_HOLDERS: Final = 20
"""Runs that one event names."""


def take_locks(run: Run, equipment: Equipment, paths: Sequence[str]) -> Held | Taken:
    """Lock all of the paths; where others are first, wait for as long as the run may.

    Raise ``Stopped`` when the run is cancelled in the meantime; its place in the queue is kept.
    """
    locks, wait_s = equipment.locks, equipment.lock_wait_s
    if wait_s is None:
        waited = any(ticket.run_id == run.id for ticket in locks.queued())
        wait_s = math.inf if waited else 0.0
    until = time.monotonic() + wait_s
    notice = WaitNotice(run)
    with _sleeper(equipment.cancel) as sleep:
        while True:
            answer = locks.acquire(
                run.id, run.root_contract.task_id, paths, owned=True, queue=wait_s > 0
            )
            _tell_reclaimed(run, answer.reclaimed)
            if isinstance(answer, Held):
                return answer
            left = until - time.monotonic()
            if left <= 0:
                locks.leave(run.id)
                return answer
            notice.tell(answer)
            sleep(min(LOOK_EVERY_S, left))
            if equipment.cancel.cancelled:
                reason = equipment.cancel.reason
                raise Stopped(f"the run was stopped while it waited: {reason}")


def _tell_reclaimed(run: Run, locks: Sequence[Lock]) -> None:
    for lock in locks:
        run.emit(
            EventType.LOCK_RECLAIMED,
            {"path": lock.path, "owner": str(lock.owner), "run_id": lock.run_id},
        )


class WaitNotice:
    """Records for whom a run waits: when that changes, and from time to time."""

    def __init__(self, run: Run, clock: Callable[[], float] = time.monotonic) -> None:
        self._run = run
        self._clock = clock
        self._known: tuple[tuple[str, bool], ...] = ()
        self._remind_s = REMIND_S
        self._due = 0.0

    def tell(self, taken: Taken) -> None:
        """Leave an event, unless the last one says the same and is not old."""
        ahead = _first_of_each(taken.conflicts)
        known = tuple((one.lock.run_id, one.queued) for one in ahead)
        now = self._clock()
        if known != self._known:
            self._known, self._remind_s = known, REMIND_S
        elif now < self._due:
            return
        else:
            self._remind_s = min(2 * self._remind_s, MAX_REMIND_S)
        self._due = now + self._remind_s
        since = taken.ticket.ts if taken.ticket else ""
        self._run.emit(
            EventType.LOCKS_AWAITED,
            {
                "paths": list(dict.fromkeys(one.path for one in ahead[:MAX_HOLDERS])),
                "holders": [_holder(one) for one in ahead[:MAX_HOLDERS]],
                "since": since,
                "reason": _sentence(ahead, since),
            },
        )


def _first_of_each(conflicts: Sequence[Conflict]) -> tuple[Conflict, ...]:
    """One conflict a run: that with a lock, where it has one."""
    found: dict[str, Conflict] = {}
    for one in conflicts:
        found.setdefault(one.lock.run_id, one)
    return tuple(found.values())


def _holder(one: Conflict) -> dict[str, object]:
    return {
        "run_id": one.lock.run_id,
        "task_id": one.lock.task_id,
        "path": one.lock.path,
        "since": one.lock.ts,
        "holds": not one.queued,
    }


def _sentence(ahead: Sequence[Conflict], since: str) -> str:
    first = ahead[0]
    how = "has waited for" if first.queued else "has held"
    more = f", and for {len(ahead) - 1} more" if len(ahead) > 1 else ""
    return (
        f"waits since {since} for run {first.lock.run_id}, which {how} "
        f"{shown(first.lock.path)} since {first.lock.ts}{more}"
    )


@contextmanager
def _sleeper(cancel: Cancellation) -> Iterator[Callable[[float], object]]:
    """Yield what sleeps for some seconds, or until the cancellation."""
    waker = Waker()
    poll = select.poll()
    poll.register(waker.fd, select.POLLIN)
    cancel.attach(waker)
    try:
        yield lambda seconds: poll.poll(seconds * 1000)
    finally:
        cancel.detach(waker)
        waker.close()
