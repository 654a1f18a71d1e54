"""Running cases side by side, each in a thread and a directory of its own."""

from __future__ import annotations

import queue
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.environments.handling import overdue

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from coilclaw.environments.environment import Planned
    from coilclaw.environments.handling import Handling
    from coilclaw.environments.results import Case
    from coilclaw.environments.scope import Scope
    from coilclaw.environments.slots import Slot

GRACE_S: Final = 3.0
"""How long a handler whose time is up may take to notice it: its programs are killed meanwhile."""


@dataclass(frozen=True, slots=True)
class _Underway:
    planned: Planned
    scope: Scope
    slot: Slot

    @property
    def deadline(self) -> float:
        return self.scope.began + self.planned.timeout_s


def run_cases(
    cases: Sequence[Planned], handling: Handling, jobs: int, report: Callable[[Case], None]
) -> None:
    """Run all of the cases, up to ``jobs`` at once, and report each when it is over.

    A handler that does not end, though its time is up, is left behind: its outcome is known, and
    the process ends without it.
    """
    waiting = list(enumerate(cases))[::-1]
    free: list[Slot] = []
    made: list[Slot] = []
    underway: dict[int, _Underway] = {}
    over: queue.SimpleQueue[tuple[int, Case]] = queue.SimpleQueue()
    while waiting or underway:
        while waiting and len(underway) < max(jobs, 1):
            index, planned = waiting.pop()
            if not free:
                made.append(handling.slot())
                free.append(made[-1])
            slot = free.pop()
            scope = handling.scope(planned.timeout_s, slot)
            underway[index] = _Underway(planned, scope, slot)
            threading.Thread(
                target=_perform, args=(index, underway[index], handling, over), daemon=True
            ).start()
        first = min(one.deadline for one in underway.values())
        try:
            index, case = over.get(timeout=max(first - time.monotonic(), 0.0) + GRACE_S)
        except queue.Empty:
            for index, one in _late(underway):
                # Its handler may still be at work in the slot: nobody else gets that.
                one.scope.end()
                # Cancelled it may end after all, and then what it says comes too late.
                report(overdue(one.planned, one.scope))
                del underway[index]
            continue
        if index in underway:
            free.append(underway.pop(index).slot)
            report(case)
    for slot in made:
        slot.close()


def _late(underway: dict[int, _Underway]) -> list[tuple[int, _Underway]]:
    now = time.monotonic()
    return [(index, one) for index, one in underway.items() if now >= one.deadline + GRACE_S]


def _perform(
    index: int,
    one: _Underway,
    handling: Handling,
    over: queue.SimpleQueue[tuple[int, Case]],
) -> None:
    over.put((index, handling.case(one.planned, one.scope)))
