"""One web request to a checked address, in bounded time and memory, which can be cancelled.

The host is resolved once, all of its addresses are checked, and the connection goes to one of them
without a second lookup. The request runs in a thread, so that neither a slow resolver nor a slow
server can block the caller.
"""

from __future__ import annotations

import codecs
import re
import socket
import threading
import time
import zlib
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import urljoin

from coilclaw.kernel import DeniedError, EnvironmentFault, quote_text
from coilclaw.policy import hosts

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterable, Mapping, Sequence

    from coilclaw.policy import SecuritySettings, WebAddress
    from coilclaw.workspace import Cancellation

MAX_REDIRECTS: Final = 5
MAX_ADDRESSES: Final = 16
LOOK_S: Final = 0.1
"""Interval at which the waiting caller checks for cancellation."""
RAW_BYTES: Final = 16 * 2**20
"""Bytes of a compressed body that are read at most: a long stream may decode to nothing."""
MAX_TYPE: Final = 100

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_HEADERS: Final = {
    "user-agent": "coilclaw",
    "accept": "text/*, application/json, application/xml;q=0.9, */*;q=0.5",
    "accept-encoding": "gzip",
    "connection": "close",
}
_CHARSET: Final = re.compile(r"charset\s*=\s*\"?([A-Za-z0-9_.:-]{1,40})", re.IGNORECASE)
_TEXTUAL: Final = re.compile(
    r"text/.*|application/(.*[+.-])?(json|xml|javascript|ecmascript|yaml|toml|ndjson|"
    r"x-www-form-urlencoded|graphql|sql|x-sh)"
)
_WINDOWS: Final = {"gzip": 31, "x-gzip": 31, "deflate": 15}


@dataclass(frozen=True, slots=True)
class WebQuestion:
    """The headers and the body of a request; without a body it is a GET."""

    headers: Mapping[str, str] = field(default_factory=dict)
    """The only place that may hold a key."""
    body: bytes | None = None
    follows: bool = True
    """Whether redirects within the same origin are followed; False for a request with a key."""


class Resolver(Protocol):
    """Returns the addresses of a host, as ``socket.getaddrinfo`` does."""

    def __call__(self, host: str, port: int, *, type: int) -> Sequence[tuple[Any, ...]]: ...  # noqa: A002 - as in socket


@dataclass(frozen=True, slots=True)
class Body:
    """The kept part of a body; ``cut`` means that more followed or may have followed."""

    content: bytes
    cut: bool


@dataclass(frozen=True, slots=True)
class Fetched:
    """An answer with any status."""

    url: str
    ip: str
    status: int
    content_type: str
    length: int | None
    """The size of the body that the server declared."""
    body: Body
    redirects: int

    @property
    def is_good(self) -> bool:
        return 200 <= self.status < 300


