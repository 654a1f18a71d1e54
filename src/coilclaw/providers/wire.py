"""What every provider over HTTP has: an endpoint, a model, and a count of tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from coilclaw.domain.messages import ProviderCapabilities, Usage

if TYPE_CHECKING:
    from coilclaw.domain.messages import Json
    from coilclaw.providers.endpoint import Endpoint


@dataclass(frozen=True, slots=True)
class Wire:
    """A model behind an endpoint; each dialect adds how it asks and how it reads."""

    endpoint: Endpoint
    model: str

    @property
    def name(self) -> str:
        return self.endpoint.name

    @property
    def capabilities(self) -> ProviderCapabilities:
        return ProviderCapabilities(tools=True, streaming=False)


def usage_of(fields: Json, sent: str, received: str) -> Usage:
    """Read how many tokens went each way, under the names a dialect has for them."""
    counts = fields if isinstance(fields, dict) else {}
    went, came = counts.get(sent), counts.get(received)
    return Usage(went if isinstance(went, int) else None, came if isinstance(came, int) else None)
