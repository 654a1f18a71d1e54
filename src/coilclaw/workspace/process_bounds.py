"""What a program may use: set in the kernel before it starts, and watched while it runs."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from coilclaw.errors import ProcessFault
from coilclaw.workspace import environment

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from coilclaw.workspace.procfs import Member

Exceeded: TypeAlias = Literal["too_much_output", "too_much_memory", "too_many_processes"]

WARDENS: Final = 2
"""Processes of the sandbox itself in its user namespace."""
_BLOCK: Final = 512
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class ProcessBounds:
    """The bounds of a program with everything that it starts; beyond one of them it is killed."""

    output_bytes: int
    """Of each stream."""
    memory_bytes: int
    processes: int

    def exceeded_by(self, members: Iterable[Member]) -> Exceeded | None:
        """Say which bound a family of processes is beyond."""
        found = list(members)
        if len(found) > self.processes:
            return "too_many_processes"
        if sum(_resident_bytes(member.pid) for member in found) > self.memory_bytes:
            return "too_much_memory"
        return None


@dataclass(frozen=True, slots=True)
class KernelLimits:
    """What the kernel refuses one process, from its first instruction on."""

    memory_bytes: int
    """Memory that is its own and writable."""
    processes: int | None = None
    """Of the user; it is a bound of the program only in a user namespace of its own."""
    cpu_s: float | None = None
    file_bytes: int | None = None


def limit_command(argv: Sequence[str], limits: KernelLimits) -> list[str]:
    """Return the argv that runs a program within its limits."""
    cpu = None if limits.cpu_s is None else math.ceil(limits.cpu_s)
    try:
        prlimit = environment.find_program("prlimit", {"PATH": environment.DEFAULT_PATH}, "/")
    except ProcessFault:
        return ["/bin/sh", "-c", _shell_limits(limits, cpu), "sh", *argv]
    wanted = {
        "core": 0,
        "cpu": cpu,
        "data": limits.memory_bytes,
        "fsize": limits.file_bytes,
        "nproc": limits.processes,
    }
    given = [f"--{name}={value}" for name, value in wanted.items() if value is not None]
    return [prlimit, *given, "--", *argv]


def _shell_limits(limits: KernelLimits, cpu: int | None) -> str:
    parts = ["ulimit -c 0", f"ulimit -d {limits.memory_bytes // 1024}"]
    if cpu is not None:
        parts.append(f"ulimit -t {cpu}")
    if limits.file_bytes is not None:
        parts.append(f"ulimit -f {limits.file_bytes // _BLOCK}")
    return "; ".join([*parts, 'exec "$@"'])


def _resident_bytes(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read(200).split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0  # it has ended
