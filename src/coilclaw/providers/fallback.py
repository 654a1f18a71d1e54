"""Asking the next model when one cannot be reached."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from coilclaw.domain.messages import ProviderCapabilities
from coilclaw.errors import (
    ProviderAuth,
    ProviderError,
    ProviderNetwork,
    ProviderRateLimit,
    ProviderServer,
    ProviderTimeout,
)
from coilclaw.providers.streaming import Drafted, ask

if TYPE_CHECKING:
    from collections.abc import Callable

    from coilclaw.domain.messages import ChatRequest, ChatResponse, Provider

UNREACHABLE: Final = (
    ProviderNetwork,
    ProviderAuth,
    ProviderTimeout,
    ProviderRateLimit,
    ProviderServer,
)
"""What another provider may not have; a request that is refused as such is not asked again."""
RELIABLE: Final = (ProviderNetwork, ProviderAuth, ProviderTimeout)
"""The reasons of the ``reliable`` kind."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Falling:
    """Several providers with their models, in order.

    ``report`` is told of each fallback; where there is none, each is a warning in the log.
    """

    choices: tuple[tuple[Provider, str], ...]
    report: Callable[[str], None] | None = None
    reasons: tuple[type[ProviderError], ...] = UNREACHABLE
    title: str = ""
    """Its own name; without one, it goes by that of the first."""

    @property
    def name(self) -> str:
        return self.title or self.choices[0][0].name

    @property
    def capabilities(self) -> ProviderCapabilities:
        """Tools, if the first has them; streaming, if any can."""
        able = [provider.capabilities for provider, _ in self.choices]
        return ProviderCapabilities(
            tools=able[0].tools, streaming=any(each.streaming for each in able)
        )

    def chat(self, request: ChatRequest) -> ChatResponse:
        """Ask the first that can be reached."""
        return self._ask(request, None)

    def stream(self, request: ChatRequest, draft: Callable[[str], None]) -> ChatResponse:
        """As ``chat``; whoever is asked next drafts on a new line."""
        return self._ask(request, Drafted(draft))

    def _ask(self, request: ChatRequest, draft: Drafted | None) -> ChatResponse:
        for index, (provider, model) in enumerate(self.choices):
            try:
                return ask(provider, replace(request, model=model or request.model), draft)
            except self.reasons as problem:
                if index == len(self.choices) - 1:
                    raise
                self._tell(provider.name, self.choices[index + 1][0].name, problem)
                if draft:
                    draft.anew()
        raise AssertionError("there is no provider to ask")

    def _tell(self, before: str, after: str, problem: ProviderError) -> None:
        if self.report is not None:
            self.report(f"fallback from {before} to {after}: {problem.message}")
            return
        _log.warning(
            "fallback from %s to %s: %s",
            before,
            after,
            problem.message,
            extra={
                "event": "provider_fallback",
                "fields": {"from": before, "to": after, "rule": problem.rule},
            },
        )
