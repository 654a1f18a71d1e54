"""``plugins.json``: the approved files of each plugin, and which plugins may run.

The file is kept beside the plugins' directory, not in it. A plugin is installed when its directory
exists; an entry without a directory has no effect.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from coilclaw.kernel import EnvironmentFault, canonical_json, explain_os_errors, write_atomic

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from coilclaw.agent.plugins.files import PluginFile
    from coilclaw.kernel import Json

NAME: Final = "plugins.json"
FORMAT: Final = "coilclaw.plugins.v1"
MAX_BYTES: Final = 32 * 2**20


@dataclass(frozen=True, slots=True)
class PinnedFile:
    """The state of a file when it was approved."""

    sha256: str
    mode: int


@dataclass(frozen=True, slots=True)
class Pin:
    """One approved plugin."""

    name: str
    version: str
    enabled: bool
    manifest: str
    """The approved text: tools are offered from it, whatever the directory holds now."""
    files: Mapping[str, PinnedFile]

    @property
    def digest(self) -> str:
        """The digest that identifies exactly these files."""
        return canonical_json.hash_json(_files(self.files))


def pin_files(files: Iterable[PluginFile]) -> dict[str, PinnedFile]:
    """Return the entries that record some files."""
    return {file.path: PinnedFile(file.sha256, file.mode) for file in files}


def load(home: Path) -> dict[str, Pin]:
    """Return all pins by name, or none before the first plugin is installed.

    Raise ``EnvironmentFault`` if the file cannot be read or is damaged.
    """
    path = home / NAME
    with explain_os_errors(f"read {path}", rule="plugin.pins"):
        try:
            with path.open("rb") as file:
                data = file.read(MAX_BYTES + 1)
        except FileNotFoundError:
            return {}
    try:
        if len(data) > MAX_BYTES:
            raise ValueError(f"it is larger than {MAX_BYTES:,} bytes")
        value = json.loads(data)
        if value["format"] != FORMAT:
            raise ValueError(f"its format is not {FORMAT}")
        pins = [_pin(entry) for entry in value["plugins"]]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as problem:
        raise EnvironmentFault(
            f"{path} is damaged: {problem}",
            rule="plugin.pins",
            hint="move it aside, then review and approve each plugin again",
        ) from problem
    return {pin.name: pin for pin in pins}


def save(home: Path, pins: Mapping[str, Pin]) -> None:
    """Write all pins atomically."""
    value = {
        "format": FORMAT,
        "plugins": [
            {
                "name": pin.name,
                "version": pin.version,
                "enabled": pin.enabled,
                "manifest": pin.manifest,
                "files": _files(pin.files),
            }
            for _, pin in sorted(pins.items())
        ],
    }
    text = json.dumps(value, indent=1, sort_keys=True) + "\n"
    write_atomic(home / NAME, text.encode("ascii"), mode=0o600)


def _files(files: Mapping[str, PinnedFile]) -> dict[str, Json]:
    return {
        path: {"mode": f"{file.mode:04o}", "sha256": file.sha256}
        for path, file in sorted(files.items())
    }


def _pin(entry: dict[str, object]) -> Pin:
    kinds = {"name": str, "version": str, "enabled": bool, "manifest": str, "files": dict}
    if not all(isinstance(entry[key], kind) for key, kind in kinds.items()):
        raise TypeError("an entry has a missing or wrong field")
    files: Any = entry["files"]
    found = {
        str(path): PinnedFile(str(file["sha256"]), int(file["mode"], 8))
        for path, file in files.items()
    }
    name, version, manifest = str(entry["name"]), str(entry["version"]), str(entry["manifest"])
    return Pin(name, version, bool(entry["enabled"]), manifest, found)
