"""Ctrl-C, SIGTERM and SIGHUP: stop at once where that is safe, else at the next safe place."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from coilclaw.errors import Stopped
from coilclaw.workspace.process import Cancellation

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """What a signal does to the run, and whether one came."""

    def __init__(self) -> None:
        self.cancellation = Cancellation()
        self._deferring = False

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Listen to signals; a thread that is not the main one cannot, and need not."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {
            number: signal.signal(number, self._arrived)
            for number in _SIGNALS
            if not (number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN)
        }  # a run under nohup goes on when its terminal is closed
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def deferred(self) -> Iterator[Cancellation]:
        """Finish what is inside first; a process that is given the cancellation ends at once."""
        before, self._deferring = self._deferring, True
        try:
            yield self.cancellation
        finally:
            self._deferring = before

    def check(self) -> None:
        """Stop here if a signal came."""
        if self.cancellation.cancelled:
            raise Stopped(f"stopped by {self.cancellation.reason}")

    def _arrived(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self.cancellation.cancel(signal.Signals(number).name)
        if not self._deferring:
            self.check()
