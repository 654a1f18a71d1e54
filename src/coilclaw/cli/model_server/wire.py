"""Read HTTP/1.1 requests from a socket, every part bounded in bytes and in time."""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Final

from coilclaw.cli.model_server.routes import split_target
from coilclaw.kernel import UsageError

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping

    from coilclaw.kernel import CoilClawError

STATUSES: Final = {
    "key.in_address": 400,
    "key.missing": 401,
    "key.wrong": 401,
    "request.body_size": 413,
    "request.encoding": 415,
    "request.foreign_host": 403,
    "request.foreign_origin": 403,
    "request.header_size": 431,
    "request.malformed": 400,
    "request.method": 405,
    "request.model": 404,
    "request.path": 404,
    "request.shape": 400,
    "request.target": 400,
    "request.timeout": 408,
    "request.version": 505,
    "script.exhausted": 400,
    "script.tool": 400,
    "server.connections": 503,
}
SERVER_ERROR: Final = 500


def find_status(problem: CoilClawError) -> int:
    """Return the status for an error; the default is 500."""
    return STATUSES.get(problem.rule, SERVER_ERROR)


READ_BYTES: Final = 2**16
MAX_LINE_BYTES: Final = 1024
"""The longest line between the pieces of a chunked body."""


@dataclass(frozen=True, slots=True)
class WireLimits:
    """Bounds for one client, and for all of them together."""

    head_bytes: int = 64 * 2**10
    body_bytes: int = 64 * 2**20
    connections: int = 256
    read_s: float = 30.0
    """For one whole request, from its first byte."""
    idle_s: float = 120.0
    """For the first byte of the next request on a connection."""
    write_s: float = 60.0
    """For the client to accept data that is sent."""


@dataclass(frozen=True, slots=True)
class RequestHead:
    """The head of a request; header names are lower case."""

    method: str
    target: str
    headers: Mapping[str, str]
    modern: bool
    """Whether it is HTTP/1.1, which allows chunked answers."""

    @property
    def keeps_alive(self) -> bool:
        options = {word.strip().lower() for word in self.headers.get("connection", "").split(",")}
        return "close" not in options if self.modern else "keep-alive" in options


_END: Final = re.compile(rb"\r?\n\r?\n")
_REQUEST: Final = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}) (\S+) HTTP/([0-9])\.([0-9])")
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_SINGLE: Final = frozenset(
    {"content-length", "transfer-encoding", "content-encoding", "host", "origin", "authorization"}
    | {"x-api-key", "x-goog-api-key", "expect"}
)


