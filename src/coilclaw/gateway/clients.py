"""Clients: who asks the gateway, by the name and the role of a token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

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
    """Whoever presents a token; an ``admin`` may do everything."""

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
"""Whoever asks where no token is needed."""


def client_behind(label: str | None) -> Client:
    """Return a client by what conversations name it; without a label it is the operator.

    Its token may be gone: whoever is not the operator sees no more than its own.
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
