"""Choosing the provider by what a request hints at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.domain.messages import ProviderCapabilities
from coilclaw.errors import ProviderRejected
from coilclaw.providers.jsonvalue import shortened
from coilclaw.providers.streaming import ask

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from coilclaw.domain.messages import ChatRequest, ChatResponse, Provider

HINT: Final = "hint"
"""The key of ``ChatRequest.metadata`` that routes are looked up by."""


@dataclass(frozen=True, slots=True)
class Router:
    """Asks the provider that the hint names; for every other request, the default."""

    name: str
    routes: Mapping[str, Provider]
    default: Provider | None

    @property
    def capabilities(self) -> ProviderCapabilities:
        """Tools, if everybody has them; streaming, if anybody can."""
        asked = [*self.routes.values(), *([self.default] if self.default else [])]
        able = [provider.capabilities for provider in asked]
        return ProviderCapabilities(
            tools=all(each.tools for each in able), streaming=any(each.streaming for each in able)
        )

    def chat(self, request: ChatRequest) -> ChatResponse:
        """Ask whoever the request is for."""
        return self._chosen(request).chat(request)

    def stream(self, request: ChatRequest, draft: Callable[[str], None]) -> ChatResponse:
        """As ``chat``, with drafts."""
        return ask(self._chosen(request), request, draft)

    def _chosen(self, request: ChatRequest) -> Provider:
        hint = request.metadata.get(HINT)
        chosen = self.routes.get(hint, self.default) if hint is not None else self.default
        if chosen is None:
            said = "no hint" if hint is None else f"the hint {shortened(hint)}"
            raise ProviderRejected(
                f"{self.name} has no route for {said}, and no default",
                provider=self.name,
                rule="provider.route",
                hint=f"known hints are {', '.join(sorted(self.routes))}",
            )
        return chosen
