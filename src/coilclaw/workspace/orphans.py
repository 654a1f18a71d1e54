"""Processes that outlived whoever started them, found by their tag and ended.

What we start ends with us, but for an instant at its beginning: a sandbox that is still being put
together misses that its parent was killed. A tag says who started a process, so that the next one
of us can tell that nobody waits for it any more.
"""

from __future__ import annotations

import os
import time
from signal import SIGKILL
from typing import TYPE_CHECKING, Final

from coilclaw.workspace import environment, procfs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coilclaw.workspace.procfs import Member

MAX_WAIT_S: Final = 5.0
_PAUSE_S: Final = 0.005


def sweep() -> tuple[int, ...]:
    """End every process whose owner is gone, and return their ids once they are gone too."""
    ended: set[int] = set()
    until = time.monotonic() + MAX_WAIT_S
    # Until nothing shows: what is being ended may just have started something.
    while (found := list(_orphans())) and time.monotonic() < until:
        for member in found:
            procfs.send(member, SIGKILL)
            ended.add(member.pid)
        time.sleep(_PAUSE_S)
    return tuple(sorted(ended))


def _orphans() -> Iterator[Member]:
    if not procfs.is_ours():
        return
    alive: dict[tuple[int, int], bool] = {}
    for pid in procfs.pids() - {os.getpid()}:
        member = procfs.member(pid)
        if member is None or member.ended or member.of_kernel:
            continue
        owner = environment.owner_of(procfs.environ(pid) or b"")
        if owner is None:
            continue
        if owner not in alive:
            alive[owner] = _runs(*owner)
        if not alive[owner]:
            yield member


def _runs(pid: int, started: int) -> bool:
    found = procfs.member(pid)
    return found is not None and not found.ended and found.started == started
