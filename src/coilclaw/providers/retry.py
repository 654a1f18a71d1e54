"""Asking again when the provider is busy or in trouble."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.errors import ProviderError, ProviderNetwork, ProviderRateLimit, ProviderServer
from coilclaw.providers.streaming import Drafted, ask

if TYPE_CHECKING:
    from collections.abc import Callable

    from coilclaw.domain.messages import ChatRequest, ChatResponse, Provider, ProviderCapabilities

SHORTEST_PAUSE_S: Final = 0.1
RETRIED: Final = (ProviderRateLimit, ProviderServer, ProviderNetwork)
"""Auth, rejected, malformed and truncated answers would come out the same again."""
BUSY: Final = (ProviderRateLimit, ProviderServer)
"""Where another provider is asked on network errors, these are still worth a wait."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often, and how patiently."""

    retries: int = 3
    first_pause_s: float = 1.0
    longest_pause_s: float = 60.0
    """Longer than this is not waited, also when the provider asks for it."""


@dataclass(frozen=True, slots=True)
class Retrying:
    """A provider that is asked again after a pause; ``report`` is told of each."""

    provider: Provider
    policy: RetryPolicy
    report: Callable[[str], None]
    sleep: Callable[[float], None] = time.sleep
    reasons: tuple[type[ProviderError], ...] = RETRIED

    @property
    def name(self) -> str:
        return self.provider.name

    @property
    def capabilities(self) -> ProviderCapabilities:
        return self.provider.capabilities

    def chat(self, request: ChatRequest) -> ChatResponse:
        """Ask until there is an answer, the retries are used up, or asking again is no use."""
        return self._ask(request, None)

    def stream(self, request: ChatRequest, draft: Callable[[str], None]) -> ChatResponse:
        """As ``chat``; another attempt drafts on a new line."""
        return self._ask(request, Drafted(draft))

    def _ask(self, request: ChatRequest, draft: Drafted | None) -> ChatResponse:
        pause = self.policy.first_pause_s
        for attempt in range(1, self.policy.retries + 1):
            try:
                return ask(self.provider, request, draft)
            except self.reasons as problem:
                wait = _wait(problem, pause)
                if wait > self.policy.longest_pause_s:
                    self.report(f"no retry: {wait:g} s is too long to wait: {problem.message}")
                    raise
                self.report(
                    f"retry {attempt} of {self.policy.retries} in {wait:g} s: {problem.message}"
                )
                self.sleep(wait)
                pause = min(2 * pause, self.policy.longest_pause_s)
                if draft:
                    draft.anew()
        return ask(self.provider, request, draft)


def _wait(problem: ProviderError, pause: float) -> float:
    if problem.retry_after_s is None:
        return pause
    return problem.retry_after_s or SHORTEST_PAUSE_S
