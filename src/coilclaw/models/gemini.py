"""Gemini: ``generateContent`` and ``streamGenerateContent``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.models.endpoint import checked_model
from coilclaw.models.output_schema import narrow_schema
from coilclaw.models.refusal import malformed_error
from coilclaw.models.tool_arguments import UNNAMED, tool_call, wire_name
from coilclaw.models.wire import (
    ModelWire,
    WireQuestion,
    describe_tools,
    first_of,
    object_of,
    usage_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from coilclaw.kernel import ChatRequest, ChatResponse, Json, Message
    from coilclaw.models.event_stream import StreamTally

_DONE: Final[frozenset[str | None]] = frozenset({"STOP", "FINISH_REASON_UNSPECIFIED"})
_LIMIT: Final = "MAX_TOKENS"


@dataclass(frozen=True, slots=True)
class Gemini(ModelWire):
    """A model of the Gemini API."""

    def question(self, request: ChatRequest, *, stream: bool) -> WireQuestion:
        verb = "streamGenerateContent?alt=sse" if stream else "generateContent"
        url = self.endpoint.url("v1beta", f"models/{checked_model(self.model)}:{verb}")
        body: dict[str, Json] = {"contents": _contents(request.messages)}
        if request.system_prompt:
            body["systemInstruction"] = {"parts": [{"text": request.system_prompt}]}
        settings = self.name_temperature(request)
        if request.output_schema is not None:
            settings["responseMimeType"] = "application/json"
            settings["responseJsonSchema"] = narrow_schema(request.output_schema)
        if settings:
            body["generationConfig"] = settings
        if request.tools:
            declared: Json = describe_tools(request, "parametersJsonSchema")
            body["tools"] = [{"functionDeclarations": declared}]
        return WireQuestion(url, self.name_key("x-goog-api-key"), body)

    def fold(
        self,
        told: Iterator[dict[str, Json] | None],
        tally: StreamTally,
        draft: Callable[[str], None],
    ) -> dict[str, Json]:
        parts: list[Json] = []
        reason: Json = None
        payload: dict[str, Json] = {}
        for event in told:
            if event is None:
                break
            payload |= {key: value for key, value in event.items() if key != "candidates"}
            candidate = first_of(event.get("candidates"))
            reason = candidate.get("finishReason") or reason
            for part in _parts(candidate) or ():
                tally.entry(part if "text" not in part else None)
                parts.append(part)
                text = tally.text(part.get("text"))
                if text and not part.get("thought"):
                    draft(text)
        if reason is None and "promptFeedback" not in payload:
            raise self.unfinished_error()
        return payload | {"candidates": [{"content": {"parts": parts}, "finishReason": reason}]}

    def response(
        self, payload: dict[str, Json], raw: bytes | None, request: ChatRequest
    ) -> ChatResponse:
        blocked = object_of(payload.get("promptFeedback")).get("blockReason")
        if blocked:
            raise self.refusal_error(blocked, raw)
        candidate = first_of(payload.get("candidates"))
        if not candidate:
            raise malformed_error(self.endpoint, "has no candidates", raw)
        reason = str(candidate.get("finishReason") or "STOP")
        if reason not in {*_DONE, _LIMIT}:
            raise self.refusal_error(reason, raw)
        self.check_end(reason, raw, limit=_LIMIT, done=_DONE)
        parts = _parts(candidate)
        if parts is None:
            raise malformed_error(self.endpoint, "has parts that are not a list", raw)
        said = [part for part in parts if not part.get("thought")]
        text = "".join(str(part["text"]) for part in said if isinstance(part.get("text"), str))
        calls = [
            tool_call(
                call.get("name"), call.get("args"), call.get("id"), part.get("thoughtSignature")
            )
            for part in said
            if isinstance(call := part.get("functionCall"), dict)
        ]
        counted = payload.get("usageMetadata")
        usage = usage_of(counted, "promptTokenCount", "candidatesTokenCount")
        return self.answer(text, calls, request, raw, usage)


def _parts(candidate: dict[str, Json]) -> list[dict[str, Json]] | None:
    """Return the parts of a candidate, or ``None`` when they are of another form."""
    parts = object_of(candidate.get("content")).get("parts", [])
    if not isinstance(parts, list):
        return None
    return [part for part in parts if isinstance(part, dict)]


def _contents(messages: Iterable[Message]) -> list[Json]:
    """All results of one round of calls go into one content."""
    # An answer to a call names the tool here, where other wires name the call.
    names: dict[str, str] = {}
    out: list[Json] = []
    results: list[Json] = []
    for message in messages:
        names |= {call.id: wire_name(call.name) for call in message.tool_calls}
        if message.role == "tool":
            if not results:
                out.append({"role": "user", "parts": results})
            answer: dict[str, Json] = {
                "name": names.get(message.tool_call_id or "", UNNAMED),
                "response": {"output": message.content},
            }
            results.append({"functionResponse": answer})
            continue
        results = []
        parts: list[Json] = [{"text": message.content}] if message.content else []
        for call in message.tool_calls:
            function: Json = {"name": wire_name(call.name), "args": dict(call.arguments)}
            signed: dict[str, Json] = {"thoughtSignature": call.signature} if call.signature else {}
            parts.append({"functionCall": function, **signed})
        if parts:
            role = "model" if message.role == "assistant" else "user"
            out.append({"role": role, "parts": parts})
    return out
