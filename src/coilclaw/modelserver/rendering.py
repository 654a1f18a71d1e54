"""From an answer of the script to the bytes of a payload, in whatever dialect was asked."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from coilclaw.modelserver import chatcompletions, gemini, messages, responses
from coilclaw.modelserver.bodies import text
from coilclaw.modelserver.dialect import Asked, Dialect, Streaming, encoded
from coilclaw.modelserver.exchange import Payload
from coilclaw.modelserver.faults import marked, spoiled
from coilclaw.modelserver.offered import call
from coilclaw.modelserver.reply import (
    Item,
    Reasoning,
    Reply,
    Text,
    new_id,
    stop_of,
    tokens_of,
)
from coilclaw.modelserver.script import DialectName

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coilclaw.modelserver.bodies import Body
    from coilclaw.modelserver.routes import Route
    from coilclaw.modelserver.script import Answer, Fault

DIALECTS: Final[Mapping[DialectName, Dialect]] = {
    DialectName.CHAT: chatcompletions,
    DialectName.RESPONSES: responses,
    DialectName.MESSAGES: messages,
    DialectName.GEMINI: gemini,
}
_EVENT_STREAM: Final = "text/event-stream; charset=utf-8"


def asked_of(found: Route, body: Body, headers: Mapping[str, str], default_model: str) -> Asked:
    """Return what a request asks for; the address wins over the body."""
    streaming = found.streaming
    if streaming is None:
        streaming = Streaming.EVENTS if body.get("stream") is True else Streaming.NO
    return Asked(body, headers, found.model or text(body.get("model")) or default_model, streaming)


def scripted(
    name: DialectName, asked: Asked, answer: Answer, fault: Fault, size: int, created: int
) -> Payload:
    """Return an answer as the dialect sends it, spoiled if its fault says so."""
    if fault.status is not None:
        return _scripted_error(name, asked, fault, fault.status)
    dialect = DIALECTS[name]
    reply = _reply(answer, fault, asked, dialect, size, created)
    if asked.streaming is Streaming.NO:
        payload = Payload(200, (encoded(dialect.whole(reply, asked)),))
    else:
        events = asked.streaming is Streaming.EVENTS
        media_type = _EVENT_STREAM if events else "application/json"
        payload = Payload(200, tuple(dialect.stream(reply, asked)), media_type, streamed=True)
    return _headed(spoiled(payload, fault), fault.headers)


def json_payload(value: object) -> Payload:
    """Return a plain answer that no script has a say in."""
    return _headed(Payload(200, (encoded(value),)))


def error_payload(
    name: DialectName, status: int, message: str, headers: tuple[tuple[str, str], ...] = ()
) -> Payload:
    """Return an error of ours in the dialect's own shape."""
    return _headed(
        Payload(status, (encoded(DIALECTS[name].error(status, message, None)),)), headers
    )


def _scripted_error(name: DialectName, asked: Asked, fault: Fault, status: int) -> Payload:
    headers = fault.headers
    if fault.retry_after is not None:
        headers = (("retry-after", fault.retry_after), *headers)
    if fault.body is not None:
        return _headed(Payload(status, (fault.body.data,), fault.body.media_type), headers)
    message = f"scripted error {status}"
    value: object = DIALECTS[name].error(status, message, fault.retry_after)
    if asked.streaming is Streaming.ARRAY:
        value = [value]
    return _headed(Payload(status, (encoded(value),)), headers)


def _reply(
    answer: Answer, fault: Fault, asked: Asked, dialect: Dialect, size: int, created: int
) -> Reply:
    said = marked(answer.text, fault.malformed)
    tools = dialect.tools(asked.body)
    items: tuple[Item, ...] = (
        *([Reasoning(answer.reasoning)] if answer.reasoning is not None else []),
        *([Text(said)] if said is not None else []),
        *(call(action, tools) for action in answer.actions),
    )
    return Reply(
        items=items,
        stop=stop_of(answer.stop, items),
        stop_as=answer.stop_as,
        tokens=tokens_of(answer.usage, size, items),
        created=created,
    )


def _headed(payload: Payload, headers: tuple[tuple[str, str], ...] = ()) -> Payload:
    """Add the headers; every answer has an id, by both names that clients know."""
    request_id = new_id("req_")
    ids = (("x-request-id", request_id), ("request-id", request_id))
    return replace(payload, headers=(*ids, *headers))
