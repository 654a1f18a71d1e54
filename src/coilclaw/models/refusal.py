"""What a provider says when it does not answer, as an error of ours."""

from __future__ import annotations

import math
import re
import time
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import (
    ProviderAuth,
    ProviderError,
    ProviderMalformed,
    ProviderRateLimit,
    ProviderRejected,
    ProviderServer,
    ProviderTimeout,
)
from coilclaw.models.json_value import clean, loads

if TYPE_CHECKING:
    from coilclaw.kernel import Json
    from coilclaw.models.endpoint import ModelEndpoint

EXCERPT_CHARS: Final = 500

_WORDS: Final = {
    "authentication_error": 401,
    "invalid_api_key": 401,
    "permission_error": 403,
    "permission_denied": 403,
    "unauthenticated": 401,
    "timeout_error": 408,
    "deadline_exceeded": 408,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "resource_exhausted": 429,
    "api_error": 500,
    "internal": 500,
    "internal_server_error": 500,
    "server_error": 500,
    "unavailable": 503,
    "overloaded_error": 529,
}
"""What dialects call their errors where no status says it: under a good one, or in a stream."""


def refusal_error(
    endpoint: ModelEndpoint, status: int, retry_after: str | None, body: bytes
) -> ProviderError:
    """Return the error for a status that is not good; no secret of ours is in it."""
    said = _excerpt(endpoint, body)
    body = endpoint.redact(body.decode("utf-8", "replace")).encode("utf-8", "replace")
    kind: type[ProviderError]
    if status in {401, 403} or b"API_KEY_INVALID" in body:
        kind, what = ProviderAuth, "does not accept the key"
    elif status == 429:
        kind, what = ProviderRateLimit, "asks to wait"
    elif status == 408:
        kind, what = ProviderTimeout, "gave up waiting"
    elif status >= 500:
        kind, what = ProviderServer, "failed"
    else:
        kind, what = ProviderRejected, "does not take the request"
    # Some bodies say how long to wait.
    delay = re.search(rb'"retryDelay"\s*:\s*"([0-9.]{1,12})s"', body)
    return kind(
        f"{endpoint.name} {what}: HTTP {status}{f': {said}' if said else ''}",
        provider=endpoint.name,
        status=status,
        retry_after_s=_seconds(retry_after or (delay[1].decode("ascii") if delay else None)),
        body=body,
    )


def error_within(
    endpoint: ModelEndpoint, payload: dict[str, Json], raw: bytes
) -> ProviderError | None:
    """Return the error that an answer with a good status holds, if it holds one."""
    error = payload.get("error")
    if isinstance(error, str) and error:
        return refusal_error(endpoint, 400, None, raw)
    if not isinstance(error, dict):
        return None
    for key in ("code", "status", "type"):
        value = error.get(key)
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) == 3:
            value = int(value)
        if isinstance(value, str):
            value = _WORDS.get(value.lower())
        if isinstance(value, int) and 400 <= value < 600:
            return refusal_error(endpoint, value, None, raw)
    return refusal_error(endpoint, 400, None, raw)


def malformed_error(endpoint: ModelEndpoint, what: str, raw: bytes | None) -> ProviderMalformed:
    """Return the error for an answer that cannot be used."""
    return ProviderMalformed(
        f"the answer of {endpoint.name} {what}", provider=endpoint.name, body=raw
    )


def excerpt(endpoint: ModelEndpoint, text: object) -> str:
    """Return some words of a provider, fit for a message: without secrets, short, one line."""
    # Cut after redacting: the beginning of a key at the end of an excerpt would be no key any more.
    return endpoint.redact(clean(" ".join(str(text).split())))[:EXCERPT_CHARS]


def _excerpt(endpoint: ModelEndpoint, body: bytes) -> str:
    """Return the provider's own words, from wherever its dialect puts them."""
    try:
        value = loads(body)
    except (ValueError, RecursionError):
        return excerpt(endpoint, body.decode("utf-8", "replace"))
    if isinstance(value, list) and value:
        value = value[0]
    error = value.get("error", value) if isinstance(value, dict) else value
    return excerpt(endpoint, error.get("message", "") if isinstance(error, dict) else error)


def _seconds(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        pass
    else:
        return max(0.0, seconds) if math.isfinite(seconds) else None
    from email.utils import parsedate_to_datetime

    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    return max(0.0, moment.timestamp() - time.time())
