"""Processes as /proc shows them; ``None`` for one that ended meanwhile.

Functions raise ``OSError`` if file descriptors or memory ran out.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
MAX_ENVIRON: Final = 8 << 20
_CHUNK: Final = 1 << 14
_KERNEL_THREAD: Final = 0x0020_0000
_ENV_START: Final = 47
_ENV_END: Final = 48
"""Where the bounds of the environment stand in ``stat``, counted from the state."""
_MAX_LISTINGS: Final = 50
_UNSURE_S: Final = 0.5
_UNSURE_PAUSE_S: Final = 0.001


@dataclass(frozen=True, slots=True)
class ProcessEntry:
    """A process; ``started`` with ``pid`` names it for good.

    ``environ_size`` is ``None`` for a moment in the middle of exec and of ending.
    """

    pid: int
    state: str
    parent: int
    group: int
    session: int
    flags: int
    started: int
    environ_size: int | None

    @property
    def ended(self) -> bool:
        """Whether it no longer runs, though its parent may not have noticed."""
        return self.state in {"Z", "X", "x"}

    @property
    def of_kernel(self) -> bool:
        return bool(self.flags & _KERNEL_THREAD)


def is_ours() -> bool:
    """Whether /proc is there and shows our own process namespace."""
    try:
        return os.readlink("/proc/self") == str(os.getpid())
    except OSError:
        return False


def pids() -> set[int]:
    """Return the id of every process, our own included."""
    return {int(name) for name in os.listdir("/proc") if name.isdigit()}


def member(pid: int) -> ProcessEntry | None:
    """Return one process."""
    # The name of the program stands in brackets and may itself hold brackets and blanks.
    fields = (read(f"/proc/{pid}/stat") or b"").rpartition(b")")[2].split()
    if len(fields) <= _ENV_END:
        return None
    env_start, env_end = int(fields[_ENV_START]), int(fields[_ENV_END])
    return ProcessEntry(
        pid=pid,
        state=fields[0].decode("ascii", "replace"),
        parent=int(fields[1]),
        group=int(fields[2]),
        session=int(fields[3]),
        flags=int(fields[6]),
        started=int(fields[19]),
        environ_size=env_end - env_start if env_end else None,
    )


def environ(pid: int | str) -> bytes | None:
    """Return the environment that a process started with; ``None`` also without permission."""
    return read(f"/proc/{pid}/environ")


def holds(pid: int, names: frozenset[str]) -> bool:
    """Whether a process has one of these, named as in /proc, open."""
    try:
        fds = os.listdir(f"/proc/{pid}/fd")
    except OSError as error:
        if error.errno in _EXHAUSTED:
            raise
        return False
    for fd in fds:
        with suppress(OSError):
            if os.readlink(f"/proc/{pid}/fd/{fd}") in names:
                return True
    return False


def last_pid() -> int | None:
    """Return the process id that the kernel gave out last; ``None`` if it is unknown."""
    try:
        with open("/proc/loadavg", "rb") as file:
            # A container runtime may lay its own, late, version over the kernel's file.
            if os.fstat(file.fileno()).st_dev != os.stat("/proc").st_dev:
                return None
            return int(file.read(256).split()[-1])
    except (OSError, ValueError, IndexError):
        return None


def pidfd_open(pid: int) -> int | None:
    """Return a pidfd of the process; ``None`` if the kernel has none."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def send(target: ProcessEntry, number: int) -> None:
    """Signal exactly this process, not another one that got its id meanwhile."""
    fd = pidfd_open(target.pid)
    try:
        now = member(target.pid)
        if now is None or now.started != target.started:
            return
        # What has ended needs no signal; what may not be signalled is still there afterwards.
        with suppress(ProcessLookupError, PermissionError):
            if fd is None:
                os.kill(target.pid, number)
            else:
                signal.pidfd_send_signal(fd, number)
    finally:
        if fd is not None:
            os.close(fd)


def read(path: str) -> bytes | None:
    """Return the content of a file in /proc."""
    data = bytearray()
    try:
        fd = os.open(path, os.O_RDONLY)
        try:
            while (room := MAX_ENVIRON - len(data)) and (chunk := os.read(fd, min(room, _CHUNK))):
                data += chunk
        finally:
            os.close(fd)
    except OSError as error:
        if error.errno in _EXHAUSTED:
            raise
        return None
    return bytes(data)


