"""Record what is said to a model, and play it back, so that a conversation becomes a test.

A line of a recording is the RFC 8785 text of

    {"format": "coilclaw.exchange.v1", "request": {…}, "response": {…}}
    {"format": "coilclaw.exchange.v1", "request": {…}, "error": {"kind": "…", "message": "…"}}

Free-form JSON (arguments, schemas) is its RFC 8785 text. No secret is in it. What a provider sent
word for word, and the metadata of a request, are not kept.
"""

from __future__ import annotations

import fcntl
import logging
import os
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from coilclaw.kernel import (
    ChatResponse,
    ProviderAuth,
    ProviderCapabilities,
    ProviderError,
    ProviderMalformed,
    ProviderNetwork,
    ProviderRateLimit,
    ProviderRejected,
    ProviderServer,
    ProviderTimeout,
    ProviderTruncated,
    ToolCall,
    Usage,
    UsageError,
    canonical_json,
    explain_os_errors,
    quote_text,
)
from coilclaw.models.event_stream import ask
from coilclaw.models.json_value import loads, unicode
from coilclaw.models.provider_chain import ProviderChain
from coilclaw.models.tool_arguments import number_calls, tool_call

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from coilclaw.kernel import ChatRequest, Json, Message, Provider
    from coilclaw.models.event_stream import Drafted

MAX_RECORDING_BYTES: Final = 256 * 2**20
MAX_PROBLEMS: Final = 10
TAIL_BYTES: Final = 2**16

_log = logging.getLogger(__name__)

FORMAT: Final = "coilclaw.exchange.v1"

KINDS: Final[Mapping[str, type[ProviderError]]] = {
    "network": ProviderNetwork,
    "timeout": ProviderTimeout,
    "auth": ProviderAuth,
    "rate_limit": ProviderRateLimit,
    "server": ProviderServer,
    "rejected": ProviderRejected,
    "malformed": ProviderMalformed,
    "truncated": ProviderTruncated,
}


Redact: TypeAlias = "Callable[[str], str]"


@dataclass(frozen=True, slots=True)
class ModelExchange:
    """One line of a recording; ``request`` is as ``described`` gives it."""

    request: Mapping[str, Json]
    outcome: ChatResponse | ProviderError


@dataclass(frozen=True, slots=True)
class AnswerRecording(ProviderChain):
    """Asks a provider, and appends every exchange to a file, answers and errors alike."""

    name: str
    provider: Provider
    path: Path
    redact: Callable[[str], str] = str

    @property
    def capabilities(self) -> ProviderCapabilities:
        return self.provider.capabilities

    def _ask(self, request: ChatRequest, draft: Drafted | None) -> ChatResponse:
        asked = describe_request(request, self.redact)
        try:
            response = ask(self.provider, request, draft)
        except ProviderError as problem:
            _append(self.path, encode(asked, problem, self.redact))
            raise
        _append(self.path, encode(asked, response, self.redact))
        return response


class Playing:
    """Answers from a recording.

    A request gets the first exchange not yet played that has the same marks, so that one file holds
    any number of conversations. What else differs is told in the log.
    """

    __slots__ = ("_exchanges", "_left", "_lock", "_name", "_path", "_redact")

    def __init__(self, name: str, path: Path, redact: Callable[[str], str] = str) -> None:
        self._name, self._path, self._redact = name, path, redact
        self._exchanges = load(path, name)
        self._left: dict[tuple[str, ...], list[int]] = {}
        for place, exchange in enumerate(self._exchanges):
            self._left.setdefault(marks(exchange.request), []).append(place)
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        return self._name

    @property
    def capabilities(self) -> ProviderCapabilities:
        return ProviderCapabilities(tools=True, streaming=False)

    def chat(self, request: ChatRequest) -> ChatResponse:
        """Play what was answered to this request."""
        asked = describe_request(request, self._redact)
        place = self._place(marks(asked))
        recorded = self._exchanges[place]
        if parts := drift(recorded.request, asked):
            _log.info(
                "exchange %d of %s was recorded with another %s",
                place + 1,
                self._path,
                ", ".join(parts),
                extra={
                    "event": "provider_drift",
                    "fields": {"provider": self._name, "exchange": place + 1, "parts": parts},
                },
            )
        if isinstance(recorded.outcome, ProviderError):
            raise type(recorded.outcome)(recorded.outcome.message, provider=self._name)
        outcome = recorded.outcome
        return replace(outcome, tool_calls=number_calls(outcome.tool_calls, request))

    def _place(self, asked: tuple[str, ...]) -> int:
        with self._lock:
            if places := self._left.get(asked):
                return places.pop(0)
            left = sorted((places[0], known) for known, places in self._left.items() if places)
        if left:
            place, known = max(left, key=lambda entry: (*_likeness(entry[1], asked), -entry[0]))
            why = f"exchange {place + 1} {_difference(known, asked)}"
        else:
            why = f"all {len(self._exchanges)} exchanges were played"
        raise ProviderRejected(
            f"the recording {self._path} has no exchange for this request: {why}",
            provider=self._name,
            rule="provider.recording",
            hint="record the conversation again with mode = 'record'",
        )


