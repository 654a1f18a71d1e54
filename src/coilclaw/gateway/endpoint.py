"""An endpoint: where it is, what it takes, what it answers; and one request to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from coilclaw.gateway.schemas import NO_QUERY, Schema

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from starlette.types import ASGIApp

    from coilclaw.domain.messages import Json
    from coilclaw.gateway.clients import Client, Role


@dataclass(frozen=True, slots=True)
class Call:
    """A request that fits the schemas of its endpoint."""

    client: Client
    query: Mapping[str, Json]
    body: Mapping[str, Json]
    path: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, Json] = field(default_factory=dict)
    """Those that the endpoint declares, by the name that it gives them."""
    streaming: bool = False
    """Whether the client asks for a stream of events."""


Answer: TypeAlias = "Callable[[Call], Awaitable[ASGIApp]]"
Method: TypeAlias = Literal["GET", "POST", "DELETE"]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One line of the table that requests are routed by, and that is published."""

    method: Method
    path: str
    summary: str
    answer: Answer
    result: Schema | None = None
    """The schema of its JSON; without one it answers text."""
    query: Schema = field(default_factory=lambda: NO_QUERY)
    headers: Schema = field(default_factory=lambda: NO_QUERY)
    """Headers that mean something to it."""
    body: Schema | None = None
    body_needed: bool = True
    media: tuple[str, ...] = ("application/json",)
    status: int = 200
    """That of a good answer."""
    errors: tuple[int, ...] = ()
    """Statuses beside those that any endpoint can answer."""
    open: bool = False
    """Whether it needs no token."""
    roles: frozenset[Role] = frozenset()
    """Who may ask beside ``admin``."""
