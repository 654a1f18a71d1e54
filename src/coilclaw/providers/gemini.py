"""Gemini: ``generateContent`` and ``streamGenerateContent``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.domain.messages import ChatResponse
from coilclaw.errors import ProviderRejected, ProviderTruncated
from coilclaw.providers.arguments import UNNAMED, numbered, tool_call, wire_name
from coilclaw.providers.endpoint import checked_model
from coilclaw.providers.jsonvalue import clean
from coilclaw.providers.outputschema import narrowed
from coilclaw.providers.refusal import excerpt, malformed
from coilclaw.providers.wire import Question, Wire, usage_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from coilclaw.domain.messages import ChatRequest, Json, Message, ToolCall
    from coilclaw.providers.sse import Tally

_DONE: Final = frozenset({"STOP", "FINISH_REASON_UNSPECIFIED"})


@dataclass(frozen=True, slots=True)
class Gemini(Wire):
    """A model of the Gemini API."""

    def question(self, request: ChatRequest, *, stream: bool) -> Question:
        verb = "streamGenerateContent?alt=sse" if stream else "generateContent"
        url = self.endpoint.url("v1beta", f"models/{checked_model(self.model)}:{verb}")
        key = self.endpoint.key
        headers = {"x-goog-api-key": key.reveal()} if key else {}
        body: dict[str, Json] = {"contents": _contents(request.messages)}
        if request.system_prompt:
            body["systemInstruction"] = {"parts": [{"text": request.system_prompt}]}
        settings: dict[str, Json] = {}
        warmth = self.warmth(request)
        if warmth is not None:
            settings["temperature"] = warmth
        if request.output_schema is not None:
            settings["responseMimeType"] = "application/json"
            settings["responseJsonSchema"] = narrowed(request.output_schema)
        if settings:
            body["generationConfig"] = settings
        if request.tools:
            declared: list[Json] = [
                {
                    "name": tool.name,
                    "description": tool.description,
                    "parametersJsonSchema": dict(tool.parameters_schema),
                }
                for tool in request.tools
            ]
            body["tools"] = [{"functionDeclarations": declared}]
        return Question(url, headers, body)

    def fold(
        self,
        told: Iterator[dict[str, Json] | None],
        tally: Tally,
        draft: Callable[[str], None],
    ) -> dict[str, Json]:
        parts: list[Json] = []
        reason: Json = None
        payload: dict[str, Json] = {}
        for event in told:
            if event is None:
                break
            payload |= {key: value for key, value in event.items() if key != "candidates"}
            candidate = _first(event.get("candidates"))
            reason = candidate.get("finishReason") or reason
            for part in _parts(candidate) or ():
                tally.entry(part if "text" not in part else None)
                parts.append(part)
                text = tally.text(part.get("text"))
                if text and not part.get("thought"):
                    draft(text)
        if reason is None and "promptFeedback" not in payload:
            raise self.unfinished()
        return payload | {"candidates": [{"content": {"parts": parts}, "finishReason": reason}]}

    def response(
        self, payload: dict[str, Json], raw: bytes | None, request: ChatRequest
    ) -> ChatResponse:
        feedback = payload.get("promptFeedback")
        if isinstance(feedback, dict) and feedback.get("blockReason"):
            raise self._blocked(feedback["blockReason"], raw)
        candidate = _first(payload.get("candidates"))
        if not candidate:
            raise malformed(self.endpoint, "has no candidates", raw)
        reason = str(candidate.get("finishReason") or "STOP")
        if reason == "MAX_TOKENS":
            raise ProviderTruncated(
                f"the answer of {self.name} was cut off at its token limit (MAX_TOKENS)",
                provider=self.name,
                body=raw,
            )
        if reason not in _DONE:
            raise self._blocked(reason, raw)
        parts = _parts(candidate)
        if parts is None:
            raise malformed(self.endpoint, "has parts that are no list", raw)
        said = [part for part in parts if not part.get("thought")]
        text = "".join(str(part["text"]) for part in said if isinstance(part.get("text"), str))
        calls = [
            tool_call(
                call.get("name"),
                call.get("args"),
                call.get("id"),
                part.get("thoughtSignature"),
            )
            for part in said
            if isinstance(call := part.get("functionCall"), dict)
        ]
        return ChatResponse(
            clean(text),
            numbered(calls, request),
            raw,
            usage_of(payload.get("usageMetadata"), "promptTokenCount", "candidatesTokenCount"),
            self.model,
        )

    def _blocked(self, reason: Json, raw: bytes | None) -> ProviderRejected:
        return ProviderRejected(
            f"{self.name} did not answer: {excerpt(self.endpoint, reason)}",
            provider=self.name,
            body=raw,
        )


def _first(candidates: Json) -> dict[str, Json]:
    first = candidates[0] if isinstance(candidates, list) and candidates else None
    return first if isinstance(first, dict) else {}


def _parts(candidate: dict[str, Json]) -> list[dict[str, Json]] | None:
    """Return the parts of a candidate, or ``None`` when they are of another form."""
    content = candidate.get("content")
    parts = content.get("parts", []) if isinstance(content, dict) else []
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
        parts += [_part(call) for call in message.tool_calls]
        if parts:
            role = "model" if message.role == "assistant" else "user"
            out.append({"role": role, "parts": parts})
    return out


def _part(call: ToolCall) -> Json:
    part: dict[str, Json] = {
        "functionCall": {"name": wire_name(call.name), "args": dict(call.arguments)}
    }
    if call.signature:
        part["thoughtSignature"] = call.signature
    return part
