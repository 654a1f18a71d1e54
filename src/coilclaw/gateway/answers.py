"""Answers: JSON, text, and what went wrong."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from coilclaw.gateway import faults

if TYPE_CHECKING:
    from starlette.responses import Response

    from coilclaw.domain.messages import Json
    from coilclaw.errors import CoilClawError

OPENAI_PREFIX: Final = "/v1/"
METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


def json_response(
    value: Json, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    """Return JSON, in ASCII so that any text survives."""
    from starlette.responses import Response

    return Response(
        json.dumps(value, separators=(",", ":")).encode("ascii"),
        status,
        headers,
        "application/json",
    )


def text_response(text: str, content_type: str) -> Response:
    from starlette.responses import Response

    return Response(text.encode("utf-8"), headers={"content-type": content_type})


def problem_response(problem: CoilClawError, path: str) -> Response:
    """Return an error in the form that the clients of a path understand."""
    status, headers = faults.status_of(problem), faults.headers_of(problem)
    if path.startswith(OPENAI_PREFIX):
        # Their library would send a failed turn again, with whatever its tools have done.
        again = "true" if status == 429 else "false"
        return json_response(
            faults.openai_form(problem), status, {**headers, "x-should-retry": again}
        )
    return json_response(faults.form(problem), status, headers)
