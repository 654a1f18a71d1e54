"""The values of a script: what the model answers, when, and with which faults."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coilclaw.kernel import Json, Secret

DEFAULT_MODEL: Final = "scripted"


class DialectName(StrEnum):
    """The wire formats of the server."""

    CHAT = "chat"
    RESPONSES = "responses"
    MESSAGES = "messages"
    GEMINI = "gemini"


class Stop(StrEnum):
    """Why an answer ends, in the words of the script; each dialect has its own."""

    STOP = "stop"
    LENGTH = "length"
    CONTENT_FILTER = "content_filter"
    TOOL_CALLS = "tool_calls"


class Malformed(StrEnum):
    """How the body of a complete HTTP answer is malformed."""

    JSON = "json"
    TRUNCATED = "truncated"
    EMPTY = "empty"
    NOT_JSON = "not-json"
    WRONG_SHAPE = "wrong-shape"
    UTF8 = "utf-8"
    HUGE = "huge"


@dataclass(frozen=True, slots=True)
class CallTool:
    """A call of a tool by name."""

    name: str
    arguments: Mapping[str, Json] = field(default_factory=dict)
    input: str | None = None
    """The text of a freeform tool, which takes no arguments."""
    id: str | None = None
    """As the script gives it; without one, the dialect makes its own."""
    namespace: str | None = None
    """Of dialects that group their tools."""
    argv: tuple[str, ...] = ()
    """The command of a shell tool that is part of a dialect itself."""

    @property
    def fields(self) -> dict[str, object]:
        """The arguments, for dialects in which every tool takes an object."""
        return dict(self.arguments) if self.input is None else {"input": self.input}

    @property
    def size(self) -> int:
        """The characters that are counted as output of the model."""
        if self.argv:
            return sum(map(len, self.argv))
        return len(self.name) + len(repr(self.arguments) if self.input is None else self.input)


@dataclass(frozen=True, slots=True)
class RunShell:
    """A command for the shell tool that the request offers."""

    command: str


@dataclass(frozen=True, slots=True)
class ScriptedWrite:
    """A file for the writing tool that the request offers."""

    path: str
    content: str


Action: TypeAlias = CallTool | RunShell | ScriptedWrite


@dataclass(frozen=True, slots=True)
class ScriptPlace:
    """A place in a body, as a number of bytes or of events."""

    after_bytes: int | None = None
    after_events: int | None = None


@dataclass(frozen=True, slots=True)
class Hang:
    """Stop sending, then close the connection; without a place, send not even a status."""

    seconds: float | None = None
    """How long; ``None`` means until the client leaves or the server stops."""
    place: ScriptPlace | None = None


@dataclass(frozen=True, slots=True)
class Cut:
    """Close the connection within the body; without a place, in the middle of it."""

    place: ScriptPlace | None = None
    reset: bool = False
    """Close with a TCP reset instead of an orderly shutdown."""


@dataclass(frozen=True, slots=True)
class Slow:
    """Send the body slowly, in small pieces."""

    bytes_per_second: int | None = None
    delay_s: float | None = None
    """The wait before every event, or before every piece of a body that is not streamed."""


@dataclass(frozen=True, slots=True)
class ErrorBody:
    """The body of an error response, from the script."""

    data: bytes
    media_type: str


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong when an answer is sent; by default nothing."""

    headers: tuple[tuple[str, str], ...] = ()
    status: int | None = None
    body: ErrorBody | None = None
    retry_after: str | None = None
    sleep_s: float = 0.0
    hang: Hang | None = None
    cut: Cut | None = None
    slow: Slow | None = None
    malformed: Malformed | None = None
    size: int = 0
    """The bytes of filler that ``Malformed.HUGE`` sends."""


@dataclass(frozen=True, slots=True)
class When:
    """The conditions that a request must meet for an answer to be eligible."""

    prompt: tuple[str, ...] = ()
    system: tuple[str, ...] = ()
    model: str | None = None
    dialect: DialectName | None = None
    stream: bool | None = None
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Counts:
    """The token counts to report; ``None`` means an estimate."""

    input: int | None = None
    output: int | None = None
    cached: int = 0
    reasoning: int = 0


@dataclass(frozen=True, slots=True)
class ScriptedAnswer:
    """One answer of the model; ``path`` locates it in the script."""

    path: str
    text: str | None = None
    reasoning: str | None = None
    actions: tuple[Action, ...] = ()
    stop: Stop | None = None
    stop_as: str | None = None
    """Why the answer ends, in the words of a dialect; sent unchanged."""
    usage: Counts = Counts()
    when: When = When()
    fault: Fault = Fault()
    faults: tuple[Fault, ...] = ()
    """Played before the answer, one per request; only in a stateful script."""


@dataclass(frozen=True, slots=True)
class ModelScript:
    """A whole script: ``turns`` by prompt, or ``answers`` that serve every prompt."""

    answers: tuple[ScriptedAnswer, ...] = ()
    turns: tuple[tuple[ScriptedAnswer, ...], ...] | None = None
    models: tuple[str, ...] = (DEFAULT_MODEL,)
    otherwise: ScriptedAnswer | None = None
    """Played past the end; ``None`` makes a request past the end an error."""
    stateful: bool = False
    require_key: Secret | None = None
    context_prefixes: tuple[str, ...] = ()
