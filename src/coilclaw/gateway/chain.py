"""Whether the receipts hold, looked at in the background and no more often than it is worth."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Final

from coilclaw.errors import CoilClawError
from coilclaw.gateway.agent import ChainState

if TYPE_CHECKING:
    from coilclaw.gateway.agent import Agent

_log = logging.getLogger(__name__)

LEAST_PAUSE_S: Final = 5.0
PAUSE_FACTOR: Final = 20.0
"""A verification of so many seconds is not repeated for this many times as long."""


class ChainWatch:
    """Remembers what the last verification found; a look begins another when there is news."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._mutex = threading.Lock()
        self._state: ChainState | None = None
        self._size = -1
        self._not_before = 0.0
        self._busy = False

    def look(self) -> ChainState | None:
        """Return what is known, without waiting; ``None`` before anything was verified."""
        size = self._agent.receipts_size()
        with self._mutex:
            if not self._busy and size != self._size and time.monotonic() >= self._not_before:
                self._busy = True
                self._size = size
                threading.Thread(target=self._verify, name="verify", daemon=True).start()
            return self._state

    def _verify(self) -> None:
        began = time.monotonic()
        try:
            found = self._agent.verify_receipts()
        except (CoilClawError, OSError):
            _log.exception("the receipts could not be verified", extra={"event": "verify_fault"})
            found = ChainState(valid=False, receipts=0, open_intents=0)
        took = time.monotonic() - began
        with self._mutex:
            self._state = found
            self._not_before = time.monotonic() + max(LEAST_PAUSE_S, took * PAUSE_FACTOR)
            self._busy = False
        if not found.valid:
            _log.error("the chain of receipts is broken", extra={"event": "receipts_broken"})
