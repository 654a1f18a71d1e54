"""Asking one endpoint over HTTP, on connections that are kept from one request to the next."""

from __future__ import annotations

import json
import os
import re
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Final
from urllib.parse import SplitResult, urlsplit

from coilclaw.errors import ProviderTimeout
from coilclaw.providers.answer import FAILURES, Answer, foreign
from coilclaw.providers.connection import connect
from coilclaw.providers.jsonvalue import loads
from coilclaw.providers.proxy import proxy_for
from coilclaw.providers.refusal import error_within, malformed

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator, Mapping
    from http.client import HTTPResponse

    from coilclaw.domain.messages import Json
    from coilclaw.providers.connection import Connection
    from coilclaw.providers.endpoint import Endpoint
    from coilclaw.providers.proxy import Proxy

KEPT_CONNECTIONS: Final = 4

_PORTS: Final = {"http": 80, "https": 443}
_TARGET: Final = re.compile(r"[!-~]+")
_UNSAFE: Final = re.compile(r"[^\t -~]")


class Client:
    """Asks one endpoint; safe for many threads."""

    __slots__ = ("_context", "_endpoint", "_idle", "_proxies")

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._idle: list[Connection] = []
        self._context: ssl.SSLContext | None = None
        self._proxies: dict[str, Proxy | None] = {}

    def post(self, url: str, headers: Mapping[str, str], body: Mapping[str, Json]) -> bytes:
        """Send a JSON body and return the body of a good answer; anything else raises."""
        with self.asking(url, headers, body) as answer:
            return answer.whole()

    @contextmanager
    def asking(
        self, url: str, headers: Mapping[str, str], body: Mapping[str, Json]
    ) -> Iterator[Answer]:
        """Send a JSON body; a good answer is read while the context lasts."""
        connection, response = self._exchange(url, headers, body)
        answer = Answer(self._endpoint, connection, response)
        try:
            if not answer.good:
                raise answer.refusal()
            yield answer
        finally:
            if answer.reusable and len(self._idle) < KEPT_CONNECTIONS:
                connection.rest()
                self._idle.append(connection)
            else:
                connection.hang_up()

    def close(self) -> None:
        """End the connections that are kept; a request that follows opens its own."""
        while (kept := self._kept()) is not None:
            kept.hang_up()

    def _exchange(
        self, url: str, headers: Mapping[str, str], body: Mapping[str, Json]
    ) -> tuple[Connection, HTTPResponse]:
        deadline = monotonic() + self._endpoint.timeout_s
        data = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
        try:
            parts = urlsplit(url)
            proxy = self._proxy(parts)
            head = _head(parts, headers, len(data), proxy)
            connection = self._connected(parts, proxy, deadline)
            try:
                connection.send(head + data)
                return connection, connection.response("POST")
            except BaseException:
                connection.hang_up()
                raise
        except FAILURES as problem:
            raise foreign(self._endpoint, problem) from None

    def _connected(self, parts: SplitResult, proxy: Proxy | None, deadline: float) -> Connection:
        while (kept := self._kept()) is not None:
            if kept.usable:
                kept.begin(deadline)
                return kept
            kept.hang_up()
        host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
        near = (proxy.host, proxy.port) if proxy else (host, port)
        patience = min(self._endpoint.connect_timeout_s, self._endpoint.timeout_s)
        try:
            connection = connect(*near, deadline, patience)
        except TimeoutError:
            raise ProviderTimeout(
                f"{self._endpoint.name} could not be reached within {patience:g} s",
                provider=self._endpoint.name,
            ) from None
        try:
            if parts.scheme == "https":
                if proxy:
                    proxy.tunnel(connection, host, port)
                connection.secure(self._tls(), host)
        except BaseException:
            connection.hang_up()
            raise
        return connection

    def _kept(self) -> Connection | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _proxy(self, parts: SplitResult) -> Proxy | None:
        # A proxy that the environment names is none for a server on this machine.
        if self._endpoint.local:
            return None
        if parts.scheme not in self._proxies:
            self._proxies[parts.scheme] = proxy_for(parts.scheme, parts.hostname or "")
        return self._proxies[parts.scheme]

    def _tls(self) -> ssl.SSLContext:
        if self._context is None:
            self._context = _tls_context()
        return self._context


def parse(endpoint: Endpoint, raw: bytes) -> dict[str, Json]:
    """Return an answer's JSON object."""
    try:
        value = loads(raw)
    except (ValueError, RecursionError) as problem:
        raise malformed(endpoint, "is no JSON", raw) from problem
    if not isinstance(value, dict):
        raise malformed(endpoint, "is no JSON object", raw)
    # Some gateways say 200 and mean it otherwise.
    if error := error_within(endpoint, value, raw):
        raise error
    return value


def _head(parts: SplitResult, headers: Mapping[str, str], size: int, proxy: Proxy | None) -> bytes:
    target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    if proxy and parts.scheme == "http":
        target = f"http://{parts.netloc}{target}"
        headers = {**headers, **proxy.headers}
    if not _TARGET.fullmatch(target):
        raise ValueError("the path of the address holds what no address may hold")
    lines = [
        f"POST {target} HTTP/1.1",
        f"host: {parts.netloc}",
        "user-agent: coilclaw",
        "accept: application/json, text/event-stream;q=0.9",
        "accept-encoding: identity",
        "content-type: application/json",
        f"content-length: {size}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    if any(_UNSAFE.search(line) for line in lines):
        raise ValueError("a header holds what no header may hold")
    return "\r\n".join((*lines, "", "")).encode("ascii")


def _tls_context() -> ssl.SSLContext:
    """Trust what the machine trusts, or what the usual variables name instead."""
    import ssl

    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    if file or folder:
        return ssl.create_default_context(cafile=file or None, capath=folder or None)
    import truststore

    return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
