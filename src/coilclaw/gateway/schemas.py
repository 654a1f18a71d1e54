"""The schemas of what is sent and answered: they check requests, and are what is published."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from coilclaw.agent import MAX_ANSWER_CHARS, MAX_MESSAGE_BYTES
from coilclaw.gateway.clients import ROLES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from starlette.types import ASGIApp

    from coilclaw.gateway.clients import Client, Role
    from coilclaw.kernel import Json

Schema: TypeAlias = "dict[str, Json]"

MAX_MESSAGES: Final = 1000
MAX_LIST: Final = 1000
_NOT_BLANK: Final = "^[^\\u0000]*[^ \\t\\r\\n\\u0000][^\\u0000]*$"
"""Some text that is not blank, without NUL."""
_CONVERSATION: Final = "^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"


def closed_object(properties: Schema, *required: str) -> Schema:
    """An object with these properties and no other."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def complete_object(properties: Schema, *optional: str) -> Schema:
    """An object of ours: every property is there but the optional ones."""
    return closed_object(properties, *(name for name in properties if name not in optional))


def count(least: int = 0, most: int | None = None, default: int | None = None) -> Schema:
    """A whole number."""
    schema: Schema = {"type": "integer", "minimum": least}
    if most is not None:
        schema["maximum"] = most
    if default is not None:
        schema["default"] = default
    return schema


def list_of(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def texts(*names: str) -> Schema:
    """Properties that are strings."""
    return {name: {"type": "string"} for name in names}


def options(*values: str) -> Schema:
    """One of some words."""
    return {"enum": list(values)}


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

CHAT: Final = closed_object(
    {"message": WRITTEN, "conversation_id": CONVERSATION_ID, "stream": FLAG}, "message"
)
ESTOP_REASON: Final = closed_object({"reason": {"type": "string", "maxLength": 1000}})
DECISION: Final = closed_object(
    {
        "id": {"type": "string", "minLength": 1, "maxLength": 100},
        "decision": {"type": "string", "enum": ["approve", "reject"]},
        "answer": {"type": "string", "minLength": 1, "maxLength": MAX_ANSWER_CHARS},
    },
    "id",
    "decision",
)

NO_QUERY: Final = closed_object({})
LIMIT_QUERY: Final = closed_object({"limit": count(1, MAX_LIST, 20)})
SEARCH_QUERY: Final = closed_object(
    {
        "q": {"type": "string", "minLength": 1, "maxLength": 1000, "pattern": _NOT_BLANK},
        "limit": count(1, MAX_LIST, 20),
    },
    "q",
)

EVENTS: Final = "text/event-stream"
EVENT: Final = closed_object({"event": TEXT, "data": TEXT}, "data")
"""One event of a stream; ``data`` is JSON, or ``[DONE]`` where that protocol has it."""
ERROR: Final = complete_object({"error": complete_object(texts("rule", "message", "hint"), "hint")})
OPENAI_ERROR: Final = complete_object(
    {"error": complete_object({**texts("message", "type"), "param": MAYBE_TEXT, "code": TEXT})}
)
HEALTH: Final = complete_object({"status": {"const": "ok"}})
WHOAMI: Final = complete_object({"name": TEXT, "role": options(*ROLES), "expires": MAYBE_TEXT})
STATUS: Final = complete_object(
    {
        "version": TEXT,
        "uptime_s": {"type": "number"},
        **texts("provider", "model"),
        "policy": {"type": "object", "additionalProperties": TEXT},
        "estop": FLAG,
        "turns_running": count(),
        "turns_waiting": count(),
    }
)
TOOLS: Final = complete_object(
    {
        "tools": list_of(
            complete_object({**texts("name", "description"), "parameters_schema": OBJECT})
        )
    }
)
_RECOLLECTION: Final = complete_object(
    {
        **texts("conversation_id", "turn_id", "timestamp", "role", "excerpt"),
        "score": {"type": "number"},
    }
)
RECOLLECTIONS: Final = complete_object({"results": list_of(_RECOLLECTION)})
RECEIPTS: Final = complete_object({"receipts": list_of(OBJECT)})
_SUMMARY: Final = complete_object(
    {**texts("conversation_id", "started", "last"), "turns": count(), "title": TEXT}
)
CONVERSATIONS: Final = complete_object({"conversations": list_of(_SUMMARY)})
CONVERSATION: Final = complete_object(
    {"conversation_id": TEXT, "running": FLAG, "records": list_of(OBJECT)}
)
OUTCOME: Final = complete_object(
    {
        **texts("conversation_id", "turn_id", "text"),
        "tool_rounds": count(),
        "tool_calls": count(),
        "denials": count(),
        **texts("provider", "model"),
        "exhausted": FLAG,
    }
)
ESTOP: Final = complete_object({"estop": FLAG})
APPROVAL: Final = complete_object(
    {
        "id": TEXT,
        "state": options("pending", "approved", "rejected", "expired", "withdrawn", "used"),
        "kind": options("tool", "question", "sop", "run", "override"),
        **texts("origin", "asker", "title", "tool", "arguments", "risk", "rule", "reason"),
        "detail": list_of(TEXT),
        **texts("digest", "created", "expires", "answered_by", "answered"),
    }
)
APPROVALS: Final = complete_object({"approvals": list_of(APPROVAL)})


@dataclass(frozen=True, slots=True)
class EndpointCall:
    """A request that fits the schemas of its endpoint."""

    client: Client
    query: Mapping[str, Json]
    body: Mapping[str, Json]
    path: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, Json] = field(default_factory=dict)
    """Those that the endpoint declares, by the name that it gives them."""
    streaming: bool = False
    """Whether the client asks for a stream of events."""


