"""The configuration as it is in effect, for people and for machines; keys are never in it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import urlsplit, urlunsplit

from coilclaw.app.config.keys import ANY, BELONGING, MODELS, PLUGINS, SERVERS, TABLES
from coilclaw.kernel import Risk, is_bare
from coilclaw.policy import Autonomy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from coilclaw.app.config.values import Config, ReceiptSettings
    from coilclaw.models import ProviderSettings

MARK: Final = "[redacted]"

_SECRET_NAME: Final = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL", re.IGNORECASE)
_MIN_SECRET: Final = 8
_MIN_KEY: Final = 4


def tables(config: Config, environ: Mapping[str, str]) -> dict[tuple[str, ...], dict[str, Value]]:
    """Return every table with its keys, in the order of the file that ``init`` writes."""
    limits = {
        **_shown_keys(config.limits.tools, ("limits",)),
        **_shown_keys(config.limits, ("limits",)),
    }
    found: dict[tuple[str, ...], dict[str, Value]] = {
        (): _shown_keys(config, ()),
        ("security",): _shown_keys(config.security, ("security",)),
        ("sandbox",): _shown_keys(config.sandbox, ("sandbox",)),
        **{(*MODELS, s.name): _provider(s) for s in config.providers.values()},
        ("channels", "cli"): _shown_keys(config.cli, ("channels", "cli")),
        ("memory",): _shown_keys(config.memory, ("memory",)),
        ("receipts",): _receipts(config.receipts),
        ("limits",): {key: limits[key] for key in TABLES["limits",]},
    }
    found |= {table: values for table, values in _extensions(config) if values}
    clean = redactor(config, environ)
    return {
        table: {key: _clean_value(value, clean) for key, value in values.items()}
        for table, values in found.items()
    }


def _shown_keys(settings: object, table: tuple[str, ...]) -> dict[str, Value]:
    """Return those keys of a table that a value has, as they are written; ``None`` is left out."""
    found = {}
    for key in TABLES[table]:
        value = getattr(settings, key, None)
        if value is None:
            continue
        if isinstance(value, Autonomy):
            value = value.value
        elif isinstance(value, Path | Risk):
            value = str(value)
        elif isinstance(value, tuple):
            value = [str(item) for item in value]
        elif isinstance(value, Mapping):
            value = dict(value)
        found[key] = shown_url(str(value)) if key in {"url", "base_url"} and value else value
    return found


def _receipts(settings: ReceiptSettings) -> dict[str, Value]:
    place = settings.checkpoint
    shown = "" if place is None else str(place)
    values = {
        **_shown_keys(settings, ("receipts",)),
        "checkpoint": shown_url(shown) if place is not None and place.kind == "url" else shown,
        "checkpoint_token_env": (place.token_env if place is not None else None) or "",
    }
    return {key: values[key] for key in TABLES["receipts",]}


def _extensions(config: Config) -> Iterator[tuple[tuple[str, ...], dict[str, Value]]]:
    """What was said about things beyond the program itself; what was not said is left out."""

    def stated_keys(settings: object, table: tuple[str, ...]) -> dict[str, Value]:
        kept = _shown_keys(settings, table).items()
        return {key: value for key, value in kept if value not in ("", [], {})}

    yield ("gateway",), stated_keys(config.gateway, ("gateway",))
    yield ("web_search",), stated_keys(config.web_search, ("web_search",))
    for called, plugin in config.plugins.items():
        yield (*PLUGINS, called), {"risk": str(plugin.risk), "network": plugin.network}
    for called, server in config.mcp_servers.items():
        yield (*SERVERS, called), stated_keys(server, (*SERVERS, ANY))


def lines(config: Config, environ: Mapping[str, str]) -> list[str]:
    """Write it as TOML; a comment says whether a key can be found."""
    said = []
    for table, values in tables(config, environ).items():
        said += ["", header(table)] if table else []
        for key, value in values.items():
            said.append(f"{name(key)} = {write_value(value)}")
            if table[:2] == MODELS and key in {"api_key_env", "api_key_file"}:
                said[-1] += f"  # {key_state(config.providers[table[-1]], environ)}"
    return said


def record(config: Config, environ: Mapping[str, str]) -> dict[str, object]:
    """Return it for JSON, nested as in the file; ``key_state`` is added to each provider."""
    whole: dict[str, object] = {}
    for table, values in tables(config, environ).items():
        inner = whole
        for part in table:
            inner = inner.setdefault(part, {})  # type: ignore[assignment]  # all of them are tables
        inner.update(values)
        if table[:2] == MODELS:
            inner["key_state"] = key_state(config.providers[table[-1]], environ)
    return whole


def key_state(settings: ProviderSettings, environ: Mapping[str, str]) -> str:
    """Say whether the key of a provider can be found, and nothing of what it is."""
    if settings.api_key_env is not None:
        return "set" if environ.get(settings.api_key_env) else "not set"
    if settings.api_key_file is None:
        return "none"
    try:
        return "there" if settings.api_key_file.is_file() else "missing"
    except OSError:
        return "unreadable"


def shown_url(url: str) -> str:
    """Return an address without the credentials that may be in it."""
    try:
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
        query = MARK if parts.query else ""
    except ValueError:
        return MARK
    netloc = f"{MARK}@{host}" if "@" in parts.netloc else host
    return urlunsplit((parts.scheme, netloc, parts.path, query, ""))


def redactor(config: Config, environ: Mapping[str, str]) -> Callable[[str], str]:
    """Return what takes out secrets that came in through variables."""
    keys = {s.api_key_env for s in config.providers.values() if s.api_key_env}
    held = {environ.get(key, "") for key in keys}
    secrets = {value for value in held if len(value) >= _MIN_KEY}
    # Where a key is kept is no secret: a path is told.
    secrets |= {
        value
        for variable, value in environ.items()
        if _SECRET_NAME.search(variable) and len(value) >= _MIN_SECRET and "/" not in value
    }
    ordered = sorted(secrets, key=len, reverse=True)

    def clean(text: str) -> str:
        for secret in ordered:
            text = text.replace(secret, MARK)
        return text

    return clean


def _provider(settings: ProviderSettings) -> dict[str, Value]:
    shown = _shown_keys(settings, (*MODELS, ANY))
    wanted = ("kind", *(["model"] if settings.model else []), *BELONGING[settings.kind])
    return {key: shown[key] for key in wanted if key in shown}


def _clean_value(value: Value, clean: Callable[[str], str]) -> Value:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [clean(item) for item in value]
    if isinstance(value, dict):
        return {clean(key): clean(item) for key, item in value.items()}
    return value


Value: TypeAlias = "str | bool | int | float | Sequence[str] | Mapping[str, str]"


def write_value(value: Value) -> str:
    """Write a value as it stands behind ``=``."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # JSON escapes what TOML wants escaped, with one exception.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, int | float):
        return repr(value)
    if hasattr(value, "items"):
        pairs = (f"{name(key)} = {write_value(item)}" for key, item in value.items())
        return f"{{ {', '.join(pairs)} }}" if value else "{}"
    return f"[{', '.join(write_value(item) for item in value)}]"


def name(text: str) -> str:
    """Write a name as it stands before ``=``."""
    return text if is_bare(text) else write_value(text)


def header(parts: Iterable[str]) -> str:
    """Write the line that begins a table."""
    return f"[{'.'.join(name(part) for part in parts)}]"