@dataclass(slots=True)
class Exchange:
    """One request in a thread of its own, which the caller can end."""

    settings: SecuritySettings
    resolve: Resolver
    verify: ssl.SSLContext | None
    """The trusted certificates; ``None`` means those of the system."""
    timeout_s: float
    limit: int
    question: WebQuestion
    _deadline: float = 0.0
    _outcome: Fetched | BaseException | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _socket: socket.socket | None = None
    _stopped: bool = False

    def fetch(self, address: WebAddress, cancel: Cancellation) -> Fetched:
        """Return the answer; raise ``EnvironmentFault`` at the deadline or on cancellation."""
        self._deadline = time.monotonic() + self.timeout_s
        thread = threading.Thread(
            target=self._run, args=(address,), name=f"get {address.host}", daemon=True
        )
        thread.start()
        try:
            while thread.is_alive():
                if cancel.cancelled:
                    raise EnvironmentFault(f"stopped: {cancel.reason}", rule="stopped")
                if time.monotonic() > self._deadline:
                    raise self._late()
                thread.join(LOOK_S)
        finally:
            self._stop()
        assert self._outcome is not None
        if isinstance(self._outcome, BaseException):
            raise self._outcome
        return self._outcome

    def _late(self) -> EnvironmentFault:
        message = f"no complete answer within {self.timeout_s:g} s"
        return EnvironmentFault(message, rule="http.timeout")

    def _run(self, address: WebAddress) -> None:
        try:
            self._outcome = self._follow(address)
        except BaseException as problem:  # noqa: BLE001 - raised again in the caller's thread
            self._outcome = problem

    def _stop(self) -> None:
        """Shut the connection down while the thread reads from it."""
        with self._lock:
            self._stopped = True
            if self._socket is not None:
                with suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)

    def _follow(self, address: WebAddress) -> Fetched:
        addresses = self._addresses(address)
        for redirects in range(MAX_REDIRECTS + 1):
            answer = self._ask_any(address, addresses, redirects)
            if isinstance(answer, Fetched):
                return answer
            address = self._next(address, answer)
        message = f"{address.authority} redirects more than {MAX_REDIRECTS} times"
        raise EnvironmentFault(message, rule="http.redirect")

    def _addresses(self, address: WebAddress) -> tuple[str, ...]:
        """Return the addresses of a host; raise ``DeniedError`` if any of them is not allowed."""
        found: tuple[str, ...] = (address.host,)
        if not address.is_literal:
            try:
                entries = self.resolve(address.host, address.port, type=socket.SOCK_STREAM)
            except (OSError, UnicodeError) as problem:
                message = f"{address.host} cannot be resolved: {problem}"
                raise EnvironmentFault(message, rule="http.resolve") from problem
            found = tuple(dict.fromkeys(str(entry[4][0]) for entry in entries))
        for ip in found:
            if not hosts.is_address_allowed(ip, address.host, self.settings, port=address.port):
                raise DeniedError(
                    f"{address.host} is at {quote_text(ip)}, which is neither public nor allowed",
                    rule="http.address",
                    hint="add the address itself to security.allowed_domains if it is intended",
                )
        if not found:
            raise EnvironmentFault(f"{address.host} has no address", rule="http.resolve")
        return found[:MAX_ADDRESSES]

    def _next(self, address: WebAddress, location: str) -> WebAddress:
        """Return the target of a redirect; raise an error if it has another origin."""
        with suppress(ValueError, DeniedError):  # not an address
            target = hosts.parse_url(urljoin(str(address), location))
            finding = hosts.judge_url(str(target), self.settings)
            if target.origin == address.origin and not finding.forbidden:
                return target
        raise EnvironmentFault(
            f"{address.authority} redirects to {quote_text(location)}, which has another origin",
            rule="http.redirect",
            hint="request that address itself, if it is allowed",
        )

    def _ask_any(
        self, address: WebAddress, addresses: tuple[str, ...], redirects: int
    ) -> Fetched | str:
        """Send the request to the first address that accepts a connection."""
        import httpx2

        last: Exception | None = None
        for ip in addresses:
            try:
                return self._ask(address, ip, redirects)
            except httpx2.ConnectError as problem:
                last = problem
            except httpx2.TimeoutException as problem:
                raise self._late() from problem
            except httpx2.HTTPError as problem:
                last = problem
                break
        message = f"{address.authority} could not be reached, or the connection broke: {last}"
        raise EnvironmentFault(message, rule="http.connection") from last

    def _ask(self, address: WebAddress, ip: str, redirects: int) -> Fetched | str:
        """Return the answer of one server, or the location of its redirect."""
        import httpx2

        if self._stopped:
            raise self._late()
        host = f"[{ip}]" if ":" in ip else ip
        left = max(self._deadline - time.monotonic(), 0.001)
        extensions: dict[str, object] = {
            "target": address.target.encode("ascii"),
            "timeout": httpx2.Timeout(left).as_dict(),
            "trace": self._watch,
        }
        if not address.is_literal:
            extensions["sni_hostname"] = address.host
        body = self.question.body
        request = httpx2.Request(
            "GET" if body is None else "POST",
            f"{address.scheme}://{host}:{address.port}/",
            headers={"host": address.authority, **_HEADERS, **self.question.headers},
            content=body,
            extensions=extensions,
        )
        # Only the transport: no proxy, cookies, redirects or logs.
        verify = self.verify or address.scheme == "https"
        with (
            httpx2.HTTPTransport(verify=verify, trust_env=False) as transport,
            closing(transport.handle_request(request)) as response,
        ):
            headers = response.headers
            location = headers.get("location")
            if self.question.follows and response.status_code in _REDIRECTS and location:
                return str(location)
            length = headers.get("content-length", "")
            encoding = headers.get("content-encoding", "")
            return Fetched(
                str(address),
                ip,
                response.status_code,
                quote_text(headers.get("content-type", "")[:MAX_TYPE])[1:-1],
                int(length) if length.isdecimal() and len(length) < 16 else None,
                take_body(response.iter_raw(), encoding, self.limit),
                redirects,
            )

    def _watch(self, event: str, info: Mapping[str, Any]) -> None:
        """Keep the socket, so that ``_stop`` can shut it down during a blocking call."""
        if event in {"connection.connect_tcp.complete", "connection.start_tls.complete"}:
            with self._lock:
                self._socket = info["return_value"].get_extra_info("socket")
            if self._stopped:
                self._stop()


def take_body(pieces: Iterable[bytes], encoding: str, limit: int) -> Body:
    """Return at most ``limit`` bytes of a body, decoded while it is read."""
    coding = encoding.strip().lower()
    if coding not in {"", "identity", *_WINDOWS}:
        message = f"the answer is encoded as {encoding[:40]!r}, which was not requested"
        raise EnvironmentFault(message, rule="http.encoding")
    inflater = zlib.decompressobj(_WINDOWS[coding]) if coding in _WINDOWS else None
    kept, raw = bytearray(), 0
    try:
        for piece in pieces:
            room = limit + 1 - len(kept)
            if inflater is None:
                kept += piece[:room]
            else:
                raw += len(piece)
                # Bounded, because a few bytes may expand to many.
                kept += inflater.decompress(piece, room)
            if len(kept) > limit or raw > RAW_BYTES:
                return Body(bytes(kept[:limit]), cut=True)
            if inflater is not None and inflater.eof:
                break
    except zlib.error as problem:
        message = f"the answer cannot be decompressed: {problem}"
        raise EnvironmentFault(message, rule="http.encoding") from problem
    return Body(bytes(kept), cut=inflater is not None and not inflater.eof)


def decode_text(content: bytes, content_type: str) -> str | None:
    """Return a body as text, or ``None`` if it is binary."""
    kind = content_type.partition(";")[0].strip().lower()
    if b"\0" in content or (kind and not _TEXTUAL.fullmatch(kind)):
        return None
    found = _CHARSET.search(content_type)
    return content.decode(_codec(found[1]) if found else "utf-8", "replace")


def _codec(name: str) -> str:
    try:
        info = codecs.lookup(name)
    except LookupError:
        return "utf-8"
    # Some codecs of Python do not decode text, and some have side effects.
    known = info.name.startswith(("utf-8", "iso8859", "ascii", "cp", "koi8", "mac", "euc", "gb"))
    return info.name if known or info.name in {"shift_jis", "big5", "latin-1"} else "utf-8"