Answer: TypeAlias = "Callable[[EndpointCall], Awaitable[ASGIApp]]"
Method: TypeAlias = Literal["GET", "POST", "DELETE"]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One line of the table that requests are routed by, and that is published."""

    method: Method
    path: str
    answer: Answer
    result: Schema | None = None
    """The schema of its JSON; without one it answers text."""
    query: Schema = field(default_factory=lambda: NO_QUERY)
    headers: Schema = field(default_factory=lambda: NO_QUERY)
    """Headers that mean something to it."""
    body: Schema | None = None
    body_needed: bool = True
    media: tuple[str, ...] = ("application/json",)
    status: int = 200
    """That of a good answer."""
    errors: tuple[int, ...] = ()
    """Statuses beside those that any endpoint can answer."""
    open: bool = False
    """Whether it needs no token."""
    roles: frozenset[Role] = frozenset()
    """Who may ask beside ``admin``."""
    summary: str = ""
    """What is published about it; where it is empty, the first line of the answer's docstring."""


MAX_REQUEST_CHARS: Final = 20_000
MAX_RUN_ANSWER_CHARS: Final = 4_096
MAX_NOTE_CHARS: Final = 4000
MAX_EVENTS: Final = 1000
"""Events of one page."""
DEFAULT_EVENTS: Final = 200
MAX_NUMBER: Final = 10**9 - 1
_RUNNERS: Final = r"builtin|code-commit|codex|(scripted|process):.*\S.*"


def _matching(pattern: str) -> Schema:
    return {"type": "string", "maxLength": 4000, "pattern": f"^({pattern})$"}


