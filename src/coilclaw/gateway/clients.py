"""Clients: who asks the gateway, by the name and the role of a token."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast

from coilclaw.gateway.http.faults import refusal_error
from coilclaw.gateway.metrics import OTHER

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Mapping
    from contextlib import AbstractContextManager

    from coilclaw.agent import Memory, ToolContext
    from coilclaw.gateway.metrics import Metrics
    from coilclaw.kernel import (
        ChatRequest,
        ChatResponse,
        Provider,
        ProviderCapabilities,
        StreamingProvider,
        ToolCall,
        ToolResult,
    )

Role: TypeAlias = Literal["chat", "approve", "read", "admin"]

ROLES: Final[tuple[Role, ...]] = ("chat", "approve", "read", "admin")
OPERATOR: Final = "operator"
"""The client whose token is the file ``gateway.token``."""
RESERVED: Final = frozenset({OPERATOR, "gateway"})
"""Names that no other token may have."""
CHAT: Final[frozenset[Role]] = frozenset({"chat"})
READ: Final[frozenset[Role]] = frozenset({"read"})
EVERYBODY: Final[frozenset[Role]] = frozenset({"chat", "approve", "read"})
"""Sets of roles that may do something beside ``admin``."""
_SCOPE_KEY: Final = "coilclaw.client"


@dataclass(frozen=True, slots=True)
class Client:
    """The client that presents a token; an ``admin`` may do everything."""

    name: str
    role: Role
    expires: str = ""
    """UTC, or empty for a token that does not expire."""

    @property
    def label(self) -> str:
        """The client as approvals, receipts and conversations name it."""
        return f"client {self.name}"

    @property
    def sees_all(self) -> bool:
        """Whether conversations and requests of other clients may be read."""
        return self.role in {"read", "admin"}

    def may(self, roles: Collection[Role]) -> bool:
        """Tell whether this client may do what these roles may."""
        return self.role == "admin" or self.role in roles

    def owns(self, owner: str | None) -> bool:
        """Tell whether this client may use what belongs to ``owner``, a label."""
        return self.role == "admin" or owner == self.label


NOBODY: Final = Client("", "read")
"""The client of a request that needs no token."""


def client_behind(label: str | None) -> Client:
    """Return a client by what conversations name it; without a label it is the operator.

    Its token may be gone: a client other than the operator sees only its own.
    """
    name = OPERATOR if label is None else label.removeprefix("client ")
    return Client(name, "admin" if name == OPERATOR else "chat")


def client_of(scope: Mapping[str, object]) -> Client:
    """Return the client that was admitted with a request."""
    client = scope[_SCOPE_KEY]
    assert isinstance(client, Client), "nothing else is put there"
    return client


def scope_fields(client: Client) -> dict[str, object]:
    """Return what tells an application behind the admission who asks."""
    return {_SCOPE_KEY: client}


def check_role(client: Client, roles: Collection[Role]) -> None:
    """Refuse a client whose role does not allow what it asks for."""
    if client.may(roles):
        return
    needed = " or ".join([*sorted(roles), "admin"])
    raise refusal_error(
        "role.needed",
        f"this needs a token of role {needed}; {client.name} has role {client.role}",
        "'coilclaw token new NAME --role ROLE' makes one",
    )


_RULE: Final = re.compile(r"[a-z0-9_.]{0,64}")


@dataclass(frozen=True, slots=True)
class WatchedProvider:
    """A provider that is not asked once turns are halted, and whose errors and tokens count."""

    inner: Provider
    around: Callable[[ChatRequest], AbstractContextManager[None]]
    """What a request to the model is made in; it may refuse to begin, and to end."""
    used: Callable[[ChatRequest, ChatResponse], None]

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def capabilities(self) -> ProviderCapabilities:
        return self.inner.capabilities

    def chat(self, request: ChatRequest) -> ChatResponse:
        return self._ask_model(request, lambda: self.inner.chat(request))

    def stream(self, request: ChatRequest, draft: Callable[[str], None]) -> ChatResponse:
        inner = cast("StreamingProvider", self.inner)
        return self._ask_model(request, lambda: inner.stream(request, draft))

    def _ask_model(self, request: ChatRequest, ask: Callable[[], ChatResponse]) -> ChatResponse:
        with self.around(request):
            response = ask()
        self.used(request, response)
        return response


@dataclass(frozen=True, slots=True)
class ToolCounter:
    """Counts calls by tool, status and rule; what a model or client made up is ``other``."""

    metrics: Metrics
    tools: Container[str]

    def __call__(self, call: ToolCall, result: ToolResult) -> None:
        status = str(result.metadata.get("status", "denied"))
        rule = "" if result.success else str(result.metadata.get("rule", ""))
        self.metrics.count_as(
            "tool_calls_total",
            call.name if call.name in self.tools else OTHER,
            status,
            rule if _RULE.fullmatch(rule) else OTHER,
        )
        if status == "denied":
            self.metrics.count("tool_denials_total")


def recalling(context: ToolContext, memory: Memory, client: Client) -> ToolContext:
    """Let a call find in the memory only what its client may see."""
    if client.sees_all:
        return context
    return replace(
        context,
        recall=lambda query, limit: memory.search(query, limit=limit, owner=client.label),
    )
