"""The tools of an agent: our own, those of plugins, and those of foreign servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coilclaw.agent import builtin_tools
from coilclaw.kernel import Secret

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from contextlib import ExitStack
    from pathlib import Path

    from coilclaw.agent import PluginSettings, PluginStore, Tool
    from coilclaw.app.config.values import Config
    from coilclaw.kernel import Redactor


def open_plugins(home: Path) -> PluginStore:
    """The plugins of a home."""
    from coilclaw.agent import PluginStore

    return PluginStore(home)


def plugin_tools(
    home: Path, settings: Mapping[str, PluginSettings], reserved_names: Iterable[str]
) -> tuple[Tool, ...]:
    """Return the tools of all enabled plugins; ``reserved_names`` are those of our own.

    Where no plugin was ever installed, this costs one look at the disk.
    """
    if not (home / "plugins.json").exists():
        return ()
    from coilclaw.agent import offer_tools

    return offer_tools(open_plugins(home), settings, reserved_names)


def builtin_names() -> tuple[str, ...]:
    """The names of tools that no plugin may take."""
    from coilclaw.agent import builtin_tools

    return tuple(tool.name for tool in builtin_tools())


def collect_tools(config: Config, home: Path, stack: ExitStack) -> Mapping[str, Tool]:
    """Return every tool by name; ``stack`` closes what they hold open."""
    found: dict[str, Tool] = {tool.name: tool for tool in builtin_tools(config.web_search)}
    if (home / "plugins.json").exists():
        found |= {tool.name: tool for tool in plugin_tools(home, config.plugins, tuple(found))}
    if config.mcp_servers:
        from coilclaw.agent import make_server_tools

        for tool in make_server_tools(config.mcp_servers, home, stack):
            found.setdefault(tool.name, tool)
    return found


def list_allowed_tools(tools: Iterable[Tool], entries: Iterable[str]) -> frozenset[str]:
    """Return the names of the tools that some entries of ``tools_allow`` allow."""
    listed, found = frozenset(entries), set()
    for tool in tools:
        kind, _, owner = tool.owner.partition(":")
        meant = {tool.name, tool.owner, f"{kind}:*"} if owner else {tool.name}
        if not listed.isdisjoint(meant):
            found.add(tool.name)
    return frozenset(found)


def make_redactor(config: Config, environ: Mapping[str, str]) -> Redactor:
    """Return what takes every secret that the configuration names out of a text."""
    from coilclaw.app import providers

    return providers.make_provider_redactor(
        config.providers, environ, list_more_secrets(config, environ)
    )


def list_more_secrets(config: Config, environ: Mapping[str, str]) -> tuple[Secret, ...]:
    """Return the secrets that others than providers are given."""
    found: tuple[Secret, ...] = ()
    if config.mcp_servers:
        from coilclaw.agent import list_server_secrets

        found += list_server_secrets(config.mcp_servers, environ)
    search = config.web_search
    key = environ.get(search.api_key_env, "").strip() if search and search.api_key_env else ""
    return (*found, Secret(key)) if key else found
