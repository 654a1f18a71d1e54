"""The application: endpoints routed by path and method, behind the admission."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coilclaw.errors import CoilClawError
from coilclaw.gateway import body, faults, openapi
from coilclaw.gateway.admission import Admission
from coilclaw.gateway.answers import json_response, problem_response
from coilclaw.gateway.clients import CHAT, EVERYBODY, client_of
from coilclaw.gateway.drain import Drained
from coilclaw.gateway.endpoint import Call, Endpoint
from coilclaw.gateway.faults import refused
from coilclaw.gateway.mount import Mount, check_role
from coilclaw.gateway.schemas import OBJECT
from coilclaw.tools.schema import Validators

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute
    from starlette.types import ASGIApp, Receive, Scope, Send

    from coilclaw.gateway.hosts import Hosts
    from coilclaw.gateway.known_clients import KnownClients
    from coilclaw.gateway.metrics import Metrics
    from coilclaw.gateway.ratelimit import RateLimit
    from coilclaw.gateway.settings import GatewaySettings

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Place:
    """Everything at one path, method by method."""

    endpoints: Mapping[str, Endpoint]
    settings: GatewaySettings
    metrics: Metrics
    validators: Validators

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = self.endpoints.get(scope["method"])
        if endpoint is None:
            allowed = ", ".join(sorted(self.endpoints))
            response: ASGIApp = _not_allowed(scope["path"], allowed)
        else:
            began = time.monotonic()
            response = await self._answer(endpoint, scope, receive)
            status = getattr(response, "status_code", 200)
            self.metrics.observe(endpoint.method, endpoint.path, status, time.monotonic() - began)
        await response(scope, receive, send)

    async def _answer(self, endpoint: Endpoint, scope: Scope, receive: Receive) -> ASGIApp:
        try:
            return await endpoint.answer(await self._call(endpoint, scope, receive))
        except CoilClawError as problem:
            return problem_response(problem, scope["path"])
        except Exception:  # noqa: BLE001 - whatever nobody thought of is still an answer
            # It must not go unnoticed, and what it says is for the log, which is redacted.
            _log.exception("an endpoint failed", extra={"event": "gateway_fault"})
            return problem_response(faults.internal(), scope["path"])

    async def _call(self, endpoint: Endpoint, scope: Scope, receive: Receive) -> Call:
        client = client_of(scope)
        if not endpoint.open:
            check_role(client, endpoint.roles)
        query = body.parse_query(scope["query_string"], endpoint.query, self.validators)
        headers = body.parse_headers(scope["headers"], endpoint.headers, self.validators)
        path = scope.get("path_params", {})
        if endpoint.body is None:
            streaming = body.wants_events(scope["headers"])
            return Call(client, query, {}, path, headers, streaming)
        data = await body.read(
            receive,
            max_bytes=self.settings.max_body_bytes,
            timeout_s=self.settings.body_timeout_s,
        )
        given = body.parse(data, endpoint.body, self.validators)
        return Call(client, query, given, path, headers)


def application(
    endpoints: Sequence[Endpoint],
    settings: GatewaySettings,
    *,
    clients: KnownClients,
    hosts: Hosts,
    rate: RateLimit,
    metrics: Metrics,
    mounts: Mapping[str, ASGIApp],
) -> ASGIApp:
    """Make the application; ``mounts`` are others, for those that may chat."""
    from starlette.applications import Starlette
    from starlette.routing import Route

    validators = Validators()
    by_path: dict[str, dict[str, Endpoint]] = {}
    for endpoint in _published(endpoints):
        by_path.setdefault(endpoint.path, {})[endpoint.method] = endpoint
    routes: list[BaseRoute] = [
        Route(path, Place(methods, settings, metrics, validators))
        for path, methods in by_path.items()
    ]
    # As routes: a mount would want the path with a slash at its end.
    routes += [
        Route(path, Mount(mounted, path, CHAT, settings, metrics))
        for path, mounted in mounts.items()
    ]
    app = Starlette(routes=routes, exception_handlers={404: _missing, 405: _wrong_method})
    app.router.redirect_slashes = False
    admission = Admission(app, clients, hosts, rate, settings, turned_away=metrics.count_refusal)
    return Drained(admission, 2 * settings.max_body_bytes)


def _published(endpoints: Sequence[Endpoint]) -> Sequence[Endpoint]:
    """Add the endpoint that describes all of them, itself included."""

    async def describe(_: Call) -> ASGIApp:
        return response

    own = Endpoint("GET", openapi.PATH, "This description.", describe, OBJECT, roles=EVERYBODY)
    response = json_response(openapi.document((*endpoints, own)))
    return (*endpoints, own)


async def _missing(request: Request, _: Exception) -> Response:
    return problem_response(
        refused("http.not_found", "there is nothing at this address"), request.url.path
    )


async def _wrong_method(request: Request, problem: Exception) -> Response:
    headers = getattr(problem, "headers", None) or {}
    return _not_allowed(request.url.path, headers.get("Allow", ""))


def _not_allowed(path: str, allowed: str) -> Response:
    problem = refused("http.method", f"only {allowed} can be used here")
    response = problem_response(problem, path)
    response.headers["allow"] = allowed
    return response
