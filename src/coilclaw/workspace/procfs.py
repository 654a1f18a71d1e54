"""What /proc tells about processes; ``None`` for one that ended while it was looked at.

Where we could not look at all, for want of file descriptors or memory, an ``OSError`` is raised.
"""

from __future__ import annotations

import errno
import os
import signal
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


@dataclass(frozen=True, slots=True)
class Member:
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
    """Every process that there is, our own too."""
    return {int(name) for name in os.listdir("/proc") if name.isdigit()}


def member(pid: int) -> Member | None:
    """One process."""
    # The name of the program stands in brackets and may itself hold brackets and blanks.
    fields = (read(f"/proc/{pid}/stat") or b"").rpartition(b")")[2].split()
    if len(fields) <= _ENV_END:
        return None
    env_start, env_end = int(fields[_ENV_START]), int(fields[_ENV_END])
    return Member(
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
    """The environment that a process was started with; ``None`` also if it is not ours to see."""
    return read(f"/proc/{pid}/environ")


def holds(pid: int, names: frozenset[str]) -> bool:
    """Whether a process has one of these, named as in /proc, open."""
    try:
        fds = os.listdir(f"/proc/{pid}/fd")
    except OSError as error:
        if error.errno in _EXHAUSTED:
            raise
        return False
    return any(_link(f"/proc/{pid}/fd/{fd}") in names for fd in fds)


def last_pid() -> int | None:
    """The process id that the kernel gave out last, if the kernel itself says so."""
    try:
        with open("/proc/loadavg", "rb") as file:
            # A container runtime may lay its own, late, version over the kernel's file.
            if os.fstat(file.fileno()).st_dev != os.stat("/proc").st_dev:
                return None
            return int(file.read(256).split()[-1])
    except (OSError, ValueError, IndexError):
        return None


def pidfd_open(pid: int) -> int | None:
    """A file descriptor that stands for the process, where the kernel has them."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def send(target: Member, number: int) -> None:
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
    """The content of a file in /proc."""
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


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""
