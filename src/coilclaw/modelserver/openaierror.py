"""The error shape that the two OpenAI dialects share."""

from __future__ import annotations

from typing import Final

_SERVER: Final = 500
_KINDS: Final[dict[int, tuple[str, str | None]]] = {
    401: ("invalid_request_error", "invalid_api_key"),
    403: ("permission_error", None),
    404: ("invalid_request_error", "not_found"),
    429: ("rate_limit_error", "rate_limit_exceeded"),
}


def error(status: int, message: str, retry_after: str | None) -> dict[str, object]:  # noqa: ARG001 - one shape for all dialects
    """Return an error; how long to wait stands in a header only."""
    otherwise = ("server_error" if status >= _SERVER else "invalid_request_error", None)
    kind, code = _KINDS.get(status, otherwise)
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}
