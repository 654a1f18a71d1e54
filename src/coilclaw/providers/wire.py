"""What every provider over HTTP has: an endpoint, a model, and a way through both."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from coilclaw.domain.messages import ProviderCapabilities, Usage
from coilclaw.errors import ProviderNetwork
from coilclaw.providers.http import Client, parse
from coilclaw.providers.sse import Tally, events

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from coilclaw.domain.messages import ChatRequest, ChatResponse, Json
    from coilclaw.providers.endpoint import Endpoint

MAX_TOKENS_TOLD: Final = 2**53 - 1


@dataclass(frozen=True, slots=True)
class Question:
    """A request as a dialect puts it."""

    url: str
    headers: Mapping[str, str]
    body: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class Wire:
    """A model behind an endpoint; each dialect adds how it asks and how it reads.

    A stream is folded into the payload that the same answer has when it is not streamed, so that
    both are judged in one place.
    """

    endpoint: Endpoint
    model: str
    temperature: float | None = field(default=None, kw_only=True)
    """Of requests that do not say."""
    client: Client = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "client", Client(self.endpoint))

    @property
    def name(self) -> str:
        return self.endpoint.name

    @property
    def capabilities(self) -> ProviderCapabilities:
        return ProviderCapabilities(tools=True, streaming=True)

    def chat(self, request: ChatRequest) -> ChatResponse:
        """Ask once and wait for the whole answer."""
        asked = self.question(request, stream=False)
        raw = self.client.post(asked.url, asked.headers, asked.body)
        return self.response(parse(self.endpoint, raw), raw, request)

    def stream(self, request: ChatRequest, draft: Callable[[str], None]) -> ChatResponse:
        """Ask once; ``draft`` is given the text as it comes."""
        asked = self.question(request, stream=True)
        with self.client.asking(asked.url, asked.headers, asked.body) as answer:
            if answer.streamed:
                payload = self.fold(
                    events(self.endpoint, answer.pieces()), Tally(self.endpoint), draft
                )
                answer.over()
                return self.response(payload, None, request)
            # Some servers do not stream, whatever they are asked.
            raw = answer.whole()
        response = self.response(parse(self.endpoint, raw), raw, request)
        if response.final_text:
            draft(response.final_text)
        return response

    def close(self) -> None:
        """End the connections that are kept."""
        self.client.close()

    def question(self, request: ChatRequest, *, stream: bool) -> Question:
        """Put a request into the dialect."""
        raise NotImplementedError

    def fold(
        self,
        told: Iterator[dict[str, Json] | None],
        tally: Tally,
        draft: Callable[[str], None],
    ) -> dict[str, Json]:
        """Make one payload of the events of a stream."""
        raise NotImplementedError

    def response(
        self, payload: dict[str, Json], raw: bytes | None, request: ChatRequest
    ) -> ChatResponse:
        """Read a payload; one that is no whole answer raises."""
        raise NotImplementedError

    def warmth(self, request: ChatRequest) -> float | None:
        """Return the temperature of a request, if anybody gave it one."""
        return self.temperature if request.temperature is None else request.temperature

    def unfinished(self) -> ProviderNetwork:
        """Return the error for a stream that ended before the answer did."""
        return ProviderNetwork(
            f"the stream of {self.name} ended before its answer did", provider=self.name
        )


def usage_of(fields: Json, sent: str, received: str) -> Usage:
    """Read how many tokens went each way, under the names a dialect has for them."""
    counts = fields if isinstance(fields, dict) else {}
    return Usage(_count(counts.get(sent)), _count(counts.get(received)))


def _count(value: Json) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_TOKENS_TOLD:
        return value
    return None
