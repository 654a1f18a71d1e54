"""``Drained``: whoever is still sending when the answer is ready gets to read it.

A client that uploads writes all of its request before it reads. Were the connection closed
meanwhile, it would learn that it was cut off, and not why.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

DRAIN_S: Final = 30.0
IDLE_S: Final = 2.0
"""A client that sends nothing for so long is waiting for its answer."""
_UNADMITTED: Final = frozenset({401, 403, 429})
"""A client that was not admitted holds its connection for ``IDLE_S`` at most."""
_NO_DRAIN: Final = frozenset({408, 503})
"""The server has waited for the body already, or is stopping."""


@dataclass(frozen=True, slots=True)
class Drained:
    """Wraps an application; before an answer, the rest of the body is taken and thrown away."""

    app: ASGIApp
    max_bytes: int
    timeout_s: float = DRAIN_S

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        body = _Body(receive, asks_first=_asks_first(scope))

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start" and body.is_coming(message["status"]):
                with suppress(TimeoutError):
                    refused = message["status"] in _UNADMITTED
                    async with asyncio.timeout(IDLE_S if refused else self.timeout_s):
                        await body.drain(self.max_bytes)
            await send(message)

        await self.app(scope, body.receive, answer)


class _Body:
    def __init__(self, receive: Receive, *, asks_first: bool) -> None:
        self._receive = receive
        self._held_back = asks_first
        self.ended = False

    def is_coming(self, status: int) -> bool:
        """Whether there is more to take before an answer with this status."""
        # One who asked whether to send it was not told to.
        return not self.ended and not self._held_back and status not in _NO_DRAIN

    async def receive(self) -> Message:
        self._held_back = False
        message = await self._receive()
        if not message.get("more_body", False):
            self.ended = True
        return message

    async def drain(self, most: int) -> None:
        while not self.ended and most > 0:
            async with asyncio.timeout(IDLE_S):
                message = await self.receive()
            most -= len(message.get("body", b""))


def _asks_first(scope: Scope) -> bool:
    """Whether the client waits to be told before it sends the body."""
    return any(
        name == b"expect" and value.lower() == b"100-continue" for name, value in scope["headers"]
    )
