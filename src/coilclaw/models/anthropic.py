"""Anthropic: ``/v1/messages``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import digest_bytes
from coilclaw.models.output_schema import narrow_schema
from coilclaw.models.refusal import malformed_error
from coilclaw.models.tool_arguments import tool_call, wire_name
from coilclaw.models.wire import ModelWire, WireQuestion, describe_tools, object_of, usage_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from coilclaw.kernel import ChatRequest, ChatResponse, Json, Message
    from coilclaw.models.event_stream import StreamTally

_DONE: Final = frozenset({"end_turn", "tool_use", "stop_sequence", "refusal", None})
_IDENTITY: Final = re.compile(r"[A-Za-z0-9_-]+")
API_VERSION: Final = "2023-06-01"
DEFAULT_MAX_TOKENS: Final = 32_000
"""The API wants a limit; an answer that reaches it is an error, not half an answer."""


@dataclass(frozen=True, slots=True)
class Anthropic(ModelWire):
    """A model of the Messages API."""

    max_tokens: int = DEFAULT_MAX_TOKENS

    def question(self, request: ChatRequest, *, stream: bool) -> WireQuestion:
        headers = {"anthropic-version": API_VERSION, **self.name_key("x-api-key")}
        body: dict[str, Json] = {
            "model": self.model,
            "max_tokens": self.max_tokens,
            "messages": _messages(request.messages),
            **self.name_temperature(request),
        }
        if request.system_prompt:
            body["system"] = request.system_prompt
        if request.tools:
            body["tools"] = describe_tools(request, "input_schema")
        if request.output_schema is not None:
            schema = narrow_schema(request.output_schema)
            body["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
        if stream:
            body["stream"] = True
        return WireQuestion(self.endpoint.url("v1", "messages"), headers, body)

    def fold(
        self,
        told: Iterator[dict[str, Json] | None],
        tally: StreamTally,
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
            message, delta = object_of(event.get("message")), object_of(event.get("delta"))
            usage |= object_of(message.get("usage")) | object_of(event.get("usage"))
            if kind == "message_delta":
                reason = delta.get("stop_reason") or reason
        if not ended and reason is None:
            raise self.unfinished_error()
        return {"content": blocks.join_blocks(), "stop_reason": reason, "usage": usage}

    def response(
        self, payload: dict[str, Json], raw: bytes | None, request: ChatRequest
    ) -> ChatResponse:
        reason = payload.get("stop_reason")
        self.check_end(reason, raw, limit="max_tokens", done=_DONE)
        if reason == "refusal":
            raise self.refusal_error(reason, raw)
        content = payload.get("content")
        if not isinstance(content, list):
            raise malformed_error(self.endpoint, "has no content", raw)
        blocks = [block for block in content if isinstance(block, dict)]
        text = "".join(str(b["text"]) for b in blocks if isinstance(b.get("text"), str))
        calls = [
            tool_call(b.get("name"), b.get("input"), b.get("id"))
            for b in blocks
            if b.get("type") == "tool_use"
        ]
        usage = usage_of(payload.get("usage"), "input_tokens", "output_tokens")
        return self.answer(text, calls, request, raw, usage)


class _Blocks:
    """Content blocks put together from their pieces."""

    def __init__(self, tally: StreamTally, draft: Callable[[str], None]) -> None:
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

    def join_blocks(self) -> list[Json]:
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
    blocks: list[Json] = []
    if message.content.strip():  # The API does not take a text of nothing but white space.
        blocks.append({"type": "text", "text": message.content})
    for call in message.tool_calls:
        named: dict[str, Json] = {"id": _identity(call.id), "name": wire_name(call.name)}
        blocks.append({"type": "tool_use", **named, "input": dict(call.arguments)})
    return blocks


def _identity(identity: str) -> str:
    """Return an id that the API takes; another provider of the conversation may have given it."""
    if _IDENTITY.fullmatch(identity):
        return identity
    return f"call-{digest_bytes(identity.encode('utf-8', 'replace'))[:24]}"
