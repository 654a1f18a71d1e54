"""How far judging has come, on a terminal: one line that is written over."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from coilclaw.cli.console import Console
    from coilclaw.environments.results import Case

_EVERY_S: Final = 0.1


class Counting:
    """Counts cases that are over; where nobody watches it writes nothing."""

    def __init__(self, console: Console, what: str) -> None:
        self._err = console.err
        self._live = console.err.isatty()
        self._what = what
        self._over = self._wrong = 0
        self._shown = 0.0

    def __enter__(self) -> Self:
        self._write(f"{self._what}: building, or finding what was built")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.clear()

    def count(self, case: Case) -> None:
        """One more is over."""
        self._over += 1
        self._wrong += case.status not in {"passed", "skipped"}
        now = time.monotonic()
        if now - self._shown >= _EVERY_S:
            self._shown = now
            self._write(f"{self._what}: {self._over} cases are over, {self._wrong} failed")

    def clear(self) -> None:
        """Leave the line to something else."""
        self._write("")
        self._shown = 0.0

    def _write(self, text: str) -> None:
        if self._live:
            self._err.write(f"\r\x1b[K{text[:79]}")
            self._err.flush()
