"""Anthropic: ``/v1/messages``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.domain.canonical import digest
from coilclaw.domain.messages import ChatResponse
from coilclaw.errors import ProviderRejected, ProviderTruncated
from coilclaw.providers.arguments import numbered, tool_call, wire_name
from coilclaw.providers.jsonvalue import clean
from coilclaw.providers.outputschema import narrowed
from coilclaw.providers.refusal import excerpt, malformed
from coilclaw.providers.wire import Question, Wire, usage_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from coilclaw.domain.messages import ChatRequest, Json, Message
    from coilclaw.providers.sse import Tally

_DONE: Final = frozenset({"end_turn", "tool_use", "stop_sequence", "refusal", None})
_IDENTITY: Final = re.compile(r"[A-Za-z0-9_-]+")
API_VERSION: Final = "2023-06-01"
DEFAULT_MAX_TOKENS: Final = 32_000
"""The API wants a limit; an answer that reaches it is an error, not half an answer."""


@dataclass(frozen=True, slots=True)
class Anthropic(Wire):
    """A model of the Messages API."""

    max_tokens: int = DEFAULT_MAX_TOKENS

    def question(self, request: ChatRequest, *, stream: bool) -> Question:
        headers = {"anthropic-version": API_VERSION}
        if self.endpoint.key:
            headers["x-api-key"] = self.endpoint.key.reveal()
        body: dict[str, Json] = {
            "model": self.model,
            "max_tokens": self.max_tokens,
            "messages": _messages(request.messages),
        }
        if request.system_prompt:
            body["system"] = request.system_prompt
        warmth = self.warmth(request)
        if warmth is not None:
            body["temperature"] = warmth
        if request.tools:
            body["tools"] = [
                {
                    "name": tool.name,
                    "description": tool.description,
                    "input_schema": dict(tool.parameters_schema),
                }
                for tool in request.tools
            ]
        if request.output_schema is not None:
            schema = narrowed(request.output_schema)
            body["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
        if stream:
            body["stream"] = True
        return Question(self.endpoint.url("v1", "messages"), headers, body)

    def fold(
        self,
        told: Iterator[dict[str, Json] | None],
        tally: Tally,
        draft: Callable[[str], None],
    ) -> dict[str, Json]:
        blocks = _Blocks(tally, draft)
        usage: dict[str, Json] = {}
        reason: Json = None
        ended = False
        for event in told:
            kind = event.get("type") if event else "message_stop"
            if event is None or kind == "message_stop":
                ended = True
                break
            if kind == "content_block_start":
                blocks.begin(event.get("index"), event.get("content_block"))
            elif kind == "content_block_delta":
                blocks.add(event.get("index"), event.get("delta"))
            message, delta = _object(event.get("message")), _object(event.get("delta"))
            usage |= _object(message.get("usage")) | _object(event.get("usage"))
            if kind == "message_delta":
                reason = delta.get("stop_reason") or reason
        if not ended and reason is None:
            raise self.unfinished()
        return {"content": blocks.whole(), "stop_reason": reason, "usage": usage}

    def response(
        self, payload: dict[str, Json], raw: bytes | None, request: ChatRequest
    ) -> ChatResponse:
        reason = payload.get("stop_reason")
        if not isinstance(reason, str | None):
            raise malformed(self.endpoint, "ends for a reason that is no text", raw)
        if reason == "max_tokens":
            raise ProviderTruncated(
                f"the answer of {self.name} was cut off at its token limit (max_tokens)",
                provider=self.name,
                body=raw,
            )
        if reason not in _DONE:
            raise ProviderTruncated(
                f"the answer of {self.name} ended early ({excerpt(self.endpoint, reason)})",
                provider=self.name,
                body=raw,
            )
        if reason == "refusal":
            raise ProviderRejected(
                f"{self.name} did not answer: refusal", provider=self.name, body=raw
            )
        content = payload.get("content")
        if not isinstance(content, list):
            raise malformed(self.endpoint, "has no content", raw)
        blocks = [block for block in content if isinstance(block, dict)]
        text = "".join(str(b["text"]) for b in blocks if isinstance(b.get("text"), str))
        calls = [
            tool_call(b.get("name"), b.get("input"), b.get("id"))
            for b in blocks
            if b.get("type") == "tool_use"
        ]
        return ChatResponse(
            clean(text),
            numbered(calls, request),
            raw,
            usage_of(payload.get("usage"), "input_tokens", "output_tokens"),
            self.model,
        )


class _Blocks:
    """Content blocks put together from their pieces."""

    def __init__(self, tally: Tally, draft: Callable[[str], None]) -> None:
        self._tally, self._draft = tally, draft
        self._blocks: dict[int, dict[str, Json]] = {}
        self._pieces: dict[int, list[str]] = {}

    def begin(self, index: Json, block: Json) -> None:
        if not isinstance(index, int) or not isinstance(block, dict):
            return
        self._tally.entry(block)
        self._blocks[index], self._pieces[index] = block, []
        if block.get("type") == "text":
            self._say(index, block.get("text"))

    def add(self, index: Json, delta: Json) -> None:
        if not isinstance(delta, dict) or not isinstance(index, int) or index not in self._blocks:
            return
        if delta.get("type") == "text_delta":
            self._say(index, delta.get("text"))
        elif delta.get("type") == "input_json_delta":
            self._pieces[index].append(self._tally.text(delta.get("partial_json")))

    def whole(self) -> list[Json]:
        out: list[Json] = []
        for index, block in self._blocks.items():
            said = "".join(self._pieces[index])
            if block.get("type") == "text":
                out.append({"type": "text", "text": said})
            elif said:
                out.append({**block, "input": said})
            else:
                out.append(block)
        return out

    def _say(self, index: int, text: Json) -> None:
        if piece := self._tally.text(text):
            self._pieces[index].append(piece)
            self._draft(piece)


def _object(value: Json) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}


def _messages(messages: Iterable[Message]) -> list[Json]:
    """All results of one round of calls go into one message."""
    out: list[Json] = []
    results: list[Json] = []
    for message in messages:
        if message.role == "tool":
            if not results:
                out.append({"role": "user", "content": results})
            results.append(
                {
                    "type": "tool_result",
                    "tool_use_id": _identity(message.tool_call_id or ""),
                    "content": message.content,
                }
            )
            continue
        results = []
        if blocks := _blocks(message):
            out.append({"role": message.role, "content": blocks})
    return out


def _blocks(message: Message) -> list[Json]:
    # The API does not take a text of nothing but white space.
    blocks: list[Json] = (
        [{"type": "text", "text": message.content}] if message.content.strip() else []
    )
    blocks += [
        {
            "type": "tool_use",
            "id": _identity(call.id),
            "name": wire_name(call.name),
            "input": dict(call.arguments),
        }
        for call in message.tool_calls
    ]
    return blocks


def _identity(identity: str) -> str:
    """Return an id that the API takes; another provider of the conversation may have given it."""
    if _IDENTITY.fullmatch(identity):
        return identity
    return f"call-{digest(identity.encode('utf-8', 'replace'))[:24]}"
