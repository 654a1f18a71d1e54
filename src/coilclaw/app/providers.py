"""Providers, wired from their settings: keys, addresses, retries, and who asks whom."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.domain.messages import ProviderCapabilities
from coilclaw.domain.redacting import NothingToRedact
from coilclaw.domain.secret import Secret
from coilclaw.errors import ProviderAuth, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from coilclaw.domain.messages import ChatRequest, ChatResponse, Provider
    from coilclaw.domain.redacting import Redacting
    from coilclaw.providers.settings import ProviderSettings

MAX_KEY_BYTES: Final = 16 * 2**10
MIN_SECRET_CHARS: Final = 8
"""A shorter word, such as ``none`` for a local server, is no secret, and stands in many texts."""
CONNECT_TIMEOUT_S: Final = 15.0
RETRIES: Final = 2
FIRST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 20.0

_BASE_URLS: Final = {
    "gemini": "https://generativelanguage.googleapis.com",
    "anthropic": "https://api.anthropic.com",
}
_VARIABLES: Final = {"gemini": "GEMINI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}
"""Where the key of a vendor is looked for when the settings name no place; it goes to no other
address than the vendor's."""

_log = logging.getLogger(__name__)


def build(
    name: str,
    settings: Mapping[str, ProviderSettings],
    *,
    environ: Mapping[str, str],
    max_response_bytes: int,
    redact: Callable[[str], str],
    report: Callable[[str], None] | None = None,
) -> Provider:
    """Make the provider of a name, with everybody it asks; a ``UsageError`` says why it cannot be.

    ``report`` is told of retries; without it, the log is.
    """
    builder = _Builder(settings, environ, max_response_bytes, redact, report or _warn)
    return builder.build(name, _Place())


def redactor(
    settings: Mapping[str, ProviderSettings],
    environ: Mapping[str, str],
    more: tuple[Secret, ...] = (),
) -> Redacting:
    """Return what takes every secret of the configured providers, and more, out of a text."""
    known = (*secrets(settings, environ), *more)
    if not known:
        return NothingToRedact()
    from coilclaw.security.redaction import Redactor
    from coilclaw.workspace.privileges import forbid_inspection

    # Whoever is to keep keys out of texts holds them: no child may read them out of its memory.
    forbid_inspection()
    return Redactor(known)


