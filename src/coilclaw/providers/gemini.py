"""Gemini: ``generateContent``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.domain.messages import ChatResponse
from coilclaw.errors import ProviderRejected, ProviderTruncated
from coilclaw.providers import http
from coilclaw.providers.arguments import numbered, tool_call
from coilclaw.providers.endpoint import checked_model
from coilclaw.providers.wire import Wire, usage_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coilclaw.domain.messages import ChatRequest, Json, Message

_DONE: Final = frozenset({"STOP", "FINISH_REASON_UNSPECIFIED"})


@dataclass(frozen=True, slots=True)
class Gemini(Wire):
    """A model of the Gemini API."""

    def chat(self, request: ChatRequest) -> ChatResponse:
        """Ask once and wait for the whole answer."""
        model = checked_model(self.model)
        url = self.endpoint.url("v1beta", f"models/{model}:generateContent")
        key = self.endpoint.key
        headers = {"x-goog-api-key": key.reveal()} if key else {}
        raw = http.post(self.endpoint, url, headers, _body(request))
        return self._response(raw)

    def _response(self, raw: bytes) -> ChatResponse:
        payload = http.parse(self.endpoint, raw)
        feedback = payload.get("promptFeedback")
        if isinstance(feedback, dict) and feedback.get("blockReason"):
            raise self._blocked(str(feedback["blockReason"]), raw)
        candidates = payload.get("candidates")
        if not isinstance(candidates, list) or not candidates:
            raise http.malformed(self.endpoint, "has no candidates", raw)
        candidate = candidates[0]
        if not isinstance(candidate, dict):
            raise http.malformed(self.endpoint, "has a candidate that is no object", raw)
        reason = str(candidate.get("finishReason") or "STOP")
        if reason == "MAX_TOKENS":
            raise ProviderTruncated(
                f"the answer of {self.name} was cut off at its token limit (MAX_TOKENS)",
                provider=self.name,
                body=raw,
            )
        if reason not in _DONE:
            raise self._blocked(reason, raw)
        content = candidate.get("content")
        parts = content.get("parts", []) if isinstance(content, dict) else []
        if not isinstance(parts, list):
            raise http.malformed(self.endpoint, "has parts that are no list", raw)
        fields = [part for part in parts if isinstance(part, dict) and not part.get("thought")]
        text = "".join(str(part["text"]) for part in fields if isinstance(part.get("text"), str))
        calls = [
            tool_call(call.get("name"), call.get("args", {}), call.get("id"))
            for part in fields
            if isinstance(call := part.get("functionCall"), dict)
        ]
        return ChatResponse(
            text,
            numbered(calls),
            raw,
            usage_of(payload.get("usageMetadata"), "promptTokenCount", "candidatesTokenCount"),
            self.model,
        )

    def _blocked(self, reason: str, raw: bytes) -> ProviderRejected:
        return ProviderRejected(
            f"{self.name} did not answer: {reason}", provider=self.name, body=raw
        )


def _body(request: ChatRequest) -> dict[str, Json]:
    # An answer to a call names the tool here, where other wires name the call.
    names = {call.id: call.name for message in request.messages for call in message.tool_calls}
    body: dict[str, Json] = {"contents": [_content(m, names) for m in request.messages]}
    if request.system_prompt:
        body["systemInstruction"] = {"parts": [{"text": request.system_prompt}]}
    if request.temperature is not None:
        body["generationConfig"] = {"temperature": request.temperature}
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
    return body


def _content(message: Message, names: Mapping[str, str]) -> Json:
    if message.role == "tool":
        answer: dict[str, Json] = {
            "name": names.get(message.tool_call_id or "", "unnamed"),
            "response": {"output": message.content},
        }
        return {"role": "user", "parts": [{"functionResponse": answer}]}
    parts: list[Json] = [{"text": message.content}] if message.content else []
    parts += [
        {"functionCall": {"name": call.name, "args": dict(call.arguments)}}
        for call in message.tool_calls
    ]
    return {"role": "model" if message.role == "assistant" else "user", "parts": parts}
