"""The tools that the plugins of a home offer to an agent."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from coilclaw.errors import CoilClawError
from coilclaw.plugins import manifest, pins
from coilclaw.plugins.settings import PluginSettings
from coilclaw.plugins.tool import ExternalTool

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from coilclaw.plugins.store import Store

_log = logging.getLogger(__name__)


def offered(
    store: Store, settings: Mapping[str, PluginSettings], reserved: Iterable[str]
) -> tuple[ExternalTool, ...]:
    """Return the tools of all enabled plugins, as they were approved.

    Their files are looked at when one is called. What cannot be offered is said in the log, for a
    plugin must not keep an agent from starting.
    """
    taken = set(reserved)
    tools: list[ExternalTool] = []
    try:
        names = store.names()
        known = [pin for name, pin in pins.load(store.home).items() if name in names]
    except CoilClawError as problem:
        _log.warning("no plugin is offered: %s", problem.message)
        return ()
    for pin in known:
        if not pin.enabled:
            continue
        found = manifest.examine(pin.manifest, approved=True)
        if not isinstance(found, manifest.Manifest):
            _log.warning("the plugin %s is left out: %s", pin.name, "; ".join(map(str, found)))
            continue
        for entry in found.tools:
            if entry.name in taken:
                _log.warning(
                    "the tool %s of the plugin %s is left out: the name is taken",
                    entry.name,
                    pin.name,
                )
                continue
            taken.add(entry.name)
            tools.append(ExternalTool(store, pin, entry, settings.get(pin.name, PluginSettings())))
    return tuple(tools)
