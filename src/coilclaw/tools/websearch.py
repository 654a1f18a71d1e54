"""``web_search``: asks the search service that the user configured."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from coilclaw.domain.effects import Fetches
from coilclaw.domain.secret import Secret
from coilclaw.domain.toolcalls import ToolResult
from coilclaw.errors import DeniedError, EnvironmentFault, UsageError
from coilclaw.tools import output
from coilclaw.tools.basis import Basis, Ready, closed, text, whole
from coilclaw.tools.searchsettings import SearchSettings

if TYPE_CHECKING:
    import ssl

    from coilclaw.domain.effects import Effect
    from coilclaw.domain.messages import Json
    from coilclaw.tools.contract import Arguments, Prepared, ToolContext
    from coilclaw.tools.fetching import Resolver
    from coilclaw.tools.searchservices import Hit, Search
    from coilclaw.tools.searchsettings import SearchProvider

MAX_QUERY: Final = 400
MAX_RESULTS: Final = 20
DEFAULT_RESULTS: Final = 8
ANSWER_BYTES: Final = 2 * 2**20
_KEY: Final = re.compile(r"[!-~]{1,1000}")
_KEYLESS: Final = frozenset({"searxng"})


class WebSearch(Basis):
    """Searches the web."""

    name: Final = "web_search"
    description: Final = (
        "Search the web. Gives titles, addresses and snippets; read a page with 'http' if its "
        "domain is allowed."
    )
    parameters_schema: Final[dict[str, Json]] = closed(
        {
            "query": {
                "type": "string",
                "minLength": 1,
                "maxLength": MAX_QUERY,
                "description": "what to look for",
            },
            "count": {
                "type": "integer",
                "minimum": 1,
                "maximum": MAX_RESULTS,
                "description": f"how many results (default: {DEFAULT_RESULTS})",
            },
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
        """``resolve`` is ``socket.getaddrinfo`` unless given; ``verify`` says whom to trust."""
        self._settings = settings or SearchSettings()
        self._resolve = resolve
        self._verify = verify

    def effects(self, args: Arguments) -> tuple[Effect, ...]:
        """The endpoint: ``security.allowed_domains`` has to name it like any other server."""
        text(args, "query")
        return (Fetches(self._configured()[1]),)

    def prepare(self, args: Arguments, context: ToolContext) -> Prepared:
        from coilclaw.security import hosts
        from coilclaw.tools import searchservices

        provider, endpoint = self._configured()
        finding = hosts.judge_url(endpoint, context.security)
        if finding.forbidden:
            raise DeniedError(finding.reason, rule=finding.rule)
        key = self._key(provider, context)
        query = text(args, "query")
        count = min(max(whole(args, "count", DEFAULT_RESULTS), 1), MAX_RESULTS)
        search = searchservices.question(provider, endpoint, key, query, count)
        detail = f"ask {search.address.authority} ({provider}) for {query!r}"
        return Ready((detail,), lambda: self._asked(search, key, count, context))

    def _configured(self) -> tuple[SearchProvider, str]:
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
                f"web search has no usable key: {named} is empty, or holds what no key may hold",
                rule="web_search.key",
            )
        return Secret(value)

    def _asked(
        self, search: Search, key: Secret | None, count: int, context: ToolContext
    ) -> ToolResult:
        from coilclaw.security.redaction import Redactor

        # A service may repeat what it was sent.
        redact = Redactor(() if key is None else (key,)).redact
        try:
            result = self._answered(search, count, context)
        except (DeniedError, EnvironmentFault) as problem:
            # Without its cause, which may hold the request.
            raise type(problem)(redact(problem.message), rule=problem.rule) from None
        error = None if result.error is None else redact(result.error)
        return ToolResult(result.success, redact(result.output), error, result.metadata)

    def _answered(self, search: Search, count: int, context: ToolContext) -> ToolResult:
        import socket

        from coilclaw.tools import searchservices
        from coilclaw.tools.fetching import Fetcher

        provider, _ = self._configured()
        fetcher = Fetcher(
            context.security,
            self._resolve or socket.getaddrinfo,
            self._verify,
            context.limits.http_timeout_s,
            ANSWER_BYTES,
        )
        fetched = fetcher.fetch(search.address, context.cancel, search.question)
        metadata: dict[str, Json] = {"provider": provider, "http_status": fetched.status}
        if not 200 <= fetched.status < 300:
            said = _WHY.get(fetched.status, "")
            return ToolResult(
                False,
                "",
                f"the search service answers HTTP {fetched.status}{said}",
                {**metadata, "rule": "web_search.status"},
            )
        if fetched.body.cut:
            raise EnvironmentFault(
                f"the answer of the search service is larger than {ANSWER_BYTES:,} bytes",
                rule="web_search.answer",
            )
        found = searchservices.hits(provider, fetched.body.content, count)
        told = _told(found, context.limits.output_bytes)
        return ToolResult(True, told, None, {**metadata, "results": len(found)})


_WHY: Final = {
    401: ": the key is wrong",
    403: ": the key is wrong or not allowed",
    429: ": too many questions, or the quota is used up",
}


def _told(found: tuple[Hit, ...], bound: int) -> str:
    if not found:
        return "nothing was found\n"
    pieces = [
        f"{number}. {hit.title or '(no title)'}\n   {hit.url}\n"
        + (f"   {hit.snippet}\n" if hit.snippet else "")
        for number, hit in enumerate(found, start=1)
    ]
    told, lost = output.end_cut("".join(pieces), bound - output.NOTICE_BYTES)
    return f"{told}\n[… the rest is cut]\n" if lost else told
