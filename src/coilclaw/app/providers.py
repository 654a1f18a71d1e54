"""Providers, wired from their settings: keys, addresses, retries, and who asks whom."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import NullRedactor, ProviderAuth, ProviderCapabilities, Secret, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from coilclaw.app.config.values import Config
    from coilclaw.kernel import ChatRequest, ChatResponse, Provider, Redactor
    from coilclaw.models import ProviderSettings

MAX_KEY_BYTES: Final = 16 * 2**10
MIN_SECRET_CHARS: Final = 8
"""A shorter word, such as ``none`` for a local server, is not a secret and stands in many texts."""
CONNECT_TIMEOUT_S: Final = 15.0
RETRIES: Final = 2
FIRST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 20.0

_log = logging.getLogger(__name__)


def build_provider(
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


def build_configured(
    config: Config, name: str, environ: Mapping[str, str], redact: Callable[[str], str]
) -> Provider:
    """Make a provider of a configuration."""
    bound = config.limits.max_response_bytes
    return build_provider(
        name, config.providers, environ=environ, max_response_bytes=bound, redact=redact
    )


def make_provider_redactor(
    settings: Mapping[str, ProviderSettings],
    environ: Mapping[str, str],
    more: tuple[Secret, ...] = (),
) -> Redactor:
    """Return what takes every secret of the configured providers, and more, out of a text."""
    known = (*list_provider_secrets(settings, environ), *more)
    if not known:
        return NullRedactor()
    from coilclaw.policy import SecretRedactor
    from coilclaw.workspace import forbid_inspection

    # Whoever is to keep keys out of texts holds them: no child may read them out of its memory.
    forbid_inspection()
    return SecretRedactor(known)


def list_provider_secrets(
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
    """Whether another provider is asked when this one cannot be reached."""


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
        builders = {
            "mock": self._mock,
            "reliable": self._reliable,
            "router": self._router,
            "recorded": self._make_recorded,
        }
        return builders.get(settings.kind, self._wire)(settings, below)

    def _mock(self, settings: ProviderSettings, _: _Place) -> Provider:
        from coilclaw.models import Mock, load_fixture

        answers = None if settings.fixture is None else load_fixture(settings.fixture)
        return Mock(
            *(settings.name, settings.model, answers),
            timeout_s=settings.timeout_s,
            max_response_bytes=self.max_response_bytes,
        )

    def _reliable(self, settings: ProviderSettings, below: _Place) -> Provider:
        from coilclaw.models import RELIABLE, Falling

        if not settings.providers:
            raise _empty(
                settings, "no provider to ask", 'providers = ["NAME", …] names them, in order'
            )
        inner = _Place(below.above, below.temperature, among_others=True)
        choices = tuple(
            (self.build(name, inner), self.settings[name].model) for name in settings.providers
        )
        return Falling(choices, reasons=RELIABLE, title=settings.name)

    def _router(self, settings: ProviderSettings, below: _Place) -> Provider:
        from coilclaw.models import Router

        routes = {hint: self.build(name, below) for hint, name in settings.routes.items()}
        default = self.build(settings.default, below) if settings.default else None
        if default is None and not routes:
            raise _empty(settings, "no provider to ask", "a router has routes, or a default")
        return Router(settings.name, routes, default)

    def _make_recorded(self, settings: ProviderSettings, below: _Place) -> Provider:
        from coilclaw.models import AnswerRecording, Playing

        if settings.file is None:
            raise _empty(settings, "no file")
        if settings.mode == "play":
            return Playing(settings.name, settings.file, self.redact)
        if settings.provider is None:
            raise _empty(settings, "no provider to record")
        inner = self.build(settings.provider, below)
        return AnswerRecording(settings.name, inner, settings.file, self.redact)

    def _wire(self, settings: ProviderSettings, place: _Place) -> Provider:
        from coilclaw.models import (
            BUSY,
            RETRIED,
            SERVICES,
            ModelEndpoint,
            Retrying,
            RetryPolicy,
            make_wire,
        )

        base_url = settings.base_url or SERVICES[settings.kind].base_url
        if base_url is None:
            raise UsageError(
                f"the provider {settings.name} has no base_url",
                rule="provider.address",
                hint='base_url = "http://localhost:1234/v1", or wherever the server is',
            )
        if not settings.model:
            raise UsageError(f"the provider {settings.name} has no model", rule="provider.model")
        try:
            key = _key(settings, self.environ)
        except UsageError as problem:
            if place.among_others and problem.rule == "provider.key":
                return Keyless(settings.name, problem)
            raise
        endpoint = ModelEndpoint(
            settings.name,
            base_url,
            key,
            timeout_s=settings.timeout_s,
            connect_timeout_s=CONNECT_TIMEOUT_S,
            max_response_bytes=self.max_response_bytes,
            redact=self.redact,
        )
        return Retrying(
            make_wire(settings.kind, endpoint, settings.model, place.temperature),
            RetryPolicy(RETRIES, FIRST_PAUSE_S, LONGEST_PAUSE_S),
            self.report,
            reasons=BUSY if place.among_others else RETRIED,
        )

    def _unknown(self, name: str, place: _Place) -> UsageError:
        from difflib import get_close_matches

        near = get_close_matches(name, self.settings, 1)
        known = ", ".join(sorted(self.settings)) or "none"
        asker = f", which {place.above[-1]} names" if place.above else ""
        return UsageError(
            f"no provider is called {name!r}{asker}; known are {known}",
            rule="provider.unknown",
            hint=f"did you mean {near[0]}?" if near else None,
        )


def _empty(settings: ProviderSettings, what: str, hint: str | None = None) -> UsageError:
    message = f"the provider {settings.name} names {what}"
    return UsageError(message, rule="provider.empty", hint=hint)


def _variable(settings: ProviderSettings) -> str | None:
    if settings.api_key_env is not None or settings.api_key_file is not None:
        return settings.api_key_env
    from coilclaw.models import find_usual_variable

    # The key of a vendor goes to no other address than the vendor's.
    return find_usual_variable(settings.kind) if settings.base_url is None else None


def _key(settings: ProviderSettings, environ: Mapping[str, str]) -> Secret | None:
    """Find the key; the errors name the place where it should be, and nothing of what is there."""
    from coilclaw.models import ModelEndpoint

    variable = _variable(settings)
    if variable is not None:
        text = environ.get(variable, "").strip()
        if not text and settings.base_url and ModelEndpoint(settings.name, settings.base_url).local:
            # Most servers on this machine want no key; one that does says so.
            _log.info("%s is asked without a key: %s is not set", settings.name, variable)
            return None
        if not text:
            raise UsageError(
                f"no API key for {settings.name}: the environment variable {variable} is not set",
                rule="provider.key",
                hint=f"set {variable}; a server that needs no key needs no api_key_env",
            )
        return Secret(text)
    if settings.api_key_file is None:
        return None
    place = f"the key file {settings.api_key_file} of {settings.name}"
    try:
        text = _key_text(settings.api_key_file)
    except OSError as problem:
        raise UsageError(
            f"{place} cannot be read: {problem.strerror}", rule="provider.key"
        ) from None
    except ValueError:
        raise UsageError(f"{place} must hold exactly one key", rule="provider.key") from None
    return Secret(text)


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
