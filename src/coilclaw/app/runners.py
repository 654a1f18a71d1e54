"""Agents that are programs of somebody else, made from how a person names them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coilclaw.agents.naming import RunnerName
    from coilclaw.agents.runner import Runner
    from coilclaw.agents.script import Script

CODEX_HOME: Final = "CORTEXPILOT_CODEX_BASE_HOME"
"""Names the template of the home that Codex gets for each task."""
OPENCODE_SETTINGS: Final = "COILCLAW_OPENCODE_SETTINGS"
"""Names the template of opencode's settings."""
MAX_SCRIPT_BYTES: Final = 64 * 2**20


def external(
    name: RunnerName, *, start: Path, home: Path, environ: Mapping[str, str]
) -> Runner | None:
    """Return the runner of a program; ``None`` for those that are our own code.

    ``start`` is where relative paths begin, ``home`` our own state with the installed agents.
    """
    match name.kind:
        case "process":
            from coilclaw.agents.process import ProcessRunner

            return ProcessRunner(name.argv, base=start)
        case "codex":
            from coilclaw.agents.codex import CodexRunner

            template = _path(environ, CODEX_HOME)
            return CodexRunner(base_home=template, environ=environ, home=home)
        case "codex-exec":
            from coilclaw.agents.codexexec import CodexExecRunner

            template = _path(environ, CODEX_HOME)
            return CodexExecRunner(base_home=template, environ=environ, home=home)
        case "opencode":
            from coilclaw.agents.opencode import OpencodeRunner

            settings = _path(environ, OPENCODE_SETTINGS)
            return OpencodeRunner(settings=settings, environ=environ, home=home)
        case "acp":
            from coilclaw.agents.acp import AcpRunner

            return AcpRunner(name.argv, environ=environ, home=home, base=start)
        case _:
            return None


def read_script(argument: str, start: Path) -> Script:
    """Read the file of a scripted agent."""
    from coilclaw.agents import script

    path = start / argument
    try:
        with path.open("rb") as file:
            data = file.read(MAX_SCRIPT_BYTES + 1)
    except OSError as problem:
        raise UsageError(
            f"cannot read the script {path}: {problem.strerror}", rule="script.read"
        ) from problem
    return script.read(data, where=str(path))


def _path(environ: Mapping[str, str], variable: str) -> Path | None:
    named = environ.get(variable)
    return Path(named) if named else None
