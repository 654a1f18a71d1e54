"""How each search service is asked, and where its results stand in what it answers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from coilclaw.errors import EnvironmentFault
from coilclaw.security import hosts
from coilclaw.tools.fetching import Question

if TYPE_CHECKING:
    from coilclaw.domain.messages import Json
    from coilclaw.domain.secret import Secret
    from coilclaw.security.hosts import WebAddress
    from coilclaw.tools.searchsettings import SearchProvider

MAX_TITLE: Final = 300
MAX_SNIPPET: Final = 1000
MAX_URL: Final = 2000


@dataclass(frozen=True, slots=True)
class Hit:
    """One result."""

    title: str
    url: str
    snippet: str


@dataclass(frozen=True, slots=True)
class Search:
    """A question to a service, and where it is asked."""

    address: WebAddress
    question: Question


def question(
    provider: SearchProvider, endpoint: str, key: Secret | None, query: str, count: int
) -> Search:
    """Put a query into the words of a service."""
    if provider == "tavily":
        body = json.dumps({"query": query, "max_results": count}).encode("ascii")
        headers = {"content-type": "application/json", **_bearer(key)}
        return Search(hosts.parse(endpoint), _asking(headers, body))
    if provider == "brave":
        asked = {"q": query, "count": str(count), "text_decorations": "false"}
        token = {} if key is None else {"x-subscription-token": key.reveal()}
        return Search(_with(endpoint, asked), _asking(token))
    return Search(_with(endpoint, {"q": query, "format": "json"}), _asking(_bearer(key)))


def _asking(headers: dict[str, str], body: bytes | None = None) -> Question:
    """Where a redirect leads, the key does not go."""
    return Question({"accept": "application/json", **headers}, body, follows=False)


def hits(provider: SearchProvider, content: bytes, count: int) -> tuple[Hit, ...]:
    """Take the results out of an answer; whatever else is in it is left."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as problem:
        raise _malformed("is no JSON") from problem
    if provider == "brave":
        # There is no such part where nothing was found.
        value = _inner(value, "web", default={})
        snippet = "description"
    else:
        snippet = "content"
    results = _inner(value, "results", default=[])
    if not isinstance(results, list):
        raise _malformed("has no list of results")
    found = [_hit(entry, snippet) for entry in results if isinstance(entry, dict)]
    return tuple(hit for hit in found if hit.url)[:count]


def _with(endpoint: str, asked: dict[str, str]) -> hosts.WebAddress:
    joint = "&" if "?" in endpoint else "?"
    return hosts.parse(f"{endpoint}{joint}{urlencode(asked)}")


def _bearer(key: Secret | None) -> dict[str, str]:
    return {} if key is None else {"authorization": f"Bearer {key.reveal()}"}


def _inner(value: Json, name: str, *, default: Json) -> Json:
    if not isinstance(value, dict):
        raise _malformed("is not of the form that was expected")
    return value.get(name, default)


def _hit(entry: dict[str, Json], snippet: str) -> Hit:
    return Hit(
        _line(entry.get("title"), MAX_TITLE),
        _line(entry.get("url"), MAX_URL),
        _line(entry.get(snippet), MAX_SNIPPET),
    )


def _line(value: Json, most: int) -> str:
    """Return a text on one line; what is no text is nothing."""
    if not isinstance(value, str):
        return ""
    return " ".join(value.encode("utf-8", "replace").decode("utf-8").split())[:most]


def _malformed(what: str) -> EnvironmentFault:
    return EnvironmentFault(f"the answer of the search service {what}", rule="web_search.answer")
