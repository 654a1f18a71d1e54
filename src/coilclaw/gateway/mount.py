"""``Mount``: another application behind the admission; requests are checked and counted here."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coilclaw.errors import CoilClawError
from coilclaw.gateway import body
from coilclaw.gateway.answers import problem_response
from coilclaw.gateway.clients import client_of
from coilclaw.gateway.faults import refused

if TYPE_CHECKING:
    from collections.abc import Collection

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from coilclaw.gateway.clients import Client, Role
    from coilclaw.gateway.metrics import Metrics
    from coilclaw.gateway.settings import GatewaySettings


@dataclass(frozen=True, slots=True)
class Mount:
    """Wraps an application that reads JSON by itself, at one path."""

    app: ASGIApp
    path: str
    roles: frozenset[Role]
    settings: GatewaySettings
    metrics: Metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.monotonic()

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                took = time.monotonic() - began
                self.metrics.observe(_method(scope), self.path, message["status"], took)
            await send(message)

        try:
            check_role(client_of(scope), self.roles)
            if scope["method"] == "POST":
                receive = await self._checked(receive)
        except CoilClawError as problem:
            await problem_response(problem, self.path)(scope, receive, counted)
            return
        await self.app(scope, receive, counted)

    async def _checked(self, receive: Receive) -> Receive:
        """Read the body and refuse what is not clean text; return what gives it out again."""
        settings = self.settings
        data = await body.read(
            receive, max_bytes=settings.max_body_bytes, timeout_s=settings.body_timeout_s
        )
        body.check_text(data)
        waiting: list[Message] = [{"type": "http.request", "body": data, "more_body": False}]

        async def again() -> Message:
            return waiting.pop() if waiting else await receive()

        return again


def check_role(client: Client, roles: Collection[Role]) -> None:
    """Refuse a client whose role does not allow what it asks for."""
    if client.may(roles):
        return
    needed = " or ".join([*sorted(roles), "admin"])
    raise refused(
        "role.needed",
        f"this needs a token of role {needed}; {client.name} has role {client.role}",
        "'coilclaw token new NAME --role ROLE' makes one",
    )


def _method(scope: Scope) -> str:
    """Return the method, which is a label and so one of few words."""
    method = str(scope["method"])
    return method if method in {"GET", "POST", "DELETE"} else "other"
