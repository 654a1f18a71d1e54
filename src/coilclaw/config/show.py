"""The configuration as it is in effect, for people and for machines; keys are never in it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit, urlunsplit

from coilclaw.config.keys import BELONGING, MODELS, PLUGINS, SERVERS
from coilclaw.config.tomltext import header, name, written

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from coilclaw.config.tomltext import Value
    from coilclaw.config.values import Config, ReceiptSettings
    from coilclaw.providers.settings import ProviderSettings

MARK: Final = "[redacted]"

_SECRET_NAME: Final = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL", re.IGNORECASE)
_MIN_SECRET: Final = 8
_MIN_KEY: Final = 4


def tables(config: Config, environ: Mapping[str, str]) -> dict[tuple[str, ...], dict[str, Value]]:
    """Return every table with its keys, in the order of the file that ``init`` writes."""
    security, limits = config.security, config.limits
    found: dict[tuple[str, ...], dict[str, Value]] = {
        (): {
            "workspace_dir": str(config.workspace_dir),
            "default_provider": config.default_provider,
            "default_model": config.default_model,
        },
        ("security",): {
            "autonomy": security.autonomy.value,
            "workspace_only": security.workspace_only,
            "forbidden_paths": [str(path) for path in security.forbidden_paths],
            "forbidden_commands": list(security.forbidden_commands),
            "allowed_commands": list(security.allowed_commands),
            "allowed_domains": list(security.allowed_domains),
            "harmless_commands": security.harmless_commands,
            "sandbox": security.sandbox,
            "audit_log": security.audit_log,
        },
        ("sandbox",): {
            "read": [str(path) for path in config.sandbox.read],
            "write": [str(path) for path in config.sandbox.write],
        },
        **{(*MODELS, s.name): _provider(s) for s in config.providers.values()},
        ("channels", "cli"): {
            "enabled": config.cli.enabled,
            "tools_allow": list(config.cli.tools_allow),
        },
        ("memory",): {"backend": config.memory.backend, "path": str(config.memory.path)},
        ("receipts",): _receipts(config.receipts),
        ("limits",): {
            "max_tool_rounds": limits.max_tool_rounds,
            "max_response_bytes": limits.max_response_bytes,
            "tool_timeout_s": limits.tools.tool_timeout_s,
            "shell_timeout_s": limits.tools.shell_timeout_s,
            "shell_timeout_max_s": limits.tools.shell_timeout_max_s,
            "http_timeout_s": limits.tools.http_timeout_s,
        },
    }
    found |= _extensions(config)
    clean = redactor(config, environ)
    return {
        table: {key: _cleaned(value, clean) for key, value in values.items()}
        for table, values in found.items()
    }


def _receipts(settings: ReceiptSettings) -> dict[str, Value]:
    place = settings.checkpoint
    shown = "" if place is None else str(place)
    return {
        "enabled": settings.enabled,
        "path": str(settings.path),
        "checkpoint": shown_url(shown) if place is not None and place.kind == "url" else shown,
        "checkpoint_every": settings.checkpoint_every,
        "checkpoint_token_env": (place.token_env if place is not None else None) or "",
    }


def _extensions(config: Config) -> dict[tuple[str, ...], dict[str, Value]]:
    """What was said about things beyond the program itself; what was not said is left out."""
    gateway, search = config.gateway, config.web_search
    listening: dict[str, Value | None] = {
        "host": gateway.host,
        "port": gateway.port,
        "tls_cert": None if gateway.tls_cert is None else str(gateway.tls_cert),
        "tls_key": None if gateway.tls_key is None else str(gateway.tls_key),
        "allowed_hosts": list(gateway.allowed_hosts) or None,
        "requests_per_minute": gateway.requests_per_minute,
        "max_body_bytes": gateway.max_body_bytes,
        "self_approval": gateway.self_approval,
        "completions_approval": gateway.completions_approval,
        "completions_wait_s": gateway.completions_wait_s,
    }
    said: dict[tuple[str, ...], dict[str, Value | None]] = {("gateway",): listening}
    if search is not None:
        said["web_search",] = {
            "provider": search.provider,
            "api_key_env": search.api_key_env or None,
            "base_url": shown_url(search.base_url) if search.base_url else None,
        }
    for called, plugin in config.plugins.items():
        said[*PLUGINS, called] = {"risk": str(plugin.risk), "network": plugin.network}
    for called, server in config.mcp_servers.items():
        said[*SERVERS, called] = {
            "command": None if server.command is None else list(server.command),
            "url": None if server.url is None else shown_url(server.url),
            "env": list(server.env) or None,
            "token_env": server.token_env,
            "headers": dict(server.headers) or None,
            "risk": str(server.risk),
            "network": server.network,
            "writable": [str(path) for path in server.writable] or None,
            "timeout_s": server.timeout_s,
            "start_timeout_s": server.start_timeout_s,
            "enabled": server.enabled,
        }
    kept = {
        table: {key: value for key, value in values.items() if value is not None}
        for table, values in said.items()
    }
    return {table: values for table, values in kept.items() if values}


def lines(config: Config, environ: Mapping[str, str]) -> list[str]:
    """Write it as TOML; a comment says whether a key can be found."""
    said = []
    for table, values in tables(config, environ).items():
        said += ["", header(table)] if table else []
        for key, value in values.items():
            said.append(f"{name(key)} = {written(value)}")
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
    everything: dict[str, Value | None] = {
        "base_url": shown_url(settings.base_url) if settings.base_url else None,
        "api_key_env": settings.api_key_env,
        "api_key_file": str(settings.api_key_file) if settings.api_key_file else None,
        "timeout_s": settings.timeout_s,
        "temperature": settings.temperature,
        "fixture": str(settings.fixture) if settings.fixture else None,
        "providers": list(settings.providers),
        "routes": dict(settings.routes),
        "default": settings.default,
        "provider": settings.provider,
        "file": str(settings.file) if settings.file else None,
        "mode": settings.mode,
    }
    values: dict[str, Value] = {"kind": settings.kind}
    if settings.model:
        values["model"] = settings.model
    for key in BELONGING[settings.kind]:
        value = everything[key]
        if value is not None:
            values[key] = value
    return values


def _cleaned(value: Value, clean: Callable[[str], str]) -> Value:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [clean(item) for item in value]
    if isinstance(value, dict):
        return {clean(key): clean(item) for key, item in value.items()}
    return value
