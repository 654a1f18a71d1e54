"""Installing agents: from the npm registry, below our home, in versions that we know.

No code of a package is run for that, not even what it asks the installer to run.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import EnvironmentFault, explain_os_errors
from coilclaw.runners import agent_program
from coilclaw.workspace import command

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from coilclaw.runners.agent_program import KnownAgent
    from coilclaw.workspace import Cancellation

INSTALL_S: Final = 3600.0
_MAX_WORDS: Final = 500
_PASSED: Final = ("HOME", "NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "SSL_CERT_DIR", "TMPDIR")
_PASSED_BEGINNINGS: Final = ("npm_config_", "NPM_CONFIG_")
_PROXIES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
_OPTIONS: Final = (
    "--ignore-scripts",
    "--no-audit",
    "--no-fund",
    "--no-update-notifier",
    "--loglevel=error",
)


@dataclass(frozen=True, slots=True)
class InstalledAgent:
    """An agent that was installed."""

    place: Path
    program: Path


def install(
    agent: KnownAgent,
    home: Path,
    environ: Mapping[str, str],
    *,
    cancel: Cancellation | None = None,
) -> InstalledAgent:
    """Install an agent; what was there before is replaced, and stays if anything goes wrong."""
    npm = agent_program.on_path("npm", environ)
    if npm is None:
        raise EnvironmentFault(
            "npm, which installs agents, is not on PATH.",
            rule="agent.npm",
            hint="Install Node.js, or install the agent yourself and put it on PATH.",
        )
    place = agent_program.installed_at(home, agent.name)
    stage = place.with_name(f".{agent.name}.new")
    _clear(stage)
    try:
        with explain_os_errors(f"install {agent.title} at {place}", rule="agent.install"):
            stage.mkdir(parents=True, mode=0o700)
            _fetch(npm, agent, stage, environ, cancel)
            # Before it takes the place of anything: is the program there?
            agent_program.find(agent, {agent.variable: str(stage)})
            _clear(place)
            stage.rename(place)
    finally:
        _clear(stage)
    return InstalledAgent(place, agent_program.find(agent, {agent.variable: str(place)}))


def present(agent: KnownAgent, home: Path) -> InstalledAgent | None:
    """Return the agent that we installed, if it is there in the versions that we know."""
    place = agent_program.installed_at(home, agent.name)
    for package in agent.packages:
        name, _, version = package.rpartition("@")
        if agent_program.version_of_package(place, name) != version:
            return None
    try:
        return InstalledAgent(place, agent_program.find(agent, {agent.variable: str(place)}))
    except EnvironmentFault:
        return None


def _fetch(
    npm: Path,
    agent: KnownAgent,
    stage: Path,
    environ: Mapping[str, str],
    cancel: Cancellation | None,
) -> None:
    named = {*_PASSED, *_PROXIES, *map(str.lower, _PROXIES)}
    # What the installer needs of ours: where it is, the registry, and the way to it.
    env = {"PATH": environ.get("PATH", os.defpath), "LANG": "C.UTF-8"} | {
        name: value
        for name, value in environ.items()
        if name in named or name.startswith(_PASSED_BEGINNINGS)
    }
    result = command.run(
        [str(npm), "install", "--prefix", str(stage), *_OPTIONS, *agent.packages],
        cwd=stage,
        timeout_s=INSTALL_S,
        env=env,
        cancel=cancel,
    )
    if result.outcome == "cancelled":
        raise EnvironmentFault("the installation was cancelled", rule="agent.install")
    if result.exit_code != 0:
        words = (result.stderr.text().strip() or result.stdout.text().strip())[-_MAX_WORDS:]
        raise EnvironmentFault(
            f"npm could not install {' and '.join(agent.packages)}: {words or result.outcome}",
            rule="agent.install",
        )


def _clear(path: Path) -> None:
    with suppress(FileNotFoundError):
        shutil.rmtree(path)
