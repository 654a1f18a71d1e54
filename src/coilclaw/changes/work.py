"""``Work``: how much of its files an answer may have us search through, all edits together."""

from __future__ import annotations

from typing import Final

from coilclaw.domain.treepath import shown
from coilclaw.errors import PlanRefused

MAX_WORK: Final = 4 * 2**30
"""Bytes that may be gone through; some seconds' worth."""


class Work:
    """Counts what the edits of one plan go through; a file is gone through once an edit."""

    def __init__(self, most: int = MAX_WORK) -> None:
        self._most = most
        self._left = most

    def spend(self, amount: int, *, path: str, line: int | None = None) -> None:
        """Count some bytes of a file, or refuse when it is too much."""
        self._left -= amount
        if self._left < 0:
            raise PlanRefused(
                f"the edits of {shown(path)} would go through more than {self._most:,} bytes, for "
                "they are many and the file is large",
                rule="plan.bounds",
                path=path,
                line=line,
                hint="make fewer edits in one answer, or give the file as a whole",
            )
