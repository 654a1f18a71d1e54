"""``PluginStore``: the installed plugins, and whether their files are still as approved."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from coilclaw.agent.plugins import manifest, pins
from coilclaw.agent.plugins.files import look_at
from coilclaw.kernel import CoilClawError, DeniedError, FileLock, UsageError, quote_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from coilclaw.agent.plugins.files import FolderState, PluginFile
    from coilclaw.agent.plugins.manifest import Manifest
    from coilclaw.agent.plugins.pins import Pin

FOLDER: Final = "plugins"
LOCK: Final = "plugins.lock"
MAX_NAMED: Final = 10
"""Changed files that a message names."""

State: TypeAlias = Literal["enabled", "disabled", "changed", "unapproved", "broken"]


@dataclass(frozen=True, slots=True)
class Difference:
    """How one file differs from its approved state."""

    path: str
    what: Literal["added", "removed", "changed", "mode", "no file"]

    def __str__(self) -> str:
        words = {"mode": "permissions changed", "no file": "is a link or another special file"}
        return f"{quote_text(self.path)} {words.get(self.what, self.what)}"


@dataclass(frozen=True, slots=True)
class InstalledPlugin:
    """One plugin as it is on disk."""

    name: str
    state: State
    version: str = ""
    manifest: Manifest | None = None
    """The approved manifest; ``None`` if none is approved or it cannot be read."""
    differences: tuple[Difference, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class PluginStore:
    """The plugins of one home."""

    home: Path

    @property
    def folder(self) -> Path:
        return self.home / FOLDER

    def place(self, name: str) -> Path:
        """Return the directory of a plugin."""
        return self.folder / name

    def lock(self, *, shared: bool = False) -> FileLock:
        """Return the lock: shared to read, exclusive to change."""
        return FileLock(self.home / LOCK, shared=shared)

    def names(self) -> tuple[str, ...]:
        """Return the names of the directories; those with a leading dot are temporary."""
        try:
            entries = os.listdir(self.folder)
        except FileNotFoundError:
            return ()
        return tuple(sorted(name for name in entries if not name.startswith(".")))

    def list_installed(self) -> tuple[InstalledPlugin, ...]:
        """Return the state of every plugin, after reading all of its files."""
        names = self.names()
        if not names:
            return ()
        with self.lock(shared=True):
            known = pins.load(self.home)
            return tuple(self._look(name, known.get(name)) for name in names)

    def pin(self, name: str, known: Mapping[str, Pin]) -> Pin:
        """Return the pin of a plugin; raise an error if it is not installed or not approved."""
        if name not in self.names():
            raise missing(name, self.names())
        pin = known.get(name)
        if pin is None:
            raise DeniedError(
                f"the plugin {quote_text(name)} was never approved",
                rule="plugin.unapproved",
                hint=f"review {self.place(name)}, then run 'coilclaw plugin approve {name}'",
            )
        return pin

    def read_verified(self, pin: Pin) -> tuple[PluginFile, ...]:
        """Return all files of a plugin; raise ``DeniedError`` if one differs from its pin."""
        seen = look_at(self.place(pin.name))
        found = differences(pin, seen)
        if found:
            named = ", ".join(map(str, found[:MAX_NAMED]))
            more = f" and {len(found) - MAX_NAMED} more" if len(found) > MAX_NAMED else ""
            raise DeniedError(
                f"the plugin {quote_text(pin.name)} is not what was approved: {named}{more}",
                rule="plugin.changed",
                hint=f"review the files, then run 'coilclaw plugin approve {pin.name}'",
            )
        return tuple(seen.files[path] for path in sorted(seen.files))

    def _look(self, name: str, pin: Pin | None) -> InstalledPlugin:
        if pin is None:
            return InstalledPlugin(name, "unapproved")
        try:
            approved = manifest.parse(pin.manifest)
            found = differences(pin, look_at(self.place(name)))
        except CoilClawError as problem:
            return InstalledPlugin(name, "broken", pin.version, problem=problem.message)
        state: State = "enabled" if pin.enabled else "disabled"
        return InstalledPlugin(name, "changed" if found else state, pin.version, approved, found)


def differences(pin: Pin, seen: FolderState) -> tuple[Difference, ...]:
    """Return how the files of a directory differ from the approved ones."""
    found = [Difference(path, "no file") for path in seen.odd]
    found += [Difference(f"{path}/", "added") for path in seen.empty]
    for path, file in seen.files.items():
        if path not in pin.files:
            found.append(Difference(path, "added"))
        elif file.sha256 != pin.files[path].sha256:
            found.append(Difference(path, "changed"))
        elif file.mode != pin.files[path].mode:
            found.append(Difference(path, "mode"))
    gone = (path for path in pin.files if path not in seen.files and path not in seen.odd)
    found += [Difference(path, "removed") for path in gone]
    return tuple(sorted(found, key=lambda one: one.path))


def missing(name: str, names: tuple[str, ...]) -> UsageError:
    """Return the error for a plugin that is not installed."""
    return UsageError(
        f"the plugin {quote_text(name)} is not installed",
        rule="plugin.missing",
        hint=f"installed: {', '.join(map(quote_text, names)) or 'none'}",
    )
