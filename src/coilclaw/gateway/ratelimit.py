"""A token bucket: so many requests a minute, a tenth of them at once."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_BURST: Final = 10
"""The bucket holds this part of a minute's requests."""


class RateLimit:
    """Counts requests; used on the event loop only."""

    def __init__(self, per_minute: int, *, now: Callable[[], float] = time.monotonic) -> None:
        self._rate = per_minute / 60
        self._most = max(1.0, per_minute / _BURST)
        self._left = self._most
        self._now = now
        self._seen = now()

    def take(self) -> float:
        """Take one; return 0, or the seconds after which there is one again."""
        now = self._now()
        self._left = min(self._most, self._left + (now - self._seen) * self._rate)
        self._seen = now
        if self._left < 1:
            return (1 - self._left) / self._rate
        self._left -= 1
        return 0.0
