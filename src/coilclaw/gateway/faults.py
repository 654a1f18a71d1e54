"""Errors as answers: which status each rule or class has, and the JSON that says why.

Statuses are given to errors here and nowhere else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coilclaw.errors import (
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

    from coilclaw.domain.messages import Json

BY_RULE: Final[Mapping[str, int]] = {
    "auth.query": 400,
    "http.headers": 400,
    "auth.missing": 401,
    "auth.wrong": 401,
    "auth.revoked": 401,
    "auth.expired": 401,
    "host.foreign": 403,
    "origin.foreign": 403,
    "role.needed": 403,
    "approval.self": 403,
    "conversation.owner": 403,
    "http.not_found": 404,
    "conversation.unknown": 404,
    "approval.unknown": 404,
    "model.unknown": 404,
    "runs.unavailable": 404,
    "run.unknown": 404,
    "run.id": 404,
    "run.task": 404,
    "sops.unavailable": 404,
    "sop.unknown": 404,
    "sop.unknown_run": 404,
    "session.unknown": 404,
    "environment.path": 404,
    "http.method": 405,
    "body.slow": 408,
    "approval.closed": 409,
    "turn.closed": 409,
    "approval.waiting": 409,
    "run.busy": 409,
    "run.sealed": 409,
    "run.unsealed": 409,
    "run.empty": 409,
    "run.elsewhere": 409,
    "run.idle": 409,
    "run.answer": 409,
    "sop.busy": 409,
    "sop.changed": 409,
    "sop.ended": 409,
    "sop.interrupted": 409,
    "sop.not_interrupted": 409,
    "session.closed": 409,
    "run.model": 409,
    "body.large": 413,
    "message.long": 413,
    "contract.large": 413,
    "upload.large": 413,
    "body.type": 415,
    "rate.limit": 429,
    "runs.busy": 429,
    "session.many": 429,
    "session.waiting": 429,
    "http.head_large": 431,
    "session.lost": 502,
    "turns.waiting": 503,
    "gateway.stopping": 503,
    "session.timeout": 504,
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


def refused(rule: str, message: str, hint: str | None = None) -> UsageError:
    """An error whose status the table above knows by its rule."""
    assert rule in BY_RULE, rule
    return UsageError(message, rule=rule, hint=hint)


def internal() -> CoilClawError:
    """The error for what nobody thought of, which the log tells more about."""
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
