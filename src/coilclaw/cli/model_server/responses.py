"""OpenAI Responses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, assert_never

from coilclaw.cli.model_server.chat_completions import error
from coilclaw.cli.model_server.dialect import (
    ChatQuery,
    FreeformCall,
    FunctionCall,
    Item,
    LocalShellCall,
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
from coilclaw.cli.model_server.structured import check_openai

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coilclaw.cli.model_server.dialect import Body

_ENCRYPTED: Final = "c2NyaXB0ZWQ="


def item_record(item: Item, *, encrypted: bool) -> dict[str, object]:
    """Return an item as it stands in ``output``; ``encrypted`` reasoning can be sent back."""
    match item:
        case Reasoning(text):
            summary = [{"type": "summary_text", "text": text}]
            record: dict[str, object] = {"id": new_id("rs_"), "type": "reasoning"}
            record["summary"] = summary
            return {**record, "encrypted_content": _ENCRYPTED} if encrypted else record
        case Text(text):
            return {
                "id": new_id("msg_"),
                "type": "message",
                "status": "completed",
                "role": "assistant",
                "content": [_text_part(text)],
            }
        case FunctionCall():
            record = _call("function_call", "fc_", item.id)
            record |= {"name": item.name, "arguments": encoded(dict(item.arguments)).decode()}
            return {**record, "namespace": item.namespace} if item.namespace else record
        case FreeformCall():
            record = _call("custom_tool_call", "ctc_", item.id)
            return {**record, "name": item.name, "input": item.input}
        case LocalShellCall():
            action = {"type": "exec", "command": list(item.command), "env": {}}
            return {**_call("local_shell_call", "lsh_", item.id), "action": action}
        case _:
            assert_never(item)


def item_events(
    item: Item, record: dict[str, object], index: int
) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield the events of one item, by type, without their sequence numbers."""
    place: dict[str, object] = {"item_id": record["id"], "output_index": index}
    yield "response.output_item.added", {"output_index": index, "item": _opening(record)}
    match item:
        case Reasoning(text):
            yield from _summary(text, {**place, "summary_index": 0})
        case Text(text):
            yield from _text(text, {**place, "content_index": 0})
        case FunctionCall():
            kind, arguments = "response.function_call_arguments", str(record["arguments"])
            for piece in pieces(arguments):
                yield f"{kind}.delta", {**place, "delta": piece}
            yield f"{kind}.done", {**place, "name": item.name, "arguments": arguments}
        case FreeformCall():
            kind = "response.custom_tool_call_input"
            for piece in pieces(item.input):
                yield f"{kind}.delta", {**place, "delta": piece}
            yield f"{kind}.done", {**place, "input": item.input}
        case LocalShellCall():
            pass
        case _:
            assert_never(item)
    yield "response.output_item.done", {"output_index": index, "item": record}


def _call(kind: str, prefix: str, call_id: str | None) -> dict[str, object]:
    return {
        "id": new_id(prefix),
        "type": kind,
        "status": "completed",
        "call_id": call_id or new_id("call_"),
    }


def _opening(record: dict[str, object]) -> dict[str, object]:
    empty: dict[str, object] = {
        "status": "in_progress",
        "content": [],
        "summary": [],
        "arguments": "",
        "input": "",
    }
    return {key: empty.get(key, value) for key, value in record.items()}


def _text_part(text: str) -> dict[str, object]:
    return {"type": "output_text", "annotations": [], "logprobs": [], "text": text}


def _text(text: str, place: dict[str, object]) -> Iterator[tuple[str, dict[str, object]]]:
    yield "response.content_part.added", {**place, "part": _text_part("")}
    for piece in pieces(text):
        yield "response.output_text.delta", {**place, "delta": piece, "logprobs": []}
    yield "response.output_text.done", {**place, "text": text, "logprobs": []}
    yield "response.content_part.done", {**place, "part": _text_part(text)}


def _summary(text: str, place: dict[str, object]) -> Iterator[tuple[str, dict[str, object]]]:
    kind = "response.reasoning_summary"
    yield f"{kind}_part.added", {**place, "part": {"type": "summary_text", "text": ""}}
    for piece in pieces(text):
        yield f"{kind}_text.delta", {**place, "delta": piece}
    yield f"{kind}_text.done", {**place, "text": text}
    yield f"{kind}_part.done", {**place, "part": {"type": "summary_text", "text": text}}


__all__ = ["check", "error", "said", "stream", "tools", "whole"]

_STATEFUL: Final = ("previous_response_id", "conversation")
_SPEAKERS: Final = {"user": Speaker.USER, "assistant": Speaker.MODEL}
_REASONS: Final = {
    Stop.STOP: None,
    Stop.TOOL_CALLS: None,
    Stop.LENGTH: "max_output_tokens",
    Stop.CONTENT_FILTER: "content_filter",
}


def check(asked: ChatQuery) -> None:
    """Refuse a request without a model or input, or whose history or schema is of no use here."""
    require_text(asked.body, "model")
    if not isinstance(asked.body.get("input"), str):
        require_list(asked.body, "input")
    for key in _STATEFUL:
        if asked.body.get(key) is not None:
            raise refuse_shape(
                f"{key}: this server keeps nothing between requests; send the history as input"
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


def tools(body: Body) -> list[OfferedTool]:
    """Return the tools offered, at the top or by an item of the input."""
    entries = objects(body.get("input"))
    added = [entry for entry in entries if entry.get("type") == "additional_tools"]
    return [tool for holder in (body, *added) for tool in _tools(holder.get("tools"))]


def whole(reply: Reply, asked: ChatQuery) -> dict[str, object]:
    """Return a finished ``response``."""
    return _finished(_response(reply, asked), reply, _records(reply, asked))


def stream(reply: Reply, asked: ChatQuery) -> Iterator[bytes]:
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


def _tools(offered: object) -> Iterator[OfferedTool]:
    for tool in objects(offered):
        kind, name = text(tool.get("type")), text(tool.get("name"))
        if kind == "namespace":
            for inner in objects(tool.get("tools")):
                schema = mapping(inner.get("parameters"))
                yield OfferedTool(text(inner.get("name")), schema=schema, namespace=name)
        elif kind == "local_shell":
            yield OfferedTool("local_shell", "local_shell")
        elif name:
            freeform = kind == "custom"
            schema = mapping(tool.get("parameters"))
            yield OfferedTool(name, "freeform" if freeform else "function", schema)


def _records(reply: Reply, asked: ChatQuery) -> list[dict[str, object]]:
    wanted = asked.body.get("include")
    encrypted = isinstance(wanted, list) and "reasoning.encrypted_content" in wanted
    records = [item_record(item, encrypted=encrypted) for item in reply.items]
    if records and "status" in records[-1] and _reason(reply):
        records[-1]["status"] = "incomplete"
    return records


def _reason(reply: Reply) -> str | None:
    """Return why the response is incomplete, if it is."""
    return reply.stop_as or _REASONS[reply.stop]


def _response(reply: Reply, asked: ChatQuery) -> dict[str, object]:
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
