"""Who may ask at all: checked before any endpoint sees a request, in this order.

The name under which we were reached (``host.foreign``), the page that asks (``origin.foreign``), a
token where it would be logged (``auth.query``), the token (``auth.missing``, ``auth.wrong``,
``auth.revoked``, ``auth.expired``), how many requests there were (``rate.limit``), the form and
size of a body (``body.type``, ``body.large``). Only ``/health`` needs no token, and the emergency
stop is never too much. What a client may ask for is the endpoint's to say.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.gateway.clients import NOBODY, OPERATOR, Client, scope_fields
from coilclaw.gateway.http.faults import problem_response, refusal_error, status_of
from coilclaw.kernel import CoilClawError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.responses import Response
    from starlette.types import ASGIApp, Receive, Scope, Send

    from coilclaw.gateway.http.listener import Hosts
    from coilclaw.gateway.settings import GatewaySettings
    from coilclaw.gateway.tokens import KnownClients


_BURST: Final = 10
"""The bucket holds this part of a minute's requests."""


class RateLimit:
    """Counts requests; used on the event loop only."""

    def __init__(self, per_minute: int, *, now: Callable[[], float] = time.monotonic) -> None:
        self._rate = per_minute / 60
        self._most = max(1.0, per_minute / _BURST)
        self._left = self._most
        self._now = now
        self._seen = now()

    def take(self) -> float:
        """Take one; return 0, or the seconds after which there is one again."""
        now = self._now()
        self._left = min(self._most, self._left + (now - self._seen) * self._rate)
        self._seen = now
        if self._left < 1:
            return (1 - self._left) / self._rate
        self._left -= 1
        return 0.0


HEALTH: Final = "/health"
UNLIMITED: Final = frozenset({HEALTH, "/estop"})
_IN_QUERY: Final = ("token", "api_key", "apikey", "authorization", "bearer", "secret", "password")
_FOREIGN_SITES: Final = frozenset({b"cross-site", b"same-site"})
_JSON: Final = b"application/json"
_WITH_BODY: Final = frozenset({"POST", "PUT", "PATCH"})


@dataclass(frozen=True, slots=True)
class Admission:
    """Wraps an application; what it does not admit is answered here."""

    app: ASGIApp
    clients: KnownClients | None
    """``None`` where everybody on this machine may ask."""
    hosts: Hosts
    rate: RateLimit
    settings: GatewaySettings
    media: frozenset[bytes] = frozenset({_JSON})
    """What a body may be."""
    answer: Callable[[CoilClawError, str], Response] = problem_response
    """Makes the answer that says what is wrong, for a path."""
    turned_away: Callable[[str, int], None] = lambda _, __: None
    """Told the rule and the status of each request that is not admitted."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # nothing else is served, and nobody waits for an answer
        found = self._admit(scope)
        if isinstance(found, UsageError):
            self.turned_away(found.rule, status_of(found))
            await self.answer(found, scope["path"])(scope, receive, send)
        else:
            await self.app({**scope, **scope_fields(found)}, receive, send)

    def _admit(self, scope: Scope) -> Client | UsageError:
        """Return who asks, or why the request is not admitted."""
        headers: dict[bytes, bytes] = {}
        size = len(scope["raw_path"]) + len(scope["query_string"])
        for name, value in scope["headers"]:
            size += len(name) + len(value)
            if name in headers and name in {b"authorization", b"host", b"origin", b"content-type"}:
                return refusal_error(
                    "http.headers", f"there are two {name.decode('ascii')} headers"
                )
            headers[name] = value
        if size > self.settings.max_header_bytes:
            # Below us only an incomplete head is bounded, not one that came in one piece.
            most = self.settings.max_header_bytes
            return refusal_error(
                "http.head_large", f"the head of a request has at most {most} bytes"
            )
        problem = self._from_elsewhere(scope, headers)
        if problem is not None:
            return problem
        client = self._identify(scope, headers)
        if isinstance(client, UsageError):
            return client
        return self._too_much(scope, headers) or client

    def _from_elsewhere(self, scope: Scope, headers: dict[bytes, bytes]) -> UsageError | None:
        reached = (scope.get("server") or ("",))[0]
        if not self.hosts.knows(headers.get(b"host", b"").decode("latin-1"), reached):
            return refusal_error(
                "host.foreign",
                "this is not a name that we are reached under",
                "use the address that was printed when it began to listen, or --allow-host NAME",
            )
        origin = headers.get(b"origin")
        foreign = origin is not None and not self.hosts.knows_origin(
            origin.decode("latin-1"), reached
        )
        if foreign or headers.get(b"sec-fetch-site") in _FOREIGN_SITES:
            return refusal_error("origin.foreign", "pages of other sites may not ask us anything")
        return None

    def _identify(self, scope: Scope, headers: dict[bytes, bytes]) -> Client | UsageError:
        query = scope["query_string"].lower()
        told = self.clients is not None and self.clients.told_in(query)
        if query and (told or _names_a_token(query)):
            return refusal_error(
                "auth.query",
                "a token in the address would be logged and remembered along the way",
                "send it as 'Authorization: Bearer TOKEN'",
            )
        if self.clients is None:
            return Client(OPERATOR, "admin")
        if scope["path"] == HEALTH:
            return NOBODY
        given = headers.get(b"authorization")
        if given is None:
            return refusal_error(
                "auth.missing",
                "this request has no token",
                "send 'Authorization: Bearer TOKEN'; the file that was named at the start holds "
                "one, and 'coilclaw token new' makes others",
            )
        return self.clients.identify(given)

    def _too_much(self, scope: Scope, headers: dict[bytes, bytes]) -> UsageError | None:
        if scope["path"] not in UNLIMITED:
            wait = self.rate.take()
            if wait:
                return refusal_error("rate.limit", f"too many requests; wait {wait:.1f} s")
        length = headers.get(b"content-length", b"")
        chunked = b"transfer-encoding" in headers
        most = self.settings.max_body_bytes
        if length.isdigit() and int(length[:20]) > most:
            return refusal_error("body.large", f"a body has at most {most} bytes")
        if scope["method"] in _WITH_BODY and (chunked or length.strip(b"0")):
            kind = headers.get(b"content-type", b"").split(b";")[0].strip().lower()
            if kind not in self.media:
                wanted = b" or ".join(sorted(self.media)).decode("ascii")
                return refusal_error("body.type", f"a body must be {wanted}")
        return None


def _names_a_token(query: bytes) -> bool:
    names = [pair.partition(b"=")[0].decode("latin-1") for pair in query.split(b"&")]
    return any(word in name for name in names for word in _IN_QUERY)
