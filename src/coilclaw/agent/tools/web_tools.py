"""``http`` and ``web_search``: requests to domains that the user allows."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from coilclaw.agent.settings import SearchSettings
from coilclaw.agent.tools import output
from coilclaw.agent.tools.contract import (
    ReadyCall,
    Tool,
    count_schema,
    integer_argument,
    object_schema,
    text_argument,
    text_schema,
)
from coilclaw.kernel import DeniedError, EnvironmentFault, Fetches, Secret, ToolResult, UsageError

if TYPE_CHECKING:
    import ssl

    from coilclaw.agent.settings import SearchProvider
    from coilclaw.agent.tools.contract import Arguments, ToolContext
    from coilclaw.agent.tools.web_client import Fetched, Resolver, WebQuestion
    from coilclaw.kernel import Effect, Json
    from coilclaw.policy import WebAddress

MAX_URL: Final = 4000
MAX_QUERY: Final = 400
MAX_RESULTS: Final = 20
DEFAULT_RESULTS: Final = 8
ANSWER_BYTES: Final = 2 * 2**20
MAX_TITLE: Final = 300
MAX_SNIPPET: Final = 1000
MAX_HIT_URL: Final = 2000
_KEY: Final = re.compile(r"[!-~]{1,1000}")
_KEYLESS: Final = frozenset({"searxng"})
_WHY: Final = {
    401: ": the key is wrong",
    403: ": the key is wrong or not allowed",
    429: ": too many questions, or the quota is used up",
}


class _WebTool(Tool):
    """A tool that sends a request to a server."""

    def __init__(
        self, resolve: Resolver | None = None, *, verify: ssl.SSLContext | None = None
    ) -> None:
        """Use ``socket.getaddrinfo`` and the certificates of the system by default."""
        self._resolve = resolve
        self._verify = verify

    def _fetch(
        self,
        address: WebAddress,
        context: ToolContext,
        limit: int,
        question: WebQuestion | None = None,
    ) -> Fetched:
        import socket

        from coilclaw.agent.tools.web_client import Exchange, WebQuestion

        exchange = Exchange(
            context.security,
            self._resolve or socket.getaddrinfo,
            self._verify,
            context.limits.http_timeout_s,
            limit,
            question or WebQuestion(),
        )
        return exchange.fetch(address, context.cancel)


def _refuse_forbidden(url: str, context: ToolContext) -> None:
    from coilclaw.policy import hosts

    finding = hosts.judge_url(url, context.security)
    if finding.forbidden:
        raise DeniedError(finding.reason, rule=finding.rule)


class Http(_WebTool):
    """Sends a GET request and returns the answer."""

    name = "http"
    description = (
        "Get a page by http or https (GET only) from a domain that the user allows. Redirects to "
        "other hosts are reported, not followed."
    )
    parameters_schema = object_schema(
        {"url": text_schema(MAX_URL, "the address, such as https://example.com/page")}, "url"
    )

    def effects(self, args: Arguments) -> tuple[Effect, ...]:
        return (Fetches(text_argument(args, "url")),)

    def prepare(self, args: Arguments, context: ToolContext) -> ReadyCall:
        from coilclaw.policy import hosts

        url = text_argument(args, "url")
        address = hosts.parse_url(url)
        _refuse_forbidden(url, context)
        bound = context.limits.output_bytes
        return ReadyCall(
            (f"GET {address}",), lambda: _show_page(self._fetch(address, context, bound), bound)
        )


def _show_page(fetched: Fetched, bound: int) -> ToolResult:
    from coilclaw.agent.tools.web_client import decode_text

    body = fetched.body
    size = f"{'more than ' if body.cut else ''}{len(body.content)} bytes"
    if fetched.length is not None:
        size = f"{fetched.length} bytes"
    head = f"HTTP {fetched.status}, {fetched.content_type or 'unknown type'}, {size}\n\n"
    page = decode_text(body.content, fetched.content_type)
    cut = body.cut
    if page is None:
        told = f"{head}[binary content is not shown]"
    else:
        kept, lost = output.end_cut(page, bound - output.text_size(head) - output.NOTICE_BYTES)
        cut = cut or bool(lost)
        told = f"{head}{kept}" + ("\n[… the rest is cut]" if cut else "")
    metadata: dict[str, Json] = {
        "status": fetched.status,
        "url": fetched.url,
        "address": fetched.ip,
        "content_type": fetched.content_type,
        "bytes": len(body.content),
        "cut": cut,
        "redirects": fetched.redirects,
    }
    error = None if fetched.is_good else f"HTTP {fetched.status}"
    return ToolResult(error is None, output.end_cut(told, bound)[0], error, metadata)


class WebSearch(_WebTool):
    """Queries the search service that the user configured."""

    name = "web_search"
    description = (
        "Search the web. Gives titles, addresses and snippets; read a page with 'http' if its "
        "domain is allowed."
    )
    parameters_schema = object_schema(
        {
            "query": text_schema(MAX_QUERY, "what to look for"),
            "count": count_schema(MAX_RESULTS, f"how many results (default: {DEFAULT_RESULTS})"),
        },
        "query",
    )

    def __init__(
        self,
        settings: SearchSettings | None = None,
        resolve: Resolver | None = None,
        *,
        verify: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(resolve, verify=verify)
        self._settings = settings or SearchSettings()

    def effects(self, args: Arguments) -> tuple[Effect, ...]:
        """Return the fetch of the endpoint, which ``security.allowed_domains`` has to allow."""
        text_argument(args, "query")
        return (Fetches(self._service()[1]),)

    def prepare(self, args: Arguments, context: ToolContext) -> ReadyCall:
        provider, endpoint = self._service()
        _refuse_forbidden(endpoint, context)
        key = self._key(provider, context)
        query = text_argument(args, "query")
        count = min(max(integer_argument(args, "count", DEFAULT_RESULTS), 1), MAX_RESULTS)
        address, question = _question(provider, endpoint, key, query, count)

        def search() -> ToolResult:
            from coilclaw.policy import SecretRedactor

            # A service may repeat what it was sent.
            redact = SecretRedactor(() if key is None else (key,)).redact
            try:
                fetched = self._fetch(address, context, ANSWER_BYTES, question)
                result = _show_hits(provider, fetched, count, context.limits.output_bytes)
            except (DeniedError, EnvironmentFault) as problem:
                # Without its cause, which may contain the request.
                raise type(problem)(redact(problem.message), rule=problem.rule) from None
            error = None if result.error is None else redact(result.error)
            return ToolResult(result.success, redact(result.output), error, result.metadata)

        return ReadyCall((f"ask {address.authority} ({provider}) for {query!r}",), search)

    def _service(self) -> tuple[SearchProvider, str]:
        settings = self._settings
        if settings.provider is None or not settings.endpoint:
            lacking = "web_search.base_url" if settings.provider else "web_search.provider"
            raise UsageError(
                f"web search is not configured: set {lacking} in the configuration, name the "
                "variable with the key in web_search.api_key_env, and list the host in "
                "security.allowed_domains",
                rule="web_search.unconfigured",
            )
        return settings.provider, settings.endpoint

    def _key(self, provider: SearchProvider, context: ToolContext) -> Secret | None:
        variable = self._settings.api_key_env
        if not variable and provider in _KEYLESS:
            return None
        value = context.environ.get(variable, "").strip() if variable else ""
        if not _KEY.fullmatch(value):
            named = f"the variable {variable}" if variable else "web_search.api_key_env"
            raise UsageError(
                f"web search has no usable key: {named} is empty or holds invalid characters",
                rule="web_search.key",
            )
        return Secret(value)


def _question(
    provider: SearchProvider, endpoint: str, key: Secret | None, query: str, count: int
) -> tuple[WebAddress, WebQuestion]:
    """Return the request of a query to a service; redirects are off, to protect the key."""
    from coilclaw.agent.tools.web_client import WebQuestion
    from coilclaw.policy import hosts

    headers = {"accept": "application/json"}
    body: bytes | None = None
    asked = {"q": query, "format": "json"}
    if provider == "brave":
        asked = {"q": query, "count": str(count), "text_decorations": "false"}
    if key is not None and provider == "brave":
        headers["x-subscription-token"] = key.reveal()
    elif key is not None:
        headers["authorization"] = f"Bearer {key.reveal()}"
    if provider == "tavily":
        headers["content-type"] = "application/json"
        body = json.dumps({"query": query, "max_results": count}).encode("ascii")
    else:
        endpoint += ("&" if "?" in endpoint else "?") + urlencode(asked)
    return hosts.parse_url(endpoint), WebQuestion(headers, body, follows=False)


@dataclass(frozen=True, slots=True)
class _Hit:
    title: str
    url: str
    snippet: str


def _show_hits(provider: SearchProvider, fetched: Fetched, count: int, bound: int) -> ToolResult:
    metadata: dict[str, Json] = {"provider": provider, "http_status": fetched.status}
    if not fetched.is_good:
        said = f"the search service answers HTTP {fetched.status}{_WHY.get(fetched.status, '')}"
        return ToolResult(False, "", said, {**metadata, "rule": "web_search.status"})
    if fetched.body.cut:
        raise _malformed_error(f"is larger than {ANSWER_BYTES:,} bytes")
    found = _read_hits(provider, fetched.body.content)[:count]
    pieces = [
        f"{number}. {hit.title or '(no title)'}\n   {hit.url}\n"
        + (f"   {hit.snippet}\n" if hit.snippet else "")
        for number, hit in enumerate(found, start=1)
    ]
    told, lost = "".join(pieces) or "nothing was found\n", 0
    if pieces:
        told, lost = output.end_cut(told, bound - output.NOTICE_BYTES)
    told += "\n[… the rest is cut]\n" if lost else ""
    return ToolResult(True, told, None, {**metadata, "results": len(found)})


def _read_hits(provider: SearchProvider, content: bytes) -> list[_Hit]:
    """Return the results in an answer; raise ``EnvironmentFault`` if it is malformed."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as problem:
        raise _malformed_error("is not valid JSON") from problem
    snippet = "content"
    if provider == "brave":
        # The part is missing if nothing was found.
        value = _member(value, "web", default={})
        snippet = "description"
    results = _member(value, "results", default=[])
    if not isinstance(results, list):
        raise _malformed_error("has no list of results")
    found = [
        _Hit(
            _one_line(entry.get("title"), MAX_TITLE),
            _one_line(entry.get("url"), MAX_HIT_URL),
            _one_line(entry.get(snippet), MAX_SNIPPET),
        )
        for entry in results
        if isinstance(entry, dict)
    ]
    return [hit for hit in found if hit.url]


def _member(value: Json, name: str, *, default: Json) -> Json:
    if not isinstance(value, dict):
        raise _malformed_error("does not have the expected form")
    return value.get(name, default)


def _one_line(value: Json, most: int) -> str:
    """Return a text on one line, or an empty one for a value of another type."""
    if not isinstance(value, str):
        return ""
    return " ".join(value.encode("utf-8", "replace").decode("utf-8").split())[:most]


def _malformed_error(what: str) -> EnvironmentFault:
    return EnvironmentFault(f"the answer of the search service {what}", rule="web_search.answer")
