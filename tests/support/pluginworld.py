"""Plugins made for a test: a directory with a manifest and a small program."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

from coilclaw.agent.plugins.installation import install_plugin
from coilclaw.agent.plugins.plugin_tool import ExternalTool, offer_tools
from coilclaw.agent.plugins.store import PluginStore
from coilclaw.agent.settings import PluginSettings

MANIFEST = """
name = "sample"
version = "1.2.3"
capabilities = ["tool"]
[[tools]]
name = "{tool}"
description = "Does what a test wants"
command = "./run"
{more}
schema = {schema}
"""
OPEN = '{ type = "object" }'
SAYS_OK = """#!/bin/sh
cat > /dev/null
echo '{"success": true, "output": "ok"}'
"""


def manifest(tool: str = "sample_tool", more: str = "", schema: str = OPEN) -> str:
    return MANIFEST.format(tool=tool, more=more, schema=schema)


def make(
    folder: Path,
    program: str = SAYS_OK,
    *,
    text: str | None = None,
    files: Mapping[str, str] | None = None,
) -> Path:
    """Write a plugin into a new directory."""
    folder.mkdir(parents=True)
    (folder / "manifest.toml").write_text(manifest() if text is None else text)
    (folder / "run").write_text(program)
    (folder / "run").chmod(0o755)
    for name, content in (files or {}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return folder


def installed(
    home: Path,
    source: Path,
    settings: PluginSettings | None = None,
) -> ExternalTool:
    """Install a plugin with one tool, and return that."""
    store = PluginStore(home)
    found = install_plugin(store, source, ())
    chosen = {} if settings is None else {found.name: settings}
    (tool,) = (
        tool for tool in offer_tools(store, chosen, ()) if tool.owner == f"plugin:{found.name}"
    )
    return tool


def entries(text: str | None = None) -> dict[str, tuple[bytes, int]]:
    """The files of a plugin that is right, as name → content and mode."""
    return {
        "manifest.toml": ((manifest() if text is None else text).encode(), 0o644),
        "run": (SAYS_OK.encode(), 0o755),
    }


def zipped(path: Path, files: Mapping[str, tuple[bytes, int]]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, (content, mode) in files.items():
            info = zipfile.ZipInfo(name)
            info.create_system = 3
            info.external_attr = (mode if mode > 0o7777 else mode | 0o100000) << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, content)
    return path


def tarred(path: Path, files: Mapping[str, tuple[bytes, int]], *extra: tarfile.TarInfo) -> Path:
    mode = "w:xz" if path.name.endswith("xz") else "w:gz"
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload] # one of two literals
        for name, (content, bits) in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(content), bits
            archive.addfile(info, io.BytesIO(content))
        for info in extra:
            archive.addfile(info, io.BytesIO(b"\0" * info.size))
    return path
