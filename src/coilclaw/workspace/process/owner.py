"""``Owner``: the process that something on disk belongs to, and whether it still runs.

Also names: of this process and its user, of calls, turns and conversations; and the time as text.
"""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from signal import SIGKILL
from typing import TYPE_CHECKING, Final, Self

from coilclaw.kernel import UsageError
from coilclaw.workspace.process import environment, process_table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from coilclaw.kernel import Json
    from coilclaw.workspace.process.process_table import ProcessEntry


_CONVERSATION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
MAX_WAIT_S: Final = 5.0
_PAUSE_S: Final = 0.005


def sweep_orphans() -> tuple[int, ...]:
    """Kill every process whose owner has ended; return their ids."""
    ended: set[int] = set()
    until = time.monotonic() + MAX_WAIT_S
    # Until nothing shows: what is being ended may just have started something.
    while (found := list(_orphans())) and time.monotonic() < until:
        for member in found:
            process_table.send(member, SIGKILL)
            ended.add(member.pid)
        time.sleep(_PAUSE_S)
    return tuple(sorted(ended))


def _orphans() -> Iterator[ProcessEntry]:
    if not process_table.is_ours():
        return
    alive: dict[tuple[int, int], bool] = {}
    for pid in process_table.pids() - {os.getpid()}:
        member = process_table.member(pid)
        if member is None or member.ended or member.of_kernel:
            continue
        owner = environment.owner_of(process_table.environ(pid) or b"")
        if owner is None:
            continue
        if owner not in alive:
            alive[owner] = _start_time(owner[0]) == owner[1]
        if not alive[owner]:
            yield member


@dataclass(frozen=True, slots=True)
class Owner:
    """One process of one boot of this machine: an id that is given out again is another one."""

    pid: int
    started: int
    """In ticks since the machine started; 0 where the kernel does not say."""
    boot: str

    @classmethod
    def here(cls) -> Self:
        """Return the owner that stands for this process."""
        pid = os.getpid()
        return cls(pid, _start_time(pid) or 0, _boot())

    @classmethod
    def of(cls, value: Json) -> Self | None:
        """Read an owner from JSON that may hold more; ``None`` if it is not valid."""
        if not isinstance(value, dict):
            return None
        pid, started, boot = value.get("pid"), value.get("started"), value.get("boot")
        if type(pid) is not int or type(started) is not int or not isinstance(boot, str):
            return None
        return cls(pid, started, boot) if pid > 0 else None

    def json(self) -> dict[str, Json]:
        return {"pid": self.pid, "started": self.started, "boot": self.boot}

    def runs(self) -> bool:
        """Whether the process is still running; true if that cannot be determined."""
        if self.boot != _boot():
            return False
        if self.started == 0 or not process_table.is_ours():
            return process_exists(self.pid)
        return _start_time(self.pid) == self.started


def _start_time(pid: int) -> int | None:
    found = process_table.member(pid)
    return None if found is None or found.ended else found.started


def _boot() -> str:
    data = process_table.read("/proc/sys/kernel/random/boot_id")
    return "" if data is None else data.decode("ascii", "replace").strip()


def process_exists(pid: int) -> bool:
    """Whether some process has this id; it may be another one than it was."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # it is another process's
    return True


def this_process() -> str:
    """Name this process by pid and start time, which no later process shares."""
    return f"{os.getpid()}:{_start_time(os.getpid()) or 0}"


def is_alive(process: str) -> bool:
    """Whether the process that ``this_process`` named still runs."""
    pid, _, started = process.partition(":")
    return pid.isdigit() and str(_start_time(int(pid))) == started


def this_person() -> str:
    """Name the user of this process, as answers and receipts record it."""
    import pwd

    try:
        return f"person {pwd.getpwuid(os.getuid()).pw_name}"
    except KeyError:
        return f"person uid-{os.getuid()}"


def new_id(kind: str) -> str:
    """Return an id that is not used anywhere else."""
    return f"{kind}-{os.urandom(8).hex()}"


def check_conversation_id(text: str) -> str:
    """Return a conversation id of the user; raise ``UsageError`` if it is not valid."""
    if not _CONVERSATION.fullmatch(text):
        raise UsageError(
            f"{text!r} cannot be the id of a conversation",
            rule="conversation.id",
            hint="letters, digits, '.', '_' and '-', at most 128, and a letter or digit first",
        )
    return text


def format_time(now: datetime) -> str:
    """Return the time in UTC as records hold it."""
    from datetime import UTC

    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