def secrets(
    settings: Mapping[str, ProviderSettings], environ: Mapping[str, str]
) -> tuple[Secret, ...]:
    """Return every key that one of the providers could use, so that none gets out."""
    found: dict[Secret, None] = {}
    for each in settings.values():
        variable = _variable(each)
        texts = [environ.get(variable, "").strip()] if variable else []
        if each.api_key_file is not None:
            try:
                texts.append(_key_text(each.api_key_file))
            except (OSError, ValueError):
                # Whoever wants to use it is told; here there is nothing to keep.
                continue
        found |= {Secret(text): None for text in texts if len(text) >= MIN_SECRET_CHARS}
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Keyless:
    """A provider without its key, among others: asking it fails as a wrong key does."""

    name: str
    problem: UsageError

    @property
    def capabilities(self) -> ProviderCapabilities:
        return ProviderCapabilities(tools=True, streaming=False)

    def chat(self, _request: ChatRequest) -> ChatResponse:
        """Fail."""
        raise ProviderAuth(self.problem.message, provider=self.name, hint=self.problem.hint)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a provider stands: who asks for it, and what they say about temperature."""

    above: tuple[str, ...] = ()
    temperature: float | None = None
    among_others: bool = False
    """Whether somebody else is asked when this one cannot be reached."""


@dataclass(frozen=True, slots=True)
class _Builder:
    settings: Mapping[str, ProviderSettings]
    environ: Mapping[str, str]
    max_response_bytes: int
    redact: Callable[[str], str]
    report: Callable[[str], None]

    def build(self, name: str, place: _Place) -> Provider:
        if name in place.above:
            raise UsageError(
                f"the provider {name} asks itself: {' → '.join((*place.above, name))}",
                rule="provider.loop",
            )
        settings = self.settings.get(name)
        if settings is None:
            raise self._unknown(name, place)
        warmth = place.temperature if settings.temperature is None else settings.temperature
        below = _Place((*place.above, name), warmth, place.among_others)
        match settings.kind:
            case "mock":
                return self._mock(settings)
            case "reliable":
                return self._reliable(settings, below)
            case "router":
                return self._router(settings, below)
            case "recorded":
                return self._recorded(settings, below)
            case "openai-compatible" | "gemini" | "anthropic":
                return self._wire(settings, below)

    def _mock(self, settings: ProviderSettings) -> Provider:
        from coilclaw.providers.mock import Mock

        answers = None
        if settings.fixture is not None:
            from coilclaw.providers.fixture import load

            answers = load(settings.fixture)
        return Mock(
            settings.name,
            settings.model,
            answers,
            timeout_s=settings.timeout_s,
            max_response_bytes=self.max_response_bytes,
        )

    def _reliable(self, settings: ProviderSettings, below: _Place) -> Provider:
        from coilclaw.providers.fallback import RELIABLE, Falling

        if not settings.providers:
            raise UsageError(
                f"the provider {settings.name} names nobody to ask",
                rule="provider.empty",
                hint='providers = ["NAME", …] names them, in order',
            )
        inner = _Place(below.above, below.temperature, among_others=True)
        choices = tuple(
            (self.build(name, inner), self.settings[name].model) for name in settings.providers
        )
        return Falling(choices, reasons=RELIABLE, title=settings.name)

    def _router(self, settings: ProviderSettings, below: _Place) -> Provider:
        from coilclaw.providers.router import Router

        routes = {hint: self.build(name, below) for hint, name in settings.routes.items()}
        default = self.build(settings.default, below) if settings.default else None
        if default is None and not routes:
            raise UsageError(
                f"the provider {settings.name} names nobody to ask",
                rule="provider.empty",
                hint="a router has routes, or a default",
            )
        return Router(settings.name, routes, default)

    def _recorded(self, settings: ProviderSettings, below: _Place) -> Provider:
        from coilclaw.providers.recorded import Playing, Recording

        if settings.file is None:
            raise UsageError(f"the provider {settings.name} names no file", rule="provider.empty")
        if settings.mode == "play":
            return Playing(settings.name, settings.file, self.redact)
        if settings.provider is None:
            raise UsageError(
                f"the provider {settings.name} names nobody to record", rule="provider.empty"
            )
        inner = self.build(settings.provider, below)
        return Recording(settings.name, inner, settings.file, self.redact)

    def _wire(self, settings: ProviderSettings, place: _Place) -> Provider:
        from coilclaw.providers.retry import BUSY, RETRIED, Retrying, RetryPolicy

        base_url = settings.base_url or _BASE_URLS.get(settings.kind)
        if base_url is None:
            raise UsageError(
                f"the provider {settings.name} has no base_url",
                rule="provider.address",
                hint='base_url = "http://localhost:1234/v1", or wherever the server is',
            )
        if not settings.model:
            raise UsageError(f"the provider {settings.name} names no model", rule="provider.model")
        try:
            key = _key(settings, self.environ)
        except UsageError as problem:
            if place.among_others and problem.rule == "provider.key":
                return Keyless(settings.name, problem)
            raise
        return Retrying(
            self._asking(settings, base_url, key, place.temperature),
            RetryPolicy(RETRIES, FIRST_PAUSE_S, LONGEST_PAUSE_S),
            self.report,
            reasons=BUSY if place.among_others else RETRIED,
        )

    def _asking(
        self, settings: ProviderSettings, base_url: str, key: Secret | None, warmth: float | None
    ) -> Provider:
        from coilclaw.providers.endpoint import Endpoint

        endpoint = Endpoint(
            settings.name,
            base_url,
            key,
            timeout_s=settings.timeout_s,
            connect_timeout_s=CONNECT_TIMEOUT_S,
            max_response_bytes=self.max_response_bytes,
            redact=self.redact,
        )
        if settings.kind == "gemini":
            from coilclaw.providers.gemini import Gemini

            return Gemini(endpoint, settings.model, temperature=warmth)
        if settings.kind == "anthropic":
            from coilclaw.providers.anthropic import Anthropic

            return Anthropic(endpoint, settings.model, temperature=warmth)
        from coilclaw.providers.openai import OpenAI

        return OpenAI(endpoint, settings.model, temperature=warmth)

    def _unknown(self, name: str, place: _Place) -> UsageError:
        from difflib import get_close_matches

        near = get_close_matches(name, self.settings, 1)
        known = ", ".join(sorted(self.settings)) or "none"
        asker = f", which {place.above[-1]} names" if place.above else ""
        return UsageError(
            f"there is no provider called {name!r}{asker}; known are {known}",
            rule="provider.unknown",
            hint=f"did you mean {near[0]}?" if near else None,
        )


def _variable(settings: ProviderSettings) -> str | None:
    if settings.api_key_env is not None or settings.api_key_file is not None:
        return settings.api_key_env
    return _VARIABLES.get(settings.kind) if settings.base_url is None else None


def _key(settings: ProviderSettings, environ: Mapping[str, str]) -> Secret | None:
    """Find the key; the errors name the place where it should be, and nothing of what is there."""
    variable = _variable(settings)
    if variable is not None:
        text = environ.get(variable, "").strip()
        if not text and _is_local(settings):
            # Most servers on this machine want no key; one that does says so.
            _log.info("%s is asked without a key: %s is not set", settings.name, variable)
            return None
        if not text:
            raise UsageError(
                f"the key of {settings.name} is not there: the variable {variable} is not set",
                rule="provider.key",
                hint=f"set {variable}; a server that needs no key needs no api_key_env",
            )
        return Secret(text)
    if settings.api_key_file is None:
        return None
    place = f"the key file of {settings.name}, {settings.api_key_file}"
    try:
        text = _key_text(settings.api_key_file)
    except OSError as problem:
        raise UsageError(
            f"{place}, cannot be read: {problem.strerror}", rule="provider.key"
        ) from None
    except ValueError:
        raise UsageError(f"{place}, holds no key, or more than one", rule="provider.key") from None
    return Secret(text)


def _is_local(settings: ProviderSettings) -> bool:
    from coilclaw.providers.endpoint import Endpoint

    return settings.base_url is not None and Endpoint(settings.name, settings.base_url).local


def _key_text(path: Path) -> str:
    """Read a key; a ``ValueError`` says that the file holds none, and shows nothing of it."""
    with path.open("rb") as file:
        raw = file.read(MAX_KEY_BYTES + 1)
    text = raw.decode("utf-8-sig").strip()
    if len(raw) > MAX_KEY_BYTES or not text or any(char.isspace() for char in text):
        raise ValueError("no key")
    return text


def _warn(text: str) -> None:
    _log.warning("%s", text, extra={"event": "provider_retry", "fields": {}})
