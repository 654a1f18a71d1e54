"""The tools of an agent: our own, those of plugins, and those of foreign servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coilclaw.domain.secret import Secret
from coilclaw.tools.builtin import builtin

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from contextlib import ExitStack
    from pathlib import Path

    from coilclaw.config.values import Config
    from coilclaw.domain.redacting import Redacting
    from coilclaw.tools.contract import Tool


def tools_of(config: Config, home: Path, stack: ExitStack) -> Mapping[str, Tool]:
    """Return every tool by name; ``stack`` closes what they hold open."""
    found: dict[str, Tool] = {tool.name: tool for tool in builtin(config.web_search)}
    if (home / "plugins.json").exists():
        from coilclaw.app.pluginwiring import plugin_tools

        found |= {tool.name: tool for tool in plugin_tools(home, config.plugins, tuple(found))}
    if config.mcp_servers:
        from coilclaw.app.mcpwiring import mcp_tools

        for tool in mcp_tools(config.mcp_servers, home, stack):
            found.setdefault(tool.name, tool)
    return found


def allowed_of(tools: Iterable[Tool], entries: Iterable[str]) -> frozenset[str]:
    """Return the names of the tools that some entries of ``tools_allow`` allow."""
    listed = frozenset(entries)
    return frozenset(tool.name for tool in tools if _allowed(tool, listed))


def _allowed(tool: Tool, listed: frozenset[str]) -> bool:
    kind, _, name = tool.owner.partition(":")
    return tool.name in listed or (bool(name) and not listed.isdisjoint({tool.owner, f"{kind}:*"}))


def redactor_of(config: Config, environ: Mapping[str, str]) -> Redacting:
    """Return what takes every secret that the configuration names out of a text."""
    from coilclaw.app import providers

    return providers.redactor(config.providers, environ, more_secrets(config, environ))


def more_secrets(config: Config, environ: Mapping[str, str]) -> tuple[Secret, ...]:
    """Return the secrets that others than providers are given."""
    found: tuple[Secret, ...] = ()
    if config.mcp_servers:
        from coilclaw.app.mcpwiring import secrets

        found += secrets(config.mcp_servers, environ)
    search = config.web_search
    key = environ.get(search.api_key_env, "").strip() if search and search.api_key_env else ""
    return (*found, Secret(key)) if key else found
