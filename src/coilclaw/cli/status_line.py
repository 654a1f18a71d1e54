"""``StatusLine``: one line at the bottom of a terminal that changes, below lines that stay."""

from __future__ import annotations

import shutil
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Self

from coilclaw.cli.console import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TextIO

TICK_S: Final = 0.2


class StatusLine:
    """Shows what ``render`` returns, five times a second, while it is entered and ``live``.

    Where it is not live, nothing but the lines that stay is written. Threads may share it.
    """

    def __init__(self, stream: TextIO, render: Callable[[], str | None], *, live: bool) -> None:
        self._stream = stream
        self._render = render
        self._live = live
        self._shown = False
        self.guard = threading.RLock()
        """Held while what the line shows changes."""
        self._done = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        if self._live:
            self._thread = threading.Thread(target=self._tick, daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        if self._thread is not None:
            self._thread.join()
        with self.cleared():
            pass

    @contextmanager
    def cleared(self) -> Iterator[None]:
        """Take the line away while something that stays is written, or what it shows changes."""
        with self.guard:
            if self._shown:
                self._stream.write("\r\x1b[K")
                self._stream.flush()
                self._shown = False
            yield

    def _tick(self) -> None:
        while not self._done.wait(TICK_S):
            with self.guard:
                text = self._render()
                if text is None:
                    continue
                width = shutil.get_terminal_size().columns - 1
                try:
                    self._stream.write(f"\r\x1b[K{visible(text)[:width]}")
                    self._stream.flush()
                except OSError:
                    return  # The terminal is gone; whoever prints a line that stays hears of it.
                self._shown = True
