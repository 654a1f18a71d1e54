"""Anthropic Messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coilclaw.cli.model_server.dialect import (
    ChatQuery,
    FreeformCall,
    FunctionCall,
    Item,
    OfferedTool,
    Reasoning,
    Reply,
    Said,
    Speaker,
    Text,
    Tokens,
    encoded,
    event,
    mapping,
    new_id,
    objects,
    pieces,
    refuse_shape,
    require_list,
    require_text,
    text,
    texts,
)
from coilclaw.cli.model_server.script import Stop
from coilclaw.cli.model_server.structured import check_anthropic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coilclaw.cli.model_server.dialect import Body

_STOPS: Final = {
    Stop.STOP: "end_turn",
    Stop.LENGTH: "max_tokens",
    Stop.CONTENT_FILTER: "refusal",
    Stop.TOOL_CALLS: "tool_use",
}
_KINDS: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_SERVER: Final = 500
_SIGNATURE: Final = "c2NyaXB0ZWQ="


def check(asked: ChatQuery) -> None:
    """Refuse a request without a version, a model, messages or a bound on its answer."""
    if not asked.headers.get("anthropic-version"):
        raise refuse_shape("anthropic-version: header is required")
    require_text(asked.body, "model")
    require_list(asked.body, "messages")
    most = asked.body.get("max_tokens")
    if "max_tokens" not in asked.body:
        raise refuse_shape("max_tokens: field required")
    if not isinstance(most, int) or isinstance(most, bool) or most < 1:
        raise refuse_shape("max_tokens: must be a whole number above 0")
    check_anthropic(asked.body)


def said(body: Body) -> Iterator[Said]:
    """Return the system prompt and the messages as who said what."""
    yield Said(Speaker.SYSTEM, texts(body.get("system")))
    for message in objects(body.get("messages")):
        role, content = message.get("role"), message.get("content")
        results = any(part.get("type") == "tool_result" for part in objects(content))
        if role == "assistant":
            yield Said(Speaker.MODEL)
        elif role == "user" and not results:
            yield Said(Speaker.USER, texts(content))
        else:
            # What stands beside a tool's result is a note of the agent, not a new prompt.
            yield Said(Speaker.SYSTEM if role == "system" else Speaker.TOOL, texts(content))


def tools(body: Body) -> list[OfferedTool]:
    """Return the tools offered."""
    return [
        OfferedTool(name, schema=mapping(tool.get("input_schema")))
        for tool in objects(body.get("tools"))
        if (name := text(tool.get("name")))
    ]


def whole(reply: Reply, asked: ChatQuery) -> dict[str, object]:
    """Return a ``message``."""
    return {
        **_frame(asked),
        "content": [_block(item) for item in reply.items],
        "stop_reason": _stop(reply),
        "stop_sequence": None,
        "usage": _usage(reply.tokens, reply.tokens.output),
    }


def stream(reply: Reply, asked: ChatQuery) -> Iterator[bytes]:
    """Yield the events from ``message_start`` to ``message_stop``."""
    start = {
        **_frame(asked),
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": _usage(reply.tokens, 1),
    }
    yield _event("message_start", message=start)
    yield _event("ping")
    for index, item in enumerate(reply.items):
        yield _event("content_block_start", index=index, content_block=_opening(item))
        for delta in _deltas(item):
            yield _event("content_block_delta", index=index, delta=delta)
        yield _event("content_block_stop", index=index)
    end = {"stop_reason": _stop(reply), "stop_sequence": None}
    yield _event("message_delta", delta=end, usage=_usage(reply.tokens, reply.tokens.output))
    yield _event("message_stop")


def error(status: int, message: str, retry_after: str | None) -> dict[str, object]:  # noqa: ARG001 - one shape for all dialects
    """Return an error; how long to wait stands in a header only."""
    kind = _KINDS.get(status, "api_error" if status >= _SERVER else "invalid_request_error")
    return {
        "type": "error",
        "error": {"type": kind, "message": message},
        "request_id": new_id("req_"),
    }


def _event(kind: str, **fields: object) -> bytes:
    return event({"type": kind, **fields}, kind)


def _frame(asked: ChatQuery) -> dict[str, object]:
    return {
        "id": new_id("msg_"),
        "type": "message",
        "role": "assistant",
        "model": asked.model,
    }


def _stop(reply: Reply) -> str:
    return reply.stop_as or _STOPS[reply.stop]


def _block(item: Item) -> dict[str, object]:
    if isinstance(item, Reasoning):
        return {"type": "thinking", "thinking": item.text, "signature": _SIGNATURE}
    if isinstance(item, Text):
        return {"type": "text", "text": item.text}
    name, arguments = _named(item)
    return {
        "type": "tool_use",
        "id": item.id or new_id("toolu_"),
        "name": name,
        "input": arguments,
    }


def _opening(item: Item) -> dict[str, object]:
    block = _block(item)
    empty: dict[str, object] = {"thinking": "", "signature": "", "text": "", "input": {}}
    return {key: empty.get(key, value) for key, value in block.items()}


def _deltas(item: Item) -> Iterator[dict[str, object]]:
    if isinstance(item, Reasoning):
        for piece in pieces(item.text):
            yield {"type": "thinking_delta", "thinking": piece}
        yield {"type": "signature_delta", "signature": _SIGNATURE}
    elif isinstance(item, Text):
        for piece in pieces(item.text):
            yield {"type": "text_delta", "text": piece}
    else:
        yield {"type": "input_json_delta", "partial_json": ""}
        for piece in pieces(encoded(_named(item)[1]).decode()):
            yield {"type": "input_json_delta", "partial_json": piece}


def _named(item: Item) -> tuple[str, dict[str, object]]:
    """Return name and arguments; a tool here always takes an object."""
    if isinstance(item, FreeformCall):
        return item.name, {"input": item.input}
    assert isinstance(item, FunctionCall), "this dialect has no shell tool of its own"
    return item.name, dict(item.arguments)


def _usage(tokens: Tokens, output: int) -> dict[str, object]:
    return {
        "input_tokens": tokens.input,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": tokens.cached,
        "output_tokens": output,
        "service_tier": "standard",
    }
