"""``KeptSetup``: a set-up that is kept for later runs, who used it, and whether it may be removed.

Whoever uses or removes one holds its lock while saying so.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from coilclaw.orchestrator.bundle import sealed_manifest
from coilclaw.orchestrator.places import checked
from coilclaw.storage.lock import FileLock
from coilclaw.workspace.removal import is_remainder

if TYPE_CHECKING:
    from pathlib import Path

    from coilclaw.orchestrator.places import Places

RECORD: Final = "setup.json"
"""Written last: a set-up without it is not whole, and is never used."""
_RUNS: Final = "runs"
_KEY: Final = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class KeptSetup:
    """One of them."""

    place: Path
    used_at: datetime | None
    """When a run used it last; ``None``: it is not whole."""

    @property
    def locked(self) -> bool:
        """Whether it has a lock; what is left of one that was being removed has none."""
        return _KEY.fullmatch(self.place.name) is not None


def lock_setup(directory: Path, key: str, *, timeout_s: float) -> FileLock:
    """Return the lock of a set-up, which stays when the set-up goes."""
    return FileLock(directory / f"{key}.lock", timeout_s=timeout_s)


def record_use(place: Path, run_id: str) -> None:
    """Write down that a run uses a set-up from now on."""
    runs = place / _RUNS
    runs.mkdir(mode=0o700, exist_ok=True)
    (runs / checked(run_id)).touch(mode=0o600)
    os.utime(place / RECORD)


def find_setups(directory: Path) -> list[KeptSetup]:
    """Return the set-ups of a directory: those used last first, what is not whole at the end."""
    found = []
    try:
        names = sorted(os.listdir(directory))
    except (FileNotFoundError, NotADirectoryError):
        return []
    for name in names:
        if _KEY.fullmatch(name):
            found.append(KeptSetup(directory / name, _last_use(directory / name)))
        elif is_remainder(name):
            found.append(KeptSetup(directory / name, None))
    never = datetime.min.replace(tzinfo=UTC)
    return sorted(found, key=lambda one: one.used_at or never, reverse=True)


def _last_use(place: Path) -> datetime | None:
    try:
        return datetime.fromtimestamp(os.lstat(place / RECORD).st_mtime, UTC)
    except (FileNotFoundError, NotADirectoryError):
        return None


def is_needed(place: Path, places: Places) -> bool:
    """Whether a run that used a set-up is worked on, or can be resumed."""
    from coilclaw.orchestrator.starting import worked_on

    try:
        runs = os.listdir(place / _RUNS)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return any(
        worked_on(places.runtime, run_id)
        or (places.bundle(run_id).is_dir() and sealed_manifest(places.bundle(run_id)) is None)
        for run_id in runs
    )


def measure_setup(place: Path) -> int:
    """Return how many bytes its files hold, as far as they can be listed."""
    return sum(
        os.lstat(os.path.join(parent, name)).st_size
        for parent, _, names in os.walk(place)
        for name in names
    )
