"""SOPs over HTTP: listed, started, followed and resumed."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from coilclaw.gateway.answers import json_response
from coilclaw.gateway.faults import refused
from coilclaw.gateway.runfeed import answer_events, wait_until_ended, whole_number
from coilclaw.gateway.sop_keeper import SopResume, SopStart

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from coilclaw.gateway.endpoint import Call
    from coilclaw.gateway.sop_keeper import SopKeeper

DEFAULT_LIMIT: Final = 20


@dataclass(frozen=True, slots=True)
class SopEndpoints:
    """Everything below ``/sops``."""

    keeper: SopKeeper | None
    closing: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def sops(self) -> SopKeeper:
        if self.keeper is None:
            raise refused("sops.unavailable", "SOPs are not offered here")
        return self.keeper

    def stop(self, reason: str) -> None:
        """Stop all runs and end all streams; called on the event loop."""
        self.closing.set()
        if self.keeper is not None:
            self.keeper.halt(reason)

    async def ended(self, timeout_s: float) -> None:
        """Give stopped runs time to put things in order."""
        if self.keeper is not None:
            await wait_until_ended(self.keeper, timeout_s)

    async def list(self, call: Call) -> ASGIApp:  # noqa: ARG002 - the shape of an endpoint
        return json_response({"sops": await asyncio.to_thread(self.sops.sops)})

    async def start(self, call: Call) -> ASGIApp:
        inputs = call.body.get("inputs", {})
        assert isinstance(inputs, dict), "the schema says so"
        wanted = SopStart(call.path["sop_name"], inputs, call.client.label)
        return _begun(await asyncio.to_thread(self.sops.start, wanted))

    async def runs(self, call: Call) -> ASGIApp:
        limit = whole_number(call, "limit", DEFAULT_LIMIT)
        return json_response({"runs": await asyncio.to_thread(self.sops.listed, limit)})

    async def show(self, call: Call) -> ASGIApp:
        return json_response(await asyncio.to_thread(self.sops.described, call.path["run_id"]))

    async def events(self, call: Call) -> ASGIApp:
        """One page of events, or all of them as they come."""
        return await answer_events(call, self.sops, self.closing)

    async def resume(self, call: Call) -> ASGIApp:
        wanted = SopResume(
            call.path["run_id"],
            call.client.label,
            *(str(call.body.get(name, "")) for name in ("interrupted", "stage", "note")),
        )
        await asyncio.to_thread(self.sops.resume, wanted)
        return _begun(wanted.run_id)


def _begun(run_id: str) -> ASGIApp:
    return json_response({"run_id": run_id}, 202, {"location": f"/sops/runs/{run_id}"})
