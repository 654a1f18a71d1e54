"""The events of one run as a stream: those that are there, then those that come, to the end.

Each event carries its number, so that a client that lost the connection goes on behind the last
one it has. Events are read from the run's log, whoever writes it; a slow client holds up nobody.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from coilclaw.errors import CoilClawError
from coilclaw.gateway import faults
from coilclaw.gateway.answers import json_response
from coilclaw.gateway.runschemas import DEFAULT_EVENTS
from coilclaw.gateway.sse import COMMENT, HEARTBEAT_S, frame

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.types import ASGIApp, Receive, Scope, Send

    from coilclaw.domain.messages import Json
    from coilclaw.gateway.endpoint import Call
    from coilclaw.gateway.runkeeper import CarriedRuns

_log = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 0.2
ASK_EVERY: Final = 5
"""After so many looks that found nothing one asks whether anybody still works on the run."""
_LASTS: Final = frozenset({"RUN_SEALED", "RUN_PAUSED", "ended", "asked"})
"""Events behind which a run of a repository, or of a SOP, may have been left."""
_HEADERS: Final = [(b"content-type", b"text/event-stream; charset=utf-8")]


async def answer_events(call: Call, runs: CarriedRuns, closing: asyncio.Event) -> ASGIApp:
    """One page of events, or all of them as they come; ``Last-Event-ID`` wins."""
    run_id, since = call.path["run_id"], whole_number(call, "since", 0)
    if call.streaming:
        given = call.headers.get("Last-Event-ID", since)
        assert isinstance(given, int), "the schema says so"
        # Asked here, where one that is not there is still a 404.
        await asyncio.to_thread(runs.page, run_id, 0, 1)
        return RunStream(runs, run_id, given, closing=closing)
    limit = whole_number(call, "limit", DEFAULT_EVENTS)
    # Asked before the events are read: a run that ends in between has them all.
    goes_on = await asyncio.to_thread(runs.goes_on, run_id)
    page = await asyncio.to_thread(runs.page, run_id, since, limit)
    return json_response(
        {"run_id": run_id, "events": page, "next": since + len(page), "goes_on": goes_on}
    )


def whole_number(call: Call, name: str, default: int) -> int:
    """Return a number of the query."""
    value = call.query.get(name, default)
    assert isinstance(value, int), "the schema says so"
    return value


async def wait_until_ended(runs: CarriedRuns, timeout_s: float) -> None:
    """Give stopped runs time to put things in order; one that takes longer can be resumed."""
    if not await asyncio.to_thread(runs.drained, timeout_s):
        _log.warning(
            "%d runs did not stop in time; they can be resumed",
            runs.active,
            extra={"event": "runs_abandoned"},
        )


class RunStream:
    """A response; it ends with the run, with the client, or with the gateway."""

    def __init__(
        self, runs: CarriedRuns, run_id: str, since: int, *, closing: asyncio.Event
    ) -> None:
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
