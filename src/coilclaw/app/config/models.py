"""``[providers.models.NAME]``: each provider by itself, then who asks whom."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import SplitResult, urlsplit

from coilclaw.app.config.keys import BELONGING, MODELS, NEEDED
from coilclaw.app.config.section import Section, is_variable
from coilclaw.kernel import suggest
from coilclaw.models import ProviderSettings, find_usual_variable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coilclaw.app.config.section import ConfigDocument
    from coilclaw.kernel import DocumentPlace

MAX_PROVIDERS: Final = 200
DEFAULT_NAME: Final = "local"
MOCK_MODEL: Final = "mock"

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_LONG: Final = 20
_LOCAL: Final = frozenset({"localhost", "::1"})


def defaults() -> dict[str, ProviderSettings]:
    """Return the providers of a configuration that names none."""
    return {
        DEFAULT_NAME: ProviderSettings(DEFAULT_NAME, "mock", MOCK_MODEL),
        "openai_compatible": ProviderSettings(
            "openai_compatible",
            "openai-compatible",
            "local-model",
            base_url="http://localhost:1234/v1",
            api_key_env="OPENAI_API_KEY",
        ),
    }


def read(
    document: ConfigDocument, entries: Mapping[str, object], default_model: str | None
) -> dict[str, ProviderSettings]:
    """Read all of them, and see that those they name exist."""
    found: dict[str, ProviderSettings] = {}
    if len(entries) > MAX_PROVIDERS:
        document.note(MODELS, f"has more than {MAX_PROVIDERS} providers")
        return found
    for name, entry in entries.items():
        place = (*MODELS, name)
        if not _NAME.fullmatch(name):
            document.note(place, "is not a name: letters, digits, - and _ only, at most 64 of them")
        elif not isinstance(entry, dict):
            document.note(place, "must be a table")
        else:
            found[name] = _provider(Section(document, entry, place), name, default_model)
    for settings in found.values():
        _check_references(document, settings, tuple(entries))
    for name in found:
        way = () if document.full else _way_back(found, name)
        if way:
            document.note((*MODELS, name), f"asks itself: {' → '.join(way)}")
    return found


def find_references(settings: ProviderSettings) -> list[tuple[DocumentPlace, str]]:
    """Return whom a provider asks in its turn, with the place that says so."""
    found: list[tuple[DocumentPlace, str]] = [
        (("providers", index), name) for index, name in enumerate(settings.providers)
    ]
    found += [(("routes", hint), name) for hint, name in settings.routes.items()]
    if settings.default:
        found.append((("default",), settings.default))
    if settings.provider:
        found.append((("provider",), settings.provider))
    return found


def _provider(section: Section, name: str, default_model: str | None) -> ProviderSettings:
    if "kind" not in section:
        section.note("kind", "is missing", section.keys["kind"].allowed)
    values = section.read()
    kind = values.get("kind")
    if kind is not None:
        _check_keys(section, kind, values.get("mode"))
    changed = {
        "kind": kind or "mock",
        "model": _model(section, values.get("model"), kind, default_model),
        "base_url": _base_url(section, values.get("base_url")),
        "api_key_env": _variable(section, values.get("api_key_env"), kind),
        "providers": tuple(name for _, name in section.strings("providers")),
    }
    settings = ProviderSettings(name=name, **values | changed)
    if settings.base_url is not None and (settings.api_key_env or settings.api_key_file):
        parts = split_address(settings.base_url)
        host = (parts and parts.hostname) or ""
        remote = host not in _LOCAL and not host.startswith("127.")
        if parts is not None and parts.scheme == "http" and remote:
            section.document.warnings.append(
                f"the key of {name} would travel in clear text: its base_url is not https"
            )
    return settings


def _check_keys(section: Section, kind: str, mode: str | None) -> None:
    belonging = ("kind", "model", *BELONGING[kind])
    for name in section.keys:
        if name in section and name not in belonging:
            section.note(name, f"does not belong to a provider of kind {kind}", belonging)
    for name in NEEDED.get(kind, ()):
        if section.is_empty(name):
            section.note(name, f"is missing: a provider of kind {kind} needs it")
    if kind == "recorded" and mode != "play" and section.is_empty("provider"):
        section.note("provider", "is missing: name the provider whose exchanges are recorded")
    if kind == "router" and "default" not in section and section.is_empty("routes"):
        section.note("routes", "is missing: a router needs routes or default")
    if "api_key_env" in section and "api_key_file" in section:
        section.note("api_key_file", "stands beside api_key_env; only one of them can be meant")


def _model(section: Section, named: str | None, kind: str | None, default_model: str | None) -> str:
    if named is not None or "model" in section:
        return named or ""
    if kind == "mock":
        return default_model or MOCK_MODEL
    if kind is not None and "base_url" in BELONGING[kind]:
        if default_model is None:
            section.note("model", "is missing, and default_model is not set")
        return default_model or ""
    return ""


def _base_url(section: Section, url: str | None) -> str | None:
    """Check an address; no message repeats it, because of what may be in it."""
    if url is None:
        return None
    parts = split_address(url)
    held = parts and (parts.username or parts.password or parts.query or parts.fragment)
    if held:
        section.note(
            "base_url", "holds credentials, a query or a fragment; an address alone is needed"
        )
    elif parts is None or not url.isprintable() or " " in url:
        section.note("base_url", "is not an http or https address")
    return url


def split_address(url: str) -> SplitResult | None:
    """Return the parts of an http or https address; ``None`` where it is not one."""
    try:
        parts = urlsplit(url)
        valid = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return None
    return parts if valid else None


def _variable(section: Section, name: str | None, kind: str | None) -> str | None:
    """Check the name of a variable; a text that may be the key itself is not repeated.

    Who asks a vendor and names no place for the key has it in that vendor's usual variable.
    """
    if name is None:
        named = any(key in section for key in ("base_url", "api_key_env", "api_key_file"))
        return None if named or kind is None else find_usual_variable(kind)
    if name in section.document.environ:
        return name
    # A long mixture of cases and digits is a key rather than the name of a variable.
    mixed = name != name.upper() and name != name.lower() and not name.isalpha()
    like_a_key = len(name) >= _LONG and mixed and any(char.isdigit() for char in name)
    if not is_variable(name) or like_a_key:
        section.note(
            "api_key_env",
            "is not the name of a variable; the key itself does not belong into this file",
        )
        return None
    return name


def _check_references(
    document: ConfigDocument, settings: ProviderSettings, names: tuple[str, ...]
) -> None:
    for place, name in find_references(settings):
        if name not in names and not document.full:
            message = f"names no provider of this file{suggest(name, names)}"
            document.note((*MODELS, settings.name, *place), message, names)


def _way_back(found: Mapping[str, ProviderSettings], start: str) -> tuple[str, ...]:
    seen: set[str] = set()
    waiting: list[tuple[str, tuple[str, ...]]] = [(start, (start,))]
    while waiting:
        name, way = waiting.pop()
        for _, asked in find_references(found[name]) if name in found else ():
            if asked == start:
                return (*way, asked)
            if asked not in seen:
                seen.add(asked)
                waiting.append((asked, (*way, asked)))
    return ()
