"""The schemas of SOPs over HTTP: they check requests, and are what is published."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coilclaw.gateway.runschemas import RUN_ID
from coilclaw.gateway.schemas import FLAG, OBJECT, TEXT, closed, count, listed, whole

if TYPE_CHECKING:
    from coilclaw.gateway.schemas import Schema

MAX_NOTE_CHARS: Final = 4000

SOP_NAME: Final[Schema] = {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$"}
START_REQUEST: Final = closed({"inputs": {"type": "object", "maxProperties": 50}})
RESUME_REQUEST: Final[Schema] = {
    **closed(
        {
            "interrupted": {"type": "string", "enum": ["redo", "accept", "skip"]},
            "stage": {"type": "string", "minLength": 1, "maxLength": 128},
            "note": {"type": "string", "maxLength": MAX_NOTE_CHARS},
        }
    ),
    "dependentRequired": {"stage": ["interrupted"], "note": ["interrupted"]},
}

_LINE: Final[Schema] = {"type": ["integer", "null"], "minimum": 1}
SOPS: Final = whole(
    {
        "sops": listed(
            whole(
                {
                    "name": TEXT,
                    "path": TEXT,
                    "ok": FLAG,
                    "description": TEXT,
                    "inputs": listed(
                        whole(
                            {
                                "name": TEXT,
                                "type": {
                                    "enum": ["string", "integer", "number", "boolean", "list"]
                                },
                                "required": FLAG,
                                "default": {},
                                "choices": listed({}),
                                "description": TEXT,
                            }
                        )
                    ),
                    "stages": listed(
                        whole({"id": TEXT, "kind": {"enum": ["tool", "agent", "approval"]}})
                    ),
                    "problems": listed(whole({"key": TEXT, "line": _LINE, "message": TEXT})),
                }
            )
        )
    }
)
RUN: Final = whole(
    {
        "id": RUN_ID,
        "sop": TEXT,
        "status": {
            "enum": [
                "running",
                "interrupted",
                "waiting",
                "done",
                "failed",
                "denied",
                "rejected",
            ]
        },
        "sop_hash": TEXT,
        "workspace": TEXT,
        "begun": TEXT,
        "ended": TEXT,
        "reason": TEXT,
        "inputs": OBJECT,
        "approval": TEXT,
        "approvals": listed(TEXT),
        "stage": TEXT,
        "under_way": listed(whole({"id": TEXT, "attempt": count(), "approval": TEXT})),
        "settlements": listed(
            whole(
                {
                    "stage": TEXT,
                    "attempt": count(),
                    "how": {"enum": ["redo", "accept", "skip"]},
                    "by": TEXT,
                    "note": TEXT,
                    "time": TEXT,
                }
            )
        ),
        "stages": listed(
            whole(
                {
                    "id": TEXT,
                    "status": {"enum": ["done", "failed", "denied", "rejected", "skipped"]},
                    "attempt": count(),
                    "output": TEXT,
                    "output_known": FLAG,
                    "error": TEXT,
                    "rule": TEXT,
                    "receipt": TEXT,
                    "approval": TEXT,
                }
            )
        ),
    }
)
RUNS: Final = whole({"runs": listed(RUN)})
RUN_EVENTS: Final = whole(
    {
        "run_id": RUN_ID,
        "events": listed(
            {
                "type": "object",
                "properties": {"event_type": TEXT, "time": TEXT, "event_hash": TEXT},
                "required": ["event_type", "time", "event_hash"],
            }
        ),
        "next": count(),
        "goes_on": FLAG,
    }
)
