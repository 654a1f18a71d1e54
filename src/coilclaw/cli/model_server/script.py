"""A script as values: what the scripted model answers, when, and with which faults."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coilclaw.kernel import Json, Secret

DEFAULT_MODEL: Final = "scripted"


class DialectName(StrEnum):
    """The wire formats the server speaks."""

    CHAT = "chat"
    RESPONSES = "responses"
    MESSAGES = "messages"
    GEMINI = "gemini"


class Stop(StrEnum):
    """Why an answer ends, in the script's own words; every dialect has its own for each."""

    STOP = "stop"
    LENGTH = "length"
    CONTENT_FILTER = "content_filter"
    TOOL_CALLS = "tool_calls"


class Malformed(StrEnum):
    """A complete HTTP answer whose body is not what the dialect promises."""

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
    """A command for whatever shell tool the request offers."""

    command: str


@dataclass(frozen=True, slots=True)
class ScriptedWrite:
    """A file for whatever writing tool the request offers."""

    path: str
    content: str


Action: TypeAlias = CallTool | RunShell | ScriptedWrite


@dataclass(frozen=True, slots=True)
class ScriptPlace:
    """A place in a body, counted in its bytes or in the events of a stream."""

    after_bytes: int | None = None
    after_events: int | None = None


@dataclass(frozen=True, slots=True)
class Hang:
    """Silence, then the connection is closed; without a place, not even a status is sent."""

    seconds: float | None = None
    """How long; ``None`` is until the client leaves or the server ends."""
    place: ScriptPlace | None = None


@dataclass(frozen=True, slots=True)
class Cut:
    """The connection is closed within the body; without a place, in the middle of it."""

    place: ScriptPlace | None = None
    reset: bool = False
    """Close with a TCP reset instead of an orderly end."""


@dataclass(frozen=True, slots=True)
class Slow:
    """A body that comes in small pieces."""

    bytes_per_second: int | None = None
    delay_s: float | None = None
    """The wait before every event, or before every piece of a body that is not streamed."""


@dataclass(frozen=True, slots=True)
class ErrorBody:
    """The body of an error status, as the script gives it."""

    data: bytes
    media_type: str


@dataclass(frozen=True, slots=True)
class Fault:
    """How an answer is sent, and what goes wrong with it; the default is that nothing does."""

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
    """What a request must be like for an answer to be eligible; all of it must hold."""

    prompt: tuple[str, ...] = ()
    system: tuple[str, ...] = ()
    model: str | None = None
    dialect: DialectName | None = None
    stream: bool | None = None
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Counts:
    """The token counts the script wants reported; ``None`` is an estimate."""

    input: int | None = None
    output: int | None = None
    cached: int = 0
    reasoning: int = 0


@dataclass(frozen=True, slots=True)
class ScriptedAnswer:
    """One answer of the model; ``path`` is where it stands in the script."""

    path: str
    text: str | None = None
    reasoning: str | None = None
    actions: tuple[Action, ...] = ()
    stop: Stop | None = None
    stop_as: str | None = None
    """The dialect's own word for why the answer ends, sent as it is."""
    usage: Counts = Counts()
    when: When = When()
    fault: Fault = Fault()
    faults: tuple[Fault, ...] = ()
    """Played before the answer, one a request; only a stateful script has them."""


@dataclass(frozen=True, slots=True)
class ModelScript:
    """A whole script: ``turns`` by prompt, or ``answers`` that serve every prompt."""

    answers: tuple[ScriptedAnswer, ...] = ()
    turns: tuple[tuple[ScriptedAnswer, ...], ...] | None = None
    models: tuple[str, ...] = (DEFAULT_MODEL,)
    otherwise: ScriptedAnswer | None = None
    """Played past the end; ``None`` makes that an error."""
    stateful: bool = False
    require_key: Secret | None = None
    context_prefixes: tuple[str, ...] = ()