def load(path: Path, provider: str) -> tuple[ModelExchange, ...]:
    """Read a recording; a line that a crash left unfinished at its end is left out."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_RECORDING_BYTES + 1)
    except OSError as problem:
        raise _wrong(path, f"cannot be read: {problem.strerror}") from problem
    if len(raw) > MAX_RECORDING_BYTES:
        raise _wrong(path, f"is larger than {MAX_RECORDING_BYTES:,} bytes")
    *lines, unfinished = raw.split(b"\n")
    if unfinished:
        _log.warning(
            "the last line of the recording %s is unfinished, and is left out",
            path,
            extra={"event": "provider_recording_torn", "fields": {"path": str(path)}},
        )
    exchanges: list[ModelExchange] = []
    problems: list[str] = []
    for number, line in enumerate(lines, start=1):
        try:
            exchanges.append(decode(line, provider))
        except (ValueError, RecursionError) as problem:
            problems.append(f"line {number}: {problem}")
    if problems:
        more = f"; and {len(problems) - MAX_PROBLEMS} more" if len(problems) > MAX_PROBLEMS else ""
        raise _wrong(path, "; ".join(problems[:MAX_PROBLEMS]) + more)
    return tuple(exchanges)


def _append(path: Path, line: bytes) -> None:
    """Add a line; one that a crash left unfinished is taken away first."""
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    hint = "its folder must exist, and the file must be a plain one"
    with explain_os_errors(f"write to the recording {path}", rule="provider.recording", hint=hint):
        descriptor = os.open(path, flags, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            os.ftruncate(descriptor, _count_whole_lines(descriptor))
            data = memoryview(line + b"\n")
            while data:
                data = data[os.write(descriptor, data) :]
        finally:
            os.close(descriptor)


def _count_whole_lines(descriptor: int) -> int:
    """Return how many bytes of a recording are whole lines."""
    end = os.fstat(descriptor).st_size
    while end:
        start = max(0, end - TAIL_BYTES)
        found = os.pread(descriptor, end - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0


def _likeness(known: tuple[str, ...], asked: tuple[str, ...]) -> tuple[int, bool, int]:
    """Rank what was recorded by how likely it was meant: it agrees for longest, and goes on."""
    more = len(known) - len(asked)
    return _agreement(known, asked), more >= 0, -abs(more)


def _agreement(known: tuple[str, ...], asked: tuple[str, ...]) -> int:
    pairs = enumerate(zip(known, asked, strict=False))
    return next(
        (index for index, (one, other) in pairs if one != other), min(len(known), len(asked))
    )


def _difference(known: tuple[str, ...], asked: tuple[str, ...]) -> str:
    at = _agreement(known, asked)
    before = quote_text(known[at]) if at < len(known) else "nothing more"
    now = quote_text(asked[at]) if at < len(asked) else "nothing more"
    return f"differs at message {at + 1}: recorded {before}, asked {now}"


def _wrong(path: Path, what: str) -> UsageError:
    return UsageError(f"the recording {path}: {what}", rule="provider.recording")


def describe_request(request: ChatRequest, redact: Redact) -> dict[str, Json]:
    """Return a request as a recording keeps it, without secrets."""
    # A request for free text looks as it did before there were others.
    bound: dict[str, Json] = {}
    if request.output_schema is not None:
        bound["output_schema"] = _freeform(dict(request.output_schema), redact)
    return {
        **bound,
        "system_prompt": _text(request.system_prompt, redact),
        "messages": [_message(message, redact) for message in request.messages],
        "tools": [
            {
                "name": _text(tool.name, redact),
                "description": _text(tool.description, redact),
                "parameters_schema": _freeform(dict(tool.parameters_schema), redact),
            }
            for tool in request.tools
        ],
        "model": _text(request.model, redact),
        "temperature": None if request.temperature is None else repr(request.temperature),
    }


def marks(request: Mapping[str, Json]) -> tuple[str, ...]:
    """Return what a request is recognised by, message by message.

    That is who says it, what a user says, which tools are called with which arguments, and the
    schema that the answer shall fit. Ids, what a tool returned, the system prompt, the model and
    the tools offered may differ: they hold times, paths and chance.
    """
    names: dict[str, str] = {}
    out: list[str] = []
    for message in _objects(request.get("messages")):
        role = str(message.get("role"))
        calls = _objects(message.get("tool_calls"))
        names |= {str(call.get("id")): str(call.get("name")) for call in calls}
        if role == "user":
            out.append(f"user: {message.get('content')}")
        elif role == "tool":
            out.append(f"result of {names.get(str(message.get('tool_call_id')), 'no call')}")
        else:
            called = [f"{call.get('name')} {call.get('arguments')}" for call in calls]
            out.append(f"{role}: calls {', '.join(called)}" if called else f"{role}: text")
    schema = request.get("output_schema")
    if isinstance(schema, str):
        out.append(f"answer by the schema {canonical_json.digest_bytes(schema.encode())}")
    return tuple(out)


def drift(recorded: Mapping[str, Json], asked: Mapping[str, Json]) -> list[str]:
    """Name the parts of two requests with equal marks that differ all the same."""
    parts = ("system_prompt", "tools", "model", "temperature")
    found = [part for part in parts if recorded.get(part) != asked.get(part)]
    pairs = zip(_objects(recorded.get("messages")), _objects(asked.get("messages")), strict=False)
    for number, (before, now) in enumerate(pairs, start=1):
        if before.get("content") != now.get("content"):
            found.append(f"message {number}")
    return found


def encode(
    request: Mapping[str, Json], outcome: ChatResponse | ProviderError, redact: Redact
) -> bytes:
    """Return the line of an exchange, without its end."""
    record: dict[str, object] = {"format": FORMAT, "request": request}
    if isinstance(outcome, ProviderError):
        kind = next((name for name, each in KINDS.items() if isinstance(outcome, each)), "rejected")
        record["error"] = {"kind": kind, "message": _text(outcome.message, redact)}
        return canonical_json.encode_record(record)
    usage = outcome.usage or Usage()
    record["response"] = {
        "final_text": _text(outcome.final_text, redact),
        "tool_calls": [_call(call, redact) for call in outcome.tool_calls],
        "usage": {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens},
        "model": _text(outcome.model, redact),
    }
    return canonical_json.encode_record(record)


def decode(line: bytes, provider: str) -> ModelExchange:
    """Read a line; a ``ValueError`` says what is wrong with it."""
    record = _check_object(loads(line), "the line")
    if record.get("format") != FORMAT:
        raise ValueError(f"its format is not {FORMAT}")
    request = _check_object(record.get("request"), "its request")
    if "error" in record:
        error = _check_object(record["error"], "its error")
        kind = KINDS.get(str(error.get("kind")))
        if kind is None:
            raise ValueError(f"its error is none of {', '.join(KINDS)}")
        return ModelExchange(request, kind(_string(error, "message"), provider=provider))
    response = _check_object(record.get("response"), "its response")
    usage = _check_object(response.get("usage"), "its usage")
    answered = ChatResponse(
        _string(response, "final_text"),
        tuple(_read_call(call) for call in _objects(response.get("tool_calls"))),
        usage=Usage(_count(usage, "input_tokens"), _count(usage, "output_tokens")),
        model=_string(response, "model"),
    )
    return ModelExchange(request, answered)


def _message(message: Message, redact: Redact) -> Json:
    return {
        "role": message.role,
        "content": _text(message.content, redact),
        "tool_calls": [_call(call, redact) for call in message.tool_calls],
        "tool_call_id": message.tool_call_id,
    }


def _call(call: ToolCall, redact: Redact) -> Json:
    return {
        "id": _text(call.id, redact),
        "name": _text(call.name, redact),
        "arguments": _freeform(dict(call.arguments), redact),
        "problem": None if call.problem is None else _text(call.problem, redact),
        "signature": call.signature,
    }


def _read_call(fields: Mapping[str, Json]) -> ToolCall:
    problem, signature = fields.get("problem"), fields.get("signature")
    call = tool_call(
        _string(fields, "name"), _string(fields, "arguments"), fields.get("id"), signature
    )
    return replace(call, problem=problem) if isinstance(problem, str) else call


def _text(text: str, redact: Redact) -> str:
    return redact(unicode(text))


def _freeform(value: Json, redact: Redact) -> str:
    return canonical_json.render_json(_redact_value(value, redact))


def _redact_value(value: Json, redact: Redact) -> Json:
    if isinstance(value, str):
        return _text(value, redact)
    if isinstance(value, list):
        return [_redact_value(item, redact) for item in value]
    if isinstance(value, dict):
        return {_text(key, redact): _redact_value(item, redact) for key, item in value.items()}
    if value is None or isinstance(value, bool):
        return value
    # A key may be all digits.
    return value if redact(repr(value)) == repr(value) else redact(repr(value))


def _check_object(value: Json, what: str) -> dict[str, Json]:
    if not isinstance(value, dict):
        raise ValueError(f"{what} is not an object")  # noqa: TRY004 - it is a fault of the line
    return value


def _objects(value: Json) -> list[dict[str, Json]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _string(fields: Mapping[str, Json], key: str) -> str:
    value = fields.get(key)
    if not isinstance(value, str):
        raise ValueError(f"its {key} is not text")  # noqa: TRY004 - as above
    return value


def _count(fields: Mapping[str, Json], key: str) -> int | None:
    value = fields.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
