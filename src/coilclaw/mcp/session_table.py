"""Which sessions of clients are open, and which has to go when another one comes.

A session without a request under way is idle. When the table is full, the one that was idle longest
is ended; when none is idle, the new one is refused. One client alone cannot fill the table.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_SESSIONS: Final = 64
MAX_PER_CLIENT: Final = 16
"""Of a client that is known by the name of its token."""
IDLE_S: Final = 10 * 60.0
RETRY_AFTER_S: Final = 5


@dataclass(slots=True)
class OpenSession:
    """One session; ``busy`` counts its requests that are under way."""

    client: str
    busy: int = 0
    used: float = 0.0


@dataclass(slots=True)
class SessionTable:
    """All sessions of one server, used by one event loop."""

    most: int = MAX_SESSIONS
    most_per_client: int = MAX_PER_CLIENT
    idle_s: float = IDLE_S
    now: Callable[[], float] = time.monotonic
    _open: dict[str, OpenSession] = field(default_factory=dict)
    _opening: dict[str, int] = field(default_factory=dict)
    """Sessions that are being opened, by client: they have no id yet."""

    def __len__(self) -> int:
        return len(self._open) + sum(self._opening.values())

    def expire(self) -> list[str]:
        """Forget the sessions that were idle for too long, and return them."""
        late = self.now() - self.idle_s
        gone = [name for name, one in self._open.items() if not one.busy and one.used <= late]
        for name in gone:
            del self._open[name]
        return gone

    def admit(self, client: str) -> tuple[bool, list[str]]:
        """Make room for a session that is about to be opened.

        Return whether there is room, and the idle sessions that have to be ended for it.
        """
        gone: list[str] = []
        if client and self._count(client) >= self.most_per_client:
            gone += self._evict(client)
            if not gone:
                return False, []
        if len(self) >= self.most:
            evicted = self._evict("")
            if not evicted:
                return False, gone
            gone += evicted
        self._opening[client] = self._opening.get(client, 0) + 1
        return True, gone

    def opened(self, client: str, name: str | None) -> None:
        """Note what an opening request came to; ``None`` is no session."""
        self._opening[client] -= 1
        if not self._opening[client]:
            del self._opening[client]
        if name is not None:
            self._open[name] = OpenSession(client, 0, self.now())

    def is_foreign(self, name: str, client: str) -> bool:
        """Tell whether a session was opened by another client."""
        return name in self._open and self._open[name].client != client

    def begin(self, name: str) -> None:
        """Note that a request of a session is under way."""
        if name in self._open:
            self._open[name].busy += 1

    def end(self, name: str, *, closed: bool = False) -> None:
        """Note that it is over; ``closed`` when the session is over with it."""
        found = self._open.get(name)
        if found is None:
            return
        if closed:
            del self._open[name]
            return
        found.busy -= 1
        found.used = self.now()

    def _count(self, client: str) -> int:
        opened = sum(one.client == client for one in self._open.values())
        return opened + self._opening.get(client, 0)

    def _evict(self, client: str) -> list[str]:
        """Forget the session that was idle longest, of one client or of all."""
        idle = [
            (one.used, name)
            for name, one in self._open.items()
            if not one.busy and client in {"", one.client}
        ]
        if not idle:
            return []
        _, name = min(idle)
        del self._open[name]
        return [name]
