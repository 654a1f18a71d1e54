"""``signal_scope``: the one place where signals get a meaning, for as long as something goes on."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType


@contextmanager
def signal_scope(
    arrived: Callable[[signal.Signals], None],
    *numbers: signal.Signals,
    keep_ignored: bool = False,
) -> Iterator[None]:
    """Call ``arrived`` with each of these signals that comes; it may raise.

    ``keep_ignored`` leaves alone what is ignored, as under nohup. Only the main thread hears
    signals: in any other this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, _: FrameType | None) -> None:
        arrived(signal.Signals(number))

    before = {number: signal.getsignal(number) for number in numbers}
    for number, handler in before.items():
        if not keep_ignored or handler is not signal.SIG_IGN:
            signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:
                signal.signal(number, handler)


def interrupt(_: signal.Signals) -> None:
    """Let a signal be what Ctrl-C is, so that what is under way is taken back."""
    raise KeyboardInterrupt
