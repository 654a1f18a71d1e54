"""The application: endpoints routed by path and method, behind the admission.

``Mount`` is another application behind it, whose requests are checked and counted here.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.agent import Validators
from coilclaw.gateway.clients import CHAT, EVERYBODY, check_role, client_of
from coilclaw.gateway.endpoint_table import OPENAPI_PATH, describe_endpoints
from coilclaw.gateway.http import body, faults
from coilclaw.gateway.http.admission import Admission
from coilclaw.gateway.http.body import Drained
from coilclaw.gateway.http.faults import json_response, problem_response, refusal_error
from coilclaw.gateway.schemas import OBJECT, Endpoint, EndpointCall
from coilclaw.kernel import CoilClawError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from coilclaw.gateway.clients import Role
    from coilclaw.gateway.http.admission import RateLimit
    from coilclaw.gateway.http.listener import Hosts
    from coilclaw.gateway.metrics import Metrics
    from coilclaw.gateway.settings import GatewaySettings
    from coilclaw.gateway.tokens import KnownClients

_log = logging.getLogger(__name__)

_METHODS: Final = frozenset({"GET", "POST", "DELETE"})


@dataclass(frozen=True, slots=True)
class RoutePlace:
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
            response = await answer_safely(
                lambda: self._answer(endpoint, scope, receive),
                lambda problem: problem_response(problem, scope["path"]),
            )
            status = getattr(response, "status_code", 200)
            self.metrics.observe(endpoint.method, endpoint.path, status, time.monotonic() - began)
        await response(scope, receive, send)

    async def _answer(self, endpoint: Endpoint, scope: Scope, receive: Receive) -> ASGIApp:
        client = client_of(scope)
        if not endpoint.open:
            check_role(client, endpoint.roles)
        query = body.parse_query(scope["query_string"], endpoint.query, self.validators)
        headers = body.parse_headers(scope["headers"], endpoint.headers, self.validators)
        path = scope.get("path_params", {})
        if endpoint.body is None:
            streaming = body.wants_events(scope["headers"])
            return await endpoint.answer(EndpointCall(client, query, {}, path, headers, streaming))
        data = await body.read(receive, self.settings)
        given = body.parse(data, endpoint.body, self.validators)
        return await endpoint.answer(EndpointCall(client, query, given, path, headers))


async def answer_safely(
    ask: Callable[[], Awaitable[ASGIApp]], refuse: Callable[[CoilClawError], ASGIApp]
) -> ASGIApp:
    """Return what an endpoint answers, or what ``refuse`` makes of its error."""
    try:
        return await ask()
    except CoilClawError as problem:
        return refuse(problem)
    except Exception:  # noqa: BLE001 - an unexpected error is still an answer
        # It must not go unnoticed, and what it says is for the log, which is redacted.
        _log.exception("an endpoint failed", extra={"event": "gateway_fault"})
        return refuse(faults.internal())


@dataclass(frozen=True, slots=True)
class MountedApp:
    """Wraps an application that reads JSON by itself, at one path."""

    app: ASGIApp
    path: str
    roles: frozenset[Role]
    settings: GatewaySettings
    metrics: Metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.monotonic()

        async def count_response(message: Message) -> None:
            if message["type"] == "http.response.start":
                took = time.monotonic() - began
                # A label has few values.
                method = scope["method"] if scope["method"] in _METHODS else "other"
                self.metrics.observe(method, self.path, message["status"], took)
            await send(message)

        try:
            check_role(client_of(scope), self.roles)
            if scope["method"] == "POST":
                receive = await self._check_body(receive)
        except CoilClawError as problem:
            await problem_response(problem, self.path)(scope, receive, count_response)
            return
        await self.app(scope, receive, count_response)

    async def _check_body(self, receive: Receive) -> Receive:
        """Read the body and refuse what is not clean text; return what gives it out again."""
        data = await body.read(receive, self.settings)
        body.check_text(data)
        waiting: list[Message] = [{"type": "http.request", "body": data, "more_body": False}]

        async def again() -> Message:
            return waiting.pop() if waiting else await receive()

        return again


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
    for endpoint in _add_description(endpoints):
        by_path.setdefault(endpoint.path, {})[endpoint.method] = endpoint
    routes: list[BaseRoute] = [
        Route(path, RoutePlace(methods, settings, metrics, validators))
        for path, methods in by_path.items()
    ]
    # As routes: a mount would want the path with a slash at its end.
    routes += [
        Route(path, MountedApp(mounted, path, CHAT, settings, metrics))
        for path, mounted in mounts.items()
    ]
    app = Starlette(routes=routes, exception_handlers={404: _missing, 405: _wrong_method})
    app.router.redirect_slashes = False
    admission = Admission(app, clients, hosts, rate, settings, turned_away=metrics.count_refusal)
    return Drained(admission, 2 * settings.max_body_bytes)


def _add_description(endpoints: Sequence[Endpoint]) -> Sequence[Endpoint]:
    """Add the endpoint that describes all of them, itself included."""

    async def describe(_: EndpointCall) -> ASGIApp:
        """This description."""
        return response

    own = Endpoint("GET", OPENAPI_PATH, describe, OBJECT, roles=EVERYBODY)
    response = json_response(describe_endpoints((*endpoints, own)))
    return (*endpoints, own)


async def _missing(request: Request, _: Exception) -> Response:
    return problem_response(
        refusal_error("http.not_found", "there is nothing at this address"), request.url.path
    )


async def _wrong_method(request: Request, problem: Exception) -> Response:
    headers = getattr(problem, "headers", None) or {}
    return _not_allowed(request.url.path, headers.get("Allow", ""))


def _not_allowed(path: str, allowed: str) -> Response:
    problem = refusal_error("http.method", f"only {allowed} can be used here")
    response = problem_response(problem, path)
    response.headers["allow"] = allowed
    return response
