"""The door for clients of the OpenAI protocol: a request is one turn of the governed agent.

The agent keeps its own conversations. With ``metadata.conversation_id`` a request resumes one
of them, and only its last message counts. Without it a conversation begins; what the client sends
before the last message is then quoted in front of it, as what the client says was said. It is not
stored as if this agent had said or heard it.

A turn that needs an approval says so: in the stream as text that every client shows, else as the
error ``approval.waiting``, while the turn goes on by itself. It waits for a bounded time. Or, by a
setting, the call is refused at once.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from coilclaw.agent import visible
from coilclaw.gateway.agent import (
    ApprovalPending,
    DraftedText,
    FinishedTurn,
    ToolAnswered,
    TurnTerms,
)
from coilclaw.gateway.http import faults
from coilclaw.gateway.http.event_stream import EventStream, frame
from coilclaw.gateway.http.faults import json_response, refusal_error
from coilclaw.gateway.schemas import (
    CONVERSATION_ID,
    MAX_MESSAGES,
    TEXT,
    WRITTEN,
    Schema,
    complete_object,
    count,
    list_of,
)
from coilclaw.kernel import CoilClawError
from coilclaw.workspace import new_id

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.types import ASGIApp

    from coilclaw.gateway.schemas import EndpointCall
    from coilclaw.gateway.turns import Conversing, Told
    from coilclaw.kernel import Json

MAX_NOTICE_CHARS: Final = 300
"""Characters of what is asked that a notice quotes."""
CONVERSATION_HEADER: Final = "x-conversation-id"
_DONE: Final = b"data: [DONE]\n\n"
_EARLIER: Final = "Earlier messages, as the client sent them:"
_NOW: Final = "The message to answer:"


@dataclass(frozen=True, slots=True)
class Completions:
    """``/v1``."""

    conversing: Conversing
    wait_s: float = 600.0
    """How long a call waits for an approval; at 0 it is refused at once."""

    async def models(self, call: EndpointCall) -> ASGIApp:  # noqa: ARG002 - the shape of an endpoint
        """The one model."""
        return json_response(models())

    async def complete(self, call: EndpointCall) -> ASGIApp:
        """Run one turn, for clients of the OpenAI protocol."""
        body = call.body
        if body["model"] != MODEL:
            raise refusal_error(
                "model.unknown",
                "this model does not exist",
                f"the only one is {MODEL!r}; the configuration says whom it asks",
            )
        metadata = body.get("metadata")
        given = metadata.get("conversation_id") if isinstance(metadata, dict) else None
        assert given is None or isinstance(given, str), "the schema says so"
        messages = body["messages"]
        assert isinstance(messages, list), "the schema says so"
        said = [message for message in messages if _text(message).strip()]
        message = _text(said[-1]) if given else render_messages(said)
        created, terms = int(time.time()), TurnTerms(call.client, self.wait_s)
        if not body.get("stream"):
            finished = await self.conversing.answer(message, given, terms, waits=False)
            return json_response(
                completion(finished, created),
                headers={CONVERSATION_HEADER: finished.outcome.conversation_id},
            )
        options = body.get("stream_options")
        usage = isinstance(options, dict) and bool(options.get("include_usage"))
        name, mailbox = await self.conversing.stream(message, given, terms)
        pieces = _Pieces(created, with_usage=usage, wait_s=self.wait_s)
        return EventStream(mailbox, pieces.frames, headers={CONVERSATION_HEADER: name})


@dataclass(slots=True)
class _Pieces:
    """Turns the parts of one turn into chunks; what was drafted is not said twice."""

    created: int
    with_usage: bool
    wait_s: float = 0.0
    id: str = field(default_factory=lambda: f"chatcmpl-{new_id('turn')}")
    _begun: bool = False
    _last: str = ""
    """What was said last."""
    _drafted: str = ""
    """What was drafted since the last call of a tool."""
    _waiting: bool = False
    """Whether the last notice said that the turn waits."""

    def frames(self, told: Told) -> Iterator[bytes]:
        if not self._begun:
            self._begun = True
            yield self._chunk({"role": "assistant", "content": ""})
        if isinstance(told, DraftedText):
            self._drafted += told.text
            yield self._content(told.text)
        elif isinstance(told, ApprovalPending):
            self._waiting = True
            yield self._notice(_waits(told, self.wait_s))
        elif isinstance(told, ToolAnswered):
            self._drafted = ""
            if self._waiting:
                self._waiting = False
                yield self._notice("not approved" if told.status == "denied" else "answered")
        elif isinstance(told, FinishedTurn):
            yield from self._rest(told.outcome.text)
            yield self._chunk({}, "stop")
            if self.with_usage:
                yield frame(usage_chunk(self.id, self.created, told))
            yield _DONE
        elif isinstance(told, CoilClawError):
            yield frame(faults.openai_form(told))
            yield _DONE

    def _rest(self, text: str) -> Iterator[bytes]:
        """Say what of the answer was not drafted yet: all of it, if the draft went another way."""
        drafted = self._drafted.strip()
        if drafted and text.strip().startswith(drafted):
            rest = text.strip()[len(drafted) :]
        else:
            rest = f"{self._paragraph()}{text}" if text else ""
        if rest:
            yield self._content(rest)

    def _notice(self, text: str) -> bytes:
        """Say something of ours, in a paragraph of its own, that is not part of the answer."""
        return self._content(f"{self._paragraph()}[{text}]\n\n")

    def _paragraph(self) -> str:
        return "\n\n" if self._last and not self._last.endswith("\n\n") else ""

    def _content(self, text: str) -> bytes:
        self._last = text
        return self._chunk({"content": text})

    def _chunk(self, delta: dict[str, Json], finish: str | None = None) -> bytes:
        return frame(chunk(self.id, self.created, delta, finish))


def _waits(part: ApprovalPending, wait_s: float) -> str:
    """Say what a turn waits for; what is quoted cannot pass for another line."""
    what = visible(part.title)[:MAX_NOTICE_CHARS]
    question = part.kind == "question"
    awaited = f"an answer to {part.id}" if question else f"approval {part.id}"
    words = " --text ANSWER" if question else ""
    return (
        f"waiting for {awaited}: {what}; "
        f"'coilclaw approve {part.id}{words}' or POST /approvals within {wait_s:g} s"
    )


def render_messages(messages: list[Json]) -> str:
    """Return the last message; others are quoted before it, with who is said to have said them."""
    *earlier, last = messages
    if not earlier:
        return _text(last)
    lines = [_EARLIER, ""]
    for message in earlier:
        lines += [f"[{_role(message)}]", _text(message), ""]
    return "\n".join([*lines, _NOW, "", _text(last)])


def _role(message: Json) -> str:
    return str(message["role"]) if isinstance(message, dict) else ""


def _text(message: Json) -> str:
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, list):
        return "\n".join(str(part["text"]) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


MODEL: Final = "coilclaw"
"""The one model that is offered: the agent itself, whichever provider it asks."""

_SAYING: Final = ("system", "developer", "user", "tool", "function")
_PART: Final[Schema] = {
    "type": "object",
    "properties": {"type": {"const": "text"}, "text": WRITTEN},
    "required": ["type", "text"],
}
_CONTENT: Final[Schema] = {
    "anyOf": [WRITTEN, {"type": "array", "minItems": 1, "maxItems": MAX_MESSAGES, "items": _PART}]
}
_SAID: Final[Schema] = {
    "type": "object",
    "properties": {"role": {"enum": list(_SAYING)}, "content": _CONTENT},
    "required": ["role", "content"],
}
_ANSWERED: Final[Schema] = {
    "type": "object",
    "properties": {
        "role": {"const": "assistant"},
        "content": {"anyOf": [_CONTENT, {"type": "null"}, {"const": ""}]},
    },
    "required": ["role"],
}
_NONE_OF: Final[Schema] = {"type": ["array", "null"], "maxItems": 0}

REQUEST: Final[Schema] = {
    "type": "object",
    "properties": {
        "model": {"type": "string", "minLength": 1, "maxLength": 200, "examples": [MODEL]},
        "messages": {
            "type": "array",
            "minItems": 1,
            "maxItems": MAX_MESSAGES,
            "items": {"anyOf": [_SAID, _ANSWERED]},
            "contains": _SAID,
        },
        "stream": {"type": ["boolean", "null"]},
        "stream_options": {
            "type": ["object", "null"],
            "properties": {"include_usage": {"type": ["boolean", "null"]}},
        },
        "n": {"type": ["integer", "null"], "minimum": 1, "maximum": 1},
        "tools": _NONE_OF,
        "functions": _NONE_OF,
        "response_format": {
            "type": ["object", "null"],
            "properties": {"type": {"const": "text"}},
        },
        "metadata": {
            "type": ["object", "null"],
            "properties": {"conversation_id": CONVERSATION_ID},
        },
    },
    "required": ["model", "messages"],
}
_USAGE: Final = complete_object(
    {"prompt_tokens": count(), "completion_tokens": count(), "total_tokens": count()}
)
COMPLETION: Final = complete_object(
    {
        "id": TEXT,
        "object": {"const": "chat.completion"},
        "created": count(),
        "model": TEXT,
        "conversation_id": TEXT,
        "choices": list_of(
            complete_object(
                {
                    "index": count(),
                    "message": complete_object({"role": {"const": "assistant"}, "content": TEXT}),
                    "finish_reason": {"const": "stop"},
                    "logprobs": {"type": "null"},
                }
            )
        ),
        "usage": _USAGE,
    },
    "usage",
)
_MODEL: Final = complete_object(
    {"id": TEXT, "object": {"const": "model"}, "created": count(), "owned_by": TEXT}
)
MODELS: Final = complete_object({"object": {"const": "list"}, "data": list_of(_MODEL)})


def models() -> dict[str, Json]:
    """Return the list of models."""
    return {
        "object": "list",
        "data": [{"id": MODEL, "object": "model", "created": 0, "owned_by": "coilclaw"}],
    }


def usage_of(finished: FinishedTurn) -> dict[str, Json] | None:
    """Return the tokens of a turn, where the provider told them."""
    given, made = finished.input_tokens, finished.output_tokens
    if given is None or made is None:
        return None
    return {"prompt_tokens": given, "completion_tokens": made, "total_tokens": given + made}


def completion(finished: FinishedTurn, created: int) -> dict[str, Json]:
    """Return a whole answer."""
    outcome = finished.outcome
    value: dict[str, Json] = {
        "id": f"chatcmpl-{outcome.turn_id}",
        "object": "chat.completion",
        "created": created,
        "model": MODEL,
        "conversation_id": outcome.conversation_id,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": outcome.text},
                "finish_reason": "stop",
                "logprobs": None,
            }
        ],
    }
    usage = usage_of(finished)
    return value if usage is None else {**value, "usage": usage}


def chunk(
    completion_id: str, created: int, delta: dict[str, Json], finish: str | None = None
) -> dict[str, Json]:
    """Return a piece of an answer."""
    return {
        "id": completion_id,
        "object": "chat.completion.chunk",
        "created": created,
        "model": MODEL,
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}],
    }


def usage_chunk(completion_id: str, created: int, finished: FinishedTurn) -> dict[str, Json]:
    """Return the piece that tells the tokens, for a client that asked for it."""
    return {
        **chunk(completion_id, created, {}),
        "choices": [],
        "usage": usage_of(finished),
    }
