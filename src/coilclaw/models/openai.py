"""Chat completions, as OpenAI and everything compatible with it speak them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.models.output_schema import NAME, narrow_schema
from coilclaw.models.refusal import malformed_error
from coilclaw.models.tool_arguments import tool_call, wire_name
from coilclaw.models.wire import (
    ModelWire,
    WireQuestion,
    describe_tools,
    first_of,
    object_of,
    usage_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from coilclaw.kernel import ChatRequest, ChatResponse, Json, Message
    from coilclaw.models.event_stream import StreamTally


_DONE: Final = frozenset(
    {"stop", "tool_calls", "function_call", "content_filter", "end_turn", "eos", "eos_token", None}
)
"""Ways to end that are an end; servers that are only compatible have words of their own."""


@dataclass(frozen=True, slots=True)
class OpenAI(ModelWire):
    """A model behind ``/v1/chat/completions``."""

    def question(self, request: ChatRequest, *, stream: bool) -> WireQuestion:
        messages: list[Json] = []
        if request.system_prompt:
            messages.append({"role": "system", "content": request.system_prompt})
        messages += [_message(message) for message in request.messages]
        body: dict[str, Json] = {"model": self.model, "messages": messages}
        body |= self.name_temperature(request)
        if request.tools:
            tools = describe_tools(request, "parameters")
            body["tools"] = [{"type": "function", "function": tool} for tool in tools]
        if request.output_schema is not None:
            bound: Json = {
                "name": NAME,
                "strict": True,
                "schema": narrow_schema(request.output_schema),
            }
            body["response_format"] = {"type": "json_schema", "json_schema": bound}
        if stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        url = self.endpoint.url("v1", "chat/completions")
        return WireQuestion(url, self.name_key("authorization", "Bearer "), body)

    def fold(
        self,
        told: Iterator[dict[str, Json] | None],
        tally: StreamTally,
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
            choice = first_of(event.get("choices"))
            delta = object_of(choice.get("delta"))
            refusals.append(tally.text(delta.get("refusal")))
            calls.add(delta.get("tool_calls"))
            if piece := tally.text(delta.get("content")):
                pieces.append(piece)
                draft(piece)
            reason = choice.get("finish_reason") or reason
        # Not every server says both, and each is an end.
        if not done and reason is None:
            raise self.unfinished_error()
        message: dict[str, Json] = {"content": "".join(pieces), "refusal": "".join(refusals)}
        message["tool_calls"] = calls.join_calls()
        return {"choices": [{"message": message, "finish_reason": reason}], "usage": usage}

    def response(
        self, payload: dict[str, Json], raw: bytes | None, request: ChatRequest
    ) -> ChatResponse:
        first = first_of(payload.get("choices"))
        message = first.get("message")
        if not isinstance(message, dict):
            raise malformed_error(self.endpoint, "has no choice with a message", raw)
        reason = first.get("finish_reason")
        self.check_end(reason, raw, limit="length", done=_DONE)
        refusal = message.get("refusal")
        said = refusal if isinstance(refusal, str) else ""
        if said or reason == "content_filter":
            raise self.refusal_error(said or "content_filter", raw)
        text, listed = message.get("content"), message.get("tool_calls") or []
        if not isinstance(text, str | None) or not isinstance(listed, list):
            raise malformed_error(self.endpoint, "has a message of another form", raw)
        calls = []
        for call in listed:
            if isinstance(call, dict):
                inner = object_of(call.get("function"))
                calls.append(tool_call(inner.get("name"), inner.get("arguments"), call.get("id")))
        usage = usage_of(payload.get("usage"), "prompt_tokens", "completion_tokens")
        return self.answer(text or "", calls, request, raw, usage)


class _Calls:
    """Calls put together from their pieces."""

    def __init__(self, tally: StreamTally) -> None:
        self._tally = tally
        self._calls: list[dict[str, list[str]]] = []
        self._places: dict[int, int] = {}

    def add(self, deltas: Json) -> None:
        for delta in deltas if isinstance(deltas, list) else ():
            if not isinstance(delta, dict):
                continue
            inner = object_of(delta.get("function"))
            call = self._call(delta.get("index"), delta.get("id"), inner.get("name"))
            if not call["id"] and (identity := self._tally.text(delta.get("id"))):
                call["id"].append(identity)
            for key in ("name", "arguments"):
                if piece := self._tally.text(inner.get(key)):
                    call[key].append(piece)

    def join_calls(self) -> list[Json]:
        whole = [{key: "".join(pieces) for key, pieces in call.items()} for call in self._calls]
        return [{"id": call.pop("id"), "function": {**call}} for call in whole]

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


def _message(message: Message) -> Json:
    out: dict[str, Json] = {"role": message.role, "content": message.content}
    if message.role == "tool":
        return {**out, "tool_call_id": message.tool_call_id or ""}
    calls: list[Json] = []
    for call in message.tool_calls:
        arguments = json.dumps(dict(call.arguments))
        function: Json = {"name": wire_name(call.name), "arguments": arguments}
        calls.append({"id": call.id, "type": "function", "function": function})
    return {**out, "tool_calls": calls} if calls else out
