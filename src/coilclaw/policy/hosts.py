"""Which addresses of the web may be asked: pure, so a name is judged here and its addresses later.

An entry of ``security.allowed_domains`` is ``example.com`` (that host), ``*.example.com`` (what is
below it), an IP address, a network such as ``10.0.0.0/8``, or ``*`` (any public host). It means the
usual port of the scheme, unless it ends in ``:8080`` or, for any port, ``:*``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from coilclaw.kernel import DeniedError, Risk, quote_text
from coilclaw.policy.judgement import PolicyFinding

if TYPE_CHECKING:
    import ipaddress

    from coilclaw.policy.settings import SecuritySettings

MAX_URL: Final = 4000
MAX_HOST: Final = 253

_Address: TypeAlias = "ipaddress.IPv4Address | ipaddress.IPv6Address"
_Network: TypeAlias = "ipaddress.IPv4Network | ipaddress.IPv6Network"

_PORTS: Final = {"http": 80, "https": 443}
_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)([^#]*)(?:#.*)?", re.DOTALL)
_LABEL: Final = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
_NUMERIC: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
_PORT: Final = re.compile(r"[0-9]{1,5}")
# What may stand in a path or a query as it is; the percent sign is taken as already escaped.
_PLAIN: Final = frozenset(
    b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~!$&'()*+,;=:@/?%[]"
)
_INNER_NAMES: Final = ("localhost", "local", "internal", "home.arpa")
"""Names that mean a place within a network, whatever they resolve to."""

_INNER_V4: Final = (
    *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16"),
    *("172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16"),
    *("198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3"),
    "168.63.129.16/32",  # answers only inside of one cloud, and knows its machines' secrets
)
_GLOBAL_V6: Final = "2000::/3"
_INNER_V6: Final = ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")
"""Within the global range: special purposes, Teredo and 6to4, which carry an IPv4 address."""


@dataclass(frozen=True, slots=True)
class WebAddress:
    """A URL, taken apart once; what is asked is put together from these parts and no others."""

    scheme: Literal["http", "https"]
    host: str
    """A name in its ASCII form, lower case, or an IP address without brackets."""
    port: int
    target: str
    """Path and query, ASCII only."""

    @property
    def is_literal(self) -> bool:
        return _ip(self.host) is not None

    @property
    def authority(self) -> str:
        """The host as a ``Host`` header names it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def origin(self) -> tuple[str, str, int]:
        return self.scheme, self.host, self.port

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.target}"


@dataclass(frozen=True, slots=True)
class _Entry:
    """One entry of the list; ``port`` 0 is any port, ``None`` the usual one."""

    host: str
    network: _Network | None
    port: int | None

    def permits_port(self, address: WebAddress) -> bool:
        usual = _PORTS[address.scheme] if self.port is None else self.port
        return self.port == 0 or address.port == usual

    def names(self, host: str) -> bool:
        """Whether a host is meant, given as a name or as an IP address."""
        ip = _ip(host)
        if self.network is not None:
            return ip is not None and ip in self.network
        if self.host == "*":
            return is_public(host) if ip is not None else not _inner(host)
        if self.host.startswith("*."):
            return ip is None and host.endswith(self.host[1:])
        return host == self.host


def parse_url(url: str) -> WebAddress:
    """Take a URL apart, or raise ``DeniedError`` with the rule it breaks."""
    if len(url) > MAX_URL:
        raise DeniedError(f"the URL is longer than {MAX_URL} characters", rule="http.url")
    # str.isprintable is false for controls, line and paragraph separators and lone surrogates.
    if any(char in " \\" or not char.isprintable() for char in url):
        what = f"the URL {quote_text(url)} holds a blank, a backslash or a control character"
        raise DeniedError(what, rule="http.url")
    found = _URL.fullmatch(url)
    if found is None:
        raise DeniedError(
            f"{quote_text(url)} is not a URL with a scheme and a host", rule="http.url"
        )
    scheme, authority, rest = found[1].lower(), found[2], found[3]
    if scheme not in _PORTS:
        what = f"the scheme of {quote_text(url)} is neither http nor https"
        raise DeniedError(what, rule="http.scheme")
    if "@" in authority:
        raise DeniedError("the URL holds a user name or a password", rule="http.credentials")
    host, port = _split(authority)
    return WebAddress(
        "https" if scheme == "https" else "http",
        _host(host, authority),
        _PORTS[scheme] if port is None else _port(port, authority),
        _target(rest),
    )


def judge_url(url: str, settings: SecuritySettings) -> PolicyFinding:
    """Say whether a URL may be asked for; the addresses of its name are judged when known."""
    try:
        address = parse_url(url)
    except DeniedError as denied:
        return PolicyFinding(Risk.HIGH, denied.rule, denied.message, forbidden=True)
    entries = _entries(settings)
    where = address.authority
    if any(entry.names(address.host) and entry.permits_port(address) for entry in entries):
        return PolicyFinding(Risk.LOW, "http.allowed", f"{where} is an allowed domain")
    inner = _inner(address.host) if not address.is_literal else not is_public(address.host)
    if inner and any(entry.host == "*" for entry in entries):
        reason = (
            f"{where} is not a public host; '*' of security.allowed_domains means those only, "
            "any other has to be listed by itself"
        )
        return PolicyFinding(Risk.HIGH, "http.address", reason, forbidden=True)
    empty = "" if entries else ", which is empty"
    reason = f"{where} is not listed in security.allowed_domains{empty}"
    return PolicyFinding(Risk.HIGH, "http.domain", reason, forbidden=True)


