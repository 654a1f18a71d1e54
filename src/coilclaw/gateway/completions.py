"""The door for clients of the OpenAI protocol: a request is one turn of the governed agent.

The agent keeps its own conversations. With ``metadata.conversation_id`` a request goes on with one
of them, and only its last message counts. Without it a conversation begins; what the client sends
before the last message is then quoted in front of it, as what the client says was said. It is not
stored as if this agent had said or heard it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from coilclaw.errors import CoilClawError
from coilclaw.gateway import faults, openaiforms
from coilclaw.gateway.agent import Finished
from coilclaw.gateway.answers import json_response
from coilclaw.gateway.faults import refused
from coilclaw.gateway.parts import Drafted, ToolAnswered
from coilclaw.gateway.sse import EventStream, frame
from coilclaw.runtime.identity import new_id

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.types import ASGIApp

    from coilclaw.domain.messages import Json
    from coilclaw.gateway.conversing import Conversing, Told
    from coilclaw.gateway.endpoint import Call

CONVERSATION_HEADER: Final = "x-conversation-id"
_DONE: Final = b"data: [DONE]\n\n"
_EARLIER: Final = "Earlier messages, as the client sent them:"
_NOW: Final = "The message to answer:"


@dataclass(frozen=True, slots=True)
class Completions:
    """``/v1``."""

    conversing: Conversing

    async def models(self, call: Call) -> ASGIApp:  # noqa: ARG002 - the shape of an endpoint
        return json_response(openaiforms.models())

    async def complete(self, call: Call) -> ASGIApp:
        """Answer the last message."""
        body = call.body
        if body["model"] != openaiforms.MODEL:
            raise refused(
                "model.unknown",
                "there is no such model",
                f"the only one is {openaiforms.MODEL!r}; the configuration says whom it asks",
            )
        metadata = body.get("metadata")
        given = metadata.get("conversation_id") if isinstance(metadata, dict) else None
        assert given is None or isinstance(given, str), "the schema says so"
        messages = body["messages"]
        assert isinstance(messages, list), "the schema says so"
        said = [message for message in messages if _text(message).strip()]
        message = _text(said[-1]) if given else rendered(said)
        created = int(time.time())
        if not body.get("stream"):
            finished = await self.conversing.answer(message, given)
            return json_response(
                openaiforms.completion(finished, created),
                headers={CONVERSATION_HEADER: finished.outcome.conversation_id},
            )
        options = body.get("stream_options")
        usage = isinstance(options, dict) and bool(options.get("include_usage"))
        name, mailbox = self.conversing.stream(message, given)
        pieces = _Pieces(created, with_usage=usage)
        return EventStream(mailbox, pieces.frames, headers={CONVERSATION_HEADER: name})


@dataclass(slots=True)
class _Pieces:
    """Turns the parts of one turn into chunks; what was drafted is not said twice."""

    created: int
    with_usage: bool
    id: str = field(default_factory=lambda: f"chatcmpl-{new_id('turn')}")
    _begun: bool = False
    _anything: bool = False
    _drafted: str = ""
    """What was drafted since the last call of a tool."""

    def frames(self, told: Told) -> Iterator[bytes]:
        if not self._begun:
            self._begun = True
            yield self._chunk({"role": "assistant", "content": ""})
        if isinstance(told, Drafted):
            self._drafted += told.text
            yield self._content(told.text)
        elif isinstance(told, ToolAnswered):
            self._drafted = ""
        elif isinstance(told, Finished):
            yield from self._rest(told.outcome.text)
            yield self._chunk({}, "stop")
            if self.with_usage:
                yield frame(openaiforms.usage_chunk(self.id, self.created, told))
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
            rest = f"\n\n{text}" if self._anything else text
        if rest:
            yield self._content(rest)

    def _content(self, text: str) -> bytes:
        self._anything = True
        return self._chunk({"content": text})

    def _chunk(self, delta: dict[str, Json], finish: str | None = None) -> bytes:
        return frame(openaiforms.chunk(self.id, self.created, delta, finish))


def rendered(messages: list[Json]) -> str:
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
