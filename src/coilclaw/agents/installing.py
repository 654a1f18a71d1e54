"""Installing agents: from the npm registry, below our home, in versions that we know.

No code of a package is run for that, not even what it asks the installer to run.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.agents import finding
from coilclaw.errors import EnvironmentFault
from coilclaw.workspace import process

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from coilclaw.agents.finding import Known
    from coilclaw.workspace.cancel import Cancellation

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
class Installed:
    """An agent that was installed."""

    place: Path
    program: Path


def install(
    agent: Known,
    home: Path,
    environ: Mapping[str, str],
    *,
    cancel: Cancellation | None = None,
) -> Installed:
    """Install an agent; what was there before is replaced, and stays if anything goes wrong."""
    npm = finding.on_path("npm", environ)
    if npm is None:
        raise EnvironmentFault(
            "There is no npm on PATH, which agents are installed with.",
            rule="agent.npm",
            hint="Install Node.js, or install the agent yourself and put it on PATH.",
        )
    place = finding.installed_at(home, agent.name)
    stage = place.with_name(f".{agent.name}.new")
    _clear(stage)
    try:
        stage.mkdir(parents=True, mode=0o700)
        _fetch(npm, agent, stage, environ, cancel)
        # Before it takes the place of anything: is the program there?
        finding.find(agent, {agent.variable: str(stage)})
        _clear(place)
        stage.rename(place)
    except OSError as problem:
        raise EnvironmentFault(
            f"cannot install {agent.title} at {place}: {problem.strerror}", rule="agent.install"
        ) from problem
    finally:
        _clear(stage)
    return Installed(place, finding.find(agent, {agent.variable: str(place)}))


def present(agent: Known, home: Path) -> Installed | None:
    """Return the agent that we installed, if it is there in the versions that we know."""
    place = finding.installed_at(home, agent.name)
    for package in agent.packages:
        name, _, version = package.rpartition("@")
        if finding.version_of_package(place, name) != version:
            return None
    try:
        return Installed(place, finding.find(agent, {agent.variable: str(place)}))
    except EnvironmentFault:
        return None


def _fetch(
    npm: Path,
    agent: Known,
    stage: Path,
    environ: Mapping[str, str],
    cancel: Cancellation | None,
) -> None:
    result = process.run(
        [str(npm), "install", "--prefix", str(stage), *_OPTIONS, *agent.packages],
        cwd=stage,
        timeout_s=INSTALL_S,
        env=_environment(environ),
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


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What the installer needs of ours: where it is, the registry, and the way to it."""
    named = {*_PASSED, *_PROXIES, *map(str.lower, _PROXIES)}
    return {
        "PATH": environ.get("PATH", os.defpath),
        "LANG": "C.UTF-8",
        **{
            name: value
            for name, value in environ.items()
            if name in named or name.startswith(_PASSED_BEGINNINGS)
        },
    }


def _clear(path: Path) -> None:
    with suppress(FileNotFoundError):
        shutil.rmtree(path)
