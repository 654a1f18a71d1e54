"""OpenAI chat completions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coilclaw.cli.model_server import dialect
from coilclaw.cli.model_server.dialect import OfferedTool, Said, Speaker, mapping, objects, text
from coilclaw.cli.model_server.script import Stop
from coilclaw.cli.model_server.structured import check_openai

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coilclaw.cli.model_server.dialect import Body, ChatQuery, Reply, Tokens
    from coilclaw.cli.model_server.script import CallTool

_SERVER: Final = 500
_KINDS: Final[dict[int, tuple[str, str | None]]] = {
    401: ("invalid_request_error", "invalid_api_key"),
    403: ("permission_error", None),
    404: ("invalid_request_error", "not_found"),
    429: ("rate_limit_error", "rate_limit_exceeded"),
}


def error(status: int, message: str, retry_after: str | None) -> dict[str, object]:  # noqa: ARG001 - one shape for all dialects
    """Return an error; the time to wait is only in a header."""
    otherwise = ("server_error" if status >= _SERVER else "invalid_request_error", None)
    kind, code = _KINDS.get(status, otherwise)
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


_SPEAKERS: Final = {
    "user": Speaker.USER,
    "assistant": Speaker.MODEL,
    "tool": Speaker.TOOL,
    "function": Speaker.TOOL,
    "system": Speaker.SYSTEM,
    "developer": Speaker.SYSTEM,
}
_FINISH: Final = {
    Stop.STOP: "stop",
    Stop.LENGTH: "length",
    Stop.CONTENT_FILTER: "content_filter",
    Stop.TOOL_CALLS: "tool_calls",
}


def check(asked: ChatQuery) -> None:
    """Raise ``UsageError`` for a missing model or messages, or an invalid schema."""
    dialect.require_text(asked.body, "model")
    dialect.require_list(asked.body, "messages")
    wanted = mapping(asked.body.get("response_format"))
    if wanted.get("type") == "json_schema":
        check_openai(mapping(wanted.get("json_schema")), "response_format.json_schema")


def read_messages(body: Body) -> list[Said]:
    """Return the messages with their speakers."""
    found = []
    for message in objects(body.get("messages")):
        speaker = _SPEAKERS.get(text(message.get("role")), Speaker.SYSTEM)
        found.append(Said(speaker, dialect.texts(message.get("content"))))
    return found


def tools(body: Body) -> list[OfferedTool]:
    """Return the tools offered."""
    found = []
    for tool in objects(body.get("tools")):
        function, custom = mapping(tool.get("function")), mapping(tool.get("custom"))
        if name := text(function.get("name")):
            found.append(OfferedTool(name, schema=mapping(function.get("parameters"))))
        elif name := text(custom.get("name")):
            found.append(OfferedTool(name, "freeform"))
    return found


def render_answer(reply: Reply, asked: ChatQuery) -> dict[str, object]:
    """Return a ``chat.completion``."""
    message: dict[str, object] = {
        "role": "assistant",
        "content": reply.text,
        "refusal": None,
        "annotations": [],
    }
    if reply.reasoning is not None:
        message["reasoning_content"] = reply.reasoning
    if reply.calls:
        message["tool_calls"] = [_call(call) for call in reply.calls]
    choice = {
        "index": 0,
        "message": message,
        "logprobs": None,
        "finish_reason": reply.name_stop(_FINISH),
    }
    return {
        **_frame(reply, asked, "chat.completion"),
        "choices": [choice],
        "usage": _usage(reply.tokens),
    }


def stream(reply: Reply, asked: ChatQuery) -> Iterator[bytes]:
    """Yield ``chat.completion.chunk`` events."""
    with_usage = mapping(asked.body.get("stream_options")).get("include_usage") is True
    frame = _frame(reply, asked, "chat.completion.chunk")
    usage: dict[str, object] = {"usage": None} if with_usage else {}

    def chunk(delta: dict[str, object], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return dialect.encode_event({**frame, "choices": [choice], **usage})

    yield chunk({"role": "assistant", "content": "", "refusal": None})
    for piece in dialect.cut_text(reply.reasoning or ""):
        yield chunk({"reasoning_content": piece})
    for piece in dialect.cut_text(reply.text or ""):
        yield chunk({"content": piece})
    for index, call in enumerate(reply.calls):
        for delta in _call_deltas(index, call):
            yield chunk({"tool_calls": [delta]})
    yield chunk({}, reply.name_stop(_FINISH))
    if with_usage:
        yield dialect.encode_event({**frame, "choices": [], "usage": _usage(reply.tokens)})
    yield dialect.encode_event(b"[DONE]")


def _frame(reply: Reply, asked: ChatQuery, kind: str) -> dict[str, object]:
    return {
        "id": dialect.new_id("chatcmpl-"),
        "object": kind,
        "created": reply.created,
        "model": asked.model,
        "service_tier": "default",
        "system_fingerprint": "fp_scripted",
    }


def _call(call: CallTool) -> dict[str, object]:
    kind, key, value = _input(call)
    return {"id": _id(call), "type": kind, kind: {"name": call.name, key: value}}


def _call_deltas(index: int, call: CallTool) -> Iterator[dict[str, object]]:
    kind, key, value = _input(call)
    yield {"index": index, "id": _id(call), "type": kind, kind: {"name": call.name, key: ""}}
    for piece in dialect.cut_text(value):
        yield {"index": index, kind: {key: piece}}


def _input(call: CallTool) -> tuple[str, str, str]:
    """Return the kind of a call, what its input is called, and the input as text."""
    if call.input is not None:
        return "custom", "input", call.input
    return "function", "arguments", dialect.encode_json(call.fields).decode()


def _id(call: CallTool) -> str:
    return call.id or dialect.new_id("call_")


def _usage(tokens: Tokens) -> dict[str, object]:
    return {
        "prompt_tokens": tokens.input,
        "completion_tokens": tokens.output,
        "total_tokens": tokens.total,
        "prompt_tokens_details": {"cached_tokens": tokens.cached, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": tokens.reasoning,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }
