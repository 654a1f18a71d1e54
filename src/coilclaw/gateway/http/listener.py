"""Where the gateway listens: refused unless it is safe, or the user says that it may be unsafe."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import EnvironmentFault, UsageError

if TYPE_CHECKING:
    from coilclaw.gateway.settings import GatewaySettings

BACKLOG: Final = 256
_MOST: Final = 65535


def check(settings: GatewaySettings) -> None:
    """Say what is wrong with the settings, before anything is opened."""
    if not 0 <= settings.port <= _MOST:
        raise UsageError(f"port {settings.port} does not exist", rule="gateway.port")
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
            f"{settings.host!r} is not an address of this machine", rule="gateway.host"
        ) from problem
    family, kind, protocol, _, address = found[0]
    if is_loopback(settings.host) and not is_loopback(str(address[0])):
        raise UsageError(
            f"{settings.host} leads to {address[0]}, which is not a loopback address",
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


LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
_DEFAULT_PORTS: Final = {"http": "80", "https": "443"}
MAX_HOST_CHARS: Final = 300


@dataclass(frozen=True, slots=True)
class Hosts:
    """The names that ``Host`` and ``Origin`` may carry."""

    scheme: str
    port: int
    names: frozenset[str]
    """Lower case, without a port: ours is meant."""
    exact: frozenset[str] = frozenset()
    """With whatever port stands there."""
    every_address: bool = False
    """Whether we listen on all addresses: then the one that a connection came to counts."""

    @classmethod
    def of(cls, settings: GatewaySettings, address: str, port: int) -> Hosts:
        """Loopback names for a loopback address, else the address; and what was configured."""
        given = [name.lower() for name in settings.allowed_hosts]
        own = frozenset({bracket_address(address)}) | (LOOPBACK if is_loopback(address) else set())
        return cls(
            "https" if settings.tls else "http",
            port,
            own | {name for name in given if not _port_of(name)},
            frozenset(name for name in given if _port_of(name)),
            is_every_address(address),
        )

    def knows(self, host: str, reached: str = "") -> bool:
        """Tell whether a ``Host`` header names us; ``reached`` is where the connection came to."""
        if len(host) > MAX_HOST_CHARS:
            return False
        host = host.lower()
        if host in self.exact:
            return True
        port = _port_of(host)
        name = host.removesuffix(f":{port}") if port else host
        named = name in self.names or (self.every_address and name == bracket_address(reached))
        return named and (port or _DEFAULT_PORTS[self.scheme]) == str(self.port)

    def knows_origin(self, origin: str, reached: str = "") -> bool:
        """Tell whether an ``Origin`` header is a page that we served ourselves."""
        scheme, separator, host = origin.lower().partition("://")
        return bool(separator) and scheme == self.scheme and self.knows(host, reached)


def is_loopback(host: str) -> bool:
    """Tell whether an address, or ``localhost``, is reached from this machine alone."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def is_every_address(host: str) -> bool:
    """Tell whether an address means all of this machine's."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return False


def bracket_address(address: str) -> str:
    """Write an address as it stands in a URL."""
    return f"[{address}]" if ":" in address else address.lower()


def _port_of(host: str) -> str:
    """Return the port in a host, if there is one; an address in brackets has colons of its own."""
    rest = host.rpartition("]")[2] if host.startswith("[") else host
    _, separator, port = rest.rpartition(":")
    return port if separator and port.isascii() and port.isdigit() else ""
