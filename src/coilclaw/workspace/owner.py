"""``Owner``: the process that something on disk belongs to, and whether it still runs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from coilclaw.workspace import procfs

if TYPE_CHECKING:
    from coilclaw.domain.messages import Json


@dataclass(frozen=True, slots=True)
class Owner:
    """One process of one boot of this machine: an id that is given out again is another one."""

    pid: int
    started: int
    """In ticks since the machine started; 0 where the kernel does not say."""
    boot: str

    @classmethod
    def here(cls) -> Self:
        """This very process."""
        pid = os.getpid()
        return cls(pid, _started(pid) or 0, _boot())

    @classmethod
    def of(cls, value: Json) -> Self | None:
        """Read back what ``json`` gave, perhaps among other things; ``None`` if it is none."""
        if not isinstance(value, dict):
            return None
        pid, started, boot = value.get("pid"), value.get("started"), value.get("boot")
        if type(pid) is not int or type(started) is not int or not isinstance(boot, str):
            return None
        return cls(pid, started, boot) if pid > 0 else None

    def json(self) -> dict[str, Json]:
        return {"pid": self.pid, "started": self.started, "boot": self.boot}

    def runs(self) -> bool:
        """Whether it has not ended; in doubt it has not."""
        if self.boot != _boot():
            return False
        if self.started == 0 or not procfs.is_ours():
            return exists(self.pid)
        return _started(self.pid) == self.started


def _started(pid: int) -> int | None:
    found = procfs.member(pid)
    return None if found is None or found.ended else found.started


def _boot() -> str:
    data = procfs.read("/proc/sys/kernel/random/boot_id")
    return "" if data is None else data.decode("ascii", "replace").strip()


def exists(pid: int) -> bool:
    """Whether some process has this id; it may be another one than it was."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # it is somebody else's
    return True