RUN_ID: Final[Schema] = {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{7,127}$"}
RUN_REQUEST: Final[Schema] = {
    **closed_object(
        {
            "contract": OBJECT,
            "request": {**WRITTEN, "maxLength": MAX_REQUEST_CHARS},
            "runner": _matching(_RUNNERS),
            "reviewer": {
                "type": "string",
                "maxLength": 4000,
                "pattern": f"^(rules|model|{_RUNNERS})$",
            },
            **dict.fromkeys(("merge", "diagnostic", "no_baseline"), FLAG),
            "wait": {**FLAG, "default": True},
        }
    ),
    "oneOf": [{"required": ["contract"]}, {"required": ["request"]}],
}
RESUME_REQUEST: Final = closed_object({"answer": {**WRITTEN, "maxLength": MAX_RUN_ANSWER_CHARS}})
VERIFY_REQUEST: Final = closed_object(
    {"strict": FLAG, "root": {"type": "string", "pattern": "^[0-9a-f]{64}$"}}
)

RUNS_QUERY: Final = closed_object({"limit": count(1, MAX_LIST, 20)})
EVENTS_QUERY: Final = closed_object(
    {"since": count(0, MAX_NUMBER, 0), "limit": count(1, MAX_EVENTS, DEFAULT_EVENTS)}
)
EVENTS_HEADERS: Final = closed_object({"Last-Event-ID": count(0, MAX_NUMBER)})
DIFF_QUERY: Final = closed_object(
    {
        "task": {"type": "string", "minLength": 1, "maxLength": 200},
        "work": {"type": "string", "enum": ["accepted", "rejected"], "default": "accepted"},
    }
)

_LISTED: Final[Schema] = {
    "run_id": RUN_ID,
    "status": options(
        *("passed", "failed", "paused", "running", "waiting", "interrupted", "sealing", "empty")
    ),
    **texts("state", "created_at", "request", "merge"),
    "applied": {
        "oneOf": [complete_object(texts("audit", "at", "branch", "commit")), {"type": "null"}]
    },
    "reason": TEXT,
    "waiting": list_of(TEXT),
    **texts("root_hash", "bundle"),
}
RUNS: Final = complete_object({"runs": list_of(complete_object(_LISTED))})
_REFUSED: Final = complete_object(
    {"gate": TEXT, "task_id": MAYBE_TEXT, "attempt": count(), **texts("rule", "path", "reason")}
)
_FAILED_COMMAND: Final = complete_object(
    {
        **texts("name", "where"),
        "argv": list_of(TEXT),
        "exit_code": {"type": ["integer", "null"]},
        "reason": TEXT,
        "logs": list_of(complete_object({"path": TEXT, "lines": list_of(TEXT)})),
    }
)
RUN: Final = complete_object(
    {
        **_LISTED,
        "events": count(),
        "sealed": FLAG,
        "timeline": list_of(OBJECT),
        "tasks": {"type": "object", "additionalProperties": OBJECT},
        **dict.fromkeys(("gates", "tests", "reviews", "fixes", "approvals"), list_of(OBJECT)),
        **dict.fromkeys(("audits", "foreign_audits"), list_of(TEXT)),
        "violations": list_of(_REFUSED),
        "failed_commands": list_of(_FAILED_COMMAND),
        "next": TEXT,
    }
)
BEGUN: Final = complete_object({"run_id": RUN_ID})


def _events(event: Schema) -> Schema:
    """One page of events."""
    return complete_object(
        {"run_id": RUN_ID, "events": list_of(event), "next": count(), "goes_on": FLAG}
    )


_MORE: Final = ("model_id", "agent_id", "role", "tool_name", "span_id", "parent_span_id")
_EVENT: Final = complete_object(
    {
        "ts": TEXT,
        "level": options("INFO", "WARN", "ERROR"),
        "event_type": TEXT,
        "run_id": RUN_ID,
        "task_id": MAYBE_TEXT,
        "attempt": {"type": ["integer", "null"], "minimum": 0},
        "payload": OBJECT,
        **texts("trace_id", "previous_hash", "event_hash", *_MORE),
    },
    *_MORE,
)
RUN_EVENTS: Final = _events(_EVENT)
_FINDINGS: Final = list_of(complete_object(texts("code", "message", "path")))
VERIFIED: Final = complete_object(
    {
        "run_id": RUN_ID,
        "status": options("pass", "fail"),
        "strict": FLAG,
        "root_hash": TEXT,
        "errors": _FINDINGS,
        "warnings": _FINDINGS,
        "checks": {"type": "object", "additionalProperties": FLAG},
    }
)

SOP_NAME: Final[Schema] = {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$"}
SOP_START: Final = closed_object({"inputs": {"type": "object", "maxProperties": 50}})
SOP_RESUME: Final[Schema] = {
    **closed_object(
        {
            "interrupted": {"type": "string", "enum": ["redo", "accept", "skip"]},
            "stage": {"type": "string", "minLength": 1, "maxLength": 128},
            "note": {"type": "string", "maxLength": MAX_NOTE_CHARS},
        }
    ),
    "dependentRequired": {"stage": ["interrupted"], "note": ["interrupted"]},
}
_INPUT: Final = complete_object(
    {
        "name": TEXT,
        "type": options("string", "integer", "number", "boolean", "list"),
        "required": FLAG,
        "default": {},
        "choices": list_of({}),
        "description": TEXT,
    }
)
_LINE: Final[Schema] = {"type": ["integer", "null"], "minimum": 1}
_SOP: Final = complete_object(
    {
        **texts("name", "path"),
        "ok": FLAG,
        "description": TEXT,
        "inputs": list_of(_INPUT),
        "stages": list_of(
            complete_object({"id": TEXT, "kind": options("tool", "agent", "approval")})
        ),
        "problems": list_of(complete_object({"key": TEXT, "line": _LINE, "message": TEXT})),
    }
)
SOPS: Final = complete_object({"sops": list_of(_SOP)})
_SETTLEMENT: Final = complete_object(
    {
        "stage": TEXT,
        "attempt": count(),
        "how": options("redo", "accept", "skip"),
        **texts("by", "note", "time"),
    }
)
_STAGE: Final = complete_object(
    {
        "id": TEXT,
        "status": options("done", "failed", "denied", "rejected", "skipped"),
        "attempt": count(),
        "output": TEXT,
        "output_known": FLAG,
        **texts("error", "rule", "receipt", "approval"),
    }
)
SOP_RUN: Final = complete_object(
    {
        "id": RUN_ID,
        "sop": TEXT,
        "status": options(
            *("running", "interrupted", "waiting", "done", "failed", "denied", "rejected")
        ),
        **texts("sop_hash", "workspace", "begun", "ended", "reason"),
        "inputs": OBJECT,
        "approval": TEXT,
        "approvals": list_of(TEXT),
        "stage": TEXT,
        "under_way": list_of(complete_object({"id": TEXT, "attempt": count(), "approval": TEXT})),
        "settlements": list_of(_SETTLEMENT),
        "stages": list_of(_STAGE),
    }
)
SOP_RUNS: Final = complete_object({"runs": list_of(SOP_RUN)})
_SOP_EVENT: Final[Schema] = {
    "type": "object",
    "properties": texts("event_type", "time", "event_hash"),
    "required": ["event_type", "time", "event_hash"],
}
SOP_EVENTS: Final = _events(_SOP_EVENT)
