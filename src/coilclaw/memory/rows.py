"""A turn record as a row, and back; and the text in it that is searched."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

from coilclaw.domain.messages import ToolCall
from coilclaw.domain.turns import ToolAnswer, TurnRecord
from coilclaw.errors import EnvironmentFault, UsageError

if TYPE_CHECKING:
    from coilclaw.domain.messages import Json

COLUMNS: Final = (
    "conversation_id",
    "turn_id",
    "timestamp",
    "role",
    "content",
    "tool_calls",
    "tool_results",
    "provider",
    "model",
    "metadata",
)
Row: TypeAlias = tuple[str, str, str, str, str, str, str, str, str, str]
"""The columns in their order."""

_Role: TypeAlias = Literal["user", "assistant", "tool"]
_NOTHING: Final = "[]"
_CALL_EXTRAS: Final = ("problem", "signature")
_ANSWER_EXTRAS: Final = ("error", "receipt_id")


def fields(record: TurnRecord) -> dict[str, Json]:
    """Return a record as JSON, by the names of the columns."""
    return {
        "conversation_id": record.conversation_id,
        "turn_id": record.turn_id,
        "timestamp": record.timestamp,
        "role": record.role,
        "content": record.content,
        "tool_calls": [_call_fields(call) for call in record.tool_calls],
        "tool_results": [_answer_fields(answer) for answer in record.tool_results],
        "provider": record.provider,
        "model": record.model,
        "metadata": dict(record.metadata),
    }


def to_row(record: TurnRecord) -> Row:
    """Return the columns; surrogates, which no database keeps, become U+FFFD."""
    values = fields(record).values()
    row = tuple(clean(value) if isinstance(value, str) else _dump(value) for value in values)
    return cast("Row", row)


def from_row(row: Row) -> TurnRecord:
    """Return the record; a row that was never one of ours is an ``EnvironmentFault``."""
    conversation_id, turn_id, timestamp, role, content, calls, results, provider, model, more = row
    try:
        return TurnRecord(
            conversation_id,
            turn_id,
            timestamp,
            cast("_Role", role),
            content,
            tuple(ToolCall(**call) for call in _load(calls)),
            tuple(ToolAnswer(**answer) for answer in _load(results)),
            provider,
            model,
            json.loads(more),
        )
    except (TypeError, ValueError, RecursionError) as problem:
        raise EnvironmentFault(
            f"turn {turn_id} of conversation {conversation_id} in the memory cannot be read: "
            f"{problem}",
            rule="memory.row",
        ) from problem


def searched_text(content: str, calls: str, results: str) -> str:
    """Return the text of a row that is searched, given three of its columns.

    Content; names and arguments of tool calls, keys included; what tools put out and what failed.
    """
    if calls == results == _NOTHING:
        return content
    pieces = [content]
    for call in _load(calls):
        pieces.append(call["name"])
        _gather(call["arguments"], pieces)
    for answer in _load(results):
        pieces += [answer["tool"], answer["output"], answer.get("error") or ""]
    return "\n".join(pieces)


def _call_fields(call: ToolCall) -> Json:
    given: dict[str, Json] = {
        "id": call.id,
        "name": call.name,
        "arguments": dict(call.arguments),
    }
    return given | _present(call, _CALL_EXTRAS)


def _answer_fields(answer: ToolAnswer) -> Json:
    given: dict[str, Json] = {
        "call_id": answer.call_id,
        "tool": answer.tool,
        "success": answer.success,
        "output": answer.output,
    }
    return given | _present(answer, _ANSWER_EXTRAS)


def _present(value: object, names: tuple[str, ...]) -> dict[str, Json]:
    return {name: extra for name in names if (extra := getattr(value, name)) is not None}


def _dump(value: Json) -> str:
    try:
        return clean(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
    except RecursionError as problem:
        raise UsageError(
            "a tool call or its metadata is nested too deeply to be remembered", rule="memory.depth"
        ) from problem


def _load(text: str) -> list[dict[str, Any]]:
    loaded: list[dict[str, Any]] = [] if text == _NOTHING else json.loads(text)
    return loaded


def _gather(value: Json, pieces: list[str]) -> None:
    """Add every key and every value, whatever holds it."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            pieces.append(value)
        elif isinstance(value, dict):
            pieces.extend(value)
            waiting.extend(reversed(value.values()))
        elif isinstance(value, list):
            waiting.extend(reversed(value))
        else:
            pieces.append(json.dumps(value))


def clean(text: str) -> str:
    """Join surrogate pairs, and replace what is left of surrogates: no database keeps them."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
