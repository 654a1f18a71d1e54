"""``EnvGateway``: one environment over HTTP, for clients of the public SDK."""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw.gateway import operator_token as tokens
from coilclaw.gateway.application import answer_safely
from coilclaw.gateway.environment.endpoints import (
    EnvEndpoints,
    EnvironmentRequest,
    choices,
    public_schema,
)
from coilclaw.gateway.environment.forms import MULTIPART, URLENCODED
from coilclaw.gateway.http import faults, lifetime
from coilclaw.gateway.http.admission import HEALTH, Admission, RateLimit
from coilclaw.gateway.http.body import Drained
from coilclaw.gateway.http.faults import json_response, refusal_error
from coilclaw.gateway.http.listener import Hosts, bracket_address, check, is_loopback, listener
from coilclaw.gateway.http.protocol import http_config
from coilclaw.gateway.tokens import KnownClients
from coilclaw.kernel import UsageError
from coilclaw.traces import FOLDER, Sessions, open_judge
from coilclaw.workspace import probe_sandboxes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from coilclaw.gateway.settings import GatewaySettings
    from coilclaw.kernel import Json
    from coilclaw.traces import Judge, SessionLimits

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping
    from typing import TypeAlias

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Receive, Scope, Send

    from coilclaw.gateway.schemas import Method
    from coilclaw.gateway.settings import GatewaySettings
    from coilclaw.kernel import CoilClawError, Json, Secret

    Handler: TypeAlias = Callable[[EnvironmentRequest], Awaitable[Response]]

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
            url = f"{'https' if settings.tls else 'http'}://{bracket_address(address)}:{port}"
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
        handler = self.methods.get(scope["method"])
        if handler is None:
            allowed = ", ".join(self.methods)
            refusal = plain_response(
                refusal_error("http.method", f"only {allowed} can be used here")
            )
            refusal.headers["allow"] = allowed
            await refusal(scope, receive, send)
            return
        response = await answer_safely(
            lambda: handler(EnvironmentRequest(scope, receive)), plain_response
        )
        await response(scope, receive, send)


@contextmanager
def _quiet_library() -> Iterator[None]:
    """Log nothing for forms that cannot be read: only the client that sent one is told."""
    logger = logging.getLogger("python_multipart.multipart")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


async def _missing(_: Request, __: Exception) -> Response:
    return plain_response(refusal_error("http.not_found", "there is nothing at this address"))


NAME: Final = "environment.token"
"""Not that of the gateway: who may have something tested may not talk with the agent."""
SESSIONS: Final = "sessions"
FORM_BYTES: Final = 2**20
"""What a form may have beside its file."""


def token_file(home: Path) -> Path:
    """Where the token is unless another place is named."""
    return home / NAME


@contextmanager
def open_env_gateway(
    file: str,
    home: Path,
    settings: GatewaySettings,
    limits: SessionLimits,
    environ: Mapping[str, str],
    *,
    token: Path | None,
    jobs: int | None = None,
    fixed: Mapping[str, Json] | None = None,
) -> Iterator[EnvGateway]:
    """Open an environment to be served; ``token`` names the file, ``None`` does without.

    ``fixed`` are parameters that hold in every session, and that no client can give.
    """
    check(settings)
    check_open(settings, open_to_all=token is None)
    support = probe_sandboxes()
    judge = open_judge(file, home, environ, jobs=jobs, support=support)
    schema = judge.schema()
    if fixed:
        schema = {**schema, **_cases(fixed, judge)}
    secret = None if token is None else tokens.load_token_file(token)
    secrets = (token, settings.tls_key)
    with Sessions(
        judge.place,
        support=support,
        home=home / FOLDER / SESSIONS,
        environ=environ,
        jobs=judge.jobs,
        limits=limits,
        fixed=fixed,
        # What no program that is tested may read, even where it reads all around it.
        hidden=(home, *(Path(os.path.abspath(file)) for file in secrets if file is not None)),
    ) as sessions:
        yield EnvGateway(sessions, schema, settings, secret)


def _cases(fixed: Mapping[str, Json], judge: Judge) -> dict[str, Json]:
    """Return which cases there are with these parameters, if that can be told by them alone.

    Unused ones, and those of a wrong type, are refused before any client has to hear it.
    """
    try:
        return {"cases": list(judge.cases(params=fixed))}
    except UsageError as problem:
        if problem.rule != "environment.parameter.missing":  # clients give the others
            raise
        return {}
