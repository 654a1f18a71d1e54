"""Server-sent events: the frames, what waits for a client, and a response that sends it.

A client that cannot keep up with its bounded mailbox is let go.
"""

from __future__ import annotations

import asyncio
import io
import json
import threading
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable, Iterable, Mapping

    from starlette.types import Receive, Scope, Send

    from coilclaw.kernel import Json

HEARTBEAT_S: Final = 15.0
"""A comment is sent when nothing else was for so long, so that no proxy between us hangs up."""
COMMENT: Final = b":\n\n"
CONTENT_TYPE: Final = b"text/event-stream; charset=utf-8"

Item = TypeVar("Item")


def frame(value: Json, event: str | None = None, *, number: int | None = None) -> bytes:
    """Return one event; JSON in ASCII has no line ends, so that it is one line."""
    named = f"event: {event}\n" if event else ""
    numbered = "" if number is None else f"id: {number}\n"
    return f"{numbered}{named}data: {json.dumps(value, separators=(',', ':'))}\n\n".encode("ascii")


async def send_part(send: Send, body: bytes, *, more: bool = True) -> None:
    """Send a piece of an answer."""
    await send({"type": "http.response.body", "body": body, "more_body": more})


async def wait_gone(receive: Receive) -> None:
    """Return when the client has gone away."""
    while (await receive())["type"] != "http.disconnect":
        pass


class Mailbox(Generic[Item]):
    """Holds what a client has not taken yet. Made, closed and read on the event loop."""

    def __init__(self, limit: int) -> None:
        self._loop: AbstractEventLoop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[Item | None] = asyncio.Queue()
        self._limit = limit
        self.closed = False

    def put(self, item: Item, *, last: bool = False) -> None:
        """Put something in, from any thread; it never waits, and after the end does nothing."""
        with suppress(RuntimeError):  # the loop is closed: there is no reader any more
            self._loop.call_soon_threadsafe(self._add, item, last)

    def put_last(self, item: Item) -> None:
        """Put the last thing in, from any thread."""
        self.put(item, last=True)

    def close(self) -> None:
        """End the stream after what is in it."""
        if not self.closed:
            self.closed = True
            self._queue.put_nowait(None)

    async def take(self, timeout_s: float) -> Item | None:
        """Return the next thing, or ``None`` at the end; ``TimeoutError`` in time."""
        async with asyncio.timeout(timeout_s):
            return await self._queue.get()

    def _add(self, item: Item, last: bool) -> None:
        full = self._queue.qsize() >= self._limit
        if not self.closed and not full:
            self._queue.put_nowait(item)
        if full or last:
            self.close()


class Feed(io.TextIOBase):
    """Takes lines of JSON as a stream does, and gives each to every client that watches."""

    def __init__(self) -> None:
        super().__init__()
        self._mutex = threading.Lock()
        self._watchers: tuple[tuple[Mailbox[str], Callable[[str], bool]], ...] = ()

    @property
    def watched(self) -> bool:
        """Whether any client watches, so that no line need be made without one."""
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


class EventStream(Generic[Item]):
    """A response of events; it ends when the mailbox does, or when the client goes away."""

    def __init__(
        self,
        mailbox: Mailbox[Item],
        frames: Callable[[Item], Iterable[bytes]],
        *,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.status_code = 200
        self._mailbox = mailbox
        self._frames = frames
        self._headers = [
            (b"content-type", CONTENT_TYPE),
            *(
                (name.encode("ascii"), text.encode("ascii"))
                for name, text in (headers or {}).items()
            ),
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - the shape of an application
        gone = asyncio.ensure_future(self._watch(receive))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self._headers})
            await self._pass_on(send)
        finally:
            gone.cancel()
            self._mailbox.close()
        await send_part(send, b"", more=False)

    async def _pass_on(self, send: Send) -> None:
        while True:
            try:
                item = await self._mailbox.take(HEARTBEAT_S)
            except TimeoutError:
                body = COMMENT
            else:
                if item is None:
                    return
                body = b"".join(self._frames(item))
            if body:
                await send_part(send, body)

    async def _watch(self, receive: Receive) -> None:
        """End the stream when the client goes away; whatever it waits for goes on without it."""
        await wait_gone(receive)
        self._mailbox.close()
