"""The items of an OpenAI response: each as a record, and as the events that build it up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, assert_never

from coilclaw.modelserver.dialect import encoded
from coilclaw.modelserver.reply import (
    FreeformCall,
    FunctionCall,
    Item,
    LocalShellCall,
    Reasoning,
    Text,
    new_id,
    pieces,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

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
