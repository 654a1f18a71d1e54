"""Server-sent events: the frames, and a response that sends them as they come."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from starlette.types import Receive, Scope, Send

    from coilclaw.domain.messages import Json
    from coilclaw.gateway.mailbox import Mailbox

HEARTBEAT_S: Final = 15.0
"""A comment is sent when nothing else was for so long, so that nobody between us hangs up."""

COMMENT: Final = b":\n\n"

Item = TypeVar("Item")


def frame(value: Json, event: str | None = None, *, number: int | None = None) -> bytes:
    """Return one event; JSON in ASCII has no line ends, so that it is one line."""
    named = f"event: {event}\n" if event else ""
    numbered = "" if number is None else f"id: {number}\n"
    return f"{numbered}{named}data: {json.dumps(value, separators=(',', ':'))}\n\n".encode("ascii")


class EventStream(Generic[Item]):
    """A response of events; it ends when the mailbox does, or when the client goes away."""

    def __init__(
        self,
        mailbox: Mailbox[Item],
        frames: Callable[[Item], Iterable[bytes]],
        *,
        headers: dict[str, str] | None = None,
    ) -> None:
        self.status_code = 200
        self._mailbox = mailbox
        self._frames = frames
        given = {"content-type": "text/event-stream; charset=utf-8", **(headers or {})}
        self._headers = [
            (name.encode("ascii"), text.encode("ascii")) for name, text in given.items()
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - the shape of an application
        gone = asyncio.ensure_future(self._watch(receive))
        try:
            await send(
                {
                    "type": "http.response.start",
                    "status": self.status_code,
                    "headers": self._headers,
                }
            )
            await self._pass_on(send)
        finally:
            gone.cancel()
            self._mailbox.close()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

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
                await send({"type": "http.response.body", "body": body, "more_body": True})

    async def _watch(self, receive: Receive) -> None:
        """End the stream when the client goes away; whatever it waits for goes on without it."""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                self._mailbox.close()
                return
