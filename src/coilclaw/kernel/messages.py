"""What is said to a model and what it answers, whichever the provider is."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from coilclaw.kernel.effects import Verdict


@dataclass(frozen=True, slots=True)
class Budget:
    """Bounds of one run; ``None`` means that the driver does not count it."""

    parts: int | None = None
    tool_rounds: int | None = None
    attempts: int | None = None
    retries: int | None = None
    wall_s: float | None = None
    tokens: int | None = None
    bytes: int | None = None


Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call the model asks for; ``problem`` says why its arguments cannot be used, if so."""

    id: str
    name: str
    arguments: Mapping[str, Json]
    problem: str | None = None
    signature: str | None = None
    """What the provider wants back with the call, and no one else understands."""


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
    """The JSON Schema that the text of the answer shall fit; the caller checks the answer."""


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


PartKind: TypeAlias = Literal["reasoning", "text", "tool", "tool_use", "tool_result", "patch"]


@dataclass(frozen=True, slots=True)
class Part:
    """One part, complete: it is made when the agent has finished it, never when it begins."""

    kind: PartKind
    text: str = ""
    """What was said or thought, whole."""
    tool: str = ""
    call_id: str = ""
    input: str = ""
    """The RFC 8785 text of a tool's arguments."""
    output: str = ""
    exit_code: int | None = None
    files: tuple[str, ...] = ()
    """Paths that the agent says it changed, relative to its directory where they lie in it."""
    usage: Usage | None = None
    item_type: str = ""
    """The agent's own word for it."""
    raw: str = ""
    """The agent's own event, as JSON text."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool answers; ``output`` is for the model, ``error`` says why it did not succeed."""

    success: bool
    output: str
    error: str | None = None
    metadata: Mapping[str, Json] = field(default_factory=dict)
    receipt_id: str | None = None


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """One call that needs a person's word, with everything that word is given for."""

    tool: str
    arguments: str
    """The RFC 8785 text of the arguments: these bytes are what is approved."""
    verdict: Verdict
    detail: tuple[str, ...]
    """What would happen, line by line: the argv, or the diff."""
    digest: str
    """SHA-256 over tool, arguments, detail and policy: the approval is bound to it."""
    conversation_id: str = ""
    """The conversation that waits for the answer."""
    turn_id: str = ""
    call_id: str = ""
    """The call in the conversation, as the model named it."""


class ApprovalReply(Enum):
    """What a person says to a request."""

    YES = "yes"
    NO = "no"
    ALWAYS = "always"
    """Yes, and to this exact call again without asking, until the program ends."""


@dataclass(frozen=True, slots=True)
class ApprovalAnswer:
    """A reply, and who or what gave it: a receipt never names a person who was not there."""

    reply: ApprovalReply
    by: str
    """``person NAME`` or ``client NAME``; otherwise the cause, such as ``timeout`` or ``estop``."""
    reason: str = ""
    """Why the answer is no, where no person and no client gave it."""

    @property
    def granted(self) -> bool:
        """Whether the call may be made."""
        return self.reply is not ApprovalReply.NO


Approve: TypeAlias = "Callable[[ApprovalRequest], ApprovalAnswer]"
"""Asks the person who may approve; where no one can be asked, the answer is no."""


ASKER: Final = "asker"
"""Names in the metadata of a message who sent it; the first one of a conversation owns it."""


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """What a tool call came to, as the model was told."""

    call_id: str
    tool: str
    success: bool
    output: str
    error: str | None = None
    receipt_id: str | None = None


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """One message; those of one request and its response share ``turn_id``."""

    conversation_id: str
    turn_id: str
    timestamp: str
    """UTC, RFC 3339 with microseconds and ``Z``."""
    role: Literal["user", "assistant", "tool"]
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_results: tuple[ToolAnswer, ...] = ()
    provider: str = ""
    model: str = ""
    metadata: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Recollection:
    """A remembered message that a search found; ``excerpt`` shows where."""

    conversation_id: str
    turn_id: str
    timestamp: str
    role: str
    excerpt: str
    score: float
