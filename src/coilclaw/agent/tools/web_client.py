"""One request: to an address that was checked, in bounded time and memory, and stopped at once.

The name is resolved once, every address of it is checked, and the connection goes to one of those;
it is not resolved a second time. The work is done in a thread, so that neither a slow resolver nor
a server that sends a byte now and then can hold up the caller.
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
"""How often the caller looks whether to go on waiting."""
RAW_BYTES: Final = 16 * 2**20
"""Bytes taken from the wire at most: a stream may be long and decode to nothing."""
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
    """What is sent beside the address; without a body it is a GET."""

    headers: Mapping[str, str] = field(default_factory=dict)
    """A key stands in one of them, and nowhere else."""
    body: bytes | None = None
    follows: bool = True
    """Whether a redirect within the same origin is followed; where a key goes, it is not."""


class Resolver(Protocol):
    """Returns the addresses of a host, as ``socket.getaddrinfo`` does."""

    def __call__(self, host: str, port: int, *, type: int) -> Sequence[tuple[Any, ...]]: ...  # noqa: A002 - the name it has there


@dataclass(frozen=True, slots=True)
class Body:
    """What was kept of a body; ``cut`` says that there was, or may have been, more."""

    content: bytes
    cut: bool


@dataclass(frozen=True, slots=True)
class Fetched:
    """An answer, whatever its status."""

    url: str
    ip: str
    status: int
    content_type: str
    length: int | None
    """What the server says about the size of the body."""
    body: Body
    redirects: int

    @property
    def is_good(self) -> bool:
        return 200 <= self.status < 300


@dataclass(frozen=True, slots=True)
class Fetcher:
    """How a request is made."""

    settings: SecuritySettings
    resolve: Resolver
    verify: ssl.SSLContext | None
    """Whom to trust; ``None`` means whom the system trusts."""
    timeout_s: float
    limit: int

    def fetch(
        self, address: WebAddress, cancel: Cancellation, question: WebQuestion | None = None
    ) -> Fetched:
        """Ask, and wait for the end of the body, the deadline or the cancellation."""
        exchange = _Exchange(self, question or WebQuestion())
        thread = threading.Thread(
            target=exchange.run, args=(address,), name=f"get {address.host}", daemon=True
        )
        thread.start()
        try:
            while thread.is_alive():
                if cancel.cancelled:
                    raise EnvironmentFault(f"stopped: {cancel.reason}", rule="stopped")
                if time.monotonic() > exchange.deadline:
                    raise self.late()
                thread.join(LOOK_S)
        finally:
            exchange.stop()
        assert exchange.outcome is not None
        if isinstance(exchange.outcome, BaseException):
            raise exchange.outcome
        return exchange.outcome

    def late(self) -> EnvironmentFault:
        message = f"there was no complete answer within {self.timeout_s:g} s"
        return EnvironmentFault(message, rule="http.timeout")


class _Exchange:
    """What happens in the thread, and how it is ended from outside."""

    def __init__(self, fetcher: Fetcher, question: WebQuestion) -> None:
        self.deadline = time.monotonic() + fetcher.timeout_s
        self.outcome: Fetched | BaseException | None = None
        self._fetcher = fetcher
        self._question = question
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._stopped = False

    def run(self, address: WebAddress) -> None:
        try:
            self.outcome = self._follow(address)
        except BaseException as problem:  # noqa: BLE001 - raised again by the caller who waits
            self.outcome = problem

    def stop(self) -> None:
        """End the connection under a thread that reads from it."""
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
        """Resolve a host, and refuse it if only one of its addresses is none to be reached."""
        found: tuple[str, ...] = (address.host,)
        if not address.is_literal:
            try:
                entries = self._fetcher.resolve(address.host, address.port, type=socket.SOCK_STREAM)
            except (OSError, UnicodeError) as problem:
                message = f"{address.host} cannot be resolved: {problem}"
                raise EnvironmentFault(message, rule="http.resolve") from problem
            found = tuple(dict.fromkeys(str(entry[4][0]) for entry in entries))
        for ip in found:
            settings = self._fetcher.settings
            if not hosts.is_address_allowed(ip, address.host, settings, port=address.port):
                raise DeniedError(
                    f"{address.host} is at {quote_text(ip)}, which is no public address and not "
                    "allowed",
                    rule="http.address",
                    hint="list the address itself in security.allowed_domains if it is meant",
                )
        if not found:
            raise EnvironmentFault(f"{address.host} has no address", rule="http.resolve")
        return found[:MAX_ADDRESSES]

    def _next(self, address: WebAddress, location: str) -> WebAddress:
        """Return where a redirect leads, if that is the same place."""
        with suppress(ValueError, DeniedError):  # what is no address leads nowhere
            target = hosts.parse_url(urljoin(str(address), location))
            finding = hosts.judge_url(str(target), self._fetcher.settings)
            if target.origin == address.origin and not finding.forbidden:
                return target
        raise EnvironmentFault(
            f"{address.authority} redirects to {quote_text(location)}, which is elsewhere",
            rule="http.redirect",
            hint="ask for that address itself, if it is allowed",
        )

    def _ask_any(
        self, address: WebAddress, addresses: tuple[str, ...], redirects: int
    ) -> Fetched | str:
        """Ask at the first address that takes the connection."""
        import httpx2

        last: Exception | None = None
        for ip in addresses:
            try:
                return self._ask(address, ip, redirects)
            except httpx2.ConnectError as problem:
                last = problem
            except httpx2.TimeoutException as problem:
                raise self._fetcher.late() from problem
            except httpx2.HTTPError as problem:
                last = problem
                break
        message = f"{address.authority} could not be reached, or the connection broke: {last}"
        raise EnvironmentFault(message, rule="http.connection") from last

    def _ask(self, address: WebAddress, ip: str, redirects: int) -> Fetched | str:
        """Ask one server; the text is where it redirects to."""
        import httpx2

        if self._stopped:
            raise self._fetcher.late()
        host = f"[{ip}]" if ":" in ip else ip
        left = max(self.deadline - time.monotonic(), 0.001)
        extensions: dict[str, object] = {
            "target": address.target.encode("ascii"),
            "timeout": httpx2.Timeout(left).as_dict(),
            "trace": self._watch,
        }
        if not address.is_literal:
            extensions["sni_hostname"] = address.host
        body = self._question.body
        request = httpx2.Request(
            "GET" if body is None else "POST",
            f"{address.scheme}://{host}:{address.port}/",
            headers={"host": address.authority, **_HEADERS, **self._question.headers},
            content=body,
            extensions=extensions,
        )
        # The transport alone: it knows no proxy, no cookie, no redirect, and writes no log.
        verify = self._fetcher.verify or address.scheme == "https"
        with (
            httpx2.HTTPTransport(verify=verify, trust_env=False) as transport,
            closing(transport.handle_request(request)) as response,
        ):
            headers = response.headers
            location = headers.get("location")
            if self._question.follows and response.status_code in _REDIRECTS and location:
                return str(location)
            length = headers.get("content-length", "")
            encoding = headers.get("content-encoding", "")
            return Fetched(
                str(address),
                ip,
                response.status_code,
                quote_text(headers.get("content-type", "")[:MAX_TYPE])[1:-1],
                int(length) if length.isdecimal() and len(length) < 16 else None,
                take_body(response.iter_raw(), encoding, self._fetcher.limit),
                redirects,
            )

    def _watch(self, event: str, info: Mapping[str, Any]) -> None:
        """Keep hold of the socket, so that it can be closed under a call that blocks."""
        if event in {"connection.connect_tcp.complete", "connection.start_tls.complete"}:
            with self._lock:
                self._socket = info["return_value"].get_extra_info("socket")
            if self._stopped:
                self.stop()


def take_body(pieces: Iterable[bytes], encoding: str, limit: int) -> Body:
    """Decode pieces as they come, and take no more than ``limit`` bytes of what they hold."""
    coding = encoding.strip().lower()
    if coding not in {"", "identity", *_WINDOWS}:
        message = f"the answer is encoded as {encoding[:40]!r}, which was not asked for"
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
                # Never more than there is room for, however much a few bytes stand for.
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
    """Return a body as text, or ``None`` for one that is none."""
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
    # Some codecs of Python are none of text, and some run code of their own.
    known = info.name.startswith(("utf-8", "iso8859", "ascii", "cp", "koi8", "mac", "euc", "gb"))
    return info.name if known or info.name in {"shift_jis", "big5", "latin-1"} else "utf-8"
