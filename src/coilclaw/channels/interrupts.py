"""Signals while a conversation takes place: Ctrl-C is for the turn, the others end the program."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

_ENDINGS: Final = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def heard_endings(came: Callable[[], None]) -> Iterator[None]:
    """Let the signals that end a program interrupt a turn in order, as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are heard by the main thread only
        return

    def arrived(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - a handler's shape
        came()
        raise KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in _ENDINGS}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, arrived)
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:
                signal.signal(number, handler)
