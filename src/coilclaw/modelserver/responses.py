"""OpenAI Responses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coilclaw.errors import UsageError
from coilclaw.modelserver.bodies import mapping, objects, require_list, require_text, text, texts
from coilclaw.modelserver.dialect import Asked, event
from coilclaw.modelserver.history import Said, Speaker
from coilclaw.modelserver.offered import Tool
from coilclaw.modelserver.openaierror import error
from coilclaw.modelserver.reply import Reply, Tokens, new_id
from coilclaw.modelserver.responseitem import item_events, item_record
from coilclaw.modelserver.script import Stop
from coilclaw.modelserver.structured import check_openai

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coilclaw.modelserver.bodies import Body

__all__ = ["check", "error", "said", "stream", "tools", "whole"]

_STATEFUL: Final = ("previous_response_id", "conversation")
_SPEAKERS: Final = {"user": Speaker.USER, "assistant": Speaker.MODEL}
_REASONS: Final = {
    Stop.STOP: None,
    Stop.TOOL_CALLS: None,
    Stop.LENGTH: "max_output_tokens",
    Stop.CONTENT_FILTER: "content_filter",
}


def check(asked: Asked) -> None:
    """Refuse a request without a model or input, or whose history or schema is of no use here."""
    require_text(asked.body, "model")
    if not isinstance(asked.body.get("input"), str):
        require_list(asked.body, "input")
    for key in _STATEFUL:
        if asked.body.get(key) is not None:
            raise UsageError(
                f"{key}: this server keeps nothing between requests; send the history as input",
                rule="request.shape",
            )
    wanted = mapping(mapping(asked.body.get("text")).get("format"))
    if wanted.get("type") == "json_schema":
        check_openai(wanted, "text.format")


def said(body: Body) -> Iterator[Said]:
    """Return the input as who said what."""
    yield Said(Speaker.SYSTEM, texts(body.get("instructions")))
    entries = body.get("input")
    if isinstance(entries, str):
        yield Said(Speaker.USER, [entries])
    for entry in objects(entries):
        kind = text(entry.get("type")) or "message"
        if kind == "message":
            speaker = _SPEAKERS.get(text(entry.get("role")), Speaker.SYSTEM)
            yield Said(speaker, texts(entry.get("content")))
        elif kind == "reasoning" or kind.endswith("_call"):
            yield Said(Speaker.MODEL)
        else:
            yield Said(Speaker.TOOL)


def tools(body: Body) -> list[Tool]:
    """Return the tools offered, at the top or by an item of the input."""
    entries = objects(body.get("input"))
    added = [entry for entry in entries if entry.get("type") == "additional_tools"]
    return [tool for holder in (body, *added) for tool in _tools(holder.get("tools"))]


def whole(reply: Reply, asked: Asked) -> dict[str, object]:
    """Return a finished ``response``."""
    return _finished(_response(reply, asked), reply, _records(reply, asked))


def stream(reply: Reply, asked: Asked) -> Iterator[bytes]:
    """Yield the events from ``response.created`` to ``response.completed``."""
    number = -1

    def numbered(kind: str, fields: dict[str, object]) -> bytes:
        nonlocal number
        number += 1
        return event({"type": kind, "sequence_number": number, **fields}, kind)

    response = _response(reply, asked)
    yield numbered("response.created", {"response": response})
    yield numbered("response.in_progress", {"response": response})
    records = _records(reply, asked)
    for index, (item, record) in enumerate(zip(reply.items, records, strict=True)):
        for kind, fields in item_events(item, record, index):
            yield numbered(kind, fields)
    finished = _finished(response, reply, records)
    yield numbered(f"response.{finished['status']}", {"response": finished})


def _tools(offered: object) -> Iterator[Tool]:
    for tool in objects(offered):
        kind, name = text(tool.get("type")), text(tool.get("name"))
        if kind == "namespace":
            for inner in objects(tool.get("tools")):
                schema = mapping(inner.get("parameters"))
                yield Tool(text(inner.get("name")), schema=schema, namespace=name)
        elif kind == "local_shell":
            yield Tool("local_shell", "local_shell")
        elif name:
            freeform = kind == "custom"
            schema = mapping(tool.get("parameters"))
            yield Tool(name, "freeform" if freeform else "function", schema)


def _records(reply: Reply, asked: Asked) -> list[dict[str, object]]:
    wanted = asked.body.get("include")
    encrypted = isinstance(wanted, list) and "reasoning.encrypted_content" in wanted
    records = [item_record(item, encrypted=encrypted) for item in reply.items]
    if records and "status" in records[-1] and _reason(reply):
        records[-1]["status"] = "incomplete"
    return records


def _reason(reply: Reply) -> str | None:
    """Return why the response is incomplete, if it is."""
    return reply.stop_as or _REASONS[reply.stop]


def _response(reply: Reply, asked: Asked) -> dict[str, object]:
    """Return the response as it begins: nothing said yet, and the settings it was asked with."""
    default: dict[str, object] = {
        "instructions": None,
        "max_output_tokens": None,
        "max_tool_calls": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "reasoning": {"effort": None, "summary": None},
        "store": True,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_logprobs": 0,
        "top_p": 1.0,
        "truncation": "disabled",
        "user": None,
    }
    return {
        "id": new_id("resp_"),
        "object": "response",
        "created_at": reply.created,
        "status": "in_progress",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "model": asked.model,
        "output": [],
        "previous_response_id": None,
        "service_tier": "default",
        "usage": None,
        **{key: asked.body.get(key, value) for key, value in default.items()},
    }


def _finished(
    response: dict[str, object], reply: Reply, records: list[dict[str, object]]
) -> dict[str, object]:
    reason = _reason(reply)
    return {
        **response,
        "status": "incomplete" if reason else "completed",
        "completed_at": None if reason else reply.created,
        "incomplete_details": {"reason": reason} if reason else None,
        "output": records,
        "usage": _usage(reply.tokens),
    }


def _usage(tokens: Tokens) -> dict[str, object]:
    return {
        "input_tokens": tokens.input,
        "input_tokens_details": {"cached_tokens": tokens.cached, "cache_write_tokens": 0},
        "output_tokens": tokens.output,
        "output_tokens_details": {"reasoning_tokens": tokens.reasoning},
        "total_tokens": tokens.total,
    }
