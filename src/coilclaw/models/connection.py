"""Connections below the HTTP library that keep one deadline for a whole request.

The library bounds every single wait; a server that sends a byte now and then would never run into
that. It is imported here only, so that nothing loads it before a request goes out.
"""

from __future__ import annotations

import os
import queue
import socket
import threading
import weakref
from base64 import b64encode
from time import monotonic
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterable

    import httpcore2
    from httpcore2 import NetworkBackend, NetworkStream

    from coilclaw.models.http import RequestDeadline
else:  # the library calls them by their methods, and is imported where it is used
    NetworkBackend = NetworkStream = object

KEPT_S: Final = 60.0
"""How long a connection may be idle and still be used again."""
KEPT_CONNECTIONS: Final = 4


def make_pool(deadline: RequestDeadline, connect_s: float, proxy: httpcore2.Proxy | None) -> Any:
    """Return a pool of connections; every wait of theirs ends with the deadline."""
    import httpcore2

    return httpcore2.ConnectionPool(
        ssl_context=_tls_context(),
        proxy=proxy,
        max_connections=None,
        max_keepalive_connections=KEPT_CONNECTIONS,
        keepalive_expiry=KEPT_S,
        network_backend=_Backend(deadline, connect_s),
    )


class _Stream(NetworkStream):
    def __init__(self, inner: NetworkStream, deadline: RequestDeadline) -> None:
        self._inner, self._deadline = inner, deadline
        # Nobody has to close a provider: what is forgotten is hung up.
        self._forgotten = weakref.finalize(self, inner.close)
        self._forgotten.atexit = False

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ARG002 - ours
        return self._inner.read(max_bytes, self._deadline.remaining_s())

    def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ARG002 - ours
        self._inner.write(buffer, self._deadline.remaining_s())

    def close(self) -> None:
        self._forgotten()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ARG002 - ours
    ) -> NetworkStream:
        self._forgotten.detach()
        left = self._deadline.remaining_s()
        return _Stream(self._inner.start_tls(ssl_context, server_hostname, left), self._deadline)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


class _Backend(NetworkBackend):
    def __init__(self, deadline: RequestDeadline, connect_s: float) -> None:
        self._deadline, self._connect_s = deadline, connect_s

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ARG002 - ours
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> NetworkStream:
        """Connect to the first address of a host that answers."""
        import httpcore2

        until = monotonic() + min(self._deadline.remaining_s(), self._connect_s)
        addresses = _resolve(host, port, until)
        for ahead in range(len(addresses), 0, -1):
            left = until - monotonic()
            if left <= 0:
                break
            address = addresses[-ahead]
            try:
                # An address that says nothing leaves time for the next.
                inner = httpcore2.SyncBackend().connect_tcp(
                    *address, left / ahead, local_address, socket_options
                )
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                if ahead == 1:
                    raise
            else:
                return _Stream(inner, self._deadline)
        raise httpcore2.ConnectTimeout("no connection in time")


def _resolve(host: str, port: int, until: float) -> list[tuple[str, int]]:
    """Find the addresses of a host, in a thread, since nothing bounds that."""
    import httpcore2

    outcome: queue.SimpleQueue[list[tuple[str, int]] | OSError] = queue.SimpleQueue()

    def work() -> None:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            outcome.put(list(dict.fromkeys((str(each[4][0]), int(each[4][1])) for each in found)))
        except Exception as problem:  # noqa: BLE001 - told to the thread that waits
            outcome.put(OSError(f"{host[:100]} has no address: {problem}"))

    threading.Thread(target=work, name="resolve", daemon=True).start()
    try:
        result = outcome.get(timeout=max(0.0, until - monotonic()))
    except queue.Empty:
        message = "the name of the host was not resolved in time"
        raise httpcore2.ConnectTimeout(message) from None
    if isinstance(result, OSError):
        raise httpcore2.ConnectError(str(result))
    return result


def find_proxy(scheme: str, host: str) -> httpcore2.Proxy | None:
    """Return the proxy for an address; one that cannot be used is a ``ConnectionError``."""
    from urllib.request import getproxies, proxy_bypass

    import httpcore2

    known = getproxies()
    named = known.get(scheme) or known.get("all")
    if not named or proxy_bypass(host):
        return None
    parts = urlsplit(named if "://" in named else f"http://{named}")
    try:
        port = parts.port if parts.port is not None else 80
    except ValueError:
        port = 0
    if parts.scheme != "http" or not parts.hostname or not port:
        # The address may hold a password, so the message names only its kind.
        raise ConnectionError(
            f"the proxy that the environment names for {scheme} is not an http proxy "
            "(its address would begin with http://)"
        )
    headers = []
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers = [(b"proxy-authorization", b"Basic " + b64encode(pair.encode()))]
    url = httpcore2.URL(scheme="http", host=parts.hostname, port=port, target="/")
    return httpcore2.Proxy(url, headers=headers)


def _tls_context() -> ssl.SSLContext:
    """Trust what the machine trusts, or what the usual variables name instead."""
    import ssl

    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    if file or folder:
        return ssl.create_default_context(cafile=file or None, capath=folder or None)
    import truststore

    return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
