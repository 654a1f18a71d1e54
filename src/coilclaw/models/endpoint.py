"""Where a model lives, how its key travels, and what its answers are bounded by."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeAlias
from urllib.parse import SplitResult, urlsplit

from coilclaw.kernel import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from coilclaw.kernel import Secret


DEFAULT_TIMEOUT_S: Final = 30 * 60.0
DEFAULT_RESPONSE_BYTES: Final = 64 * 2**20


@dataclass(frozen=True, slots=True)
class ModelEndpoint:
    """One provider's address; the key is only ever put into a header."""

    name: str
    base_url: str
    key: Secret | None = None
    timeout_s: float = DEFAULT_TIMEOUT_S
    """From the first byte sent to the last received."""
    connect_timeout_s: float = 30.0
    max_response_bytes: int = DEFAULT_RESPONSE_BYTES
    redact: Callable[[str], str] = str

    def __post_init__(self) -> None:
        parts = self._parts()
        if parts.username or parts.password or parts.query or parts.fragment:
            raise UsageError(
                f"the address of {self.name} holds credentials, a query or a fragment",
                rule="provider.address",
            )
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise UsageError(
                f"the address of {self.name} is not an http or https address",
                rule="provider.address",
            )
        if self.key and parts.scheme == "http" and not self.local:
            raise UsageError(
                f"the key of {self.name} would travel to {parts.hostname} in clear",
                rule="provider.clear",
                hint="use https, or an address of this machine",
            )
        if self.key and not self.key.reveal().isascii():
            raise UsageError(f"the key of {self.name} is not ASCII", rule="provider.key")
        if self.key and not self.key.reveal().isprintable():
            raise UsageError(
                f"the key of {self.name} holds control characters", rule="provider.key"
            )

    @property
    def local(self) -> bool:
        """Whether the address is one of this machine."""
        host = self._parts().hostname or ""
        if host == "localhost":
            return True
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return False

    def url(self, version: str, path: str) -> str:
        """Join address, API version and path; an address that names the version keeps it once."""
        base = self.base_url.rstrip("/")
        return f"{base}/{path}" if base.endswith(f"/{version}") else f"{base}/{version}/{path}"

    def _parts(self) -> SplitResult:
        try:
            return urlsplit(self.base_url)
        except ValueError as problem:
            raise UsageError(
                f"the address of {self.name} is malformed", rule="provider.address"
            ) from problem


def checked_model(model: str) -> str:
    """Return a model's name if it can stand in an address."""
    if not model or not model.isprintable() or any(char in model for char in "/?#%\\ "):
        raise UsageError(f"{model!r} cannot name a model", rule="provider.model")
    return model


Mode: TypeAlias = Literal["record", "play"]
ANSWER_TIMEOUT_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """One entry of ``[providers.models.NAME]``; which fields count depends on the kind."""

    name: str
    kind: str
    """One of ``services.KINDS``."""
    model: str = ""
    base_url: str | None = None
    api_key_env: str | None = None
    api_key_file: Path | None = None
    timeout_s: float = ANSWER_TIMEOUT_S
    temperature: float | None = None
    fixture: Path | None = None
    """Of ``mock``: the answers to play."""
    providers: tuple[str, ...] = ()
    """Of ``reliable``: who is asked, in order."""
    routes: Mapping[str, str] = field(default_factory=dict)
    """Of ``router``: hint → name."""
    default: str | None = None
    """Of ``router``: who is asked without a hint."""
    provider: str | None = None
    """Of ``recorded``: whose exchanges are recorded."""
    file: Path | None = None
    """Of ``recorded``: where."""
    mode: Mode = "record"
