"""Ctrl-C, SIGTERM and SIGHUP: stop at once if that is safe, else at the next safe point."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

from coilclaw.kernel import Stopped, signal_scope
from coilclaw.workspace import Cancellation

if TYPE_CHECKING:
    from collections.abc import Iterator


class Interrupts:
    """Handles the signals that stop a run."""

    def __init__(self) -> None:
        self.cancellation = Cancellation()
        self._deferring = False

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Handle signals for the duration of the block; outside the main thread do nothing."""
        with (
            signal_scope(self._note_signal, signal.SIGINT, signal.SIGTERM),
            # Under nohup, the run continues when its terminal is closed.
            signal_scope(self._note_signal, signal.SIGHUP, keep_ignored=True),
        ):
            yield

    @contextmanager
    def defer(self) -> Iterator[Cancellation]:
        """Defer a stop to the end of the block; the yielded cancellation ends processes at once."""
        before, self._deferring = self._deferring, True
        try:
            yield self.cancellation
        finally:
            self._deferring = before

    def check(self) -> None:
        """Raise ``Stopped`` if a signal arrived."""
        if self.cancellation.cancelled:
            raise Stopped(f"stopped by {self.cancellation.reason}")

    def _note_signal(self, number: signal.Signals) -> None:
        self.cancellation.cancel(number.name)
        if not self._deferring:
            self.check()
