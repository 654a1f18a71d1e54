"""The schemas of runs over HTTP: they check requests, and are what is published."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coilclaw.gateway.schemas import (
    FLAG,
    MAX_LIST,
    MAYBE_TEXT,
    OBJECT,
    TEXT,
    WRITTEN,
    closed,
    count,
    listed,
    whole,
)

if TYPE_CHECKING:
    from coilclaw.gateway.schemas import Schema

MAX_REQUEST_CHARS: Final = 20_000
MAX_ANSWER_CHARS: Final = 4_096
MAX_EVENTS: Final = 1000
"""Events of one page."""
DEFAULT_EVENTS: Final = 200
MAX_NUMBER: Final = 10**9 - 1
_RUNNERS: Final = r"builtin|code-commit|codex|(scripted|process):.*\S.*"

RUN_ID: Final[Schema] = {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{7,127}$"}
RUN_REQUEST: Final[Schema] = {
    **closed(
        {
            "contract": OBJECT,
            "request": {**WRITTEN, "maxLength": MAX_REQUEST_CHARS},
            "runner": {"type": "string", "maxLength": 4000, "pattern": f"^({_RUNNERS})$"},
            "reviewer": {
                "type": "string",
                "maxLength": 4000,
                "pattern": f"^(rules|model|{_RUNNERS})$",
            },
            "merge": FLAG,
            "diagnostic": FLAG,
            "no_baseline": FLAG,
            "wait": {**FLAG, "default": True},
        }
    ),
    "oneOf": [{"required": ["contract"]}, {"required": ["request"]}],
}
RESUME_REQUEST: Final = closed({"answer": {**WRITTEN, "maxLength": MAX_ANSWER_CHARS}})
VERIFY_REQUEST: Final = closed(
    {"strict": FLAG, "root": {"type": "string", "pattern": "^[0-9a-f]{64}$"}}
)

RUNS_QUERY: Final = closed({"limit": count(1, MAX_LIST, 20)})
EVENTS_QUERY: Final = closed(
    {"since": count(0, MAX_NUMBER, 0), "limit": count(1, MAX_EVENTS, DEFAULT_EVENTS)}
)
EVENTS_HEADERS: Final = closed({"Last-Event-ID": count(0, MAX_NUMBER)})
DIFF_QUERY: Final = closed(
    {
        "task": {"type": "string", "minLength": 1, "maxLength": 200},
        "work": {"type": "string", "enum": ["accepted", "rejected"], "default": "accepted"},
    }
)

_LISTED: Final[Schema] = {
    "run_id": RUN_ID,
    "status": {
        "enum": [
            "passed",
            "failed",
            "paused",
            "running",
            "waiting",
            "interrupted",
            "sealing",
            "empty",
        ]
    },
    "state": TEXT,
    "created_at": TEXT,
    "request": TEXT,
    "merge": TEXT,
    "applied": {
        "oneOf": [
            whole({"audit": TEXT, "at": TEXT, "branch": TEXT, "commit": TEXT}),
            {"type": "null"},
        ]
    },
    "reason": TEXT,
    "waiting": listed(TEXT),
    "root_hash": TEXT,
    "bundle": TEXT,
}
RUNS: Final = whole({"runs": listed(whole(_LISTED))})
_REFUSED: Final = whole(
    {
        "gate": TEXT,
        "task_id": MAYBE_TEXT,
        "attempt": count(),
        "rule": TEXT,
        "path": TEXT,
        "reason": TEXT,
    }
)
_FAILED_COMMAND: Final = whole(
    {
        "name": TEXT,
        "where": TEXT,
        "argv": listed(TEXT),
        "exit_code": {"type": ["integer", "null"]},
        "reason": TEXT,
        "logs": listed(whole({"path": TEXT, "lines": listed(TEXT)})),
    }
)
RUN: Final = whole(
    {
        **_LISTED,
        "events": count(),
        "sealed": FLAG,
        "timeline": listed(OBJECT),
        "tasks": {"type": "object", "additionalProperties": OBJECT},
        "gates": listed(OBJECT),
        "tests": listed(OBJECT),
        "reviews": listed(OBJECT),
        "fixes": listed(OBJECT),
        "approvals": listed(OBJECT),
        "audits": listed(TEXT),
        "foreign_audits": listed(TEXT),
        "violations": listed(_REFUSED),
        "failed_commands": listed(_FAILED_COMMAND),
        "next": TEXT,
    }
)
_MORE: Final = ("model_id", "agent_id", "role", "tool_name", "span_id", "parent_span_id")
BEGUN: Final = whole({"run_id": RUN_ID})
RUN_EVENTS: Final = whole(
    {
        "run_id": RUN_ID,
        "events": listed(
            whole(
                {
                    "ts": TEXT,
                    "level": {"enum": ["INFO", "WARN", "ERROR"]},
                    "event_type": TEXT,
                    "run_id": RUN_ID,
                    "task_id": MAYBE_TEXT,
                    "attempt": {"type": ["integer", "null"], "minimum": 0},
                    "payload": OBJECT,
                    "trace_id": TEXT,
                    "previous_hash": TEXT,
                    "event_hash": TEXT,
                    **dict.fromkeys(_MORE, TEXT),
                },
                *_MORE,
            )
        ),
        "next": count(),
        "goes_on": FLAG,
    }
)
_FINDING: Final = whole({"code": TEXT, "message": TEXT, "path": TEXT})
VERIFIED: Final = whole(
    {
        "run_id": RUN_ID,
        "status": {"enum": ["pass", "fail"]},
        "strict": FLAG,
        "root_hash": TEXT,
        "errors": listed(_FINDING),
        "warnings": listed(_FINDING),
        "checks": {"type": "object", "additionalProperties": FLAG},
    }
)
