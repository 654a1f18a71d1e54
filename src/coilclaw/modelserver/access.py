"""Who may ask: the key where the dialect puts it, and only pages and names of this machine."""

from __future__ import annotations

import hmac
import ipaddress
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from coilclaw.errors import DeniedError
from coilclaw.modelserver.routes import address
from coilclaw.modelserver.script import DialectName

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coilclaw.domain.secret import Secret

KEY_HEADERS: Final = frozenset(
    {"authorization", "proxy-authorization", "x-api-key", "api-key", "x-goog-api-key", "cookie"}
)
KEY_PARAMETERS: Final = frozenset(
    {"key", "api_key", "api-key", "apikey", "access_token", "token", "x-goog-api-key"}
)
_PLACES: Final = {
    DialectName.CHAT: "authorization",
    DialectName.RESPONSES: "authorization",
    DialectName.MESSAGES: "x-api-key",
    DialectName.GEMINI: "x-goog-api-key",
}


def check_origin(headers: Mapping[str, str]) -> None:
    """Refuse a request that a page elsewhere made a browser send, or that came by a foreign name.

    A name that was made to point here would let any page read what the server answers.
    """
    for name in ("host", "origin"):
        value = headers.get(name, "")
        if value and not is_loopback(_host(value if name == "origin" else f"//{value}")):
            raise DeniedError(
                f"the {name} {value!r} is not this machine", rule="request.foreign_" + name
            )


def check_key(
    dialect: DialectName, target: str, headers: Mapping[str, str], required: Secret | None
) -> None:
    """Refuse a key in the address always, and a missing or wrong one where one is required."""
    _, query = address(target)
    for name in query:
        if name.lower() in KEY_PARAMETERS:
            raise DeniedError(
                f"the address holds a key as the parameter {name}; keys belong in the header "
                f"{_PLACES[dialect]}, because addresses end up in logs",
                rule="key.in_address",
            )
    if required is None:
        return
    place = _PLACES[dialect]
    given = headers.get(place, "")
    if place == "authorization":
        scheme, _, given = given.partition(" ")
        given = given.strip() if scheme.lower() == "bearer" else ""
    if not given:
        shown = "authorization (Bearer)" if place == "authorization" else place
        raise DeniedError(f"a key is required in the header {shown}", rule="key.missing")
    if not hmac.compare_digest(given.encode(), required.reveal().encode()):
        raise DeniedError(f"the key in the header {place} is wrong", rule="key.wrong")


def is_loopback(host: str) -> bool:
    """Tell whether a name or an address can only mean this machine."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
