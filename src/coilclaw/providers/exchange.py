"""One exchange with a model, as a recording keeps it: a request and what came of it.

A line of a recording is the RFC 8785 text of

    {"format": "coilclaw.exchange.v1", "request": {…}, "response": {…}}
    {"format": "coilclaw.exchange.v1", "request": {…}, "error": {"kind": "…", "message": "…"}}

Free-form JSON (arguments, schemas) is its RFC 8785 text. No secret is in it. What a provider sent
word for word, and the metadata of a request, are not kept.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from coilclaw.domain import canonical, freeform
from coilclaw.domain.messages import ChatResponse, ToolCall, Usage
from coilclaw.errors import (
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
from coilclaw.providers.arguments import tool_call
from coilclaw.providers.jsonvalue import loads, unicode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from coilclaw.domain.messages import ChatRequest, Json, Message

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
class Exchange:
    """One line of a recording; ``request`` is as ``described`` gives it."""

    request: Mapping[str, Json]
    outcome: ChatResponse | ProviderError


def described(request: ChatRequest, redact: Redact) -> dict[str, Json]:
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
        out.append(f"answer by the schema {canonical.digest(schema.encode())}")
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
        return canonical.encode(record)
    usage = outcome.usage or Usage()
    record["response"] = {
        "final_text": _text(outcome.final_text, redact),
        "tool_calls": [_call(call, redact) for call in outcome.tool_calls],
        "usage": {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens},
        "model": _text(outcome.model, redact),
    }
    return canonical.encode(record)


def decode(line: bytes, provider: str) -> Exchange:
    """Read a line; a ``ValueError`` says what is wrong with it."""
    record = _checked(loads(line), "the line")
    if record.get("format") != FORMAT:
        raise ValueError(f"its format is not {FORMAT}")
    request = _checked(record.get("request"), "its request")
    if "error" in record:
        error = _checked(record["error"], "its error")
        kind = KINDS.get(str(error.get("kind")))
        if kind is None:
            raise ValueError(f"its error is none of {', '.join(KINDS)}")
        return Exchange(request, kind(_string(error, "message"), provider=provider))
    response = _checked(record.get("response"), "its response")
    usage = _checked(response.get("usage"), "its usage")
    answered = ChatResponse(
        _string(response, "final_text"),
        tuple(_called(call) for call in _objects(response.get("tool_calls"))),
        usage=Usage(_count(usage, "input_tokens"), _count(usage, "output_tokens")),
        model=_string(response, "model"),
    )
    return Exchange(request, answered)


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


def _called(fields: Mapping[str, Json]) -> ToolCall:
    problem, signature = fields.get("problem"), fields.get("signature")
    call = tool_call(
        _string(fields, "name"), _string(fields, "arguments"), fields.get("id"), signature
    )
    return replace(call, problem=problem) if isinstance(problem, str) else call


def _text(text: str, redact: Redact) -> str:
    return redact(unicode(text))


def _freeform(value: Json, redact: Redact) -> str:
    return freeform.text(_redacted(value, redact))


def _redacted(value: Json, redact: Redact) -> Json:
    if isinstance(value, str):
        return _text(value, redact)
    if isinstance(value, list):
        return [_redacted(item, redact) for item in value]
    if isinstance(value, dict):
        return {_text(key, redact): _redacted(item, redact) for key, item in value.items()}
    if value is None or isinstance(value, bool):
        return value
    # A key may be all digits.
    return value if redact(repr(value)) == repr(value) else redact(repr(value))


def _checked(value: Json, what: str) -> dict[str, Json]:
    if not isinstance(value, dict):
        raise ValueError(f"{what} is no object")  # noqa: TRY004 - it is a fault of the line
    return value


def _objects(value: Json) -> list[dict[str, Json]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _string(fields: Mapping[str, Json], key: str) -> str:
    value = fields.get(key)
    if not isinstance(value, str):
        raise ValueError(f"its {key} is no text")  # noqa: TRY004 - as above
    return value


def _count(fields: Mapping[str, Json], key: str) -> int | None:
    value = fields.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