class Family:
    """The child ``leader`` and everything that came of it; ``pipes`` are named as in /proc.

    A process belongs to the family if it carries the family's tag in its environment, is in the
    process group or session of the leader, holds one of the family's output pipes, or descends from
    a process that does. One that clears its environment, closes its output, makes a session of its
    own and lets its parent die is found by nothing short of a process namespace;
    ``Enforced.processes`` says whether there was one.

    The leader must not have been reaped: its process id, which is also the id of its group and
    session, can then not be given to another process.
    """

    def __init__(self, leader: int, tag: str, pipes: frozenset[str] = frozenset()) -> None:
        self.leader = leader
        self._tag = tag.encode()
        self._pipes = pipes
        first = member(leader)
        self._since = first.started if first else 0
        # What was found once stays found, also when what it was found by is gone.
        self._known: set[tuple[int, int]] = set()

    def alone(self) -> bool:
        """Whether the leader certainly never had a child.

        The kernel gives out process ids in turn and the leader still holds its own, so the last id
        given out equals it only if nothing at all was started since.
        """
        return last_pid() == self.leader and is_ours()

    def members(self) -> list[ProcessEntry]:
        """Return the members that have not ended, the leader first."""
        return self._search(strike=False)

    def signal(self, number: int, *, spare: frozenset[int] = frozenset()) -> list[ProcessEntry]:
        """Send a signal, once each, to the family but ``spare``; return whom it was meant for."""
        strike = number == signal.SIGKILL and not spare
        try:
            # Before the group is told, because its end may hide whose children the others are.
            members = [member for member in self._search(strike=strike) if member.pid not in spare]
        finally:
            # As one, so that a group which forks faster than we look does not outrun us.
            if not spare:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.leader, number)
        for member in members:
            if spare or member.group != self.leader:
                send(member, number)
        return members

    def _search(self, *, strike: bool) -> list[ProcessEntry]:
        until = time.monotonic() + _UNSURE_S
        found, unsure = self._look(strike)
        while unsure and not found and time.monotonic() < until:
            time.sleep(_UNSURE_PAUSE_S)
            found, unsure = self._look(strike)
        return found

    def _look(self, strike: bool) -> tuple[list[ProcessEntry], bool]:
        """Find the family, and whether there is a process of which we cannot tell yet.

        We list until nothing new shows, so that a process which starts another one and ends does
        not slip through between the list and the look; the youngest first, as they are the
        quickest. For the same reason ``strike`` kills on sight.
        """
        if not is_ours():
            return [], False
        table: dict[int, ProcessEntry] = {}
        ours: set[int] = {self.leader}
        seen = {os.getpid()}
        unsure = False
        for _ in range(_MAX_LISTINGS):
            new = pids() - seen
            if not new:
                break
            seen |= new
            for pid in sorted(new, reverse=True):
                process = member(pid)
                if process is None or process.ended or process.of_kernel:
                    continue
                table[pid] = process
                belongs = self._owns(process)
                if belongs:
                    ours.add(pid)
                    if strike:
                        send(process, signal.SIGKILL)
                unsure = unsure or belongs is None
        else:
            unsure = True
        more = ours
        while more:
            more = {
                pid
                for pid, process in table.items()
                if pid not in ours
                and not ours.isdisjoint((process.parent, process.session, process.group))
            }
            ours |= more
        order = sorted(ours & table.keys(), key=lambda pid: (pid != self.leader, pid))
        found = [table[pid] for pid in order]
        self._known |= {(member.pid, member.started) for member in found}
        return found, unsure

    def _owns(self, process: ProcessEntry) -> bool | None:
        """Whether a process shows that it belongs to the family; ``None`` if it may yet show it."""
        if process.started < self._since:
            return False
        if self.leader in (process.group, process.session):
            return True
        if (process.pid, process.started) in self._known:
            return True
        variables = environ(process.pid)
        if variables is None:
            return False
        if self._tag in variables:
            return True
        # A fork of our own process may hold the pipes for a moment; it has our environment.
        if holds(process.pid, self._pipes) and variables != environ("self"):
            return True
        # If exec came in between, we read too little, or of the old environment a part.
        whole = len(variables) in (process.environ_size, MAX_ENVIRON)
        return False if whole else None
