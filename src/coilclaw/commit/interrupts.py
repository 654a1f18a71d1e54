"""Ctrl-C, SIGTERM and SIGHUP: stop at once where that is safe, else at the next safe place."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

from coilclaw.kernel import Stopped, signal_scope
from coilclaw.workspace import Cancellation

if TYPE_CHECKING:
    from collections.abc import Iterator


class Interrupts:
    """What a signal does to the run, and whether one came."""

    def __init__(self) -> None:
        self.cancellation = Cancellation()
        self._deferring = False

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Listen to signals; a thread that is not the main one cannot, and need not."""
        with (
            signal_scope(self._arrived, signal.SIGINT, signal.SIGTERM),
            # A run under nohup continues when its terminal is closed.
            signal_scope(self._arrived, signal.SIGHUP, keep_ignored=True),
        ):
            yield

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

    def _arrived(self, number: signal.Signals) -> None:
        self.cancellation.cancel(number.name)
        if not self._deferring:
            self.check()
