"""Gemini ``generateContent`` and ``streamGenerateContent``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from coilclaw.cli.model_server import dialect
from coilclaw.cli.model_server.dialect import OfferedTool, Said, Speaker, mapping, objects, text
from coilclaw.cli.model_server.script import Stop
from coilclaw.cli.model_server.structured import check_gemini

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coilclaw.cli.model_server.dialect import Body, ChatQuery, Reply, Tokens

_FINISH: Final = {
    Stop.STOP: "STOP",
    Stop.LENGTH: "MAX_TOKENS",
    Stop.CONTENT_FILTER: "SAFETY",
    Stop.TOOL_CALLS: "STOP",
}
_STATUSES: Final = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    408: "DEADLINE_EXCEEDED",
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    500: "INTERNAL",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_SERVER: Final = 500
_SECONDS: Final = re.compile(r"[0-9]+(\.[0-9]+)?")


def check(asked: ChatQuery) -> None:
    """Raise ``UsageError`` for missing contents, or a schema for an answer that is not JSON."""
    dialect.require_list(asked.body, "contents")
    check_gemini(asked.body)


def read_messages(body: Body) -> Iterator[Said]:
    """Return the system instruction and the contents with their speakers."""
    system = mapping(body.get("systemInstruction") or body.get("system_instruction"))
    yield Said(Speaker.SYSTEM, dialect.texts(system.get("parts")))
    for content in objects(body.get("contents")):
        role, parts = content.get("role", "user"), objects(content.get("parts"))
        results = any("functionResponse" in part or "function_response" in part for part in parts)
        if role == "model":
            yield Said(Speaker.MODEL)
        elif role == "user" and not results:
            yield Said(Speaker.USER, dialect.texts(content.get("parts")))
        else:
            yield Said(Speaker.TOOL)


def tools(body: Body) -> list[OfferedTool]:
    """Return the functions declared."""
    return [
        OfferedTool(
            name,
            schema=mapping(function.get("parametersJsonSchema") or function.get("parameters")),
        )
        for tool in objects(body.get("tools"))
        for function in objects(
            tool.get("functionDeclarations") or tool.get("function_declarations")
        )
        if (name := text(function.get("name")))
    ]


def render_answer(reply: Reply, asked: ChatQuery) -> dict[str, object]:
    """Return a ``GenerateContentResponse``."""
    return _response(
        _parts(reply), reply.name_stop(_FINISH), reply.tokens, asked, dialect.new_id("")
    )


def stream(reply: Reply, asked: ChatQuery) -> Iterator[bytes]:
    """Yield a ``GenerateContentResponse`` for every piece; the last one says why it ends."""
    response_id = dialect.new_id("")
    parts = [piece for part in _parts(reply) for piece in _cut(part)] or [{"text": ""}]
    last = len(parts) - 1
    for index, part in enumerate(parts):
        finish = reply.name_stop(_FINISH) if index == last else None
        response = _response([part], finish, reply.tokens, asked, response_id)
        if asked.streaming is dialect.Streaming.ARRAY:
            opening = b"[" if index == 0 else b",\r\n"
            yield opening + dialect.encode_json(response) + (b"]" if index == last else b"")
        else:
            yield dialect.encode_event(response, newline=b"\r\n")


def error(status: int, message: str, retry_after: str | None) -> dict[str, object]:
    """Return a ``google.rpc.Status``, with the time to wait if it is known."""
    name = _STATUSES.get(status, "INTERNAL" if status >= _SERVER else "FAILED_PRECONDITION")
    problem: dict[str, object] = {"code": status, "message": message, "status": name}
    if retry_after is not None and _SECONDS.fullmatch(retry_after):
        kind = "type.googleapis.com/google.rpc.RetryInfo"
        problem["details"] = [{"@type": kind, "retryDelay": f"{retry_after}s"}]
    return {"error": problem}


def _response(
    parts: list[dict[str, object]],
    finish: str | None,
    tokens: Tokens,
    asked: ChatQuery,
    response_id: str,
) -> dict[str, object]:
    candidate: dict[str, object] = {"content": {"parts": parts, "role": "model"}}
    if finish is not None:
        candidate["finishReason"] = finish
    return {
        "candidates": [{**candidate, "index": 0}],
        "usageMetadata": _usage(tokens),
        "modelVersion": asked.model,
        "responseId": response_id,
    }


def _parts(reply: Reply) -> list[dict[str, object]]:
    parts: list[dict[str, object]] = []
    if reply.reasoning is not None:
        parts.append({"text": reply.reasoning, "thought": True})
    if reply.text is not None:
        parts.append({"text": reply.text})
    for call in reply.calls:
        given = {"id": call.id} if call.id else {}
        parts.append({"functionCall": {**given, "name": call.name, "args": call.fields}})
    return parts


def _cut(part: dict[str, object]) -> list[dict[str, object]]:
    """Cut a part that is text into pieces; a function call always comes whole."""
    if "functionCall" in part:
        return [part]
    return [{**part, "text": piece} for piece in dialect.cut_text(str(part["text"]))]


def _usage(tokens: Tokens) -> dict[str, object]:
    usage: dict[str, object] = {
        "promptTokenCount": tokens.input,
        "candidatesTokenCount": tokens.output,
        "totalTokenCount": tokens.total + tokens.reasoning,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": tokens.input}],
    }
    if tokens.cached:
        usage["cachedContentTokenCount"] = tokens.cached
    if tokens.reasoning:
        usage["thoughtsTokenCount"] = tokens.reasoning
    return usage
