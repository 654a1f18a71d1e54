"""One POST, and every way it can fail, in our own words.

This is the only place that knows the HTTP library and its errors.
"""

from __future__ import annotations

import json
import math
import re
import threading
import time
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final, NoReturn

from coilclaw.errors import (
    ProviderAuth,
    ProviderError,
    ProviderMalformed,
    ProviderNetwork,
    ProviderRateLimit,
    ProviderRejected,
    ProviderServer,
    ProviderTimeout,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import httpx2

    from coilclaw.domain.messages import Json
    from coilclaw.providers.endpoint import Endpoint

ERROR_BODY_BYTES: Final = 64 * 2**10
EXCERPT_CHARS: Final = 500


def post(
    endpoint: Endpoint, url: str, headers: Mapping[str, str], body: Mapping[str, Json]
) -> bytes:
    """Send a JSON body and return the body of a good answer; anything else raises.

    The exchange has a thread of its own, so that the time limit holds however slowly bytes drip in.
    """
    outcome: list[bytes | BaseException] = []

    def work() -> None:
        try:
            outcome.append(_exchange(endpoint, url, headers, body))
        except BaseException as problem:  # noqa: BLE001 - raised again by whoever waits
            outcome.append(problem)

    thread = threading.Thread(target=work, name=f"ask {endpoint.name}", daemon=True)
    thread.start()
    thread.join(endpoint.timeout_s)
    if not outcome:
        raise ProviderTimeout(
            f"{endpoint.name} did not finish its answer within {endpoint.timeout_s:g} s",
            provider=endpoint.name,
        )
    result = outcome[0]
    if isinstance(result, BaseException):
        raise result
    return result


def _exchange(
    endpoint: Endpoint, url: str, headers: Mapping[str, str], body: Mapping[str, Json]
) -> bytes:
    import httpx2

    deadline = time.monotonic() + endpoint.timeout_s
    timeout = httpx2.Timeout(endpoint.timeout_s, connect=endpoint.connect_timeout_s)
    data = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
    sent = {"content-type": "application/json", "accept": "application/json", **headers}
    try:
        # A proxy that the environment names is none for a server on this machine.
        with (
            httpx2.Client(
                timeout=timeout, follow_redirects=False, trust_env=not endpoint.local
            ) as client,
            client.stream("POST", url, content=data, headers=sent) as response,
        ):
            status = response.status_code
            good = 200 <= status < 300
            limit = endpoint.max_response_bytes if good else ERROR_BODY_BYTES
            received = _read(endpoint, response, limit, deadline, strict=good)
            if not good:
                _refuse(endpoint, status, response.headers.get("retry-after"), received)
            return received
    except httpx2.HTTPError as problem:
        raise foreign(endpoint, problem) from None
    except (ImportError, httpx2.ProxyError) as problem:
        raise ProviderNetwork(
            f"{endpoint.name} cannot be reached by way of the proxy that the environment names: "
            f"{problem}",
            provider=endpoint.name,
        ) from None
    except (httpx2.InvalidURL, ValueError) as problem:
        raise ProviderRejected(
            f"the address of {endpoint.name} or of a proxy is malformed: {problem}",
            provider=endpoint.name,
        ) from None


def parse(endpoint: Endpoint, raw: bytes) -> dict[str, Json]:
    """Return an answer's JSON object."""
    try:
        value = json.loads(raw, parse_constant=_no_constant)
    except (ValueError, RecursionError) as problem:
        raise malformed(endpoint, "is no JSON", raw) from problem
    if not isinstance(value, dict):
        raise malformed(endpoint, "is no JSON object", raw)
    error = value.get("error")
    if isinstance(error, dict):
        # Some gateways say 200 and mean it otherwise.
        code = error.get("code")
        _refuse(endpoint, code if isinstance(code, int) else 400, None, raw)
    return value


def malformed(endpoint: Endpoint, what: str, raw: bytes | None) -> ProviderMalformed:
    """Return the error for an answer that cannot be used."""
    return ProviderMalformed(
        f"the answer of {endpoint.name} {what}", provider=endpoint.name, body=raw
    )


def foreign(endpoint: Endpoint, problem: httpx2.HTTPError) -> ProviderError:
    """Translate an error of the HTTP library."""
    import httpx2

    said = endpoint.redact(str(problem)) or type(problem).__name__
    if isinstance(problem, httpx2.TimeoutException):
        return ProviderTimeout(
            f"{endpoint.name} did not answer in time ({type(problem).__name__})",
            provider=endpoint.name,
        )
    if isinstance(problem, httpx2.DecodingError):
        return ProviderMalformed(
            f"the answer of {endpoint.name} cannot be decoded: {said}", provider=endpoint.name
        )
    return ProviderNetwork(
        f"{endpoint.name} could not be reached, or the connection broke: {said}",
        provider=endpoint.name,
    )


def _read(
    endpoint: Endpoint, response: httpx2.Response, limit: int, deadline: float, *, strict: bool
) -> bytes:
    pieces: list[bytes] = []
    total = 0
    for piece in response.iter_bytes():
        total += len(piece)
        if total > limit:
            if strict:
                raise malformed(endpoint, f"is larger than {limit:,} bytes", None)
            break
        if time.monotonic() > deadline:
            raise ProviderTimeout(
                f"{endpoint.name} did not finish its answer within {endpoint.timeout_s:g} s",
                provider=endpoint.name,
            )
        pieces.append(piece)
    return b"".join(pieces)


def _refuse(endpoint: Endpoint, status: int, retry_after: str | None, body: bytes) -> NoReturn:
    said = _excerpt(body, endpoint.redact)
    body = endpoint.redact(body.decode("utf-8", "replace")).encode("utf-8", "replace")
    kind: type[ProviderError]
    if status in {401, 403} or b"API_KEY_INVALID" in body:
        kind, what = ProviderAuth, "does not accept the key"
    elif status == 429:
        kind, what = ProviderRateLimit, "asks to wait"
    elif status == 408:
        kind, what = ProviderTimeout, "gave up waiting"
    elif status >= 500:
        kind, what = ProviderServer, "is in trouble"
    else:
        kind, what = ProviderRejected, "does not take the request"
    raise kind(
        f"{endpoint.name} {what}: HTTP {status}{f': {said}' if said else ''}",
        provider=endpoint.name,
        status=status,
        retry_after_s=_seconds(retry_after or _delay(body)),
        body=body,
    )


def _excerpt(body: bytes, redact: Callable[[str], str]) -> str:
    """Return the provider's own words, from wherever its dialect puts them."""
    try:
        value = json.loads(body)
        error = value.get("error", value) if isinstance(value, dict) else value
        text = error.get("message", "") if isinstance(error, dict) else error
    except (ValueError, RecursionError):
        text = body.decode("utf-8", "replace")
    # Cut after redacting: the beginning of a key at the end of an excerpt would be no key any more.
    return redact(" ".join(str(text).split()))[:EXCERPT_CHARS]


def _delay(body: bytes) -> str | None:
    """Return the wait that a body asks for (``"retryDelay": "34s"``)."""
    found = re.search(rb'"retryDelay"\s*:\s*"([0-9.]{1,12})s"', body)
    return found[1].decode("ascii") if found else None


def _seconds(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        pass
    else:
        return max(0.0, seconds) if math.isfinite(seconds) else None
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    return max(0.0, moment.timestamp() - time.time())


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")
