"""The events of one run as a stream: those that are there, then those that come, to the end.

Each event carries its number, so that a client that lost the connection goes on behind the last
one it has. Events are read from the run's log, whoever writes it; a slow client holds up nobody.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from coilclaw.errors import CoilClawError
from coilclaw.gateway import faults
from coilclaw.gateway.runschemas import DEFAULT_EVENTS
from coilclaw.gateway.sse import COMMENT, HEARTBEAT_S, frame

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.types import Receive, Scope, Send

    from coilclaw.domain.messages import Json
    from coilclaw.gateway.runkeeper import RunKeeper

LOOK_EVERY_S: Final = 0.2
ASK_EVERY: Final = 5
"""After so many looks that found nothing one asks whether anybody still works on the run."""
_LASTS: Final = frozenset({"RUN_SEALED", "RUN_PAUSED"})
_HEADERS: Final = [(b"content-type", b"text/event-stream; charset=utf-8")]


class RunStream:
    """A response; it ends with the run, with the client, or with the gateway."""

    def __init__(self, runs: RunKeeper, run_id: str, since: int, *, closing: asyncio.Event) -> None:
        self.status_code = 200
        self._runs = runs
        self._run_id = run_id
        self._next = since
        self._closing = closing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - the shape of an application
        over: list[asyncio.Future[object]] = [
            asyncio.ensure_future(_gone(receive)),
            asyncio.ensure_future(self._closing.wait()),
        ]
        try:
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            try:
                await self._follow(send, over)
            except CoilClawError as problem:
                # The answer has begun; what happened to the run's log is told in it.
                await _send(send, frame(faults.form(problem), "error"))
        finally:
            for each in over:
                each.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _follow(self, send: Send, over: Sequence[asyncio.Future[object]]) -> None:
        """Tell what there is until nobody works on the run; the look behind that is the last."""
        size, last, quiet, silent_s = -1, "", 0, 0.0
        goes_on = True
        while not any(each.done() for each in over):
            now = self._runs.size(self._run_id)
            if now != size or not goes_on:
                size, quiet = now, 0
                told = await self._tell(send)
                if told:
                    last, silent_s, goes_on = told, 0.0, True
                elif not goes_on:
                    return
            elif last in _LASTS or quiet >= ASK_EVERY:
                quiet = 0
                goes_on = await asyncio.to_thread(self._runs.goes_on, self._run_id)
                if not goes_on:
                    continue
            quiet += 1
            silent_s += LOOK_EVERY_S
            if silent_s >= HEARTBEAT_S:
                silent_s = 0.0
                await _send(send, COMMENT)
            await asyncio.wait(over, timeout=LOOK_EVERY_S, return_when=asyncio.FIRST_COMPLETED)

    async def _tell(self, send: Send) -> str:
        """Send everything that is new, and return the kind of its last event."""
        last = ""
        while True:
            page = await asyncio.to_thread(
                self._runs.page, self._run_id, self._next, DEFAULT_EVENTS
            )
            for event in page:
                self._next += 1
                last = _kind(event)
                await _send(send, frame(event, last, number=self._next))
            if len(page) < DEFAULT_EVENTS:
                return last


def _kind(event: Json) -> str:
    return str(event["event_type"]) if isinstance(event, dict) else ""


async def _send(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})


async def _gone(receive: Receive) -> None:
    """Come back when the client has gone away."""
    while (await receive())["type"] != "http.disconnect":
        pass
