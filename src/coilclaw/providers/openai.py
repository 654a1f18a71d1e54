"""Chat completions, as OpenAI and everything compatible with it speak them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.domain.messages import ChatResponse
from coilclaw.errors import ProviderRejected, ProviderTruncated
from coilclaw.providers import http
from coilclaw.providers.arguments import numbered, tool_call
from coilclaw.providers.wire import Wire, usage_of

if TYPE_CHECKING:
    from coilclaw.domain.messages import ChatRequest, Json, Message, ToolCall


_DONE: Final = frozenset(
    {"stop", "tool_calls", "function_call", "content_filter", "end_turn", "eos", "eos_token", None}
)
"""Ways to end that are an end; servers that are only compatible have words of their own."""


@dataclass(frozen=True, slots=True)
class OpenAI(Wire):
    """A model behind ``/v1/chat/completions``."""

    def chat(self, request: ChatRequest) -> ChatResponse:
        """Ask once and wait for the whole answer."""
        url = self.endpoint.url("v1", "chat/completions")
        key = self.endpoint.key
        headers = {"authorization": f"Bearer {key.reveal()}"} if key else {}
        raw = http.post(self.endpoint, url, headers, _body(request, self.model))
        return self._response(raw)

    def _response(self, raw: bytes) -> ChatResponse:
        payload = http.parse(self.endpoint, raw)
        choices = payload.get("choices")
        first = choices[0] if isinstance(choices, list) and choices else None
        message = first.get("message") if isinstance(first, dict) else None
        if not isinstance(first, dict) or not isinstance(message, dict):
            raise http.malformed(self.endpoint, "has no choice with a message", raw)
        reason = first.get("finish_reason")
        if reason == "length":
            raise ProviderTruncated(
                f"the answer of {self.name} was cut off at its token limit (length)",
                provider=self.name,
                body=raw,
            )
        if reason not in _DONE:
            raise ProviderTruncated(
                f"the answer of {self.name} ended early ({reason})", provider=self.name, body=raw
            )
        refusal = message.get("refusal")
        if reason == "content_filter" or (isinstance(refusal, str) and refusal):
            said = refusal if isinstance(refusal, str) and refusal else "content_filter"
            raise ProviderRejected(
                f"{self.name} did not answer: {self.endpoint.redact(said)}",
                provider=self.name,
                body=raw,
            )
        text = message.get("content")
        listed = message.get("tool_calls") or []
        if not isinstance(text, str | None) or not isinstance(listed, list):
            raise http.malformed(self.endpoint, "has a message of another form", raw)
        return ChatResponse(
            text or "",
            numbered([_call(call) for call in listed if isinstance(call, dict)]),
            raw,
            usage_of(payload.get("usage"), "prompt_tokens", "completion_tokens"),
            self.model,
        )


def _call(fields: dict[str, Json]) -> ToolCall:
    function = fields.get("function")
    inner = function if isinstance(function, dict) else {}
    return tool_call(inner.get("name"), inner.get("arguments", {}), fields.get("id"))


def _body(request: ChatRequest, model: str) -> dict[str, Json]:
    messages: list[Json] = []
    if request.system_prompt:
        messages.append({"role": "system", "content": request.system_prompt})
    messages += [_message(message) for message in request.messages]
    body: dict[str, Json] = {"model": model, "messages": messages}
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": dict(tool.parameters_schema),
                },
            }
            for tool in request.tools
        ]
    return body


def _message(message: Message) -> Json:
    if message.role == "tool":
        return {
            "role": "tool",
            "tool_call_id": message.tool_call_id or "",
            "content": message.content,
        }
    out: dict[str, Json] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        out["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(dict(call.arguments))},
            }
            for call in message.tool_calls
        ]
    return out
