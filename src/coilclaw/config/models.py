"""``[providers.models.NAME]``: each provider by itself, then who asks whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast
from urllib.parse import urlsplit

from coilclaw.config import expand
from coilclaw.config.keys import ANY, BELONGING, MODELS, NEEDED, TABLES
from coilclaw.config.section import Section, is_variable, meant
from coilclaw.providers.settings import DEFAULT_TIMEOUT_S, Kind, Mode, ProviderSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coilclaw.config.problem import Place
    from coilclaw.config.section import Reading

MAX_PROVIDERS: Final = 200
DEFAULT_NAME: Final = "local"
MOCK_MODEL: Final = "mock"

USUAL_VARIABLES: Final[Mapping[str, str]] = {
    "gemini": "GEMINI_API_KEY",
    "anthropic": "ANTHROPIC_API_KEY",
}

MAX_NAME: Final = 64

_NAME_CHARS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
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
    reading: Reading, entries: Mapping[str, object], default_model: str | None
) -> dict[str, ProviderSettings]:
    """Read all of them, and see that those they name exist."""
    found: dict[str, ProviderSettings] = {}
    if len(entries) > MAX_PROVIDERS:
        reading.note(MODELS, f"has more than {MAX_PROVIDERS} providers")
        return found
    for name, entry in entries.items():
        place = (*MODELS, name)
        if not 0 < len(name) <= MAX_NAME or not _NAME_CHARS.issuperset(name):
            reading.note(place, "is no name: letters, digits, - and _ only, at most 64 of them")
        elif not isinstance(entry, dict):
            reading.note(place, "must be a table")
        else:
            section = Section(reading, entry, place, TABLES[*MODELS, ANY])
            found[name] = _provider(section, name, default_model)
    for settings in found.values():
        _check_references(reading, settings, tuple(entries))
    _refuse_loops(reading, found)
    return found


def referenced(settings: ProviderSettings) -> list[tuple[Place, str]]:
    """Return whom a provider asks in its turn, with the place that says so."""
    found: list[tuple[Place, str]] = [
        (("providers", index), name) for index, name in enumerate(settings.providers)
    ]
    found += [(("routes", hint), name) for hint, name in settings.routes.items()]
    if settings.default:
        found.append((("default",), settings.default))
    if settings.provider:
        found.append((("provider",), settings.provider))
    return found


def _provider(section: Section, name: str, default_model: str | None) -> ProviderSettings:
    section.refuse_unknown()
    if "kind" not in section:
        section.note("kind", "is missing", TABLES[*MODELS, ANY]["kind"].allowed)
    kind = section.choice("kind", None)
    if kind is not None:
        _check_keys(section, kind)
    settings = ProviderSettings(
        name=name,
        kind=cast("Kind", kind or "mock"),
        model=_model(section, kind, default_model),
        base_url=_base_url(section),
        api_key_env=_variable(section, kind),
        api_key_file=section.path("api_key_file", None),
        timeout_s=section.number("timeout_s", DEFAULT_TIMEOUT_S),
        temperature=section.number("temperature", None),
        fixture=section.path("fixture", None),
        providers=tuple(name for _, name in section.items("providers", ())),
        routes=section.map("routes"),
        default=section.text("default", None),
        provider=section.text("provider", None),
        file=section.path("file", None),
        mode=cast("Mode", section.choice("mode", "record")),
    )
    _warn_of_clear_text(section, settings)
    return settings


def _check_keys(section: Section, kind: str) -> None:
    belonging = ("kind", "model", *BELONGING[kind])
    for name in TABLES[*MODELS, ANY]:
        if name in section and name not in belonging:
            section.note(name, f"does not belong to a provider of kind {kind}", belonging)
    for name in NEEDED.get(kind, ()):
        if section.is_empty(name):
            section.note(name, f"is missing: a provider of kind {kind} needs it")
    playing = section.choice("mode", None) == "play"
    if kind == "recorded" and not playing and section.is_empty("provider"):
        section.note("provider", "is missing: somebody must be asked for what is recorded")
    if kind == "router" and "default" not in section and section.is_empty("routes"):
        section.note("routes", "is missing: a router needs routes or default")
    if "api_key_env" in section and "api_key_file" in section:
        section.note("api_key_file", "stands beside api_key_env; only one of them can be meant")


def _model(section: Section, kind: str | None, default_model: str | None) -> str:
    named = section.text("model", None)
    if named is not None or "model" in section:
        return named or ""
    if kind == "mock":
        return default_model or MOCK_MODEL
    if kind is not None and "base_url" in BELONGING[kind]:
        if default_model is None:
            section.note("model", "is missing, and there is no default_model")
        return default_model or ""
    return ""


def _base_url(section: Section) -> str | None:
    """Take an address; no message repeats it, because of what may be in it."""
    raw = section.text("base_url", None)
    if raw is None:
        return None
    expanded = expand.variables(raw, section.reading.environ)
    problems = list(expanded.problems)
    try:
        parts = urlsplit(expanded.text)
        held = parts.username or parts.password or parts.query or parts.fragment
        whole = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        held, whole = None, False
    if held:
        problems.append("holds credentials, a query or a fragment; an address alone is needed")
    if not problems and not (whole and expanded.text.isprintable() and " " not in expanded.text):
        problems.append("is no http or https address")
    for problem in problems:
        section.note("base_url", problem)
    return None if problems else expanded.text


def _variable(section: Section, kind: str | None) -> str | None:
    """Take the name of a variable; a text that may be the key itself is not repeated.

    Who asks a vendor and names no place for the key has it in that vendor's usual variable.
    """
    name = section.text("api_key_env", None)
    if name is None:
        named = any(key in section for key in ("base_url", "api_key_env", "api_key_file"))
        return None if named or kind is None else USUAL_VARIABLES.get(kind)
    if name in section.reading.environ:
        return name
    if not is_variable(name) or _like_a_key(name):
        section.note(
            "api_key_env",
            "is no name of a variable; the key itself does not belong into this file",
        )
        return None
    return name


def _like_a_key(name: str) -> bool:
    """Tell a long mixture of cases and digits from the name of a variable."""
    mixed = name != name.upper() and name != name.lower() and not name.isalpha()
    return len(name) >= _LONG and mixed and any(char.isdigit() for char in name)


def _warn_of_clear_text(section: Section, settings: ProviderSettings) -> None:
    if settings.base_url is None or not (settings.api_key_env or settings.api_key_file):
        return
    parts = urlsplit(settings.base_url)
    host = parts.hostname or ""
    if parts.scheme == "http" and host not in _LOCAL and not host.startswith("127."):
        section.reading.warnings.append(
            f"the key of {settings.name} would travel in clear text: its base_url is not https"
        )


def _check_references(reading: Reading, settings: ProviderSettings, names: tuple[str, ...]) -> None:
    for place, name in referenced(settings):
        if name not in names and not reading.full:
            message = f"names no provider of this file{meant(name, names)}"
            reading.note((*MODELS, settings.name, *place), message, names)


def _refuse_loops(reading: Reading, found: Mapping[str, ProviderSettings]) -> None:
    """Note each provider that would, through others, ask itself."""
    for name in found:
        way = () if reading.full else _way_back(found, name)
        if way:
            reading.note((*MODELS, name), f"asks itself: {' → '.join(way)}")


def _way_back(found: Mapping[str, ProviderSettings], start: str) -> tuple[str, ...]:
    seen: set[str] = set()
    waiting: list[tuple[str, tuple[str, ...]]] = [(start, (start,))]
    while waiting:
        name, way = waiting.pop()
        for _, asked in referenced(found[name]) if name in found else ():
            if asked == start:
                return (*way, asked)
            if asked not in seen:
                seen.add(asked)
                waiting.append((asked, (*way, asked)))
    return ()
