"""Convert turn records to rows and back, and extract their searchable text."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

from coilclaw.kernel import EnvironmentFault, Layout, ToolAnswer, ToolCall, TurnRecord, UsageError

if TYPE_CHECKING:
    import sqlite3

    from coilclaw.kernel import Json

_VERSION_1: Final = (
    """\
CREATE TABLE turns (
    id INTEGER PRIMARY KEY,
    conversation_id TEXT NOT NULL,
    turn_id TEXT NOT NULL,
    timestamp TEXT NOT NULL,
    role TEXT NOT NULL,
    content TEXT NOT NULL,
    tool_calls TEXT NOT NULL,
    tool_results TEXT NOT NULL,
    provider TEXT NOT NULL,
    model TEXT NOT NULL,
    metadata TEXT NOT NULL
) STRICT""",
    "CREATE INDEX turns_by_conversation ON turns (conversation_id, turn_id)",
    """\
CREATE TABLE conversations (
    conversation_id TEXT PRIMARY KEY,
    started TEXT NOT NULL,
    last TEXT NOT NULL,
    title TEXT NOT NULL
) STRICT, WITHOUT ROWID""",
    "CREATE INDEX conversations_by_last ON conversations (last, conversation_id)",
    # The tokens of each turn, as memory.search creates them, in their order.
    """\
CREATE VIRTUAL TABLE turn_tokens USING fts5(
    tokens, content='', tokenize="ascii tokenchars '_'"
)""",
    # Every word that occurs anywhere, and the trigrams by which it is found.
    "CREATE TABLE words (id INTEGER PRIMARY KEY, word TEXT NOT NULL UNIQUE) STRICT",
    """\
CREATE VIRTUAL TABLE word_trigrams USING fts5(
    word, content='', detail=none, tokenize='trigram case_sensitive 1'
)""",
    # Turns with a word too long to be listed: a search looks at their text.
    "CREATE TABLE long_worded (turn INTEGER PRIMARY KEY) STRICT",
)

LAYOUT: Final = Layout(
    noun="memory",
    application_id=0x43_4C_41_57,  # "CLAW"
    migrations=(_VERSION_1,),
)


def newest(connection: sqlite3.Connection) -> int:
    """Return the number of the newest turn."""
    (number,) = connection.execute("SELECT coalesce(max(id), 0) FROM turns").fetchone()
    return int(number)


def indexed_up_to(connection: sqlite3.Connection) -> int:
    """Return the number of the last indexed turn."""
    (number,) = connection.execute(
        "SELECT coalesce(max(id), 0) FROM turn_tokens_docsize"
    ).fetchone()
    return int(number)


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
_CALL: Final = ("id", "name", "arguments", "problem", "signature")
_ANSWER: Final = ("call_id", "tool", "success", "output", "error", "receipt_id")
_EXTRAS: Final = frozenset({"problem", "signature", "error", "receipt_id"})


def fields(record: TurnRecord) -> dict[str, Json]:
    """Return a record as JSON values, by the names of the columns."""
    return {
        "conversation_id": record.conversation_id,
        "turn_id": record.turn_id,
        "timestamp": record.timestamp,
        "role": record.role,
        "content": record.content,
        "tool_calls": [_fields(call, _CALL) for call in record.tool_calls],
        "tool_results": [_fields(answer, _ANSWER) for answer in record.tool_results],
        "provider": record.provider,
        "model": record.model,
        "metadata": dict(record.metadata),
    }


def to_row(record: TurnRecord) -> Row:
    """Return the columns of a record; surrogates, which SQLite rejects, become U+FFFD."""
    values = fields(record).values()
    row = tuple(clean(value) if isinstance(value, str) else _dump(value) for value in values)
    return cast("Row", row)


def from_row(row: Row) -> TurnRecord:
    """Return the record of a row; raise ``EnvironmentFault`` if the row is malformed."""
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
    """Return the searchable text of a row from three of its columns.

    It holds the content, the names and arguments of tool calls, and their outputs and errors.
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


def _fields(value: ToolCall | ToolAnswer, names: tuple[str, ...]) -> dict[str, Json]:
    """Return fields by name; newer optional fields only if they have a value."""
    found = {name: getattr(value, name) for name in names}
    return {name: one for name, one in found.items() if name not in _EXTRAS or one is not None}


def _dump(value: Json) -> str:
    try:
        return clean(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
    except RecursionError as problem:
        raise UsageError(
            "a tool call or its metadata is nested too deeply to be stored", rule="memory.depth"
        ) from problem


def _load(text: str) -> list[dict[str, Any]]:
    loaded: list[dict[str, Any]] = [] if text == _NOTHING else json.loads(text)
    return loaded


def _gather(value: Json, pieces: list[str]) -> None:
    """Add every key and every value at any depth."""
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
    """Return a text with surrogate pairs joined and lone surrogates replaced, for SQLite."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
