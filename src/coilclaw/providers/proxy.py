"""The proxy that the environment names for an address, if any."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from coilclaw.providers.connection import Connection

HTTP_PORT: Final = 80
_ESTABLISHED: Final = 200


@dataclass(frozen=True, slots=True)
class Proxy:
    """Where a proxy is, and what it wants to be told."""

    host: str
    port: int
    authorization: str | None = None

    def __repr__(self) -> str:
        return f"Proxy({self.host!r}, {self.port})"

    @property
    def headers(self) -> dict[str, str]:
        return {"proxy-authorization": self.authorization} if self.authorization else {}

    def tunnel(self, connection: Connection, host: str, port: int) -> None:
        """Have the proxy pass everything on to a host from now on."""
        target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        lines = [f"CONNECT {target} HTTP/1.1", f"host: {target}"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        connection.send("\r\n".join((*lines, "", "")).encode("ascii"))
        status = connection.response("CONNECT").status
        if status != _ESTABLISHED:
            raise ConnectionError(f"the proxy answered HTTP {status}")


def proxy_for(scheme: str, host: str) -> Proxy | None:
    """Return the proxy for an address; one that cannot be used is a ``ConnectionError``."""
    from urllib.request import getproxies, proxy_bypass

    known = getproxies()
    named = known.get(scheme) or known.get("all")
    if not named or proxy_bypass(host):
        return None
    parts = urlsplit(named if "://" in named else f"http://{named}")
    try:
        port = parts.port or HTTP_PORT
    except ValueError:
        port = 0
    if parts.scheme != "http" or not parts.hostname or not port:
        # The address may hold a password, so that only its kind is told.
        raise ConnectionError(
            f"the proxy that the environment names for {scheme} is no http proxy "
            "(its address would begin with http://)"
        )
    return Proxy(parts.hostname, port, _authorization(parts.username, parts.password))


def _authorization(user: str | None, password: str | None) -> str | None:
    from base64 import b64encode

    if user is None:
        return None
    pair = f"{unquote(user)}:{unquote(password or '')}"
    return f"Basic {b64encode(pair.encode()).decode('ascii')}"
