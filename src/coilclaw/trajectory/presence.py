"""Whether somebody is recording a trajectory at this moment, on this machine."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.errors import LockTimeout
from coilclaw.storage.atomic import write_atomic
from coilclaw.storage.lock import FileLock

if TYPE_CHECKING:
    from coilclaw.trajectory.places import Places

_MAX_DIGITS: Final = 20


@dataclass(frozen=True, slots=True)
class Presence:
    """A process that records; 0 where it could not be learnt which."""

    pid: int


def note(places: Places) -> None:
    """Say that this process records; to be called under the lock of the trajectory."""
    write_atomic(places.recorder, f"{os.getpid()}\n".encode("ascii"), mode=0o600, sync=False)


def of(places: Places) -> Presence | None:
    """Who records; ``None`` for nobody. What is said without the lock being held is old."""
    if not places.lock.exists():
        return None
    lock = FileLock(places.lock, shared=True, timeout_s=0.0)
    try:
        lock.acquire()
    except LockTimeout:
        return Presence(_told(places))
    lock.release()
    return None


def _told(places: Places) -> int:
    try:
        with places.recorder.open("rb") as file:
            said = file.read(_MAX_DIGITS).strip()
    except OSError:
        return 0
    return int(said) if said.isdigit() else 0
