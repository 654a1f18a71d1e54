"""``StatusLine``: a last line of the terminal that is updated below the lines that stay."""

from __future__ import annotations

import shutil
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Self

from coilclaw.cli.console import escape_hidden

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TextIO

    from coilclaw.cli.console import Console
    from coilclaw.traces import Case

TICK_S: Final = 0.2
_EVERY_S: Final = 0.1


class StatusLine:
    """Shows what it is given, or while it is entered what ``render`` returns, five times a second.

    If it is not live, only the lines that stay are written. Threads may share it.
    """

    def __init__(
        self, stream: TextIO, *, live: bool, render: Callable[[], str | None] | None = None
    ) -> None:
        self._stream = stream
        self._render = render
        self._live = live
        self._shown = False
        self.guard = threading.RLock()
        """Held while the content of the line changes."""
        self._done = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        if self._live and self._render is not None:
            self._thread = threading.Thread(target=self._tick, args=(self._render,), daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        if self._thread is not None:
            self._thread.join()
        self.clear()

    def show(self, text: str) -> None:
        """Replace the line with a text, cut to the width of the terminal."""
        if self._live:
            with self.guard:
                width = shutil.get_terminal_size().columns - 1
                # The cursor returns to the start, so that a warning overwrites the line.
                self._stream.write(f"\r\x1b[K{escape_hidden(text)[:width]}\r")
                self._stream.flush()
                self._shown = True

    def clear(self) -> None:
        """Remove the line."""
        with self.clear_line():
            pass

    def close(self) -> None:
        """Keep the line as it is, and continue below it."""
        if self._live:
            self._stream.write("\n")
        self._live = self._shown = False

    @contextmanager
    def clear_line(self) -> Iterator[None]:
        """Remove the line while something that stays is written, or its content changes."""
        with self.guard:
            if self._shown:
                self._stream.write("\r\x1b[K")
                self._stream.flush()
                self._shown = False
            yield

    def _tick(self, render: Callable[[], str | None]) -> None:
        while not self._done.wait(TICK_S):
            with self.guard:
                text = render()
                try:
                    if text is not None:
                        self.show(text)
                except OSError:
                    return  # The terminal is gone; writing the next line that stays raises.


class CaseCounter(StatusLine):
    """Counts finished test cases on a terminal."""

    def __init__(self, console: Console, what: str) -> None:
        super().__init__(console.err, live=console.err.isatty())
        self._what = what
        self._over = self._wrong = 0
        self._counted = 0.0

    def __enter__(self) -> Self:
        self.show(f"{self._what}: building, or reusing an earlier build")
        return self

    def count(self, case: Case) -> None:
        """Count one more case, and show the figures at most ten times a second."""
        self._over += 1
        self._wrong += case.status not in {"passed", "skipped"}
        now = time.monotonic()
        if not self._shown or now - self._counted >= _EVERY_S:
            self._counted = now
            self.show(f"{self._what}: {self._over} cases finished, {self._wrong} failed")