class Reader:
    """Reads one request after another from a connection."""

    __slots__ = ("_buffer", "_deadline", "_limits", "_socket")

    def __init__(self, connection: socket.socket, limits: WireLimits) -> None:
        self._socket, self._limits = connection, limits
        self._buffer = bytearray()
        self._deadline = 0.0

    def read_head(self) -> RequestHead | None:
        """Return the next head, or ``None`` if the client sends no further request."""
        self._deadline = monotonic() + self._limits.idle_s
        try:
            if not self._buffer and not self._fill():
                return None
        except TimeoutError:
            return None
        self._deadline = monotonic() + self._limits.read_s
        searched = 0
        while (end := _END.search(self._buffer, searched)) is None:
            if len(self._buffer) > self._limits.head_bytes:
                break
            searched = max(0, len(self._buffer) - 3)
            self._read_more("head")
        if end is None or end.start() > self._limits.head_bytes:
            raise UsageError(
                f"the head is larger than {self._limits.head_bytes} bytes",
                rule="request.header_size",
            )
        return _parse_head(self._take(end.end())[: end.start()])

    def read_body(self, head: RequestHead) -> bytes:
        """Return the body that belongs to a head, decompressed."""
        encoding = head.headers.get("transfer-encoding")
        length = head.headers.get("content-length")
        if encoding is not None and length is not None:
            raise refuse_malformed("has both a length and a transfer encoding")
        if encoding is None and length is None:
            return b""
        if encoding is not None and encoding.lower() != "chunked":
            raise UsageError(
                f"the transfer encoding {encoding!r} is not supported", rule="request.encoding"
            )
        size = 0
        if length is not None:
            if not re.fullmatch(r"[0-9]{1,18}", length):
                raise refuse_malformed(f"has {length!r} for a length")
            size = int(length)
            self._check_size(size)
        if head.modern and head.headers.get("expect", "").lower() == "100-continue":
            self._socket.settimeout(self._limits.write_s)
            self._socket.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        data = self._read_exactly(size) if length is not None else self._read_chunks()
        return self._decompress(data, head.headers.get("content-encoding", "identity").lower())

    def _read_chunks(self) -> bytes:
        data = bytearray()
        while True:
            size_text = self._read_line().partition(b";")[0].strip()
            if not re.fullmatch(rb"[0-9a-fA-F]{1,15}", size_text):
                raise refuse_malformed("has a chunk without a size")
            size = int(size_text, 16)
            if size == 0:
                break
            self._check_size(len(data) + size)
            data += self._read_exactly(size)
            if self._read_line():
                raise refuse_malformed("has a chunk that is longer than it says")
        left = self._limits.head_bytes
        while line := self._read_line():
            left -= len(line)
            if left < 0:
                raise refuse_malformed("has too many trailers")
        return bytes(data)

    def _decompress(self, data: bytes, encoding: str) -> bytes:
        if encoding == "identity":
            return data
        if encoding not in {"gzip", "deflate"}:
            raise UsageError(
                f"the content encoding {encoding!r} is not supported; gzip and deflate are",
                rule="request.encoding",
            )
        unpacker = zlib.decompressobj(wbits=47)
        try:
            plain = unpacker.decompress(data, self._limits.body_bytes + 1)
        except zlib.error as problem:
            raise refuse_malformed(f"is not {encoding}: {problem}") from problem
        self._check_size(len(plain))
        if not unpacker.eof or unpacker.unused_data:
            raise refuse_malformed(f"is not one whole {encoding} body")
        return plain

    def _check_size(self, size: int) -> None:
        if size > self._limits.body_bytes:
            raise UsageError(
                f"the body is larger than {self._limits.body_bytes} bytes",
                rule="request.body_size",
            )

    def _read_line(self) -> bytes:
        while (end := self._buffer.find(b"\n")) < 0:
            if len(self._buffer) > MAX_LINE_BYTES:
                raise refuse_malformed("has a chunk without a size")
            self._read_more("body")
        return self._take(end + 1)[:end].removesuffix(b"\r")

    def _read_exactly(self, size: int) -> bytes:
        while len(self._buffer) < size:
            self._read_more("body")
        return self._take(size)

    def _take(self, size: int) -> bytes:
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken

    def _read_more(self, what: str) -> None:
        try:
            if self._fill():
                return
        except TimeoutError as problem:
            raise UsageError(
                f"the {what} did not arrive within {self._limits.read_s:g} s",
                rule="request.timeout",
            ) from problem
        raise refuse_malformed(f"ends within its {what}")

    def _fill(self) -> bool:
        left = self._deadline - monotonic()
        if left <= 0:
            raise TimeoutError
        self._socket.settimeout(left)
        data = self._socket.recv(READ_BYTES)
        self._buffer += data
        return bool(data)


def refuse_malformed(what: str) -> UsageError:
    """Return the error for a request that is not valid HTTP."""
    return UsageError(f"the request {what}", rule="request.malformed")


def _parse_head(data: bytes) -> RequestHead:
    first, *lines = data.decode("latin-1").replace("\r\n", "\n").split("\n")
    found = _REQUEST.fullmatch(first)
    if found is None:
        raise refuse_malformed("does not begin with a method, an address and a version")
    method, target, major, minor = found.groups()
    if major != "1":
        raise UsageError(f"HTTP/{major}.{minor} is not supported", rule="request.version")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not _NAME.fullmatch(name) or _CONTROL.search(value):
            raise refuse_malformed("has a line in its head that is not a header")
        name, value = name.lower(), value.strip(" \t")
        if name in headers and name in _SINGLE:
            raise refuse_malformed(f"has the header {name} twice")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    split_target(target)
    return RequestHead(method, target, headers, minor != "0")
