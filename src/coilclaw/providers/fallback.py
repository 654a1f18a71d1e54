"""Asking the next model when one cannot be reached."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from coilclaw.errors import (
    ProviderAuth,
    ProviderError,
    ProviderNetwork,
    ProviderRateLimit,
    ProviderTimeout,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from coilclaw.domain.messages import ChatRequest, ChatResponse, Provider, ProviderCapabilities

UNREACHABLE: Final = (ProviderNetwork, ProviderAuth, ProviderTimeout, ProviderRateLimit)


@dataclass(frozen=True, slots=True)
class Falling:
    """Several providers with their models, in order; ``report`` is told of each fallback."""

    choices: tuple[tuple[Provider, str], ...]
    report: Callable[[str], None]
    reasons: tuple[type[ProviderError], ...] = UNREACHABLE

    @property
    def name(self) -> str:
        return self.choices[0][0].name

    @property
    def capabilities(self) -> ProviderCapabilities:
        return self.choices[0][0].capabilities

    def chat(self, request: ChatRequest) -> ChatResponse:
        """Ask the first that can be reached."""
        for index, (provider, model) in enumerate(self.choices):
            try:
                return provider.chat(replace(request, model=model))
            except self.reasons as problem:
                if index == len(self.choices) - 1:
                    raise
                following = self.choices[index + 1][1]
                self.report(f"fallback from {model} to {following}: {problem.message}")
        raise AssertionError("there is no provider to ask")
