"""What every provider over HTTP has: an endpoint, a model, and a way through both."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import (
    ChatResponse,
    ProviderCapabilities,
    ProviderNetwork,
    ProviderRejected,
    ProviderTruncated,
    Usage,
)
from coilclaw.models.event_stream import StreamTally, events
from coilclaw.models.http import ModelClient, parse
from coilclaw.models.json_value import clean
from coilclaw.models.refusal import excerpt, malformed_error
from coilclaw.models.tool_arguments import number_calls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from coilclaw.kernel import ChatRequest, Json, ToolCall
    from coilclaw.models.endpoint import ModelEndpoint

MAX_TOKENS_TOLD: Final = 2**53 - 1


@dataclass(frozen=True, slots=True)
class WireQuestion:
    """A request as a dialect puts it."""

    url: str
    headers: Mapping[str, str]
    body: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class ModelWire:
    """A model behind an endpoint; each dialect adds how it asks and how it reads.

    A stream is folded into the payload that the same answer has when it is not streamed, so that
    both are judged in one place.
    """

    endpoint: ModelEndpoint
    model: str
    temperature: float | None = field(default=None, kw_only=True)
    """Of requests that do not say."""
    client: ModelClient = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "client", ModelClient(self.endpoint))

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
                    events(self.endpoint, answer.pieces()), StreamTally(self.endpoint), draft
                )
                answer.over()
                return self.response(payload, None, request)
            # Some servers do not stream, whatever they are asked.
            raw = answer.read_body()
        response = self.response(parse(self.endpoint, raw), raw, request)
        if response.final_text:
            draft(response.final_text)
        return response

    def close(self) -> None:
        """End the connections that are kept."""
        self.client.close()

    def question(self, request: ChatRequest, *, stream: bool) -> WireQuestion:
        """Put a request into the dialect."""
        raise NotImplementedError

    def fold(
        self,
        told: Iterator[dict[str, Json] | None],
        tally: StreamTally,
        draft: Callable[[str], None],
    ) -> dict[str, Json]:
        """Make one payload of the events of a stream."""
        raise NotImplementedError

    def response(
        self, payload: dict[str, Json], raw: bytes | None, request: ChatRequest
    ) -> ChatResponse:
        """Return the answer of a payload; raise ``ProviderError`` if it is not complete."""
        raise NotImplementedError

    def name_temperature(self, request: ChatRequest) -> dict[str, Json]:
        """Return the field for the temperature of a request, or of the settings; else nothing."""
        warmth = self.temperature if request.temperature is None else request.temperature
        return {} if warmth is None else {"temperature": warmth}

    def name_key(self, header: str, scheme: str = "") -> dict[str, str]:
        """Return the header that carries the key, if there is one."""
        key = self.endpoint.key
        return {header: f"{scheme}{key.reveal()}"} if key else {}

    def check_end(
        self, reason: Json, raw: bytes | None, *, limit: str, done: frozenset[str | None]
    ) -> None:
        """Refuse an answer that did not come to an end of its own."""
        if not isinstance(reason, str | None):
            raise malformed_error(self.endpoint, "ends for a reason that is not text", raw)
        if reason in done:
            return
        ended = f"ended early ({excerpt(self.endpoint, reason)})"
        if reason == limit:
            ended = f"was cut off at its token limit ({limit})"
        raise ProviderTruncated(f"the answer of {self.name} {ended}", provider=self.name, body=raw)

    def refusal_error(self, reason: Json, raw: bytes | None) -> ProviderRejected:
        """Return the error for a model that does not answer."""
        said = excerpt(self.endpoint, reason)
        return ProviderRejected(f"{self.name} did not answer: {said}", provider=self.name, body=raw)

    def answer(
        self,
        text: str,
        calls: list[ToolCall],
        request: ChatRequest,
        raw: bytes | None,
        usage: Usage,
    ) -> ChatResponse:
        """Make the response of what an answer says."""
        return ChatResponse(clean(text), number_calls(calls, request), raw, usage, self.model)

    def unfinished_error(self) -> ProviderNetwork:
        """Return the error for a stream that ended before the answer did."""
        return ProviderNetwork(
            f"the stream of {self.name} ended before its answer did", provider=self.name
        )


def object_of(value: Json) -> dict[str, Json]:
    """Return an object; anything else is an empty one."""
    return value if isinstance(value, dict) else {}


def first_of(value: Json) -> dict[str, Json]:
    """Return the first object of a list, or an empty one."""
    return object_of(value[0]) if isinstance(value, list) and value else {}


def describe_tools(request: ChatRequest, schema: str) -> list[Json]:
    """Describe the tools of a request; ``schema`` is what a dialect calls their parameters."""
    return [
        {
            "name": tool.name,
            "description": tool.description,
            schema: dict(tool.parameters_schema),
        }
        for tool in request.tools
    ]


def usage_of(fields: Json, sent: str, received: str) -> Usage:
    """Read how many tokens went each way, under the names a dialect has for them."""
    counts = object_of(fields)
    return Usage(_count(counts.get(sent)), _count(counts.get(received)))


def _count(value: Json) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_TOKENS_TOLD:
        return value
    return None
