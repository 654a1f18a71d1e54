"""Asking an endpoint over HTTP: bounded in bytes and in seconds, every failure one of ours."""

from __future__ import annotations

import json
import os
import re
import threading
import zlib
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from coilclaw.kernel import ProviderError, ProviderNetwork, ProviderRejected, ProviderTimeout
from coilclaw.models.json_value import loads
from coilclaw.models.refusal import error_within, excerpt, malformed_error, refusal_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from coilclaw.kernel import Json
    from coilclaw.models.endpoint import ModelEndpoint

ERROR_BODY_BYTES: Final = 64 * 2**10
READ_BYTES: Final = 2**16
STREAM_OVERHEAD: Final = 128
"""How many times larger a stream may be than what it says: it wraps every word anew."""
LINGER_S: Final = 0.05
"""How long a server may take to end a stream that has said everything."""

_TARGET: Final = re.compile(r"[!-~]+")
_UNSAFE: Final = re.compile(r"[^\t -~]")
_HEADERS: Final = {
    "user-agent": "coilclaw",
    "accept": "application/json, text/event-stream;q=0.9",
    "accept-encoding": "identity",
    "content-type": "application/json",
}


class RequestDeadline(threading.local):
    """Until when the request of this thread may go on."""

    at = 0.0

    def remaining_s(self) -> float:
        """Return what is left; nothing is a ``TimeoutError``."""
        left = self.at - monotonic()
        if left <= 0:
            raise TimeoutError("the time is up")
        return left


class ModelClient:
    """Asks one endpoint; safe for many threads."""

    __slots__ = ("_endpoint", "_lock", "_pool", "_process", "deadline")

    def __init__(self, endpoint: ModelEndpoint) -> None:
        self._endpoint = endpoint
        self._pool: Any = None
        self._process = 0
        self._lock = threading.Lock()
        self.deadline = RequestDeadline()

    def post(self, url: str, headers: Mapping[str, str], body: Mapping[str, Json]) -> bytes:
        """Send a JSON body and return the body of a good answer; anything else raises."""
        with self.asking(url, headers, body) as answer:
            return answer.read_body()

    @contextmanager
    def asking(
        self, url: str, headers: Mapping[str, str], body: Mapping[str, Json]
    ) -> Iterator[HttpAnswer]:
        """Send a JSON body; a good answer is read while the context lasts."""
        import httpcore2

        data = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
        self.deadline.at = monotonic() + self._endpoint.timeout_s
        try:
            parts = urlsplit(url)
            if not _TARGET.fullmatch(f"{parts.path or '/'}?{parts.query}"):
                raise ValueError("the path of the address holds what no address may hold")
            if any(map(_UNSAFE.search, (*headers, *headers.values()))):
                raise ValueError("a header holds what no header may hold")
            pool = self._open_pool(parts.scheme, parts.hostname or "")
            sent = {"host": parts.netloc, **_HEADERS, "content-length": str(len(data)), **headers}
            asked = httpcore2.Request("POST", url, headers=list(sent.items()), content=data)
            response = pool.handle_request(asked)
        except _failures() as problem:
            raise foreign(self._endpoint, problem) from None
        try:
            answer = HttpAnswer(self._endpoint, self, response)
            if not 200 <= response.status < 300:
                raise answer.refusal()
            yield answer
        finally:
            response.close()

    def close(self) -> None:
        """End the connections that are kept; a request that follows opens its own."""
        if self._pool is not None and self._process == os.getpid():
            self._pool.close()
        self._pool = None

    @property
    def connections(self) -> list[Any]:
        """The connections of this process that are open."""
        known = self._pool is not None and self._process == os.getpid()
        return self._pool.connections if known else []

    def _open_pool(self, scheme: str, host: str) -> Any:
        from coilclaw.models.connection import find_proxy, make_pool

        with self._lock:
            # A child does not speak on the connections of its parent.
            if self._pool is None or self._process != os.getpid():
                # A proxy that the environment names is none for a server on this machine.
                proxy = None if self._endpoint.local else find_proxy(scheme, host)
                self._pool = make_pool(self.deadline, self._endpoint.connect_timeout_s, proxy)
                self._process = os.getpid()
            return self._pool


