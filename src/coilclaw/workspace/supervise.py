"""See a started child through to its end: wait, stop it, and sweep up what it left."""

from __future__ import annotations

import logging
import os
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from coilclaw.errors import ProcessFault
from coilclaw.workspace import procfs
from coilclaw.workspace.process_bounds import Exceeded, ProcessBounds

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

    from coilclaw.workspace.capture import Capture
    from coilclaw.workspace.procfs import Member
    from coilclaw.workspace.reaper import Family
    from coilclaw.workspace.watch import Watch

Stopped: TypeAlias = Literal["timed_out", "cancelled"] | Exceeded
Outcome: TypeAlias = Literal["exited", "signalled"] | Stopped

TERMINATE_GRACE_S: Final = 0.5
"""How long a process may take to end after SIGTERM before it gets SIGKILL."""

LINGER_S: Final = 0.2
"""How long what a child left behind may take to end by itself, such as ``tee`` behind a pipe."""

KILL_BOUND_S: Final = 5.0
"""How long we keep sending SIGKILL to what does not end."""

DRAIN_S: Final = 0.5
"""How long we read on where somebody whom we cannot find holds a pipe open."""

_COUNT_EVERY_S: Final = 0.05
"""How often the processes of a child with bounds are counted."""
_FIRST_LOOK_S: Final = 0.001
_LOOK_EVERY_S: Final = 0.02

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Ending:
    """How a child and its family came to an end."""

    outcome: Outcome
    exit_code: int | None
    signal: int | None
    leftovers: tuple[int, ...]
    unkillable: tuple[int, ...]
    held_open: bool


class Supervision:
    """Brings a family of processes to its end, whatever it does."""

    def __init__(
        self,
        popen: subprocess.Popen[bytes],
        family: Family,
        watch: Watch,
        *,
        wardens: Callable[[], frozenset[int]] = frozenset,
        bounds: ProcessBounds | None = None,
        outputs: tuple[Capture, ...] = (),
    ) -> None:
        self._popen = popen
        self._family = family
        self._watch = watch
        # Processes of a sandbox that take all others down with them: these are not asked to end.
        self._wardens = wardens
        self._bounds = bounds
        self._outputs = outputs
        self.stop: Stopped | None = None

    def see_through(self, deadline: float) -> Ending:
        """Wait for the leader, then leave nothing of its family behind."""
        watch = self._watch
        if not self._wait(deadline):
            self.stop = "timed_out"
        # A child that ended in the same instant was not stopped.
        stopped = None if watch.ended else self.stop
        if stopped in {"timed_out", "cancelled"}:
            # Whoever is beyond a bound is not asked, but killed: asking takes time.
            self._terminate()
        leftovers = () if stopped else self._leave_behind()
        unkillable = self._kill() if stopped or leftovers else ()
        self._wait_for_wardens()
        watch.pump(time.monotonic() + DRAIN_S, lambda: not watch.output_open)
        if self._too_much_output():
            stopped = "too_much_output"  # also where the last of it came with the end
        return self._ending(stopped, leftovers, unkillable)

    def _wait(self, deadline: float) -> bool:
        """Wait until the leader ends or has to be stopped; false when the time is up."""
        watch = self._watch
        while True:
            until = deadline
            if self._bounds is not None:
                until = min(deadline, time.monotonic() + _COUNT_EVERY_S)
            if watch.pump(
                until, lambda: watch.ended or self.stop is not None or self._too_much_output()
            ):
                if self._too_much_output():
                    self.stop = "too_much_output"
                return True
            if time.monotonic() >= deadline:
                return False
            if self._bounds is not None:
                wardens = self._wardens()
                members = [one for one in self._family.members() if one.pid not in wardens]
                self.stop = self._bounds.exceeded_by(members) or self.stop

    def _too_much_output(self) -> bool:
        bounds = self._bounds
        return bounds is not None and any(
            capture.total > bounds.output_bytes for capture in self._outputs
        )

    def abort(self) -> None:
        """Kill everything, because something else failed."""
        # What was to be fed may be what failed.
        self._watch.end_feed()
        try:
            self._kill()
        finally:
            self._watch.pump(time.monotonic() + KILL_BOUND_S, lambda: self._watch.ended)
            self._reap()

    def _ending(
        self, stopped: Stopped | None, leftovers: tuple[int, ...], unkillable: tuple[int, ...]
    ) -> Ending:
        self._reap()
        pid = self._popen.pid
        held_open = self._watch.output_open
        if unkillable:
            _log.error("processes %s, started by %d, could not be killed", unkillable, pid)
        if held_open:
            _log.warning("somebody unknown holds the output of process %d open", pid)
        end = self._watch.status
        if end is None and self._watch.ended:
            raise ProcessFault(
                f"The end of process {pid} was taken by another part of this program.",
                rule="process.lost",
            )
        code = end.si_status if end and end.si_code == os.CLD_EXITED else None
        number = end.si_status if end and end.si_code != os.CLD_EXITED else None
        outcome: Outcome = stopped or ("exited" if code is not None else "signalled")
        return Ending(outcome, code, number, leftovers, unkillable, held_open)

    def _reap(self) -> None:
        if self._watch.ended:
            self._popen.wait()

    def _terminate(self) -> None:
        """Ask the whole family to end, and wait for it for a moment."""
        wardens = self._wardens()
        self._family.signal(signal.SIGTERM, spare=wardens)
        self._wait_until_gone(TERMINATE_GRACE_S, spare=wardens)

    def _leave_behind(self) -> tuple[int, ...]:
        """Ask what the leader left to end; return what did not by itself."""
        if self._family.alone():
            return ()
        left = self._wait_until_gone(LINGER_S)
        if left:
            self._family.signal(signal.SIGTERM)
            self._wait_until_gone(TERMINATE_GRACE_S)
        return tuple(member.pid for member in left)

    def _wait_until_gone(self, bound_s: float, spare: frozenset[int] = frozenset()) -> list[Member]:
        """Wait for the family to end; return what is still there after ``bound_s``."""
        until = time.monotonic() + bound_s
        pause = _FIRST_LOOK_S
        while left := [m for m in self._family.members() if m.pid not in spare]:
            now = time.monotonic()
            if now >= until:
                return left
            self._pause(min(until - now, pause))
            pause = min(2 * pause, _LOOK_EVERY_S)
        return []

    def _wait_for_wardens(self) -> None:
        """Wait until the first process of a sandbox has ended, which it does after all others.

        It reports the end of the command before, and while it ends it cannot be told by its tag.
        """
        until = time.monotonic() + KILL_BOUND_S
        for pid in self._wardens() - {self._popen.pid}:
            while (found := procfs.member(pid)) and not found.ended and time.monotonic() < until:
                self._pause(_FIRST_LOOK_S)

    def _kill(self) -> tuple[int, ...]:
        """Kill the whole family, again and again while it grows; return what does not die."""
        until = time.monotonic() + KILL_BOUND_S
        pause = _FIRST_LOOK_S
        while left := self._family.signal(signal.SIGKILL):
            now = time.monotonic()
            if now >= until:
                return tuple(member.pid for member in left)
            self._pause(pause)
            pause = min(2 * pause, _LOOK_EVERY_S)
        if not self._watch.pump(until, lambda: self._watch.ended):
            return (self._family.leader,)
        return ()

    def _pause(self, seconds: float) -> None:
        """Keep the pipes moving for a moment: a full one would hold somebody up from ending."""
        ended = self._watch.ended
        self._watch.pump(time.monotonic() + seconds, lambda: self._watch.ended and not ended)
