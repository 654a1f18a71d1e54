"""Find the dialect and operation of a path; a prefix before ``/v1`` is accepted."""

from __future__ import annotations

import hmac
import ipaddress
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from coilclaw.cli.model_server.dialect import Streaming
from coilclaw.cli.model_server.script import DialectName
from coilclaw.kernel import DeniedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coilclaw.kernel import Secret


class Operation(Enum):
    """What a request asks for."""

    ANSWER = auto()
    COUNT = auto()
    MODELS = auto()
    MODEL = auto()
    HEALTH = auto()


@dataclass(frozen=True, slots=True)
class ServerRoute:
    """The target of a request; ``model`` and ``streaming`` are ``None`` if the body has them."""

    dialect: DialectName
    operation: Operation
    model: str | None = None
    streaming: Streaming | None = None


_VERBS: Final = {
    "generateContent": (Operation.ANSWER, Streaming.NO),
    "streamGenerateContent": (Operation.ANSWER, Streaming.ARRAY),
    "countTokens": (Operation.COUNT, Streaming.NO),
}
_ENDINGS: Final = (
    ("/chat/completions", DialectName.CHAT, Operation.ANSWER),
    ("/v1/responses", DialectName.RESPONSES, Operation.ANSWER),
    ("/v1/messages", DialectName.MESSAGES, Operation.ANSWER),
    ("/v1/messages/count_tokens", DialectName.MESSAGES, Operation.COUNT),
)
_VERSIONS: Final = frozenset({"v1", "v1alpha", "v1beta", "v1beta1"})
_MAX_PARAMETERS: Final = 100


def find_route(method: str, target: str, headers: Mapping[str, str]) -> ServerRoute:
    """Return the target of a request; raise ``UsageError`` for an unknown path or method."""
    path, query = split_target(target)
    found = _match_post(path, query)
    # A colon in a posted path is an unknown verb, not the name of a model.
    if found is None and (method != "POST" or ":" not in path):
        found = _match_get(path, headers)
    if found is None:
        raise UsageError(f"nothing is served at {path}", rule="request.path")
    asks = found.operation in {Operation.ANSWER, Operation.COUNT}
    allowed = ("POST",) if asks else ("GET", "HEAD")
    if method not in allowed:
        raise UsageError(
            f"{path} takes {' or '.join(allowed)}, not {method}",
            rule="request.method",
            hint=", ".join(allowed),
        )
    return found


def guess_dialect(target: str, headers: Mapping[str, str]) -> DialectName:
    """Return the dialect that an error for this request should have."""
    path, _ = split_target(target)
    if "anthropic-version" in headers or "/messages" in path:
        return DialectName.MESSAGES
    if "v1beta" in path or _from_google(headers) or ":" in path.rpartition("/")[2]:
        return DialectName.GEMINI
    return DialectName.RESPONSES if path.endswith("/responses") else DialectName.CHAT


def split_target(target: str) -> tuple[str, dict[str, str]]:
    """Split the target of a request into its path and its parameters."""
    try:
        parts = urlsplit(target)
        query = parse_qsl(parts.query, keep_blank_values=True, max_num_fields=_MAX_PARAMETERS)
    except ValueError as problem:
        raise UsageError(f"the URL cannot be read: {problem}", rule="request.target") from None
    return unquote(parts.path).rstrip("/") or "/", dict(query)


def _match_post(path: str, query: Mapping[str, str]) -> ServerRoute | None:
    if path == "/responses":
        path = "/v1/responses"
    for ending, dialect, operation in _ENDINGS:
        if path.endswith(ending):
            return ServerRoute(dialect, operation)
    parent, _, last = path.rpartition("/")
    model, _, verb = last.rpartition(":")
    if not model or verb not in _VERBS or not parent.endswith("/models"):
        return None
    if _VERSIONS.isdisjoint(parent.split("/")):
        return None
    operation, streaming = _VERBS[verb]
    if streaming is Streaming.ARRAY and query.get("alt") == "sse":
        streaming = Streaming.EVENTS
    return ServerRoute(DialectName.GEMINI, operation, model, streaming)


def _match_get(path: str, headers: Mapping[str, str]) -> ServerRoute | None:
    if path == "/":
        return ServerRoute(DialectName.CHAT, Operation.HEALTH)
    for version in ("/v1beta", "/v1", ""):
        before, models, model = path.rpartition(f"{version}/models")
        if models and (not model or model.startswith("/")) and (version or not before):
            break
    else:
        return None
    dialect = DialectName.CHAT
    if "anthropic-version" in headers:
        dialect = DialectName.MESSAGES
    elif version == "/v1beta" or _from_google(headers):
        dialect = DialectName.GEMINI
    return ServerRoute(dialect, Operation.MODEL if model else Operation.MODELS, model[1:] or None)


def _from_google(headers: Mapping[str, str]) -> bool:
    return "x-goog-api-key" in headers or "x-goog-api-client" in headers


KEY_HEADERS: Final = frozenset(
    {"authorization", "proxy-authorization", "x-api-key", "api-key", "x-goog-api-key", "cookie"}
)
KEY_PARAMETERS: Final = frozenset(
    {"key", "api_key", "api-key", "apikey", "access_token", "token", "x-goog-api-key"}
)
_PLACES: Final = {
    DialectName.CHAT: "authorization",
    DialectName.RESPONSES: "authorization",
    DialectName.MESSAGES: "x-api-key",
    DialectName.GEMINI: "x-goog-api-key",
}


def check_origin(headers: Mapping[str, str]) -> None:
    """Refuse a request that a web page made a browser send, or that uses a foreign host name.

    A host name that points to this machine would let any page read the answers.
    """
    for name in ("host", "origin"):
        value = headers.get(name, "")
        if value and not is_loopback(_host(value if name == "origin" else f"//{value}")):
            raise DeniedError(
                f"the header {name} is {value!r}, and only loopback addresses are accepted",
                rule="request.foreign_" + name,
            )


def check_key(
    dialect: DialectName, target: str, headers: Mapping[str, str], required: Secret | None
) -> None:
    """Refuse a key in the URL, and a missing or wrong one if a key is required."""
    _, query = split_target(target)
    for name in query:
        if name.lower() in KEY_PARAMETERS:
            raise DeniedError(
                f"the URL has a key in the parameter {name}; send it in the header "
                f"{_PLACES[dialect]}, because URLs end up in logs",
                rule="key.in_address",
            )
    if required is None:
        return
    place = _PLACES[dialect]
    given = headers.get(place, "")
    if place == "authorization":
        scheme, _, given = given.partition(" ")
        given = given.strip() if scheme.lower() == "bearer" else ""
    if not given:
        shown = "authorization (Bearer)" if place == "authorization" else place
        raise DeniedError(f"a key is required in the header {shown}", rule="key.missing")
    if not hmac.compare_digest(given.encode(), required.reveal().encode()):
        raise DeniedError(f"the key in the header {place} is wrong", rule="key.wrong")


def is_loopback(host: str) -> bool:
    """Return whether a host name or an address is loopback."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
