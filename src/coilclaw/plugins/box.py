"""The sandbox of a plugin: the system, its own files, and of the workspace what it declares."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw.domain.effects import Runs, Writes
from coilclaw.errors import DeniedError
from coilclaw.security.judgement import Terms
from coilclaw.tools import shellbox, shellenv

if TYPE_CHECKING:
    from coilclaw.domain.effects import Effect
    from coilclaw.plugins.manifest import PluginTool
    from coilclaw.tools.contract import ToolContext
    from coilclaw.workspace.sandbox import Sandbox

_NETWORK: Final = tuple(
    Path("/etc", name)
    for name in (
        *("resolv.conf", "hosts", "nsswitch.conf", "gai.conf", "services"),
        *("ssl", "ca-certificates", "pki"),
    )
)
"""What it takes to find a server and to know that it is the right one."""


def sandbox(
    tool: PluginTool,
    context: ToolContext,
    *,
    files: Path,
    scratch: Path | None,
    writable: bool,
) -> Sandbox:
    """Return what a call is held to; it is not started where that cannot be enforced."""
    if context.sandbox == "none":
        raise DeniedError(
            "a plugin runs in a sandbox only, and security.sandbox is 'none'", rule="sandbox.none"
        )
    workspace = context.root.path
    reading = shellbox.sandbox(Terms(writable=False, network=False), context)
    readable = [path for path in reading.readable if path != workspace]
    readable.append(files)
    if tool.declared.workspace and not writable:
        readable.append(workspace)
    if tool.network:
        readable += [path for path in _NETWORK if path.exists()]
    inside = [scratch] if scratch is not None else []
    if writable:
        inside.append(workspace)
        # Hooks and settings of git run later, outside of any sandbox.
        readable += [path for path in (workspace / ".git",) if path.exists()]
    shown = [Path(os.path.realpath(path)) for path in (*readable, *inside)]
    return replace(
        reading,
        readable=tuple(readable),
        writable=tuple(inside),
        hidden=tuple(p for p in reading.hidden if any(p.is_relative_to(s) for s in shown)),
        network=tool.network,
    )


def writes(effects: tuple[Effect, ...], terms: Terms) -> bool:
    """Whether a call may change the workspace."""
    return any(
        isinstance(effect, Writes) or (isinstance(effect, Runs) and terms.writable)
        for effect in effects
    )


def environment(context: ToolContext, scratch: Path) -> dict[str, str]:
    """Return the environment of a plugin: where programs are, and nothing of the user's."""
    ours = {"PATH": context.environ.get("PATH", "")}
    kept_out = (str(context.root.path), str(context.home), *context.security.own_paths)
    made = shellenv.environment(ours, kept_out=kept_out, only_reading=True)
    return {
        "PATH": made["PATH"],
        "LANG": "C.UTF-8",
        "HOME": str(scratch),
        "TMPDIR": str(scratch),
        "NO_COLOR": "1",
        # Byte code would be written beside files that are read-only.
        "PYTHONDONTWRITEBYTECODE": "1",
    }
