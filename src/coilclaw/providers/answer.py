"""The answer to a POST, read within its bounds, and every way that can fail, in our own words."""

from __future__ import annotations

import zlib
from http.client import HTTPException, HTTPResponse
from time import monotonic
from typing import TYPE_CHECKING, Final

from coilclaw.errors import (
    ProviderError,
    ProviderNetwork,
    ProviderRejected,
    ProviderTimeout,
)
from coilclaw.providers.refusal import excerpt, malformed, refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from coilclaw.providers.connection import Connection
    from coilclaw.providers.endpoint import Endpoint

ERROR_BODY_BYTES: Final = 64 * 2**10
READ_BYTES: Final = 2**16
STREAM_OVERHEAD: Final = 128
"""How many times larger a stream may be than what it says: it wraps every word anew."""
LINGER_S: Final = 0.05
"""How long a server may take to end a stream that has said everything."""

FAILURES: Final = (OSError, HTTPException, ValueError)
"""Whatever sending and receiving can raise."""


class Answer:
    """An answer whose head was read, and whose body was not."""

    __slots__ = ("_broken", "_connection", "_endpoint", "_response")

    def __init__(self, endpoint: Endpoint, connection: Connection, response: HTTPResponse) -> None:
        self._endpoint, self._connection, self._response = endpoint, connection, response
        self._broken = False

    @property
    def good(self) -> bool:
        return 200 <= self._response.status < 300

    @property
    def streamed(self) -> bool:
        """Whether the body is a stream of events."""
        kind = self._response.getheader("content-type") or ""
        return kind.partition(";")[0].strip().lower() == "text/event-stream"

    @property
    def reusable(self) -> bool:
        """Whether the answer was read to its end, and another request can follow."""
        response = self._response
        whole = response.length == 0 or (response.isclosed() and not response.length)
        return whole and not response.will_close and not self._broken

    def whole(self) -> bytes:
        """Return the body; one that is larger than the bound is malformed."""
        limit = self._endpoint.max_response_bytes
        return b"".join(self._bounded(self._response.read, limit))

    def pieces(self) -> Iterator[bytes]:
        """Yield the body as it comes; whoever reads it bounds what is kept of it."""
        limit = STREAM_OVERHEAD * self._endpoint.max_response_bytes
        return self._bounded(self._response.read1, limit)

    def refusal(self) -> ProviderError:
        """Return the error that an answer stands for which is not good."""
        found = b""
        for piece in self._plain(self._received(self._response.read)):
            found += piece
            if len(found) >= ERROR_BODY_BYTES:
                break
        retry_after = self._response.getheader("retry-after")
        return refused(self._endpoint, self._response.status, retry_after, found[:ERROR_BODY_BYTES])

    def over(self) -> None:
        """Pass the end of a stream that has said everything; one that lingers is left."""
        self._connection.begin(monotonic() + LINGER_S)
        try:
            while self._response.read1(READ_BYTES):
                pass
        except FAILURES:
            self._broken = True

    def _bounded(self, read: Callable[[int], bytes], limit: int) -> Iterator[bytes]:
        total = 0
        for piece in self._plain(self._received(read)):
            total += len(piece)
            if total > limit:
                raise malformed(self._endpoint, f"is larger than {limit:,} bytes", None)
            yield piece

    def _received(self, read: Callable[[int], bytes]) -> Iterator[bytes]:
        while True:
            try:
                piece = read(READ_BYTES)
                if not piece and self._response.length:
                    raise ConnectionError(f"{self._response.length:,} bytes are missing at its end")
            except FAILURES as problem:
                self._broken = True
                raise foreign(self._endpoint, problem) from None
            if not piece:
                return
            yield piece

    def _plain(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Unpack what was packed although nobody asked for that."""
        encoding = (self._response.getheader("content-encoding") or "identity").strip().lower()
        if encoding == "identity":
            yield from pieces
            return
        if encoding not in {"gzip", "x-gzip", "deflate"}:
            raise malformed(self._endpoint, "is packed in a way that was not asked for", None)
        unpacker = zlib.decompressobj(wbits=47)
        try:
            for piece in pieces:
                while piece:
                    yield unpacker.decompress(piece, READ_BYTES)
                    piece = unpacker.unconsumed_tail
        except zlib.error as problem:
            raise malformed(self._endpoint, f"cannot be unpacked: {problem}", None) from None
        if not unpacker.eof:
            raise malformed(self._endpoint, "ends before it is unpacked", None)


def foreign(endpoint: Endpoint, problem: Exception) -> ProviderError:
    """Translate an error of the HTTP library."""
    said = excerpt(endpoint, problem) or type(problem).__name__
    if isinstance(problem, TimeoutError):
        return ProviderTimeout(
            f"{endpoint.name} did not finish its answer within {endpoint.timeout_s:g} s",
            provider=endpoint.name,
        )
    if isinstance(problem, OSError | HTTPException):
        return ProviderNetwork(
            f"{endpoint.name} could not be reached, or the connection broke: {said}",
            provider=endpoint.name,
        )
    return ProviderRejected(
        f"the address of {endpoint.name} or what it is sent is malformed: {said}",
        provider=endpoint.name,
    )
