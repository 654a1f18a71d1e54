"""What is said to a model and what it answers, whoever the provider is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call the model asks for; ``problem`` says why its arguments cannot be used, if so."""

    id: str
    name: str
    arguments: Mapping[str, Json]
    problem: str | None = None
    signature: str | None = None
    """What the provider wants back with the call, and nobody else understands."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation; a ``tool`` message answers the call with ``tool_call_id``."""

    role: Literal["user", "assistant", "tool"]
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as it is advertised to the model."""

    name: str
    description: str
    parameters_schema: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One request to a model."""

    system_prompt: str
    messages: tuple[Message, ...]
    model: str
    tools: tuple[ToolSpec, ...] = ()
    temperature: float | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    output_schema: Mapping[str, Json] | None = None
    """The JSON Schema that the text of the answer shall fit; whoever asks checks the answer."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens, as far as the provider tells."""

    input_tokens: int | None = None
    output_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class ChatResponse:
    """What the model answered."""

    final_text: str
    tool_calls: tuple[ToolCall, ...] = ()
    raw_provider_payload: bytes | None = None
    """The body as it was received."""
    usage: Usage | None = None
    model: str = ""


@dataclass(frozen=True, slots=True)
class ProviderCapabilities:
    """What a provider can do."""

    tools: bool
    streaming: bool


class Provider(Protocol):
    """The one way to a model."""

    @property
    def name(self) -> str: ...

    @property
    def capabilities(self) -> ProviderCapabilities: ...

    def chat(self, request: ChatRequest) -> ChatResponse: ...


class StreamingProvider(Provider, Protocol):
    """A provider whose ``capabilities.streaming`` is true."""

    def stream(self, request: ChatRequest, draft: Callable[[str], None]) -> ChatResponse:
        """As ``chat``; ``draft`` is given the pieces of the text as they come.

        What was drafted before a failure stays drafted: the answer is ``final_text``.
        """
