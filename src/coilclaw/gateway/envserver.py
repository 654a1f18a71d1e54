"""``EnvGateway``: one environment over HTTP, for clients of the public SDK."""

from __future__ import annotations

import asyncio
import logging
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.errors import CoilClawError, UsageError
from coilclaw.gateway import faults, lifetime
from coilclaw.gateway.admission import HEALTH, Admission
from coilclaw.gateway.answers import json_response
from coilclaw.gateway.drain import Drained
from coilclaw.gateway.envendpoints import Asked, EnvEndpoints, choices, public_schema
from coilclaw.gateway.envforms import MULTIPART, URLENCODED
from coilclaw.gateway.faults import refused
from coilclaw.gateway.hosts import Hosts, bracketed, is_loopback
from coilclaw.gateway.httpconfig import http_config
from coilclaw.gateway.known_clients import KnownClients
from coilclaw.gateway.listening import listener
from coilclaw.gateway.ratelimit import RateLimit

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping
    from typing import TypeAlias

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Receive, Scope, Send

    from coilclaw.domain.messages import Json
    from coilclaw.domain.secret import Secret
    from coilclaw.environments.sessions import Sessions
    from coilclaw.gateway.endpoint import Method
    from coilclaw.gateway.settings import GatewaySettings

    Handler: TypeAlias = Callable[[Asked], Awaitable[Response]]

_log = logging.getLogger(__name__)

MEDIA: Final = frozenset({MULTIPART, URLENCODED})


@dataclass(frozen=True, slots=True)
class EnvGateway:
    """Serves the sessions of one environment."""

    sessions: Sessions
    schema: Mapping[str, Json]
    settings: GatewaySettings
    token: Secret | None
    """Without one, everybody on this machine may use it."""

    def serve(self, ready: Callable[[str], None]) -> None:
        """Serve until a signal; ``ready`` is told the address once it is listened on."""
        settings = self.settings
        check_open(settings, open_to_all=self.token is None)
        with listener(settings) as sock:
            address, port = sock.getsockname()[:2]
            schema = public_schema(self.schema, self.sessions.fixed)
            endpoints = EnvEndpoints(self.sessions, schema, settings)
            url = f"{'https' if settings.tls else 'http'}://{bracketed(address)}:{port}"
            app = self._application(endpoints, Hosts.of(settings, address, port))
            with endpoints.pool, _quiet_library():
                lifetime.serve(
                    http_config(app, settings, plain_form),
                    sock,
                    ready=lambda: ready(url),
                    wind_down=lambda: self._wind_down(endpoints),
                    halt=self.sessions.halt,
                )

    def choices(self) -> tuple[str, ...]:
        """Parameters that clients may give: those in the schema, and there may be others."""
        return choices(self.schema, self.sessions.fixed)

    def _application(self, endpoints: EnvEndpoints, hosts: Hosts) -> ASGIApp:
        from starlette.applications import Starlette
        from starlette.routing import Route

        routes = [Route(path, _Place(methods)) for path, methods in table(endpoints).items()]
        app = Starlette(routes=routes, exception_handlers={404: _missing})
        app.router.redirect_slashes = False
        admission = Admission(
            app,
            None if self.token is None else KnownClients(self.token),
            hosts,
            RateLimit(self.settings.requests_per_minute),
            self.settings,
            MEDIA,
            lambda problem, _: plain_response(problem),
        )
        return Drained(admission, 2 * self.settings.max_body_bytes)

    async def _wind_down(self, endpoints: EnvEndpoints) -> None:
        """End all sessions; tests that run are stopped, and teardowns run."""
        endpoints.interrupt()
        await asyncio.to_thread(self.sessions.stop, self.settings.grace_s)


def table(ours: EnvEndpoints) -> dict[str, dict[Method, Handler]]:
    """Return everything that there is, by path and method."""
    return {
        HEALTH: {"GET": ours.health},
        "/schema": {"GET": ours.describe},
        "/test": {"POST": ours.test},
        "/test/{path:path}": {"POST": ours.test},
        "/session": {"POST": ours.open},
        "/session/{session}": {"DELETE": ours.close},
        "/session/{session}/test": {"POST": ours.test_session},
        "/session/{session}/test/{path:path}": {"POST": ours.test_session},
    }


def check_open(settings: GatewaySettings, *, open_to_all: bool) -> None:
    """Refuse to do without a token where other machines can reach us."""
    if open_to_all and not is_loopback(settings.host):
        raise UsageError(
            f"{settings.host} is not a loopback address: without a token everybody could run "
            "programs here",
            rule="gateway.open",
            hint="--no-token is for loopback addresses only",
        )


def plain_form(problem: CoilClawError) -> dict[str, Json]:
    """Return the body that says what went wrong: ``error`` is one text."""
    said: dict[str, Json] = {"error": problem.message, "rule": problem.rule}
    if problem.hint:
        said["hint"] = problem.hint
    return said


def plain_response(problem: CoilClawError) -> Response:
    return json_response(plain_form(problem), faults.status_of(problem), faults.headers_of(problem))


@dataclass(frozen=True, slots=True)
class _Place:
    """Everything at one path, method by method."""

    methods: Mapping[Method, Handler]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self._answer(scope, receive)
        await response(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive) -> Response:
        handler = self.methods.get(scope["method"])
        if handler is None:
            allowed = ", ".join(self.methods)
            response = plain_response(refused("http.method", f"only {allowed} can be used here"))
            response.headers["allow"] = allowed
            return response
        try:
            return await handler(Asked(scope, receive))
        except CoilClawError as problem:
            return plain_response(problem)
        except Exception:  # noqa: BLE001 - whatever nobody thought of is still an answer
            _log.exception("an endpoint failed", extra={"event": "gateway_fault"})
            return plain_response(faults.internal())


@contextmanager
def _quiet_library() -> Iterator[None]:
    """Log nothing for forms that cannot be read: whoever sent one is told, and nobody else."""
    logger = logging.getLogger("python_multipart.multipart")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


async def _missing(_: Request, __: Exception) -> Response:
    return plain_response(refused("http.not_found", "there is nothing at this address"))
