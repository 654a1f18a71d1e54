"""Runs of a repository and of SOPs over HTTP, and their events as a stream.

Each event carries its number, so that a client that lost the connection goes on behind the last
one it has. Events are read from the run's log, whichever process writes it.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import to_thread
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final, Generic, TypeVar

from coilclaw.gateway.http import faults
from coilclaw.gateway.http.event_stream import (
    COMMENT,
    CONTENT_TYPE,
    HEARTBEAT_S,
    frame,
    send_part,
    wait_gone,
)
from coilclaw.gateway.http.faults import json_response, refusal_error
from coilclaw.gateway.runs.run_workers import RunStart
from coilclaw.gateway.runs.served_runs import ServedRuns
from coilclaw.gateway.runs.served_sops import ServedSops
from coilclaw.gateway.schemas import DEFAULT_EVENTS
from coilclaw.kernel import CoilClawError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from starlette.types import ASGIApp, Receive, Scope, Send

    from coilclaw.gateway.schemas import EndpointCall

_log = logging.getLogger(__name__)

DEFAULT_LIMIT: Final = 20
HEAVY: Final = 2
"""Verifications and patches at once: they may take long, and threads are few."""
DIFF: Final = "text/x-diff"
TAR: Final = "application/x-tar"
LOOK_EVERY_S: Final = 0.2
ASK_EVERY: Final = 5
"""After so many looks that found nothing, ask whether a process still works on the run."""
_LASTS: Final = frozenset({"RUN_SEALED", "RUN_PAUSED", "ended", "asked"})
"""Events behind which a run of a repository, or of a SOP, may have been left."""

Found = TypeVar("Found")
Keeper = TypeVar("Keeper", bound=ServedRuns | ServedSops)


@dataclass(frozen=True, slots=True)
class _Endpoints(Generic[Keeper]):
    """What runs of both kinds have in common; without a keeper there is nothing here."""

    place: ClassVar[str]
    unavailable: ClassVar[tuple[str, ...]]
    keeper: Keeper | None
    closing: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def runs(self) -> Keeper:
        if self.keeper is None:
            raise refusal_error(*self.unavailable)
        return self.keeper

    @property
    def active(self) -> int:
        return 0 if self.keeper is None else self.keeper.active

    def stop(self, reason: str) -> None:
        """Stop all runs and end all streams; called on the event loop."""
        self.closing.set()
        if self.keeper is not None:
            self.keeper.halt(reason)

    async def wait_ended(self, timeout_s: float) -> None:
        """Give stopped runs time to put things in order; one that takes longer can be resumed."""
        if self.keeper is not None and not await to_thread(self.keeper.wait_drained, timeout_s):
            _log.warning(
                "%d runs did not stop in time; they can be resumed",
                self.active,
                extra={"event": "runs_abandoned"},
            )

    async def list(self, call: EndpointCall) -> ASGIApp:
        """The newest runs of the repository, newest first."""
        return json_response({"runs": await to_thread(self.runs.list_runs, limit_of(call))})

    async def show(self, call: EndpointCall) -> ASGIApp:
        """State, tasks, gates, reviews, tests and merge of one run."""
        return json_response(await to_thread(self.runs.show_run, _id(call)))

    async def events(self, call: EndpointCall) -> ASGIApp:
        """Its events from number 'since' on: one page, or as they come until it ends."""
        runs, run_id, since = self.runs, _id(call), limit_of(call, 0, "since")
        if call.streaming:
            given = call.headers.get("Last-Event-ID", since)
            assert isinstance(given, int), "the schema says so"
            # Asked here, where one that is not there is still a 404.
            await to_thread(runs.page, run_id, 0, 1)
            return RunStream(runs, run_id, given, closing=self.closing)
        limit = limit_of(call, DEFAULT_EVENTS)
        # Asked before the events are read: a run that ends in between has them all.
        goes_on = await to_thread(runs.goes_on, run_id)
        page = await to_thread(runs.page, run_id, since, limit)
        return json_response(
            {"run_id": run_id, "events": page, "next": since + len(page), "goes_on": goes_on}
        )

    def _begun_response(self, run_id: str) -> ASGIApp:
        return json_response({"run_id": run_id}, 202, {"location": f"{self.place}/{run_id}"})


@dataclass(frozen=True, slots=True)
class RunEndpoints(_Endpoints[ServedRuns]):
    """Everything below ``/runs``."""

    place = "/runs"
    unavailable = (
        "runs.unavailable",
        "no runs are offered: the gateway was not started in a git repository that has a commit",
        "start it there, or with 'coilclaw serve --repo DIR'",
    )
    heavy: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(HEAVY))

    async def start(self, call: EndpointCall) -> ASGIApp:
        """Begin a run of a contract, or of one sentence; it goes on by itself."""
        body = call.body
        contract = body.get("contract")
        wanted = RunStart(
            contract=contract if isinstance(contract, dict) else None,
            request=str(body.get("request", "")),
            runner=_text(call, "runner"),
            reviewer=_text(call, "reviewer"),
            merge=body.get("merge") is True,
            diagnostic=body.get("diagnostic") is True,
            no_baseline=body.get("no_baseline") is True,
            wait=body.get("wait") is not False,
            asker=call.client.label,
        )
        return self._begun_response(await to_thread(self.runs.start, wanted))

    async def resume(self, call: EndpointCall) -> ASGIApp:
        """Resume a run that waits or was interrupted, or answer its question."""
        answer, asker = _text(call, "answer") or "", call.client.label
        await to_thread(self.runs.resume, _id(call), answer, asker=asker)
        return self._begun_response(_id(call))

    async def cancel(self, call: EndpointCall) -> ASGIApp:
        """Stop a run that this gateway carries out; it can be resumed."""
        await to_thread(self.runs.cancel, _id(call))
        return self._begun_response(_id(call))

    async def diff(self, call: EndpointCall) -> ASGIApp:
        """What it changed, as a git patch, or what was rolled back."""
        from starlette.responses import Response

        runs, task = self.runs, call.query.get("task")
        data = await self._alone(
            lambda: runs.patch(
                _id(call),
                task=None if task is None else str(task),
                rejected=call.query.get("work") == "rejected",
            )
        )
        return Response(data, headers={"content-type": DIFF})

    async def verify(self, call: EndpointCall) -> ASGIApp:
        """Recompute everything that its evidence says."""
        runs, root = self.runs, _text(call, "root")
        strict = call.body.get("strict") is not False
        found = await self._alone(lambda: runs.verify(_id(call), strict=strict, root=root))
        return json_response(found)

    async def bundle(self, call: EndpointCall) -> ASGIApp:
        """Its sealed evidence as a tar."""
        from starlette.responses import StreamingResponse

        archive = await to_thread(self.runs.bundle, _id(call))
        headers = {
            "content-length": str(archive.size),
            "content-disposition": f'attachment; filename="{archive.name}"',
        }
        return StreamingResponse(archive.pieces, headers=headers, media_type=TAR)

    async def _alone(self, ask: Callable[[], Found]) -> Found:
        async with self.heavy:
            return await to_thread(ask)


@dataclass(frozen=True, slots=True)
class SopEndpoints(_Endpoints[ServedSops]):
    """Everything below ``/sops``."""

    place = "/sops/runs"
    unavailable = ("sops.unavailable", "SOPs are not offered here")

    async def sops(self, call: EndpointCall) -> ASGIApp:  # noqa: ARG002 - the shape of an endpoint
        """The SOPs, their inputs and what is wrong with them."""
        return json_response({"sops": await to_thread(self.runs.sops)})

    async def start(self, call: EndpointCall) -> ASGIApp:
        """Begin a run of a SOP; it goes on by itself until it ends or waits."""
        inputs = call.body.get("inputs", {})
        assert isinstance(inputs, dict), "the schema says so"
        name, asker = call.path["sop_name"], call.client.label
        return self._begun_response(await to_thread(self.runs.start, name, inputs, asker))

    async def resume(self, call: EndpointCall) -> ASGIApp:
        """Resume a run that waits or was interrupted, and say what counts of the stage."""
        said = (str(call.body.get(name, "")) for name in ("interrupted", "stage", "note"))
        await to_thread(self.runs.resume, _id(call), call.client.label, *said)
        return self._begun_response(_id(call))


class RunStream:
    """A response; it ends with the run, with the client, or with the gateway."""

    def __init__(
        self, runs: ServedRuns | ServedSops, run_id: str, since: int, *, closing: asyncio.Event
    ) -> None:
        self.status_code = 200
        self._runs = runs
        self._run_id = run_id
        self._next = since
        self._closing = closing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - the shape of an application
        over: list[asyncio.Future[object]] = [
            asyncio.ensure_future(wait_gone(receive)),
            asyncio.ensure_future(self._closing.wait()),
        ]
        headers = [(b"content-type", CONTENT_TYPE)]
        try:
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            try:
                await self._follow(send, over)
            except CoilClawError as problem:
                # The answer has begun; what happened to the run's log is told in it.
                await send_part(send, frame(faults.form(problem), "error"))
        finally:
            for each in over:
                each.cancel()
        await send_part(send, b"", more=False)

    async def _follow(self, send: Send, over: Sequence[asyncio.Future[object]]) -> None:
        """Tell what there is until no process works on the run, and look once more behind that."""
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
                goes_on = await to_thread(self._runs.goes_on, self._run_id)
                if not goes_on:
                    continue
            quiet += 1
            silent_s += LOOK_EVERY_S
            if silent_s >= HEARTBEAT_S:
                silent_s = 0.0
                await send_part(send, COMMENT)
            await asyncio.wait(over, timeout=LOOK_EVERY_S, return_when=asyncio.FIRST_COMPLETED)

    async def _tell(self, send: Send) -> str:
        """Send everything that is new, and return the kind of its last event."""
        last = ""
        while True:
            page = await to_thread(self._runs.page, self._run_id, self._next, DEFAULT_EVENTS)
            for event in page:
                self._next += 1
                last = str(event["event_type"]) if isinstance(event, dict) else ""
                await send_part(send, frame(event, last, number=self._next))
            if len(page) < DEFAULT_EVENTS:
                return last


def limit_of(call: EndpointCall, default: int = DEFAULT_LIMIT, name: str = "limit") -> int:
    """Return a number of the query."""
    value = call.query.get(name, default)
    assert isinstance(value, int), "the schema says so"
    return value


def _id(call: EndpointCall) -> str:
    return call.path["run_id"]


def _text(call: EndpointCall, name: str) -> str | None:
    value = call.body.get(name)
    return None if value is None else str(value)
