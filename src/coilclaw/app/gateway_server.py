"""Open the gateway: the agent, runs, SOPs and MCP behind one address."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import fields
from typing import TYPE_CHECKING, Final, TextIO, cast

from coilclaw.agent import Estop, McpApp, OnDemand, RemotePeople
from coilclaw.app import providers
from coilclaw.app.agent_runtime import People, open_runtime
from coilclaw.app.drivers import open_orchestrator, open_sops, sops_of
from coilclaw.app.home import now, open_config, open_desk, receipts_of
from coilclaw.app.telemetry.logs import LineHandler
from coilclaw.app.tools import list_more_secrets
from coilclaw.gateway import (
    Feed,
    Gateway,
    GatewaySettings,
    GatheredMemory,
    KnownClients,
    Metrics,
    ServedAgent,
    ServedSops,
    TokenStore,
    make_client_call,
    open_served_runs,
    operator_token,
)
from coilclaw.policy import SecretRedactor

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from coilclaw.agent import Sops
    from coilclaw.app.config.values import Config
    from coilclaw.runs import Orchestrator, WaitTerms
    from coilclaw.workspace import Cancellation

MCP_PATH: Final = "/mcp"


def make_gateway_settings(config: Config) -> GatewaySettings:
    """Return the settings of the gateway: those that are configured, else its own."""
    given = {one.name: getattr(config.gateway, one.name) for one in fields(config.gateway)}
    return GatewaySettings(**{name: value for name, value in given.items() if value is not None})


@contextmanager
def open_gateway(
    home: Path,
    environ: Mapping[str, str],
    settings: GatewaySettings,
    *,
    config: Config | None = None,
) -> Iterator[Gateway]:
    """Open everything that the gateway serves, and close it whatever happens."""
    chosen = open_config(home, environ) if config is None else config
    token = operator_token.load_token(home)
    clients = KnownClients(token, TokenStore(home, now), now)
    known = providers.list_provider_secrets(chosen.providers, environ)
    redactor = SecretRedactor([*known, *list_more_secrets(chosen, environ), token])
    metrics, feed, desk = Metrics(), Feed(), open_desk(home)
    # Turns ask in their own way; these are for the calls of MCP clients.
    people = RemotePeople(desk, Estop.of(home))

    def orchestrator(start: Path, cancel: Cancellation, terms: WaitTerms) -> Orchestrator:
        return open_orchestrator(
            *(start, home, environ), cancel=cancel, terms=terms, config=chosen, redactor=redactor
        )

    def sops(
        approving: RemotePeople, cancel: Cancellation, asker: str
    ) -> AbstractContextManager[Sops]:
        return open_sops(
            *(home, environ, People(approving.approve, approving.ask)),
            config=chosen,
            redactor=redactor,
            cancel=cancel,
            around=approving.during,
            asker=asker,
        )

    with (
        _feed_logs(feed, redactor, audit=chosen.security.audit_log),
        open_runtime(
            *(home, environ, People(people.approve, people.ask)), config=chosen, redactor=redactor
        ) as runtime,
        GatheredMemory(runtime.memory) as memory,
    ):
        runtime.announce("gateway")
        calls, loop = runtime.calls, runtime.loop
        agent = ServedAgent(
            *(loop, desk, receipts_of(chosen, home), memory, redactor, metrics, settings),
            lambda: {
                "provider": runtime.model,
                "model": loop.model,
                "policy": dict(runtime.policy()),
            },
            people.halt,
        )
        call = make_client_call(calls, people, runtime.memory, metrics)
        mounts = {MCP_PATH: OnDemand(McpApp(call, calls.offered_tools()))}
        runs = open_served_runs(orchestrator, settings, metrics)
        served_sops = ServedSops(home, now, sops, sops_of(runtime).examine, settings, metrics)
        yield Gateway(agent, settings, clients, metrics, feed, mounts, runs, served_sops)


@contextmanager
def _feed_logs(feed: Feed, redactor: SecretRedactor, *, audit: bool) -> Iterator[None]:
    """Give what is logged to the feed too, whatever of it is written elsewhere."""
    logger = logging.getLogger("coilclaw")
    before = logger.level
    handler = LineHandler(
        cast("TextIO", feed), redact=redactor.redact, form="json", colour=False, audit=audit
    )
    handler.addFilter(lambda _: feed.watched)
    others = {other: other.level for other in logger.handlers}
    for other, level in others.items():
        other.setLevel(max(level, logger.getEffectiveLevel()))
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
        for other, level in others.items():
            other.setLevel(level)
