"""Anthropic: ``/v1/messages``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.domain.messages import ChatResponse
from coilclaw.errors import ProviderRejected, ProviderTruncated
from coilclaw.providers import http
from coilclaw.providers.arguments import numbered, tool_call
from coilclaw.providers.wire import Wire, usage_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coilclaw.domain.messages import ChatRequest, Json, Message

_DONE: Final = frozenset({"end_turn", "tool_use", "stop_sequence", "refusal", None})
API_VERSION: Final = "2023-06-01"
DEFAULT_MAX_TOKENS: Final = 32_000
"""The API wants a limit; an answer that reaches it is an error, not half an answer."""


@dataclass(frozen=True, slots=True)
class Anthropic(Wire):
    """A model of the Messages API."""

    max_tokens: int = DEFAULT_MAX_TOKENS

    def chat(self, request: ChatRequest) -> ChatResponse:
        """Ask once and wait for the whole answer."""
        url = self.endpoint.url("v1", "messages")
        headers = {"anthropic-version": API_VERSION}
        if self.endpoint.key:
            headers["x-api-key"] = self.endpoint.key.reveal()
        raw = http.post(self.endpoint, url, headers, self._body(request))
        return self._response(raw)

    def _body(self, request: ChatRequest) -> dict[str, Json]:
        body: dict[str, Json] = {
            "model": self.model,
            "max_tokens": self.max_tokens,
            "messages": _messages(request.messages),
        }
        if request.system_prompt:
            body["system"] = request.system_prompt
        if request.temperature is not None:
            body["temperature"] = request.temperature
        if request.tools:
            body["tools"] = [
                {
                    "name": tool.name,
                    "description": tool.description,
                    "input_schema": dict(tool.parameters_schema),
                }
                for tool in request.tools
            ]
        return body

    def _response(self, raw: bytes) -> ChatResponse:
        payload = http.parse(self.endpoint, raw)
        reason = payload.get("stop_reason")
        if reason == "max_tokens":
            raise ProviderTruncated(
                f"the answer of {self.name} was cut off at its token limit (max_tokens)",
                provider=self.name,
                body=raw,
            )
        if reason not in _DONE:
            raise ProviderTruncated(
                f"the answer of {self.name} ended early ({reason})", provider=self.name, body=raw
            )
        if reason == "refusal":
            raise ProviderRejected(
                f"{self.name} did not answer: refusal", provider=self.name, body=raw
            )
        content = payload.get("content")
        if not isinstance(content, list):
            raise http.malformed(self.endpoint, "has no content", raw)
        blocks = [block for block in content if isinstance(block, dict)]
        text = "".join(str(b["text"]) for b in blocks if isinstance(b.get("text"), str))
        calls = [
            tool_call(b.get("name"), b.get("input", {}), b.get("id"))
            for b in blocks
            if b.get("type") == "tool_use"
        ]
        return ChatResponse(
            text,
            numbered(calls),
            raw,
            usage_of(payload.get("usage"), "input_tokens", "output_tokens"),
            self.model,
        )


def _messages(messages: Iterable[Message]) -> list[Json]:
    """All results of one round of calls go into one message."""
    out: list[Json] = []
    results: list[Json] = []
    for message in messages:
        if message.role != "tool":
            results = []
            out.append(_message(message))
            continue
        if not results:
            out.append({"role": "user", "content": results})
        results.append(
            {
                "type": "tool_result",
                "tool_use_id": message.tool_call_id or "",
                "content": message.content,
            }
        )
    return out


def _message(message: Message) -> Json:
    blocks: list[Json] = [{"type": "text", "text": message.content}] if message.content else []
    blocks += [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": dict(call.arguments)}
        for call in message.tool_calls
    ]
    return {"role": message.role, "content": blocks}
