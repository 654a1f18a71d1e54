"""Provide what all dialects share; each dialect is a module that implements ``Dialect``."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias

from coilclaw.cli.model_server.script_file import MAX_DEPTH
from coilclaw.kernel import JsonFault, UsageError, describe_type, read_json_object

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from coilclaw.cli.model_server.script import CallTool, Stop

Body: TypeAlias = "Mapping[str, object]"


def read_body(data: bytes) -> dict[str, object]:
    """Return the JSON object in a body; raise ``UsageError`` if it is anything else."""
    try:
        return dict(read_json_object(data, max_depth=MAX_DEPTH))
    except JsonFault as fault:
        raise refuse_shape(f"the body {fault}") from fault


def text(value: object) -> str:
    """Return a string, or an empty one for any other value."""
    return value if isinstance(value, str) else ""


def mapping(value: object) -> Body:
    """Return an object, or an empty one for any other value."""
    return value if isinstance(value, dict) else {}


def objects(value: object) -> list[Body]:
    """Return the objects in a list, without its other items."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def texts(content: object, key: str = "text") -> list[str]:
    """Return the texts of a content, which is a string or a list of parts."""
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list):
        return []
    return [
        part if isinstance(part, str) else text(mapping(part)[key])
        for part in content
        if isinstance(part, str) or isinstance(mapping(part).get(key), str)
    ]


def require_list(body: Body, key: str) -> None:
    """Raise ``UsageError`` unless the value is a list of objects that is not empty."""
    value = body.get(key)
    if key not in body:
        raise refuse_shape(f"{key}: field required")
    if not isinstance(value, list) or not value:
        shown = "an empty list" if value == [] else describe_type(value)
        raise refuse_shape(f"{key}: must be a list that is not empty, not {shown}")
    for index, item in enumerate(value):
        if not isinstance(item, dict):
            raise refuse_shape(f"{key}[{index}]: must be an object, not {describe_type(item)}")


def require_text(body: Body, key: str) -> None:
    """Raise ``UsageError`` unless the value is a string that is not empty."""
    if key not in body:
        raise refuse_shape(f"{key}: field required")
    if not text(body[key]):
        raise refuse_shape(f"{key}: must be text that is not empty")


def refuse_shape(message: str) -> UsageError:
    """Return the error for a request that the real service would reject."""
    return UsageError(message, rule="request.shape")


BYTES_PER_TOKEN: Final = 4
SMALLEST_PIECE: Final = 8
MOST_PIECES: Final = 64


@dataclass(frozen=True, slots=True)
class Tokens:
    """The token counts of a reply."""

    input: int
    output: int
    cached: int = 0
    reasoning: int = 0

    @property
    def total(self) -> int:
        return self.input + self.output


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer as every dialect renders it: reasoning, then text, then calls."""

    reasoning: str | None
    text: str | None
    calls: tuple[CallTool, ...]
    stop: Stop
    tokens: Tokens
    created: int
    stop_as: str | None = None

    def name_stop(self, names: Mapping[Stop, str]) -> str:
        """Return why the answer ends: in the words of the script, else in those of a dialect."""
        return self.stop_as or names[self.stop]


def estimate(size: int) -> int:
    """Return an estimate of the tokens in a number of bytes."""
    return max(1, math.ceil(size / BYTES_PER_TOKEN))


def cut_text(text: str) -> list[str]:
    """Cut text as a stream does, into a bounded number of pieces."""
    size = max(SMALLEST_PIECE, math.ceil(len(text) / MOST_PIECES))
    return [text[start : start + size] for start in range(0, len(text), size)]


def new_id(prefix: str) -> str:
    """Return a unique identifier."""
    return prefix + os.urandom(12).hex()


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool that a request offers."""

    name: str
    kind: Literal["function", "freeform", "local_shell"] = "function"
    schema: Mapping[str, object] = field(default_factory=dict)
    namespace: str | None = None

    @property
    def properties(self) -> Mapping[str, object]:
        return mapping(self.schema.get("properties"))

    def key(self, names: Sequence[str]) -> str:
        """Return the first of the names that is an argument of the tool, or an empty string."""
        return next((name for name in names if name in self.properties), "")