class HttpAnswer:
    """An answer whose head was read, and whose body was not."""

    __slots__ = ("_client", "_endpoint", "_headers", "_pieces", "_response")

    def __init__(self, endpoint: ModelEndpoint, client: ModelClient, response: Any) -> None:
        self._endpoint, self._client, self._response = endpoint, client, response
        self._headers = {
            name.decode("latin-1").lower(): value.decode("latin-1")
            for name, value in response.headers
        }
        self._pieces = response.iter_stream()

    @property
    def streamed(self) -> bool:
        """Whether the body is a stream of events."""
        kind: str = self._headers.get("content-type", "")
        return kind.partition(";")[0].strip().lower() == "text/event-stream"

    def read_body(self) -> bytes:
        """Return the body; one that is larger than the bound is malformed."""
        return b"".join(self.pieces(1))

    def pieces(self, overhead: int = STREAM_OVERHEAD) -> Iterator[bytes]:
        """Yield the body as it comes; the reader bounds what it keeps of it."""
        limit, total = overhead * self._endpoint.max_response_bytes, 0
        for piece in self._plain(self._receive_pieces()):
            total += len(piece)
            if total > limit:
                raise malformed_error(self._endpoint, f"is larger than {limit:,} bytes", None)
            yield piece

    def refusal(self) -> ProviderError:
        """Return the error that an answer stands for which is not good."""
        found = b""
        for piece in self._plain(self._receive_pieces()):
            found += piece
            if len(found) >= ERROR_BODY_BYTES:
                break
        retry_after = self._headers.get("retry-after")
        return refusal_error(
            self._endpoint, self._response.status, retry_after, found[:ERROR_BODY_BYTES]
        )

    def over(self) -> None:
        """Pass the end of a stream that has said everything; one that lingers is left."""
        self._client.deadline.at = monotonic() + LINGER_S
        try:
            for _ in self._pieces:
                pass
        except _failures():
            return

    def _receive_pieces(self) -> Iterator[bytes]:
        try:
            # Not delegated: who stops listening does not end the stream, which ``over`` does.
            while (piece := next(self._pieces, None)) is not None:
                yield piece
        except _failures() as problem:
            raise foreign(self._endpoint, problem) from None

    def _plain(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Decompress a body that was compressed without a request for that."""
        encoding = self._headers.get("content-encoding", "identity").strip().lower()
        if encoding == "identity":
            yield from pieces
            return
        if encoding not in {"gzip", "x-gzip", "deflate"}:
            raise malformed_error(self._endpoint, "is packed in a way that was not asked for", None)
        unpacker = zlib.decompressobj(wbits=47)
        try:
            for piece in pieces:
                while piece:
                    yield unpacker.decompress(piece, READ_BYTES)
                    piece = unpacker.unconsumed_tail
        except zlib.error as problem:
            raise malformed_error(self._endpoint, f"cannot be unpacked: {problem}", None) from None
        if not unpacker.eof:
            raise malformed_error(self._endpoint, "ends before it is unpacked", None)


def parse(endpoint: ModelEndpoint, raw: bytes) -> dict[str, Json]:
    """Return an answer's JSON object."""
    try:
        value = loads(raw)
    except (ValueError, RecursionError) as problem:
        raise malformed_error(endpoint, "is not valid JSON", raw) from problem
    if not isinstance(value, dict):
        raise malformed_error(endpoint, "is not a JSON object", raw)
    # Some gateways say 200 and mean it otherwise.
    if error := error_within(endpoint, value, raw):
        raise error
    return value


def foreign(endpoint: ModelEndpoint, problem: Exception) -> ProviderError:
    """Translate an error of the HTTP library."""
    import httpcore2

    name, said = endpoint.name, excerpt(endpoint, problem) or type(problem).__name__
    if isinstance(problem, httpcore2.ConnectTimeout):
        patience = min(endpoint.connect_timeout_s, endpoint.timeout_s)
        text = f"{name} could not be reached within {patience:g} s"
        return ProviderTimeout(text, provider=name)
    if isinstance(problem, httpcore2.TimeoutException | TimeoutError):
        text = f"{name} did not finish its answer within {endpoint.timeout_s:g} s"
        return ProviderTimeout(text, provider=name)
    if isinstance(problem, httpcore2.LocalProtocolError | ValueError):
        text = f"the address of {name} or what it is sent is malformed: {said}"
        return ProviderRejected(text, provider=name)
    if isinstance(problem, httpcore2.ProxyError):
        said = f"the proxy answered HTTP {said}"
    return ProviderNetwork(
        f"{name} could not be reached, or the connection broke: {said}", provider=name
    )


def _failures() -> tuple[type[Exception], ...]:
    """Return whatever sending and receiving can raise."""
    import httpcore2

    return (
        OSError,
        ValueError,
        httpcore2.TimeoutException,
        httpcore2.NetworkError,
        httpcore2.ProtocolError,
        httpcore2.ProxyError,
        httpcore2.UnsupportedProtocol,
    )
