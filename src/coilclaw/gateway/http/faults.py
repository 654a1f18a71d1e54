"""Errors as answers: which status each rule or class has, and the JSON that says why.

Statuses are given to errors here and nowhere else.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import (
    CoilClawError,
    DeniedError,
    EnvironmentFault,
    LockTimeout,
    ProviderError,
    ProviderRateLimit,
    ProviderTimeout,
    Stopped,
    UsageError,
    VerificationFailed,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.responses import Response

    from coilclaw.kernel import Json

_RULES: Final = {
    400: "auth.query http.headers",
    401: "auth.missing auth.wrong auth.revoked auth.expired",
    403: "host.foreign origin.foreign role.needed approval.self conversation.owner",
    404: (
        "http.not_found conversation.unknown approval.unknown model.unknown runs.unavailable "
        "run.unknown run.id run.task sops.unavailable sop.unknown sop.unknown_run "
        "session.unknown environment.path"
    ),
    405: "http.method",
    408: "body.slow",
    409: (
        "approval.closed turn.closed approval.waiting run.busy run.sealed run.unsealed "
        "run.empty run.elsewhere run.idle run.answer sop.busy sop.changed sop.ended "
        "sop.interrupted sop.not_interrupted session.closed run.model"
    ),
    413: "body.large message.long contract.large upload.large",
    415: "body.type",
    429: "rate.limit runs.busy session.many session.waiting",
    431: "http.head_large",
    502: "session.lost",
    503: "turns.waiting gateway.stopping",
    504: "session.timeout",
}
BY_RULE: Final[Mapping[str, int]] = {
    rule: status for status, rules in _RULES.items() for rule in rules.split()
}
BY_CLASS: Final[tuple[tuple[type[CoilClawError], int], ...]] = (
    (UsageError, 400),
    (Stopped, 503),
    (DeniedError, 403),
    (VerificationFailed, 500),
    (ProviderTimeout, 504),
    (ProviderRateLimit, 503),
    (ProviderError, 502),
    (LockTimeout, 503),
    (EnvironmentFault, 500),
    (CoilClawError, 500),
)
_OPENAI_TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "invalid_request_error",
    415: "invalid_request_error",
    429: "rate_limit_error",
}


def refusal_error(rule: str, message: str, hint: str | None = None) -> UsageError:
    """An error whose status the table above knows by its rule."""
    assert rule in BY_RULE, rule
    return UsageError(message, rule=rule, hint=hint)


def internal() -> CoilClawError:
    """Make the error for an unexpected failure, which the log tells more about."""
    return CoilClawError("this should not happen; the log says more", rule="internal")


def status_of(problem: CoilClawError) -> int:
    """Return the status that an error stands for."""
    found = BY_RULE.get(problem.rule)
    if found is not None:
        return found
    return next(status for kind, status in BY_CLASS if isinstance(problem, kind))


def form(problem: CoilClawError) -> dict[str, Json]:
    """Return the body that says what went wrong."""
    said: dict[str, Json] = {"rule": problem.rule, "message": problem.message}
    if problem.hint:
        said["hint"] = problem.hint
    return {"error": said}


def openai_form(problem: CoilClawError) -> dict[str, Json]:
    """The same for clients of the OpenAI protocol."""
    message = f"{problem.message} ({problem.hint})" if problem.hint else problem.message
    return {
        "error": {
            "message": message,
            "type": _OPENAI_TYPES.get(status_of(problem), "api_error"),
            "param": None,
            "code": problem.rule,
        }
    }


def headers_of(problem: CoilClawError) -> dict[str, str]:
    """Return the headers that belong to an error."""
    status = status_of(problem)
    if status == 401:
        return {"www-authenticate": "Bearer"}
    if status in {429, 503}:
        wait = getattr(problem, "retry_after_s", None) or 1
        return {"retry-after": str(max(1, round(wait)))}
    return {}


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
    status, headers = status_of(problem), headers_of(problem)
    if path.startswith(OPENAI_PREFIX):
        # Their library would send a failed turn again, with whatever its tools have done.
        again = "true" if status == 429 else "false"
        return json_response(openai_form(problem), status, {**headers, "x-should-retry": again})
    return json_response(form(problem), status, headers)
