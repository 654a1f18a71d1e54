"""Plugins, wired: the tools that an agent gets from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from coilclaw.plugins.settings import PluginSettings
    from coilclaw.plugins.store import Store
    from coilclaw.tools.contract import Tool


def open_plugins(home: Path) -> Store:
    """The plugins of a home."""
    from coilclaw.config.locate import lines_of
    from coilclaw.plugins.store import Store

    return Store(home, lines_of)


def plugin_tools(
    home: Path, settings: Mapping[str, PluginSettings], reserved_names: Iterable[str]
) -> tuple[Tool, ...]:
    """Return the tools of all enabled plugins; ``reserved_names`` are those of our own.

    Where no plugin was ever installed, this costs one look at the disk.
    """
    if not (home / "plugins.json").exists():
        return ()
    from coilclaw.plugins.offer import offered

    return offered(open_plugins(home), settings, reserved_names)


def builtin_names() -> tuple[str, ...]:
    """The names of tools that no plugin may take."""
    from coilclaw.tools.builtin import builtin

    return tuple(tool.name for tool in builtin())
