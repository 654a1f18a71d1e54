"""What areas log, for the clients that watch ``/events``."""

from __future__ import annotations

import io
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from coilclaw.gateway.mailbox import Mailbox


class Feed(io.TextIOBase):
    """Takes lines of JSON as a stream does, and gives each to everybody who watches."""

    def __init__(self) -> None:
        super().__init__()
        self._mutex = threading.Lock()
        self._watchers: tuple[tuple[Mailbox[str], Callable[[str], bool]], ...] = ()

    @property
    def watched(self) -> bool:
        """Whether anybody watches, so that lines need not be made for nobody."""
        return bool(self._watchers)

    def watch(self, mailbox: Mailbox[str], wanted: Callable[[str], bool]) -> None:
        """Give lines to a client; ``wanted`` says which, at the moment they are written."""
        with self._mutex:
            self._watchers = (*self._watchers, (mailbox, wanted))

    def leave(self, mailbox: Mailbox[str]) -> None:
        with self._mutex:
            self._watchers = tuple(one for one in self._watchers if one[0] is not mailbox)

    def end(self) -> None:
        """End the streams of all that watch; called on the event loop."""
        for mailbox, _ in self._watchers:
            mailbox.close()

    def write(self, text: str) -> int:
        """Give one line to all; a client that cannot keep up is dropped."""
        for mailbox, wanted in self._watchers:
            if wanted(text):
                mailbox.put(text)
        return len(text)
