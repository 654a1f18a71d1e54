"""How the library that speaks HTTP is set up: our bounds, and nothing said that is not asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coilclaw.errors import UsageError
from coilclaw.gateway.listening import BACKLOG
from coilclaw.gateway.protocol import bounded_protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp
    from uvicorn import Config

    from coilclaw.domain.messages import Json
    from coilclaw.errors import CoilClawError
    from coilclaw.gateway.settings import GatewaySettings

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
