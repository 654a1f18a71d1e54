"""OpenAI Responses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from coilclaw.cli.model_server import dialect
from coilclaw.cli.model_server.chat_completions import error
from coilclaw.cli.model_server.dialect import OfferedTool, Said, Speaker, mapping, objects, text
from coilclaw.cli.model_server.script import Stop
from coilclaw.cli.model_server.structured import check_openai

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coilclaw.cli.model_server.dialect import Body, ChatQuery, Reply, Tokens
    from coilclaw.cli.model_server.script import CallTool

__all__ = ["check", "error", "read_messages", "render_answer", "stream", "tools"]

_ENCRYPTED: Final = "c2NyaXB0ZWQ="
_STATEFUL: Final = ("previous_response_id", "conversation")
_SPEAKERS: Final = {"user": Speaker.USER, "assistant": Speaker.MODEL}
_REASONS: Final = {
    Stop.STOP: "",
    Stop.TOOL_CALLS: "",
    Stop.LENGTH: "max_output_tokens",
    Stop.CONTENT_FILTER: "content_filter",
}


def check(asked: ChatQuery) -> None:
    """Raise ``UsageError`` for a missing model or input, a stored history or an invalid schema."""
    dialect.require_text(asked.body, "model")
    if not isinstance(asked.body.get("input"), str):
        dialect.require_list(asked.body, "input")
    for key in _STATEFUL:
        if asked.body.get(key) is not None:
            raise dialect.refuse_shape(
                f"{key}: this server keeps nothing between requests; send the history as input"
            )
    wanted = mapping(mapping(asked.body.get("text")).get("format"))
    if wanted.get("type") == "json_schema":
        check_openai(wanted, "text.format")


def read_messages(body: Body) -> Iterator[Said]:
    """Return the input with its speakers."""
    yield Said(Speaker.SYSTEM, dialect.texts(body.get("instructions")))
    entries = body.get("input")
    if isinstance(entries, str):
        yield Said(Speaker.USER, [entries])
    for entry in objects(entries):
        kind = text(entry.get("type")) or "message"
        if kind == "message":
            speaker = _SPEAKERS.get(text(entry.get("role")), Speaker.SYSTEM)
            yield Said(speaker, dialect.texts(entry.get("content")))
        elif kind == "reasoning" or kind.endswith("_call"):
            yield Said(Speaker.MODEL)
        else:
            yield Said(Speaker.TOOL)


def tools(body: Body) -> list[OfferedTool]:
    """Return the tools offered, at the top level or by an item of the input."""
    entries = objects(body.get("input"))
    added = [entry for entry in entries if entry.get("type") == "additional_tools"]
    return [tool for holder in (body, *added) for tool in _tools(holder.get("tools"))]


def render_answer(reply: Reply, asked: ChatQuery) -> dict[str, object]:
    """Return a finished ``response``."""
    return _finish_response(_response(reply, asked), reply, _records(reply, asked))


def stream(reply: Reply, asked: ChatQuery) -> Iterator[bytes]:
    """Yield the events from ``response.created`` to the completed or incomplete response."""
    number = -1

    def number_event(kind: str, fields: dict[str, object]) -> bytes:
        nonlocal number
        number += 1
        return dialect.encode_event({"type": kind, "sequence_number": number, **fields}, kind)

    response = _response(reply, asked)
    yield number_event("response.created", {"response": response})
    yield number_event("response.in_progress", {"response": response})
    records = _records(reply, asked)
    for index, record in enumerate(records):
        for kind, fields in _record_events(record, index):
            yield number_event(kind, fields)
    finished = _finish_response(response, reply, records)
    yield number_event(f"response.{finished['status']}", {"response": finished})


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


def _records(reply: Reply, asked: ChatQuery) -> list[dict[str, Any]]:
    """Return the items of ``output``; reasoning that is ``encrypted`` can be sent back."""
    records: list[dict[str, Any]] = []
    if reply.reasoning is not None:
        summary = [{"type": "summary_text", "text": reply.reasoning}]
        record = {"id": dialect.new_id("rs_"), "type": "reasoning", "summary": summary}
        wanted = asked.body.get("include")
        if isinstance(wanted, list) and "reasoning.encrypted_content" in wanted:
            record["encrypted_content"] = _ENCRYPTED
        records.append(record)
    if reply.text is not None:
        part = {"type": "output_text", "annotations": [], "logprobs": [], "text": reply.text}
        message = {"id": dialect.new_id("msg_"), "type": "message", "status": "completed"}
        records.append({**message, "role": "assistant", "content": [part]})
    records += map(_call_record, reply.calls)
    if records and "status" in records[-1] and reply.name_stop(_REASONS):
        records[-1]["status"] = "incomplete"
    return records


def _call_record(call: CallTool) -> dict[str, Any]:
    fields: dict[str, object]
    if call.argv:
        kind, prefix = "local_shell_call", "lsh_"
        fields = {"action": {"type": "exec", "command": list(call.argv), "env": {}}}
    elif call.input is not None:
        kind, prefix = "custom_tool_call", "ctc_"
        fields = {"name": call.name, "input": call.input}
    else:
        kind, prefix = "function_call", "fc_"
        fields = {"name": call.name, "arguments": dialect.encode_json(call.fields).decode()}
        if call.namespace:
            fields["namespace"] = call.namespace
    call_id = call.id or dialect.new_id("call_")
    head = {"id": dialect.new_id(prefix), "type": kind, "status": "completed", "call_id": call_id}
    return {**head, **fields}


def _record_events(record: dict[str, Any], index: int) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield the events of one item, by type, without their sequence numbers."""
    place = {"item_id": record["id"], "output_index": index}
    empty = {"status": "in_progress", "content": [], "summary": [], "arguments": "", "input": ""}
    opening = {key: empty.get(key, value) for key, value in record.items()}
    yield "response.output_item.added", {"output_index": index, "item": opening}
    match record["type"]:
        case "reasoning":
            place["summary_index"] = 0
            kinds = "response.reasoning_summary_part", "response.reasoning_summary_text"
            yield from _part_events(record["summary"][0], place, *kinds)
        case "message":
            place["content_index"] = 0
            kinds = "response.content_part", "response.output_text"
            yield from _part_events(record["content"][0], place, *kinds)
        case "function_call":
            kind, said = "response.function_call_arguments", record["arguments"]
            for piece in dialect.cut_text(said):
                yield f"{kind}.delta", {**place, "delta": piece}
            yield f"{kind}.done", {**place, "name": record["name"], "arguments": said}
        case "custom_tool_call":
            kind = "response.custom_tool_call_input"
            for piece in dialect.cut_text(record["input"]):
                yield f"{kind}.delta", {**place, "delta": piece}
            yield f"{kind}.done", {**place, "input": record["input"]}
    yield "response.output_item.done", {"output_index": index, "item": record}


def _part_events(
    part: dict[str, Any], place: dict[str, object], part_kind: str, text_kind: str
) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield the events of a text that is the one part of its item."""
    more: dict[str, object] = {"logprobs": []} if "logprobs" in part else {}
    yield f"{part_kind}.added", {**place, "part": {**part, "text": ""}}
    for piece in dialect.cut_text(part["text"]):
        yield f"{text_kind}.delta", {**place, "delta": piece, **more}
    yield f"{text_kind}.done", {**place, "text": part["text"], **more}
    yield f"{part_kind}.done", {**place, "part": part}


def _response(reply: Reply, asked: ChatQuery) -> dict[str, object]:
    """Return the response as it begins: empty, with the settings of the request."""
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
        "id": dialect.new_id("resp_"),
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


def _finish_response(
    response: dict[str, object], reply: Reply, records: list[dict[str, object]]
) -> dict[str, object]:
    reason = reply.name_stop(_REASONS)
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
