"""Runs over HTTP: each endpoint asks the keeper of the runs in a thread."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from coilclaw.gateway.answers import json_response
from coilclaw.gateway.faults import refused
from coilclaw.gateway.runfeed import answer_events, wait_until_ended, whole_number
from coilclaw.gateway.runkeeper import Wanted

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp

    from coilclaw.gateway.endpoint import Call
    from coilclaw.gateway.runkeeper import RunKeeper

DEFAULT_LIMIT: Final = 20
HEAVY: Final = 2
"""Verifications and patches at once: they may take long, and threads are few."""
DIFF: Final = "text/x-diff"
TAR: Final = "application/x-tar"

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class RunEndpoints:
    """Everything below ``/runs``; without a repository there is nothing there."""

    keeper: RunKeeper | None
    heavy: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(HEAVY))
    closing: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def runs(self) -> RunKeeper:
        if self.keeper is None:
            raise refused(
                "runs.unavailable",
                "there are no runs here: the gateway was not started in a git repository that has "
                "a commit",
                "start it there, or with 'coilclaw serve --repo DIR'",
            )
        return self.keeper

    @property
    def active(self) -> int:
        return 0 if self.keeper is None else self.keeper.active

    def stop(self, reason: str) -> None:
        """Stop all runs and end all streams; called on the event loop."""
        self.closing.set()
        if self.keeper is not None:
            self.keeper.halt(reason)

    async def ended(self, timeout_s: float) -> None:
        """Give stopped runs time to put things in order; one that takes longer can be resumed."""
        if self.keeper is not None:
            await wait_until_ended(self.keeper, timeout_s)

    async def start(self, call: Call) -> ASGIApp:
        runs, body = self.runs, call.body
        contract = body.get("contract")
        wanted = Wanted(
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
        return _begun(await asyncio.to_thread(runs.start, wanted))

    async def resume(self, call: Call) -> ASGIApp:
        answer, asker = _text(call, "answer") or "", call.client.label
        await asyncio.to_thread(self.runs.resume, _id(call), answer, asker=asker)
        return _begun(_id(call))

    async def cancel(self, call: Call) -> ASGIApp:
        await asyncio.to_thread(self.runs.cancel, _id(call))
        return _begun(_id(call))

    async def list(self, call: Call) -> ASGIApp:
        limit = whole_number(call, "limit", DEFAULT_LIMIT)
        return json_response({"runs": await asyncio.to_thread(self.runs.listed, limit)})

    async def show(self, call: Call) -> ASGIApp:
        return json_response(await asyncio.to_thread(self.runs.described, _id(call)))

    async def events(self, call: Call) -> ASGIApp:
        """One page of events, or all of them as they come."""
        return await answer_events(call, self.runs, self.closing)

    async def diff(self, call: Call) -> ASGIApp:
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

    async def verify(self, call: Call) -> ASGIApp:
        runs, root = self.runs, _text(call, "root")
        strict = call.body.get("strict") is not False
        found = await self._alone(lambda: runs.verify(_id(call), strict=strict, root=root))
        return json_response(found)

    async def bundle(self, call: Call) -> ASGIApp:
        from starlette.responses import StreamingResponse

        archive = await asyncio.to_thread(self.runs.bundle, _id(call))
        headers = {
            "content-length": str(archive.size),
            "content-disposition": f'attachment; filename="{archive.name}"',
        }
        return StreamingResponse(archive.pieces, headers=headers, media_type=TAR)

    async def _alone(self, ask: Callable[[], Found]) -> Found:
        async with self.heavy:
            return await asyncio.to_thread(ask)


def _begun(run_id: str) -> ASGIApp:
    return json_response({"run_id": run_id}, 202, {"location": f"/runs/{run_id}"})


def _id(call: Call) -> str:
    return call.path["run_id"]


def _text(call: Call, name: str) -> str | None:
    value = call.body.get(name)
    return None if value is None else str(value)
