"""Chat completions, as OpenAI and everything compatible with it speak them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.domain.messages import ChatResponse
from coilclaw.errors import ProviderRejected, ProviderTruncated
from coilclaw.providers.arguments import numbered, tool_call, wire_name
from coilclaw.providers.jsonvalue import clean
from coilclaw.providers.outputschema import NAME, narrowed
from coilclaw.providers.refusal import excerpt, malformed
from coilclaw.providers.wire import Question, Wire, usage_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from coilclaw.domain.messages import ChatRequest, Json, Message, ToolCall
    from coilclaw.providers.sse import Tally


_DONE: Final = frozenset(
    {"stop", "tool_calls", "function_call", "content_filter", "end_turn", "eos", "eos_token", None}
)
"""Ways to end that are an end; servers that are only compatible have words of their own."""


@dataclass(frozen=True, slots=True)
class OpenAI(Wire):
    """A model behind ``/v1/chat/completions``."""

    def question(self, request: ChatRequest, *, stream: bool) -> Question:
        key = self.endpoint.key
        headers = {"authorization": f"Bearer {key.reveal()}"} if key else {}
        messages: list[Json] = []
        if request.system_prompt:
            messages.append({"role": "system", "content": request.system_prompt})
        messages += [_message(message) for message in request.messages]
        body: dict[str, Json] = {"model": self.model, "messages": messages}
        warmth = self.warmth(request)
        if warmth is not None:
            body["temperature"] = warmth
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
        if request.output_schema is not None:
            bound: Json = {"name": NAME, "strict": True, "schema": narrowed(request.output_schema)}
            body["response_format"] = {"type": "json_schema", "json_schema": bound}
        if stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        return Question(self.endpoint.url("v1", "chat/completions"), headers, body)

    def fold(
        self,
        told: Iterator[dict[str, Json] | None],
        tally: Tally,
        draft: Callable[[str], None],
    ) -> dict[str, Json]:
        pieces: list[str] = []
        refusals: list[str] = []
        calls = _Calls(tally)
        reason: Json = None
        usage: Json = None
        done = False
        for event in told:
            if event is None:
                done = True
                break
            usage = event.get("usage") or usage
            choice = _first(event.get("choices"))
            delta = choice.get("delta")
            if isinstance(delta, dict):
                if refusal := tally.text(delta.get("refusal")):
                    refusals.append(refusal)
                calls.add(delta.get("tool_calls"))
                if piece := tally.text(delta.get("content")):
                    pieces.append(piece)
                    draft(piece)
            reason = choice.get("finish_reason") or reason
        # Not every server says both, and each is an end.
        if not done and reason is None:
            raise self.unfinished()
        message: dict[str, Json] = {
            "content": "".join(pieces),
            "refusal": "".join(refusals),
            "tool_calls": calls.whole(),
        }
        return {"choices": [{"message": message, "finish_reason": reason}], "usage": usage}

    def response(
        self, payload: dict[str, Json], raw: bytes | None, request: ChatRequest
    ) -> ChatResponse:
        first = _first(payload.get("choices"))
        message = first.get("message")
        if not isinstance(message, dict):
            raise malformed(self.endpoint, "has no choice with a message", raw)
        reason = first.get("finish_reason")
        if not isinstance(reason, str | None):
            raise malformed(self.endpoint, "ends for a reason that is no text", raw)
        if reason == "length":
            raise ProviderTruncated(
                f"the answer of {self.name} was cut off at its token limit (length)",
                provider=self.name,
                body=raw,
            )
        if reason not in _DONE:
            raise ProviderTruncated(
                f"the answer of {self.name} ended early ({excerpt(self.endpoint, reason)})",
                provider=self.name,
                body=raw,
            )
        refusal = message.get("refusal")
        if reason == "content_filter" or (isinstance(refusal, str) and refusal):
            said = refusal if isinstance(refusal, str) and refusal else "content_filter"
            raise ProviderRejected(
                f"{self.name} did not answer: {excerpt(self.endpoint, said)}",
                provider=self.name,
                body=raw,
            )
        text = message.get("content")
        listed = message.get("tool_calls") or []
        if not isinstance(text, str | None) or not isinstance(listed, list):
            raise malformed(self.endpoint, "has a message of another form", raw)
        return ChatResponse(
            clean(text or ""),
            numbered([_call(call) for call in listed if isinstance(call, dict)], request),
            raw,
            usage_of(payload.get("usage"), "prompt_tokens", "completion_tokens"),
            self.model,
        )


class _Calls:
    """Calls put together from their pieces."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._calls: list[dict[str, list[str]]] = []
        self._places: dict[int, int] = {}

    def add(self, deltas: Json) -> None:
        for delta in deltas if isinstance(deltas, list) else ():
            if not isinstance(delta, dict):
                continue
            function = delta.get("function")
            inner = function if isinstance(function, dict) else {}
            call = self._call(delta.get("index"), delta.get("id"), inner.get("name"))
            if not call["id"] and (identity := self._tally.text(delta.get("id"))):
                call["id"].append(identity)
            for key in ("name", "arguments"):
                if piece := self._tally.text(inner.get(key)):
                    call[key].append(piece)

    def whole(self) -> list[Json]:
        return [
            {
                "id": "".join(call["id"]),
                "function": {
                    "name": "".join(call["name"]),
                    "arguments": "".join(call["arguments"]),
                },
            }
            for call in self._calls
        ]

    def _call(self, index: Json, identity: Json, name: Json) -> dict[str, list[str]]:
        """Find the call that a piece belongs to.

        Without a number, a name begins another call; and some servers give every call the same one.
        """
        number = index if isinstance(index, int) else -1
        place = self._places.get(number)
        if place is not None:
            known = self._calls[place]
            other = isinstance(identity, str) and identity and identity != "".join(known["id"])
            if not (name and (other or number < 0)):
                return known
        self._tally.entry()
        self._places[number] = len(self._calls)
        self._calls.append({"id": [], "name": [], "arguments": []})
        return self._calls[-1]


def _first(choices: Json) -> dict[str, Json]:
    first = choices[0] if isinstance(choices, list) and choices else None
    return first if isinstance(first, dict) else {}


def _call(fields: dict[str, Json]) -> ToolCall:
    function = fields.get("function")
    inner = function if isinstance(function, dict) else {}
    return tool_call(inner.get("name"), inner.get("arguments"), fields.get("id"))


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
                "function": {
                    "name": wire_name(call.name),
                    "arguments": json.dumps(dict(call.arguments)),
                },
            }
            for call in message.tool_calls
        ]
    return out
