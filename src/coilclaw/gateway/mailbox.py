"""A bounded queue from any thread to the client of one stream; who cannot keep up is let go."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

Item = TypeVar("Item")


class Mailbox(Generic[Item]):
    """Holds what a client has not taken yet. Made, closed and read on the event loop."""

    def __init__(self, limit: int) -> None:
        self._loop: AbstractEventLoop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[Item | None] = asyncio.Queue()
        self._limit = limit
        self.closed = False

    def put(self, item: Item) -> None:
        """Put something in, from any thread; it never waits, and after the end does nothing."""
        with suppress(RuntimeError):  # the loop is closed: nobody reads any more
            self._loop.call_soon_threadsafe(self._add, item)

    def put_last(self, item: Item) -> None:
        """Put the last thing in, from any thread."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._add_last, item)

    def close(self) -> None:
        """End the stream after what is in it."""
        if not self.closed:
            self.closed = True
            self._queue.put_nowait(None)

    async def take(self, timeout_s: float) -> Item | None:
        """Return the next thing, or ``None`` when there is no other; ``TimeoutError`` in time."""
        async with asyncio.timeout(timeout_s):
            return await self._queue.get()

    def _add_last(self, item: Item) -> None:
        self._add(item)
        self.close()

    def _add(self, item: Item) -> None:
        if self.closed:
            return
        if self._queue.qsize() >= self._limit:
            self.close()
            return
        self._queue.put_nowait(item)
