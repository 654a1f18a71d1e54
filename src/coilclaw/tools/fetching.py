"""One GET: to an address that was checked, in bounded time and memory, and stopped at once.

The name is resolved once, every address of it is checked, and the connection goes to one of those;
nobody resolves it a second time. The work is done in a thread, so that neither a slow resolver nor
a server that sends a byte now and then can hold up whoever waits.
"""

from __future__ import annotations

import socket
import threading
import time
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import urljoin

from coilclaw.domain.treepath import shown
from coilclaw.errors import DeniedError, EnvironmentFault
from coilclaw.security import hosts
from coilclaw.tools import webbody

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping, Sequence

    import httpx2

    from coilclaw.security.hosts import WebAddress
    from coilclaw.security.settings import SecuritySettings
    from coilclaw.tools.webbody import Body
    from coilclaw.workspace.process import Cancellation

MAX_REDIRECTS: Final = 5
MAX_ADDRESSES: Final = 16
LOOK_S: Final = 0.1
"""How often the one who waits looks whether to go on waiting."""

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_HEADERS: Final = {
    "user-agent": "coilclaw",
    "accept": "text/*, application/json, application/xml;q=0.9, */*;q=0.5",
    "accept-encoding": "gzip",
    "connection": "close",
}


@dataclass(frozen=True, slots=True)
class Question:
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


@dataclass(frozen=True, slots=True)
class Fetcher:
    """How a GET is made."""

    settings: SecuritySettings
    resolve: Resolver
    verify: ssl.SSLContext | None
    """Whom to trust; ``None`` means whom the system trusts."""
    timeout_s: float
    limit: int

    def fetch(
        self, address: WebAddress, cancel: Cancellation, question: Question | None = None
    ) -> Fetched:
        """Ask, and wait for the end of the body, the time, or the patience of somebody."""
        exchange = _Exchange(self, time.monotonic() + self.timeout_s, question or Question())
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
        return exchange.outcome()

    def late(self) -> EnvironmentFault:
        return EnvironmentFault(
            f"there was no complete answer within {self.timeout_s:g} s", rule="http.timeout"
        )


class _Exchange:
    """What happens in the thread, and how it is ended from outside."""

    def __init__(self, fetcher: Fetcher, deadline: float, question: Question) -> None:
        self.deadline = deadline
        self._fetcher = fetcher
        self._question = question
        self._outcome: Fetched | BaseException | None = None
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._stopped = False

    def run(self, address: WebAddress) -> None:
        try:
            self._outcome = self._follow(address)
        except BaseException as problem:  # noqa: BLE001 - raised again by whoever waits
            self._outcome = problem

    def outcome(self) -> Fetched:
        assert self._outcome is not None
        if isinstance(self._outcome, BaseException):
            raise self._outcome
        return self._outcome

    def stop(self) -> None:
        """End the connection under whoever reads from it."""
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
        raise EnvironmentFault(
            f"{address.authority} redirects more than {MAX_REDIRECTS} times", rule="http.redirect"
        )

    def _addresses(self, address: WebAddress) -> tuple[str, ...]:
        """Resolve a host, and refuse it if only one of its addresses is none to be reached."""
        if address.is_literal:
            found: tuple[str, ...] = (address.host,)
        else:
            try:
                entries = self._fetcher.resolve(address.host, address.port, type=socket.SOCK_STREAM)
            except (OSError, UnicodeError) as problem:
                raise EnvironmentFault(
                    f"{address.host} cannot be resolved: {problem}", rule="http.resolve"
                ) from problem
            found = tuple(dict.fromkeys(str(entry[4][0]) for entry in entries))
        for ip in found:
            settings = self._fetcher.settings
            if not hosts.address_allowed(ip, address.host, settings, port=address.port):
                raise DeniedError(
                    f"{address.host} is at {shown(ip)}, which is no public address and not allowed",
                    rule="http.address",
                    hint="list the address itself in security.allowed_domains if it is meant",
                )
        if not found:
            raise EnvironmentFault(f"{address.host} has no address", rule="http.resolve")
        return found[:MAX_ADDRESSES]

    def _next(self, address: WebAddress, location: str) -> WebAddress:
        """Return where a redirect leads, if that is the same place."""
        with suppress(ValueError, DeniedError):  # what is no address leads nowhere
            target = hosts.parse(urljoin(str(address), location))
            finding = hosts.judge_url(str(target), self._fetcher.settings)
            if target.origin == address.origin and not finding.forbidden:
                return target
        raise EnvironmentFault(
            f"{address.authority} redirects to {shown(location)}, which is elsewhere",
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
        raise EnvironmentFault(
            f"{address.authority} could not be reached, or the connection broke: {last}",
            rule="http.connection",
        ) from last

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
            location = response.headers.get("location")
            if self._question.follows and response.status_code in _REDIRECTS and location:
                return str(location)
            return self._taken(address, ip, response, redirects)

    def _taken(
        self, address: WebAddress, ip: str, response: httpx2.Response, redirects: int
    ) -> Fetched:
        headers = response.headers
        length = headers.get("content-length", "")
        return Fetched(
            str(address),
            ip,
            response.status_code,
            shown(headers.get("content-type", "")[: webbody.MAX_TYPE])[1:-1],
            int(length) if length.isdecimal() and len(length) < 16 else None,
            webbody.take(
                response.iter_raw(), headers.get("content-encoding", ""), self._fetcher.limit
            ),
            redirects,
        )

    def _watch(self, event: str, info: Mapping[str, Any]) -> None:
        """Keep hold of the socket, so that it can be closed under a call that blocks."""
        if event in {"connection.connect_tcp.complete", "connection.start_tls.complete"}:
            with self._lock:
                self._socket = info["return_value"].get_extra_info("socket")
            if self._stopped:
                self.stop()