def is_address_allowed(
    address: str, host: str, settings: SecuritySettings, *, port: int | None = None
) -> bool:
    """Whether a host that is allowed may be reached at this address of it.

    A public address may. Any other has to be listed itself, alone or with its network, and at this
    port where the entry names one; ``localhost`` listed by name covers its loopback addresses.
    """
    ip = _ip(address)
    if ip is None:
        return False
    if _public(ip):
        return True
    for entry in _entries(settings):
        if port is not None and entry.port not in {None, 0, port}:
            continue
        if entry.network is not None and ip in entry.network:
            return True
        if entry.host == "localhost" == host and ip.is_loopback:
            return True
    return False


def is_public(address: str) -> bool:
    """Whether an IP address belongs to the public internet, and to no private network."""
    ip = _ip(address)
    return ip is not None and _public(ip)


def find_entry_problem(entry: str) -> str | None:
    """Say what is wrong with an entry of the list; one that is wrong means no host at all."""
    return (
        None
        if _entry(entry)
        else f"{quote_text(entry)} is not a host, an IP address, a network or '*'"
    )


def _public(ip: _Address) -> bool:
    from ipaddress import ip_network

    if ip.version == 6 and ip not in ip_network(_GLOBAL_V6):
        return False
    inner = _INNER_V4 if ip.version == 4 else _INNER_V6
    return not any(ip in ip_network(network) for network in inner)


def _ip(text: str) -> _Address | None:
    if "%" in text:  # a zone: only this machine knows where that leads
        return None
    from ipaddress import ip_address

    try:
        return ip_address(text)
    except ValueError:
        return None


def _inner(host: str) -> bool:
    return "." not in host or any(host.endswith(f".{name}") for name in _INNER_NAMES)


def _split(authority: str) -> tuple[str, str | None]:
    """Split host and port; the host keeps its brackets."""
    if authority.startswith("["):
        host, closed, rest = authority.partition("]")
        if not closed or (rest and not rest.startswith(":")):
            raise _malformed_error(authority)
        return f"{host}]", rest[1:] if rest else None
    host, colon, port = authority.partition(":")
    return host, port if colon else None


def _port(text: str, authority: str) -> int:
    if not _PORT.fullmatch(text) or not 0 < int(text) < 2**16:
        raise _malformed_error(authority)
    return int(text)


def _host(host: str, authority: str) -> str:
    """Return a host in the one spelling it is compared, resolved and asked by."""
    if host.startswith("["):
        ip = _ip(host[1:-1])
        if ip is None or ip.version != 6:
            raise _malformed_error(authority)
        return str(ip)
    name = _ascii(host, authority).removesuffix(".")
    labels = name.split(".")
    if len(name) > MAX_HOST or not all(_LABEL.fullmatch(label) for label in labels):
        raise _malformed_error(authority)
    # Such a name is an IPv4 address to every resolver, in any spelling.
    if _NUMERIC.fullmatch(labels[-1]) and (_ip(name) is None or not host.isascii()):
        what = f"the host {quote_text(authority)} is an IP address in an unusual spelling"
        raise DeniedError(what, rule="http.host")
    return name


def _ascii(host: str, authority: str) -> str:
    if host.isascii():
        return host.lower()
    try:
        return host.encode("idna").decode("ascii").lower()
    except UnicodeError:
        raise _malformed_error(authority) from None


def _malformed_error(authority: str) -> DeniedError:
    return DeniedError(f"the host {quote_text(authority)} is malformed", rule="http.host")


def _target(rest: str) -> str:
    path = rest if rest.startswith("/") else f"/{rest}"
    return "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in path.encode("utf-8"))


def _entries(settings: SecuritySettings) -> tuple[_Entry, ...]:
    return tuple(entry for text in settings.allowed_domains if (entry := _entry(text)))


def _entry(text: str) -> _Entry | None:
    from ipaddress import ip_network

    text = text.strip()
    port: int | None = None
    host = text
    if text.startswith("[") or text.count(":") == 1:
        try:
            host, named = _split(text)
            if named is not None:
                port = 0 if named == "*" else _port(named, text)
        except DeniedError:
            return None
        host = host.removeprefix("[").removesuffix("]")
    if host == "*":
        return _Entry(host, None, port)
    try:
        return _Entry("", ip_network(host), port)
    except ValueError:
        pass
    try:
        name = _host(host.removeprefix("*."), host)
    except DeniedError:
        return None
    return _Entry(f"*.{name}" if host.startswith("*.") else name, None, port)
