"""``Deadline``: until when a performance may go on, from its budget."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from coilclaw.domain.budget import Budget

DEFAULT_WALL_S: Final = 3600.0
"""For a budget that names no time: nothing runs without a limit."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment of the monotonic clock; waiting for an approval counts like any other time."""

    at: float
    seconds: float
    """How long it was from the beginning."""

    @classmethod
    def of(cls, budget: Budget) -> Deadline:
        """The end of what begins now."""
        seconds = DEFAULT_WALL_S if budget.wall_s is None else budget.wall_s
        return cls(time.monotonic() + seconds, seconds)

    @property
    def remaining_s(self) -> float:
        """What is left; a process is never given less than a moment, so that it can be started."""
        return max(self.at - time.monotonic(), 0.001)

    @property
    def passed(self) -> bool:
        return time.monotonic() >= self.at

    @property
    def reason(self) -> str:
        return f"the time of {self.seconds:g} s is used up"
