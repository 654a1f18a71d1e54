"""Runs that the gateway carries out: each in a thread of its own, bounded, and stoppable."""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from coilclaw.errors import CoilClawError, Stopped, UsageError
from coilclaw.workspace.cancel import Cancellation

if TYPE_CHECKING:
    from collections.abc import Callable

_log = logging.getLogger(__name__)

MAX_REMEMBERED: Final = 1000
"""Runs that broke off here whose reason is still known."""
_LOOK_EVERY_S: Final = 0.02


@dataclass(slots=True)
class Working:
    """One run while it is carried out here."""

    cancel: Cancellation = field(default_factory=Cancellation)
    begun: Future[str] = field(default_factory=Future)
    """Its id, as soon as it goes on; or why it does not."""
    run_id: str = ""


class RunWorkers:
    """The threads that carry runs out; ``ended`` is told how each of them was left."""

    def __init__(self, most: int, ended: Callable[[str], None]) -> None:
        self._most = most
        self._ended = ended
        self._mutex = threading.Lock()
        self._working: list[Working] = []
        self._broken_off: dict[str, str] = {}
        self._halted: str | None = None

    @property
    def active(self) -> int:
        return len(self._working)

    def find(self, run_id: str) -> tuple[Working, ...]:
        """Return those who work on a run here: one, or none."""
        with self._mutex:
            return tuple(each for each in self._working if each.run_id == run_id)

    def why_broken_off(self, run_id: str) -> str | None:
        """Say why a run broke off here, which its own events cannot."""
        return self._broken_off.get(run_id)

    def halt(self, reason: str) -> None:
        """Stop all of them, and let none begin."""
        with self._mutex:
            self._halted = reason
            found = tuple(self._working)
        for each in found:
            each.cancel.cancel(reason)

    def drained(self, timeout_s: float) -> bool:
        """Wait until none is carried out, and say whether that is so."""
        deadline = time.monotonic() + timeout_s
        while self._working and time.monotonic() < deadline:
            time.sleep(_LOOK_EVERY_S)
        return not self._working

    def carry_out(self, work: Callable[[Working], str], run_id: str = "") -> str:
        """Carry a run out in a thread, and return its id once it goes on.

        ``work`` calls ``begin`` when it does, and returns how the run was left.
        """
        working = Working(run_id=run_id)
        with self._mutex:
            if self._halted is not None:
                raise UsageError("the gateway is being stopped", rule="gateway.stopping")
            if len(self._working) >= self._most:
                raise UsageError(
                    f"{self._most} runs are carried out already, and no more at once",
                    rule="runs.busy",
                    hint="wait for one, or cancel one",
                )
            self._working.append(working)
        # A daemon, so that a run that does not stop in time cannot keep the process from ending.
        threading.Thread(target=self._work, args=(working, work), name="run", daemon=True).start()
        return working.begun.result()

    def begin(self, working: Working, run_id: str) -> None:
        """Say that a run goes on, whose id is known now."""
        if not working.begun.done():
            working.run_id = run_id
            self._broken_off.pop(run_id, None)
            working.begun.set_result(run_id)

    def _work(self, working: Working, work: Callable[[Working], str]) -> None:
        problem: CoilClawError | None = None
        status = "fault"
        try:
            status = work(working)
        except CoilClawError as caught:
            problem = caught
            status = "stopped" if isinstance(caught, Stopped) else "fault"
        except Exception:  # noqa: BLE001 - whatever nobody thought of must not go unnoticed
            _log.exception("a run failed", extra={"event": "run_fault"})
            problem = CoilClawError("this should not happen; the log says more", rule="internal")
        finally:
            self._finish(working, status, problem)

    def _finish(self, working: Working, status: str, problem: CoilClawError | None) -> None:
        """Tell how it ended; only then is there room for another."""
        if working.begun.done() or problem is None:
            self._ended(status)
            _log.info(
                "run %s: %s",
                working.run_id,
                status,
                extra={
                    "event": "run_left",
                    "fields": {"run_id": working.run_id, "status": status},
                },
            )
        with self._mutex:
            if problem is not None and working.begun.done():
                self._remember(working.run_id, problem.message)
            self._working.remove(working)
        if problem is not None and working.begun.done() and status == "fault":
            _log.error("a run broke off: %s", problem.message, extra={"event": "run_fault"})
        if not working.begun.done():
            if problem is None:
                working.begun.set_result(working.run_id)
            else:
                working.begun.set_exception(problem)

    def _remember(self, run_id: str, reason: str) -> None:
        while len(self._broken_off) >= MAX_REMEMBERED:
            del self._broken_off[next(iter(self._broken_off))]
        self._broken_off[run_id] = reason