# Agents add these to the messages of their user.
CONTEXT_PREFIXES: Final = (
    "<environment_context>",
    "<user_instructions>",
    "<permissions",
    "<skills_instructions>",
    "<recommended_plugins>",
    "<turn_aborted>",
    "<system-reminder>",
    "<session_context>",
    "# AGENTS.md",
)


class Speaker(Enum):
    """The author of a message."""

    USER = auto()
    MODEL = auto()
    TOOL = auto()
    SYSTEM = auto()


@dataclass(frozen=True, slots=True)
class Said:
    """One message of a history; ``texts`` are its parts that are text."""

    speaker: Speaker
    texts: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ChatHistory:
    """The facts of a history that decide which answer is next."""

    prompts: tuple[str, ...] = ()
    answered: int = 0
    """The turns of the model since the last prompt."""
    system: str = ""

    @property
    def prompt(self) -> str:
        return self.prompts[-1] if self.prompts else ""


def read_history(said: Iterable[Said], prefixes: Sequence[str] = ()) -> ChatHistory:
    """Collect the prompts, and count the turns of the model since the last of them.

    Consecutive messages of the model are one turn. Results of tools, and context that an
    agent adds to the messages of its user, are not prompts.
    """
    context = (*CONTEXT_PREFIXES, *prefixes)
    prompts: list[str] = []
    system: list[str] = []
    answered = 0
    before: Speaker | None = None
    for entry in said:
        if entry.speaker is Speaker.MODEL:
            answered += before is not Speaker.MODEL
        elif entry.speaker is Speaker.SYSTEM:
            system += entry.texts
        elif entry.speaker is Speaker.USER:
            words = [text for text in entry.texts if not text.lstrip().startswith(context)]
            if words or not entry.texts:
                prompts.append("\n".join(words))
                answered = 0
        before = entry.speaker
    return ChatHistory(tuple(prompts), answered, "\n".join(system))


_LINE_ENDS: Final = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}


class Streaming(Enum):
    """How an answer is sent."""

    NO = auto()
    EVENTS = auto()
    """Server-sent events."""
    ARRAY = auto()
    """A JSON list sent item by item, as Gemini does without ``alt=sse``."""


@dataclass(frozen=True, slots=True)
class ChatQuery:
    """A request for an answer; header names are lower case."""

    body: Body
    headers: Mapping[str, str]
    model: str
    streaming: Streaming


class Dialect(Protocol):
    """One wire format: how requests are read, and replies and errors rendered."""

    def check(self, asked: ChatQuery) -> None:
        """Raise ``UsageError`` for a request that the real service would reject."""

    def read_messages(self, body: Body) -> Iterable[Said]:
        """Return the history in the request, oldest first."""

    def tools(self, body: Body) -> Sequence[OfferedTool]:
        """Return the tools that the request offers."""

    def render_answer(self, reply: Reply, asked: ChatQuery) -> dict[str, object]:
        """Return the answer as one body."""

    def stream(self, reply: Reply, asked: ChatQuery) -> Iterator[bytes]:
        """Return the answer as the events of a stream."""

    def error(self, status: int, message: str, retry_after: str | None) -> dict[str, object]:
        """Return an error in the dialect's own shape."""


def encode_json(value: object) -> bytes:
    """Return JSON as services send it: compact, and in UTF-8 if possible."""
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        # Some clients treat these as the end of a line, and so of an event.
        return text.translate(_LINE_ENDS).encode()
    except UnicodeEncodeError:
        # Half of a surrogate pair has no UTF-8 encoding, but an escape.
        return json.dumps(value, separators=(",", ":")).encode()


def encode_event(value: object, name: str | None = None, *, newline: bytes = b"\n") -> bytes:
    """Return one server-sent event."""
    data = value if isinstance(value, bytes) else encode_json(value)
    head = b"event: " + name.encode() + newline if name else b""
    return head + b"data: " + data + newline * 2
