"""HTTP on one connection, with bounds in time and number that the library does not have itself."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, ClassVar, Final

from coilclaw.gateway.http.listener import BACKLOG
from coilclaw.kernel import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp
    from uvicorn import Config

    from coilclaw.gateway.settings import GatewaySettings
    from coilclaw.kernel import CoilClawError, Json

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from uvicorn.protocols.http.h11_impl import H11Protocol as _Connection

    from coilclaw.gateway.settings import GatewaySettings
    from coilclaw.kernel import CoilClawError, Json
else:
    _Connection = object

_log = logging.getLogger(__name__)


def bounded_protocol(
    settings: GatewaySettings, form: Callable[[CoilClawError], dict[str, Json]]
) -> type[asyncio.Protocol]:
    """Make the class of connections; the library is loaded here and not before."""
    from uvicorn.protocols.http.h11_impl import H11Protocol

    own = {"settings": settings, "form": staticmethod(form)}
    return type("BoundedProtocol", (Bounded, H11Protocol), own)


class Bounded(_Connection):
    """A connection; a client that is too slow to ask, or to take the answer, is let go."""

    settings: ClassVar[GatewaySettings]
    form: Callable[[CoilClawError], dict[str, Json]]
    """Makes the body that says what went wrong."""
    _asking: asyncio.TimerHandle | None = None
    """Runs until the headers of a request are complete."""
    _unread: asyncio.TimerHandle | None = None
    """Runs while the client leaves too much of an answer unread."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as the library has it
        super().connection_made(transport)
        if len(self.connections) > self.settings.max_connections:
            _log.warning("too many connections", extra={"event": "gateway_full"})
            transport.abort()
            return
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_came()
        self._was_read()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._complete:
            self._head_came()
        elif self._asking is None and not self.transport.is_closing():
            self._expect_head()

    def on_response_complete(self) -> None:
        import h11

        unfinished = self.conn.their_state is h11.SEND_BODY
        super().on_response_complete()
        if unfinished and not self.transport.is_closing():
            # It has its answer, and would go on sending for ever.
            self.transport.close()
        if self._complete:
            self._head_came()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.loop.call_later(self.settings.write_timeout_s, self._abort, "to read")

    def resume_writing(self) -> None:
        super().resume_writing()
        self._was_read()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - ours says more, in JSON
        """Say what is wrong with a request that is not HTTP, or too large to be."""
        import h11

        if self.conn.our_state not in {h11.IDLE, h11.SEND_RESPONSE}:
            # An answer is on its way already; nothing else can be said.
            self.transport.abort()
            return
        bound = self.settings.max_header_bytes
        status, rule, message = 400, "http.malformed", "this is not a request of HTTP/1.1"
        if len(self.conn.trailing_data[0]) >= bound:
            status, rule = 431, "http.head_large"
            message = f"the headers of a request have at most {bound} bytes"
        body = json.dumps(self.form(UsageError(message, rule=rule))).encode("ascii")
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode("ascii")),
            (b"connection", b"close"),
        ]
        events = (
            h11.Response(status_code=status, headers=headers, reason=b""),
            h11.Data(data=body),
            h11.EndOfMessage(),
        )
        for event in events:
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    @property
    def _complete(self) -> bool:
        """Whether the headers of a request are all there."""
        import h11

        return self.conn.their_state is not h11.IDLE

    def _expect_head(self) -> None:
        self._asking = self.loop.call_later(self.settings.head_timeout_s, self._abort, "to ask")

    def _head_came(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            self._asking = None

    def _was_read(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _abort(self, what: str) -> None:
        _log.info("a client was too slow %s", what, extra={"event": "gateway_slow"})
        self.transport.abort()


_HEADERS: Final = [("cache-control", "no-store"), ("x-content-type-options", "nosniff")]


def http_config(
    app: ASGIApp, settings: GatewaySettings, form: Callable[[CoilClawError], dict[str, Json]]
) -> Config:
    """Return how an application is served; ``form`` is that of errors below it."""
    import ssl

    from uvicorn import Config

    config = Config(
        app,
        loop="asyncio",
        http=bounded_protocol(settings, form),
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        headers=_HEADERS,
        backlog=BACKLOG,
        timeout_keep_alive=settings.keep_alive_s,  # type: ignore[arg-type]  # any number does
        h11_max_incomplete_event_size=settings.max_header_bytes,
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
    )
    try:
        config.load()
    except (OSError, ssl.SSLError) as problem:
        raise UsageError(
            f"the TLS files cannot be used: {problem.strerror or problem}", rule="gateway.tls"
        ) from problem
    return config
