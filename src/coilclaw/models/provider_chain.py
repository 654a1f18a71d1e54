"""Providers that ask other providers: again after a pause, the next in line, or by a hint."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import (
    ProviderAuth,
    ProviderCapabilities,
    ProviderError,
    ProviderNetwork,
    ProviderRateLimit,
    ProviderRejected,
    ProviderServer,
    ProviderTimeout,
)
from coilclaw.models.event_stream import Drafted, ask
from coilclaw.models.json_value import quote_shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from coilclaw.kernel import ChatRequest, ChatResponse, Provider

SHORTEST_PAUSE_S: Final = 0.1
BUSY: Final = (ProviderRateLimit, ProviderServer)
"""Where another provider is asked on network errors, these are still worth a wait."""
RETRIED: Final = (*BUSY, ProviderNetwork)
"""Auth, rejected, malformed and truncated answers would come out the same again."""
RELIABLE: Final = (ProviderNetwork, ProviderAuth, ProviderTimeout)
"""The reasons of the ``reliable`` kind."""
UNREACHABLE: Final = (*RELIABLE, *BUSY)
"""What another provider may not have; a request that is refused as such is not asked again."""
HINT: Final = "hint"
"""The key of ``ChatRequest.metadata`` that routes are looked up by."""

_log = logging.getLogger(__name__)


class ProviderChain:
    """A provider whose ``chat`` and ``stream`` are one question to others."""

    __slots__ = ()

    def chat(self, request: ChatRequest) -> ChatResponse:
        """Ask for the whole answer."""
        return self._ask(request, None)

    def stream(self, request: ChatRequest, draft: Callable[[str], None]) -> ChatResponse:
        """Ask; ``draft`` is given the text as it comes, another attempt on a new line."""
        return self._ask(request, Drafted(draft))

    def _ask(self, request: ChatRequest, draft: Drafted | None) -> ChatResponse:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often, and how patiently."""

    retries: int = 3
    first_pause_s: float = 1.0
    longest_pause_s: float = 60.0
    """Longer than this is not waited, also when the provider asks for it."""


@dataclass(frozen=True, slots=True)
class Retrying(ProviderChain):
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

    def _ask(self, request: ChatRequest, draft: Drafted | None) -> ChatResponse:
        pause, policy = self.policy.first_pause_s, self.policy
        for attempt in range(1, policy.retries + 1):
            try:
                return ask(self.provider, request, draft)
            except self.reasons as problem:
                wait = pause
                if problem.retry_after_s is not None:
                    wait = problem.retry_after_s or SHORTEST_PAUSE_S
                if wait > policy.longest_pause_s:
                    self.report(f"no retry: {wait:g} s is too long to wait: {problem.message}")
                    raise
                self.report(f"retry {attempt} of {policy.retries} in {wait:g} s: {problem.message}")
                self.sleep(wait)
                pause = min(2 * pause, policy.longest_pause_s)
                if draft:
                    draft.begin_attempt()
        return ask(self.provider, request, draft)


@dataclass(frozen=True, slots=True)
class Falling(ProviderChain):
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
        joined = _join_capabilities(provider for provider, _ in self.choices)
        return replace(joined, tools=self.choices[0][0].capabilities.tools)

    def _ask(self, request: ChatRequest, draft: Drafted | None) -> ChatResponse:
        for index, (provider, model) in enumerate(self.choices):
            try:
                return ask(provider, replace(request, model=model or request.model), draft)
            except self.reasons as problem:
                if index == len(self.choices) - 1:
                    raise
                self._tell(provider.name, self.choices[index + 1][0].name, problem)
                if draft:
                    draft.begin_attempt()
        raise AssertionError("the chain has no provider")

    def _tell(self, before: str, after: str, problem: ProviderError) -> None:
        text = f"fallback from {before} to {after}: {problem.message}"
        if self.report is not None:
            self.report(text)
            return
        fields = {"from": before, "to": after, "rule": problem.rule}
        _log.warning("%s", text, extra={"event": "provider_fallback", "fields": fields})


@dataclass(frozen=True, slots=True)
class Router(ProviderChain):
    """Asks the provider that the hint names; for every other request, the default."""

    name: str
    routes: Mapping[str, Provider]
    default: Provider | None

    @property
    def capabilities(self) -> ProviderCapabilities:
        """Tools, if all have them; streaming, if any can."""
        return _join_capabilities(filter(None, (*self.routes.values(), self.default)))

    def _ask(self, request: ChatRequest, draft: Drafted | None) -> ChatResponse:
        hint = request.metadata.get(HINT)
        chosen = self.routes.get(hint, self.default) if hint is not None else self.default
        if chosen is None:
            said = "no hint" if hint is None else f"the hint {quote_shortened(hint)}"
            raise ProviderRejected(
                f"{self.name} has no route for {said}, and no default",
                provider=self.name,
                rule="provider.route",
                hint=f"known hints are {', '.join(sorted(self.routes))}",
            )
        return ask(chosen, request, draft)


def _join_capabilities(providers: Iterable[Provider]) -> ProviderCapabilities:
    able = [provider.capabilities for provider in providers]
    return ProviderCapabilities(
        tools=all(each.tools for each in able), streaming=any(each.streaming for each in able)
    )
