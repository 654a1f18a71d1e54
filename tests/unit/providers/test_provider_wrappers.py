from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from coilclaw.kernel.errors import (
    ProviderAuth,
    ProviderError,
    ProviderMalformed,
    ProviderNetwork,
    ProviderRateLimit,
    ProviderRejected,
    ProviderServer,
    ProviderTimeout,
    ProviderTruncated,
)
from coilclaw.kernel.messages import ChatRequest, ChatResponse, Message, ProviderCapabilities
from coilclaw.models.provider_chain import Falling, Retrying, RetryPolicy

REQUEST = ChatRequest("", (Message("user", "hi"),), "asked-for")


@dataclass
class Played:
    """A provider that fails as told, then answers."""

    failures: list[ProviderError]
    name: str = "played"
    capabilities: ProviderCapabilities = field(
        default_factory=lambda: ProviderCapabilities(tools=False, streaming=False)
    )
    asked: list[str] = field(default_factory=list)

    def chat(self, request: ChatRequest) -> ChatResponse:
        self.asked.append(request.model)
        if self.failures:
            raise self.failures.pop(0)
        return ChatResponse("done")


def problem(kind: type[ProviderError], retry_after_s: float | None = None) -> ProviderError:
    return kind("said", provider="p", retry_after_s=retry_after_s)


def test_busy_and_troubled_providers_are_asked_again_with_growing_pauses() -> None:
    kinds = (ProviderRateLimit, ProviderServer, ProviderNetwork)
    provider = Played([problem(kind) for kind in kinds])
    pauses: list[float] = []
    said: list[str] = []
    retrying = Retrying(provider, RetryPolicy(), said.append, pauses.append)
    assert retrying.chat(REQUEST).final_text == "done"
    assert pauses == [1.0, 2.0, 4.0]
    assert [line.split(":")[0] for line in said] == [
        "retry 1 of 3 in 1 s",
        "retry 2 of 3 in 2 s",
        "retry 3 of 3 in 4 s",
    ]


def test_retry_after_is_respected_up_to_a_bound() -> None:
    pauses: list[float] = []
    provider = Played([problem(ProviderRateLimit, 7.5)])
    Retrying(provider, RetryPolicy(), lambda _: None, pauses.append).chat(REQUEST)
    assert pauses == [7.5]
    far = Played([problem(ProviderRateLimit, 3600)])
    with pytest.raises(ProviderRateLimit):
        Retrying(far, RetryPolicy(), lambda _: None, pauses.append).chat(REQUEST)
    assert pauses == [7.5]


def test_retries_end() -> None:
    provider = Played([problem(ProviderServer) for _ in range(9)])
    with pytest.raises(ProviderServer):
        Retrying(provider, RetryPolicy(retries=2), lambda _: None, lambda _: None).chat(REQUEST)
    assert len(provider.asked) == 3


@pytest.mark.parametrize(
    "kind", [ProviderAuth, ProviderRejected, ProviderMalformed, ProviderTruncated, ProviderTimeout]
)
def test_what_would_come_out_the_same_is_not_asked_again(kind: type[ProviderError]) -> None:
    provider = Played([problem(kind)])
    with pytest.raises(kind):
        Retrying(provider, RetryPolicy(), lambda _: None, lambda _: None).chat(REQUEST)
    assert len(provider.asked) == 1


@pytest.mark.parametrize(
    "kind", [ProviderNetwork, ProviderAuth, ProviderTimeout, ProviderRateLimit, ProviderServer]
)
def test_an_unreachable_model_falls_back_to_the_next(kind: type[ProviderError]) -> None:
    first, second = Played([problem(kind)], "one"), Played([], "two")
    said: list[str] = []
    answer = Falling(((first, "one"), (second, "two")), said.append).chat(REQUEST)
    assert answer.final_text == "done"
    assert (first.asked, second.asked) == (["one"], ["two"])
    assert said == ["fallback from one to two: said"]


@pytest.mark.parametrize("kind", [ProviderRejected, ProviderMalformed, ProviderTruncated])
def test_other_errors_do_not_fall_back(kind: type[ProviderError]) -> None:
    first, second = Played([problem(kind)]), Played([])
    with pytest.raises(kind):
        Falling(((first, "one"), (second, "two")), lambda _: None).chat(REQUEST)
    assert second.asked == []


def test_the_last_error_is_the_one_that_is_told() -> None:
    choices = (
        (Played([problem(ProviderAuth)]), "one"),
        (Played([problem(ProviderNetwork)]), "two"),
    )
    with pytest.raises(ProviderNetwork):
        Falling(choices, lambda _: None).chat(REQUEST)
