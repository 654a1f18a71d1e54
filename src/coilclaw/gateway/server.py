"""``Gateway``: everything that listens, wired around one agent.

At SIGTERM or SIGINT it stops listening, gives running turns time to end, then cancels them: their
processes are ended, their receipts written, and the conversations go on another day. Runs are
stopped, and can be resumed.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from coilclaw.gateway.agent import ChainWatch
from coilclaw.gateway.application import application
from coilclaw.gateway.completions import Completions
from coilclaw.gateway.endpoint_table import table
from coilclaw.gateway.endpoints import Endpoints
from coilclaw.gateway.http import faults, lifetime
from coilclaw.gateway.http.admission import RateLimit
from coilclaw.gateway.http.listener import Hosts, bracket_address, listener
from coilclaw.gateway.http.protocol import http_config
from coilclaw.gateway.runs.run_endpoints import RunEndpoints, SopEndpoints
from coilclaw.gateway.turns import Conversing, Turns, resumption

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.types import ASGIApp, Receive, Scope, Send

    from coilclaw.gateway.http.event_stream import Feed
    from coilclaw.gateway.metrics import Metrics
    from coilclaw.gateway.runs.served_runs import ServedRuns
    from coilclaw.gateway.runs.served_sops import ServedSops
    from coilclaw.gateway.served_agent import ServedAgent
    from coilclaw.gateway.settings import GatewaySettings
    from coilclaw.gateway.tokens import KnownClients

_log = logging.getLogger(__name__)

HALTED: Final = "the gateway is being stopped"


class Mounted(Protocol):
    """Another application, which ends in order when it is told to."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...

    async def aclose(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Gateway:
    """Serves one agent."""

    agent: ServedAgent
    settings: GatewaySettings
    clients: KnownClients
    metrics: Metrics
    feed: Feed
    mounts: Mapping[str, Mounted] = field(default_factory=dict)
    """Other applications, by path, behind the same admission."""
    runs: ServedRuns | None = None
    """The runs of a repository, where there is one."""
    sops: ServedSops | None = None

    def serve(self, ready: Callable[[str], None]) -> None:
        """Serve until a signal; ``ready`` is told the address once it is listened on."""
        settings = self.settings
        with listener(settings) as sock:
            address, port = sock.getsockname()[:2]
            turns = Turns(
                self.agent,
                self.metrics,
                max_turns=settings.max_turns,
                max_waiting=settings.max_waiting,
            )
            runs, sops = RunEndpoints(self.runs), SopEndpoints(self.sops)
            app = self._application(turns, runs, sops, Hosts.of(settings, address, port))
            url = f"{'https' if settings.tls else 'http'}://{bracket_address(address)}:{port}"
            self._resume_turns(turns)
            lifetime.serve(
                http_config(app, settings, faults.form),
                sock,
                ready=lambda: ready(url),
                wind_down=lambda: self._wind_down(turns, runs, sops),
                halt=lambda: turns.abandon(self.agent.halt(HALTED)),
            )

    def _resume_turns(self, turns: Turns) -> None:
        """Resume the turns that waited for an approval when a program ended.

        Each waits again, in its place before new messages of its conversation.
        """
        for name in self.agent.open_conversations()[: self.settings.max_waiting]:
            turns.submit(resumption(name, turns.asker(name)))

    def _application(
        self, turns: Turns, runs: RunEndpoints, sops: SopEndpoints, hosts: Hosts
    ) -> ASGIApp:
        settings = self.settings
        conversing = Conversing(turns, settings.queue_parts)
        chain = ChainWatch(self.agent)
        chain.look()
        ours = Endpoints(
            self.agent,
            conversing,
            self.metrics,
            self.feed,
            chain,
            settings.queue_parts,
            runs,
            settings.self_approval,
            self.clients.admits,
        )
        wait_s = 0.0 if settings.completions_approval == "refuse" else settings.completions_wait_s
        return application(
            table(ours, Completions(conversing, wait_s), runs, sops),
            settings,
            clients=self.clients,
            hosts=hosts,
            rate=RateLimit(settings.requests_per_minute),
            metrics=self.metrics,
            mounts=self.mounts,
        )

    async def _wind_down(self, turns: Turns, runs: RunEndpoints, sops: SopEndpoints) -> None:
        """Let turns end, then cancel what still runs; runs are stopped at once.

        They may take hours, and go on where they were when they are resumed.
        """
        turns.close()
        self.feed.end()
        runs.stop(HALTED)
        sops.stop(HALTED)
        for mounted in self.mounts.values():
            await mounted.aclose()
        settings = self.settings
        patience_s = settings.grace_s + settings.cancel_s
        await asyncio.gather(
            self._end_turns(turns), runs.wait_ended(patience_s), sops.wait_ended(patience_s)
        )

    async def _end_turns(self, turns: Turns) -> None:
        if await asyncio.to_thread(turns.wait_drained, self.settings.grace_s):
            return
        _log.warning("%d turns are cancelled", turns.running, extra={"event": "turns_cancelled"})
        # A request to a model cannot be called back, and leaves nothing to put in order.
        turns.abandon(self.agent.halt(HALTED))
        if not await asyncio.to_thread(turns.wait_drained, self.settings.cancel_s):
            _log.warning(
                "%d turns did not end in time; their conversations go on where they were",
                turns.running,
                extra={"event": "turns_abandoned"},
            )
            turns.abandon()
