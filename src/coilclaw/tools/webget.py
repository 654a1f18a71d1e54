"""``http``: gets a page from a domain that the user allows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coilclaw.domain.effects import Fetches
from coilclaw.domain.toolcalls import ToolResult
from coilclaw.errors import DeniedError
from coilclaw.tools import output
from coilclaw.tools.basis import Basis, Ready, closed, text

if TYPE_CHECKING:
    import ssl

    from coilclaw.domain.effects import Effect
    from coilclaw.domain.messages import Json
    from coilclaw.security.hosts import WebAddress
    from coilclaw.tools.contract import Arguments, Prepared, ToolContext
    from coilclaw.tools.fetching import Fetched, Resolver

MAX_URL: Final = 4000


class Http(Basis):
    """Sends a GET and returns the answer."""

    name: Final = "http"
    description: Final = (
        "Get a page by http or https (GET only) from a domain that the user allows. Redirects to "
        "other hosts are reported, not followed."
    )
    parameters_schema: Final[dict[str, Json]] = closed(
        {
            "url": {
                "type": "string",
                "minLength": 1,
                "maxLength": MAX_URL,
                "description": "the address, such as https://example.com/page",
            }
        },
        "url",
    )

    def __init__(
        self, resolve: Resolver | None = None, *, verify: ssl.SSLContext | None = None
    ) -> None:
        """``resolve`` is ``socket.getaddrinfo`` unless given; ``verify`` says whom to trust."""
        self._resolve = resolve
        self._verify = verify

    def effects(self, args: Arguments) -> tuple[Effect, ...]:
        return (Fetches(text(args, "url")),)

    def prepare(self, args: Arguments, context: ToolContext) -> Prepared:
        from coilclaw.security import hosts

        url = text(args, "url")
        address = hosts.parse(url)
        finding = hosts.judge_url(url, context.security)
        if finding.forbidden:
            raise DeniedError(finding.reason, rule=finding.rule)
        return Ready((f"GET {address}",), lambda: self._got(address, context))

    def _got(self, address: WebAddress, context: ToolContext) -> ToolResult:
        import socket

        from coilclaw.tools.fetching import Fetcher

        fetcher = Fetcher(
            context.security,
            self._resolve or socket.getaddrinfo,
            self._verify,
            context.limits.http_timeout_s,
            context.limits.output_bytes,
        )
        return _told(fetcher.fetch(address, context.cancel), context.limits.output_bytes)


def _told(fetched: Fetched, bound: int) -> ToolResult:
    from coilclaw.tools import webbody

    body = fetched.body
    received = f"{'more than ' if body.cut else ''}{len(body.content)} bytes"
    size = received if fetched.length is None else f"{fetched.length} bytes"
    kind = fetched.content_type or "unknown type"
    head = f"HTTP {fetched.status}, {kind}, {size}\n\n"
    page = webbody.text_of(body.content, fetched.content_type)
    if page is None:
        told, lost = f"{head}[binary content is not shown]", 0
    else:
        room = bound - output.size(head) - output.NOTICE_BYTES
        kept, lost = output.end_cut(page, room)
        cut = bool(lost) or body.cut
        told = f"{head}{kept}" + ("\n[… the rest is cut]" if cut else "")
    metadata: dict[str, Json] = {
        "status": fetched.status,
        "url": fetched.url,
        "address": fetched.ip,
        "content_type": fetched.content_type,
        "bytes": len(body.content),
        "cut": body.cut or bool(lost),
        "redirects": fetched.redirects,
    }
    good = 200 <= fetched.status < 300
    error = None if good else f"HTTP {fetched.status}"
    return ToolResult(good, output.end_cut(told, bound)[0], error, metadata)
