"""The schemas of what is sent and answered: they check requests, and are what is published."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from coilclaw.runtime.approvals import MAX_ANSWER_CHARS
from coilclaw.runtime.loop import MAX_MESSAGE_BYTES

if TYPE_CHECKING:
    from coilclaw.domain.messages import Json

Schema: TypeAlias = "dict[str, Json]"

MAX_MESSAGES: Final = 1000
MAX_LIST: Final = 1000
_NOT_BLANK: Final = "^[^\\u0000]*[^ \\t\\r\\n\\u0000][^\\u0000]*$"
"""Some text that is not blank, without NUL."""
_CONVERSATION: Final = "^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"


def closed(properties: Schema, *required: str) -> Schema:
    """An object with these properties and no other."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def whole(properties: Schema, *optional: str) -> Schema:
    """An object of ours: every property is there but the optional ones."""
    return closed(properties, *(name for name in properties if name not in optional))


def count(least: int = 0, most: int | None = None, default: int | None = None) -> Schema:
    """A whole number."""
    schema: Schema = {"type": "integer", "minimum": least}
    if most is not None:
        schema["maximum"] = most
    if default is not None:
        schema["default"] = default
    return schema


def listed(items: Schema) -> Schema:
    return {"type": "array", "items": items}


TEXT: Final[Schema] = {"type": "string"}
FLAG: Final[Schema] = {"type": "boolean"}
OBJECT: Final[Schema] = {"type": "object"}
BINARY: Final[Schema] = {"type": "string", "format": "binary"}
MAYBE_TEXT: Final[Schema] = {"type": ["string", "null"]}
CONVERSATION_ID: Final[Schema] = {"type": "string", "pattern": _CONVERSATION}
WRITTEN: Final[Schema] = {
    "type": "string",
    "minLength": 1,
    "maxLength": MAX_MESSAGE_BYTES,
    "pattern": _NOT_BLANK,
}

CHAT: Final = closed(
    {"message": WRITTEN, "conversation_id": CONVERSATION_ID, "stream": FLAG}, "message"
)
ESTOP_REASON: Final = closed({"reason": {"type": "string", "maxLength": 1000}})
DECISION: Final = closed(
    {
        "id": {"type": "string", "minLength": 1, "maxLength": 100},
        "decision": {"type": "string", "enum": ["approve", "reject"]},
        "answer": {"type": "string", "minLength": 1, "maxLength": MAX_ANSWER_CHARS},
    },
    "id",
    "decision",
)

NO_QUERY: Final = closed({})
LIMIT_QUERY: Final = closed({"limit": count(1, MAX_LIST, 20)})
SEARCH_QUERY: Final = closed(
    {
        "q": {"type": "string", "minLength": 1, "maxLength": 1000, "pattern": _NOT_BLANK},
        "limit": count(1, MAX_LIST, 20),
    },
    "q",
)

EVENTS: Final = "text/event-stream"
EVENT: Final = closed({"event": TEXT, "data": TEXT}, "data")
"""One event of a stream; ``data`` is JSON, or ``[DONE]`` where that protocol has it."""
ERROR: Final = whole({"error": whole({"rule": TEXT, "message": TEXT, "hint": TEXT}, "hint")})
OPENAI_ERROR: Final = whole(
    {"error": whole({"message": TEXT, "type": TEXT, "param": MAYBE_TEXT, "code": TEXT})}
)
HEALTH: Final = whole({"status": {"const": "ok"}})
WHOAMI: Final = whole(
    {"name": TEXT, "role": {"enum": ["chat", "approve", "read", "admin"]}, "expires": MAYBE_TEXT}
)
STATUS: Final = whole(
    {
        "version": TEXT,
        "uptime_s": {"type": "number"},
        "provider": TEXT,
        "model": TEXT,
        "policy": {"type": "object", "additionalProperties": TEXT},
        "estop": FLAG,
        "turns_running": count(),
        "turns_waiting": count(),
    }
)
TOOLS: Final = whole(
    {"tools": listed(whole({"name": TEXT, "description": TEXT, "parameters_schema": OBJECT}))}
)
RECOLLECTIONS: Final = whole(
    {
        "results": listed(
            whole(
                {
                    "conversation_id": TEXT,
                    "turn_id": TEXT,
                    "timestamp": TEXT,
                    "role": TEXT,
                    "excerpt": TEXT,
                    "score": {"type": "number"},
                }
            )
        )
    }
)
RECEIPTS: Final = whole({"receipts": listed(OBJECT)})
CONVERSATIONS: Final = whole(
    {
        "conversations": listed(
            whole(
                {
                    "conversation_id": TEXT,
                    "started": TEXT,
                    "last": TEXT,
                    "turns": count(),
                    "title": TEXT,
                }
            )
        )
    }
)
CONVERSATION: Final = whole({"conversation_id": TEXT, "running": FLAG, "records": listed(OBJECT)})
OUTCOME: Final = whole(
    {
        "conversation_id": TEXT,
        "turn_id": TEXT,
        "text": TEXT,
        "tool_rounds": count(),
        "tool_calls": count(),
        "denials": count(),
        "provider": TEXT,
        "model": TEXT,
        "exhausted": FLAG,
    }
)
ESTOP: Final = whole({"estop": FLAG})
APPROVAL: Final = whole(
    {
        "id": TEXT,
        "state": {
            "enum": ["pending", "approved", "rejected", "expired", "withdrawn", "used"],
        },
        "kind": {"enum": ["tool", "question", "sop", "run", "override"]},
        "origin": TEXT,
        "asker": TEXT,
        "title": TEXT,
        "tool": TEXT,
        "arguments": TEXT,
        "risk": TEXT,
        "rule": TEXT,
        "reason": TEXT,
        "detail": listed(TEXT),
        "digest": TEXT,
        "created": TEXT,
        "expires": TEXT,
        "answered_by": TEXT,
        "answered": TEXT,
    }
)
APPROVALS: Final = whole({"approvals": listed(APPROVAL)})
