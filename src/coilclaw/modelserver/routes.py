"""Which dialect and which operation an address means; a prefix before ``/v1`` is accepted."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from coilclaw.errors import UsageError
from coilclaw.modelserver.dialect import Streaming
from coilclaw.modelserver.script import DialectName

if TYPE_CHECKING:
    from collections.abc import Mapping


class Operation(Enum):
    """What is asked for."""

    ANSWER = auto()
    COUNT = auto()
    MODELS = auto()
    MODEL = auto()
    HEALTH = auto()


@dataclass(frozen=True, slots=True)
class Route:
    """Where a request leads; ``model`` and ``streaming`` are ``None`` where the body says."""

    dialect: DialectName
    operation: Operation
    model: str | None = None
    streaming: Streaming | None = None


_VERBS: Final = {
    "generateContent": (Operation.ANSWER, Streaming.NO),
    "streamGenerateContent": (Operation.ANSWER, Streaming.ARRAY),
    "countTokens": (Operation.COUNT, Streaming.NO),
}
_VERSIONS: Final = frozenset({"v1", "v1alpha", "v1beta", "v1beta1"})
_MAX_PARAMETERS: Final = 100


def route(method: str, target: str, headers: Mapping[str, str]) -> Route:
    """Return where a request leads; an unknown address or method is a ``UsageError``."""
    path, query = address(target)
    found = _health(path) or _post(path, query)
    # A colon in what is posted to is a verb that we do not know, not the name of a model.
    if found is None and (method != "POST" or ":" not in path):
        found = _get(path, headers)
    if found is None:
        raise UsageError(f"there is nothing at {path}", rule="request.path")
    asks = found.operation in {Operation.ANSWER, Operation.COUNT}
    allowed = ("POST",) if asks else ("GET", "HEAD")
    if method not in allowed:
        raise UsageError(
            f"{path} takes {' or '.join(allowed)}, not {method}",
            rule="request.method",
            hint=", ".join(allowed),
        )
    return found


def likely_dialect(target: str, headers: Mapping[str, str]) -> DialectName:
    """Return the dialect in which an error is best understood, whatever the address is."""
    path, _ = address(target)
    if "anthropic-version" in headers or "/messages" in path:
        return DialectName.MESSAGES
    if "v1beta" in path or _from_google(headers) or ":" in path.rpartition("/")[2]:
        return DialectName.GEMINI
    return DialectName.RESPONSES if path.endswith("/responses") else DialectName.CHAT


def address(target: str) -> tuple[str, dict[str, str]]:
    """Split the target of a request into its path and its parameters."""
    try:
        parts = urlsplit(target)
        query = parse_qsl(parts.query, keep_blank_values=True, max_num_fields=_MAX_PARAMETERS)
    except ValueError as problem:
        raise UsageError(f"the address cannot be read: {problem}", rule="request.target") from None
    return unquote(parts.path).rstrip("/") or "/", dict(query)


def _health(path: str) -> Route | None:
    return Route(DialectName.CHAT, Operation.HEALTH) if path == "/" else None


def _post(path: str, query: Mapping[str, str]) -> Route | None:
    if path.endswith("/chat/completions"):
        return Route(DialectName.CHAT, Operation.ANSWER)
    if path.endswith("/v1/responses") or path == "/responses":
        return Route(DialectName.RESPONSES, Operation.ANSWER)
    if path.endswith("/v1/messages"):
        return Route(DialectName.MESSAGES, Operation.ANSWER)
    if path.endswith("/v1/messages/count_tokens"):
        return Route(DialectName.MESSAGES, Operation.COUNT)
    parent, _, last = path.rpartition("/")
    model, _, verb = last.rpartition(":")
    if not model or verb not in _VERBS or not parent.endswith("/models"):
        return None
    if _VERSIONS.isdisjoint(parent.split("/")):
        return None
    operation, streaming = _VERBS[verb]
    if streaming is Streaming.ARRAY and query.get("alt") == "sse":
        streaming = Streaming.EVENTS
    return Route(DialectName.GEMINI, operation, model, streaming)


def _get(path: str, headers: Mapping[str, str]) -> Route | None:
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
    return Route(dialect, Operation.MODEL if model else Operation.MODELS, model[1:] or None)


def _from_google(headers: Mapping[str, str]) -> bool:
    return "x-goog-api-key" in headers or "x-goog-api-client" in headers
