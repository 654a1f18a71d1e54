"""Find every process that descends from a child, and signal it.

A process belongs to the family if it carries the family's tag in its environment, is in the process
group or session of the leader, holds one of the family's output pipes, or descends from a process
that does. One that clears its environment, closes its output, makes a session of its own and lets
its parent die is found by nothing short of a process namespace; ``Enforced.processes`` says whether
there was one.

The leader must not have been reaped: its process id, which is also the id of its group and
session, can then not be given to another process.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from signal import SIGKILL
from typing import TYPE_CHECKING, Final

from coilclaw.workspace import procfs

if TYPE_CHECKING:
    from coilclaw.workspace.procfs import Member

_MAX_LISTINGS: Final = 50
_UNSURE_S: Final = 0.5
_UNSURE_PAUSE_S: Final = 0.001


class Family:
    """The child ``leader`` and everything that came of it; ``pipes`` are named as in /proc."""

    def __init__(self, leader: int, tag: str, pipes: frozenset[str] = frozenset()) -> None:
        self.leader = leader
        self._tag = tag.encode()
        self._pipes = pipes
        first = procfs.member(leader)
        self._since = first.started if first else 0
        # Whoever was found once stays found, also when what it was found by is gone.
        self._known: set[tuple[int, int]] = set()

    def alone(self) -> bool:
        """Whether the leader certainly never had a child.

        The kernel gives out process ids in turn and the leader still holds its own, so the last id
        given out equals it only if nothing at all was started since.
        """
        return procfs.last_pid() == self.leader and procfs.is_ours()

    def members(self) -> list[Member]:
        """Everything of the family that has not ended, the leader first."""
        return self._search(strike=False)

    def signal(self, number: int, *, spare: frozenset[int] = frozenset()) -> list[Member]:
        """Send a signal, once each, to the family but ``spare``; return whom it was meant for."""
        strike = number == SIGKILL and not spare
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
                procfs.send(member, number)
        return members

    def _search(self, *, strike: bool) -> list[Member]:
        until = time.monotonic() + _UNSURE_S
        found, unsure = self._look(strike)
        while unsure and not found and time.monotonic() < until:
            time.sleep(_UNSURE_PAUSE_S)
            found, unsure = self._look(strike)
        return found

    def _look(self, strike: bool) -> tuple[list[Member], bool]:
        """Find the family, and whether there is somebody of whom we cannot tell yet.

        We list until nothing new shows, so that a process which starts another one and ends does
        not slip through between the list and the look; the youngest first, as they are the
        quickest. For the same reason ``strike`` kills on sight.
        """
        if not procfs.is_ours():
            return [], False
        table: dict[int, Member] = {}
        ours: set[int] = {self.leader}
        seen = {os.getpid()}
        unsure = False
        for _ in range(_MAX_LISTINGS):
            new = procfs.pids() - seen
            if not new:
                break
            seen |= new
            for pid in sorted(new, reverse=True):
                member = procfs.member(pid)
                if member is None or member.ended or member.of_kernel:
                    continue
                table[pid] = member
                belongs = self._owns(member)
                if belongs:
                    ours.add(pid)
                    if strike:
                        procfs.send(member, SIGKILL)
                unsure = unsure or belongs is None
        else:
            unsure = True
        _add_descendants(ours, table)
        found = [table[pid] for pid in sorted(ours, key=self._leader_first) if pid in table]
        self._known |= {(member.pid, member.started) for member in found}
        return found, unsure

    def _owns(self, member: Member) -> bool | None:
        """Whether a process shows that it belongs to the family; ``None`` if it may yet show it."""
        if member.started < self._since:
            return False
        if self.leader in (member.group, member.session):
            return True
        if (member.pid, member.started) in self._known:
            return True
        environ = procfs.environ(member.pid)
        if environ is None:
            return False
        if self._tag in environ:
            return True
        # A fork of our own process may hold the pipes for a moment; it has our environment.
        if procfs.holds(member.pid, self._pipes) and environ != procfs.environ("self"):
            return True
        # If exec came in between, we read too little, or of the old environment a part.
        whole = len(environ) in (member.environ_size, procfs.MAX_ENVIRON)
        return False if whole else None

    def _leader_first(self, pid: int) -> tuple[bool, int]:
        return pid != self.leader, pid


def _add_descendants(ours: set[int], table: dict[int, Member]) -> None:
    grown = True
    while grown:
        more = {
            member.pid
            for member in table.values()
            if member.pid not in ours
            and (member.parent in ours or member.session in ours or member.group in ours)
        }
        ours |= more
        grown = bool(more)
