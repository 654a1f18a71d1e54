"""Where the gateway listens: refused unless it is safe, or the user says that it may be unsafe."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final

from coilclaw.errors import EnvironmentFault, UsageError
from coilclaw.gateway.hosts import is_loopback

if TYPE_CHECKING:
    from coilclaw.gateway.settings import GatewaySettings

BACKLOG: Final = 256
_MOST: Final = 65535


def check(settings: GatewaySettings) -> None:
    """Say what is wrong with the settings, before anything is opened."""
    if not 0 <= settings.port <= _MOST:
        raise UsageError(f"there is no port {settings.port}", rule="gateway.port")
    if (settings.tls_cert is None) != (settings.tls_key is None):
        raise UsageError(
            "TLS needs a certificate and its key",
            rule="gateway.tls",
            hint="give both --tls-cert and --tls-key",
        )
    if is_loopback(settings.host):
        return
    if not settings.public:
        raise UsageError(
            f"{settings.host} is not a loopback address: other machines could reach the agent",
            rule="gateway.public",
            hint="--public says that this is meant",
        )
    if not settings.tls and not settings.insecure:
        raise UsageError(
            f"without TLS everybody on the way to {settings.host} reads the token",
            rule="gateway.insecure",
            hint="give --tls-cert and --tls-key, or --insecure where something else protects it",
        )


def listener(settings: GatewaySettings) -> socket.socket:
    """Return a socket that is bound; every address that a name leads to must be as checked."""
    check(settings)
    try:
        found = socket.getaddrinfo(
            settings.host.strip("[]"),
            settings.port,
            type=socket.SOCK_STREAM,
            flags=socket.AI_PASSIVE,
        )
    except (OSError, UnicodeError) as problem:
        raise UsageError(
            f"{settings.host!r} is no address of this machine", rule="gateway.host"
        ) from problem
    family, kind, protocol, _, address = found[0]
    if is_loopback(settings.host) and not is_loopback(str(address[0])):
        raise UsageError(
            f"{settings.host} leads to {address[0]}, which is no loopback address",
            rule="gateway.public",
        )
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError as problem:
        sock.close()
        raise EnvironmentFault(
            f"cannot listen on {settings.host} port {settings.port}: {problem.strerror}",
            rule="gateway.listen",
            hint="another process may use the port; --port names another one",
        ) from problem
    return sock
