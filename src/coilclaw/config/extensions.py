"""What reaches beyond the program itself: the gateway, web search, plugins, foreign servers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from coilclaw.config import expand
from coilclaw.config.keys import ANY, PLUGINS, SERVERS, TABLES
from coilclaw.config.section import Section
from coilclaw.config.values import Gateway
from coilclaw.domain.verdict import Risk

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from coilclaw.config.section import Reading
    from coilclaw.mcp.settings import McpServer
    from coilclaw.plugins.settings import PluginSettings
    from coilclaw.tools.searchsettings import SearchProvider, SearchSettings

MAX_ENTRIES: Final = 200


def gateway(section: Section) -> Gateway:
    """Read ``[gateway]``."""
    found = Gateway(
        host=section.text("host", None),
        port=section.count("port", -1) if "port" in section else None,
        tls_cert=section.path("tls_cert", None),
        tls_key=section.path("tls_key", None),
        allowed_hosts=section.texts("allowed_hosts", ()),
        requests_per_minute=_optional(section, "requests_per_minute"),
        max_body_bytes=_optional(section, "max_body_bytes"),
        self_approval=section.flag("self_approval", False) if "self_approval" in section else None,
        completions_approval=section.choice("completions_approval", None),
        completions_wait_s=section.number("completions_wait_s", None),
    )
    if (found.tls_cert is None) != (found.tls_key is None):
        missing = "tls_key" if found.tls_key is None else "tls_cert"
        section.note(missing, "is missing: a certificate and its key go together")
    return found


def web_search(section: Section) -> SearchSettings | None:
    """Read ``[web_search]``; absent, there is no search."""
    provider = section.choice("provider", None)
    key, address = section.text("api_key_env", ""), _address(section, "base_url") or ""
    if provider is None:
        if "provider" not in section and (key or address):
            section.note("provider", "is missing")
        return None
    from coilclaw.tools.searchsettings import SearchSettings

    if provider == "searxng" and not address and section.is_empty("base_url"):
        section.note("base_url", "is missing: searxng is wherever somebody runs it")
    return SearchSettings(cast("SearchProvider", provider), key, address)


def plugins(reading: Reading, entries: Mapping[str, object]) -> dict[str, PluginSettings]:
    """Read ``[plugins.NAME]``."""
    found: dict[str, PluginSettings] = {}
    for name, section in _entries(reading, entries, PLUGINS):
        from coilclaw.plugins.settings import PluginSettings

        usual = PluginSettings()
        found[name] = PluginSettings(
            risk=_risk(section),
            network=section.flag("network", False),
            memory_mb=section.count("memory_mb", usual.memory_mb),
            processes=section.count("processes", usual.processes),
        )
    return found


def servers(reading: Reading, entries: Mapping[str, object]) -> dict[str, McpServer]:
    """Read ``[mcp.servers.NAME]``."""
    found: dict[str, McpServer] = {}
    for name, section in _entries(reading, entries, SERVERS):
        found[name] = _server(section, name)
    return found


def _server(section: Section, name: str) -> McpServer:
    from coilclaw.mcp.settings import (
        DEFAULT_START_TIMEOUT_S,
        DEFAULT_TIMEOUT_S,
        McpServer,
        flaws,
    )

    command = tuple(word for _, word in section.items("command", ()))
    server = McpServer(
        name=name,
        command=command if "command" in section else None,
        url=_address(section, "url"),
        env=section.texts("env", ()),
        token_env=section.text("token_env", None),
        headers=section.map("headers"),
        risk=_risk(section),
        network=section.flag("network", False),
        writable=_paths(section, "writable"),
        timeout_s=section.number("timeout_s", DEFAULT_TIMEOUT_S),
        start_timeout_s=section.number("start_timeout_s", DEFAULT_START_TIMEOUT_S),
        enabled=section.flag("enabled", True),
    )
    for key, message in flaws(server):
        if key:
            section.note(key, message)
        else:
            section.reading.note(section.place, message)
    return server


def _entries(
    reading: Reading, entries: Mapping[str, object], table: tuple[str, ...]
) -> Iterator[tuple[str, Section]]:
    if len(entries) > MAX_ENTRIES:
        reading.note(table, f"has more than {MAX_ENTRIES} entries")
        return
    for name, entry in entries.items():
        if not isinstance(entry, dict):
            reading.note((*table, name), "must be a table")
            continue
        section = Section(reading, entry, (*table, name), TABLES[*table, ANY])
        section.refuse_unknown()
        yield name, section


def _risk(section: Section) -> Risk:
    return Risk[section.choice("risk", "high").upper()]


def _optional(section: Section, name: str) -> int | None:
    return section.count(name, 0) if name in section else None


def _paths(section: Section, name: str) -> tuple[Path, ...]:
    found = (
        section.as_path(text, (*section.place, name, index))
        for index, text in section.items(name, ())
    )
    return tuple(path for path in found if path is not None)


def _address(section: Section, name: str) -> str | None:
    text = section.text(name, None)
    if text is None:
        return None
    expanded = expand.variables(text, section.reading.environ)
    for problem in expanded.problems:
        section.note(name, problem)
    return expanded.text
