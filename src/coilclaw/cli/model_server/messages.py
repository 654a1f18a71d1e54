"""Anthropic Messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from coilclaw.cli.model_server import dialect
from coilclaw.cli.model_server.dialect import OfferedTool, Said, Speaker, mapping, objects, text
from coilclaw.cli.model_server.script import Stop
from coilclaw.cli.model_server.structured import check_anthropic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coilclaw.cli.model_server.dialect import Body, ChatQuery, Reply, Tokens

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
    """Raise ``UsageError`` for a missing version, model, messages or limit on the answer."""
    if not asked.headers.get("anthropic-version"):
        raise dialect.refuse_shape("anthropic-version: header is required")
    dialect.require_text(asked.body, "model")
    dialect.require_list(asked.body, "messages")
    most = asked.body.get("max_tokens")
    if "max_tokens" not in asked.body:
        raise dialect.refuse_shape("max_tokens: field required")
    if not isinstance(most, int) or isinstance(most, bool) or most < 1:
        raise dialect.refuse_shape("max_tokens: must be a whole number above 0")
    check_anthropic(asked.body)


def read_messages(body: Body) -> Iterator[Said]:
    """Return the system prompt and the messages with their speakers."""
    yield Said(Speaker.SYSTEM, dialect.texts(body.get("system")))
    for message in objects(body.get("messages")):
        role, content = message.get("role"), message.get("content")
        results = any(part.get("type") == "tool_result" for part in objects(content))
        if role == "assistant":
            yield Said(Speaker.MODEL)
        elif role == "user" and not results:
            yield Said(Speaker.USER, dialect.texts(content))
        else:
            # Text beside the result of a tool is a note of the agent, not a new prompt.
            yield Said(Speaker.SYSTEM if role == "system" else Speaker.TOOL, dialect.texts(content))


def tools(body: Body) -> list[OfferedTool]:
    """Return the tools offered."""
    return [
        OfferedTool(name, schema=mapping(tool.get("input_schema")))
        for tool in objects(body.get("tools"))
        if (name := text(tool.get("name")))
    ]


def render_answer(reply: Reply, asked: ChatQuery) -> dict[str, object]:
    """Return a ``message``."""
    return {
        **_frame(asked),
        "content": _blocks(reply),
        "stop_reason": reply.name_stop(_STOPS),
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
    for index, block in enumerate(_blocks(reply)):
        yield _event("content_block_start", index=index, content_block=_opening(block))
        for delta in _deltas(block):
            yield _event("content_block_delta", index=index, delta=delta)
        yield _event("content_block_stop", index=index)
    end = {"stop_reason": reply.name_stop(_STOPS), "stop_sequence": None}
    yield _event("message_delta", delta=end, usage=_usage(reply.tokens, reply.tokens.output))
    yield _event("message_stop")


def error(status: int, message: str, retry_after: str | None) -> dict[str, object]:  # noqa: ARG001 - one shape for all dialects
    """Return an error; the time to wait is only in a header."""
    kind = _KINDS.get(status, "api_error" if status >= _SERVER else "invalid_request_error")
    return {
        "type": "error",
        "error": {"type": kind, "message": message},
        "request_id": dialect.new_id("req_"),
    }


def _event(kind: str, **fields: object) -> bytes:
    return dialect.encode_event({"type": kind, **fields}, kind)


def _frame(asked: ChatQuery) -> dict[str, object]:
    return {
        "id": dialect.new_id("msg_"),
        "type": "message",
        "role": "assistant",
        "model": asked.model,
    }


def _blocks(reply: Reply) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    if reply.reasoning is not None:
        thinking = {"type": "thinking", "thinking": reply.reasoning, "signature": _SIGNATURE}
        blocks.append(thinking)
    if reply.text is not None:
        blocks.append({"type": "text", "text": reply.text})
    for call in reply.calls:
        call_id = call.id or dialect.new_id("toolu_")
        blocks.append({"type": "tool_use", "id": call_id, "name": call.name, "input": call.fields})
    return blocks


def _opening(block: dict[str, Any]) -> dict[str, object]:
    empty: dict[str, object] = {"thinking": "", "signature": "", "text": "", "input": {}}
    return {key: empty.get(key, value) for key, value in block.items()}


def _deltas(block: dict[str, Any]) -> Iterator[dict[str, object]]:
    if block["type"] == "tool_use":
        yield {"type": "input_json_delta", "partial_json": ""}
        for piece in dialect.cut_text(dialect.encode_json(block["input"]).decode()):
            yield {"type": "input_json_delta", "partial_json": piece}
        return
    key = block["type"]
    for piece in dialect.cut_text(block[key]):
        yield {"type": f"{key}_delta", key: piece}
    if key == "thinking":
        yield {"type": "signature_delta", "signature": _SIGNATURE}


def _usage(tokens: Tokens, output: int) -> dict[str, object]:
    return {
        "input_tokens": tokens.input,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": tokens.cached,
        "output_tokens": output,
        "service_tier": "standard",
    }
