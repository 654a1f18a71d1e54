"""Runners of external programs, made from their names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coilclaw.runners.runner import Runner, RunnerName
    from coilclaw.runners.script import AgentScript

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

    def template(variable: str) -> Path | None:
        return Path(environ[variable]) if environ.get(variable) else None

    match name.kind:
        case "process":
            from coilclaw.runners.process import ProcessRunner

            return ProcessRunner(name.argv, base=start)
        case "codex" | "codex-exec":
            from coilclaw.runners.codex.exec_runner import CodexExecRunner
            from coilclaw.runners.codex.runner import CodexRunner

            made = CodexRunner if name.kind == "codex" else CodexExecRunner
            return made(base_home=template(CODEX_HOME), environ=environ, home=home)
        case "opencode":
            from coilclaw.runners.acp.opencode import OpencodeRunner

            settings = template(OPENCODE_SETTINGS)
            return OpencodeRunner(settings=settings, environ=environ, home=home)
        case "acp":
            from coilclaw.runners.acp.agents import AcpRunner

            return AcpRunner(name.argv, environ=environ, home=home, base=start)
        case _:
            return None


def read_script(argument: str, start: Path) -> AgentScript:
    """Read the file of a scripted agent."""
    from coilclaw.runners import script
    from coilclaw.runners.external_agent import read_start

    path = start / argument
    return script.read(
        read_start(path, MAX_SCRIPT_BYTES, "script.read", what="the script "), where=str(path)
    )
