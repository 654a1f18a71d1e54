"""The image of a Modal sandbox: Debian with Python, git, bubblewrap, this very CoilClaw, an agent.

Nothing secret goes into it, and nothing of one trajectory: it is made once, and used again.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from coilclaw.agents import finding
from coilclaw.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT: Final = "/srv/coilclaw"
"""Not below /tmp, which a sandbox covers."""
HOME: Final = f"{ROOT}/home"
STAGE: Final = "/opt/coilclaw"
PACKAGES_VARIABLE: Final = "COILCLAW_MODAL_PACKAGES"
"""Names further Debian packages: what an environment builds with."""

_PACKAGES: Final = ("bubblewrap", "build-essential", "ca-certificates", "git")
_NODE: Final = ("nodejs", "npm")
_PACKAGE: Final = re.compile(r"[a-z0-9][a-z0-9+.-]{1,99}")
_MAX_PACKAGES: Final = 200
_REQUIREMENT: Final = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)")
_AGENTS: Final = {"codex": "codex", "codex-exec": "codex", "opencode": "opencode"}
"""Which program a kind of runner needs."""
_SETTLE: Final = (
    f'cp -r {STAGE}/. "$(python -c \'import sysconfig; print(sysconfig.get_path("purelib"))\')/"'
)


def made(sdk: Any, kind: str, environ: Mapping[str, str]) -> Any:
    """Return the image for a kind of runner; it is built when a sandbox asks for it."""
    agent = _AGENTS.get(kind)
    image = sdk.Image.debian_slim(python_version="{}.{}".format(*sys.version_info))
    image = image.apt_install(*_PACKAGES, *(_NODE if agent else ()), *_further(environ))
    image = _with_requirements(image)
    image = _with_ourselves(image)
    commands = [_SETTLE, f"mkdir -p {HOME}", "python -m coilclaw --version"]
    if agent is not None:
        commands.append(f"python -m coilclaw agents install {finding.known(agent).name}")
    return image.run_commands(*commands, env={"COILCLAW_HOME": HOME})


def _further(environ: Mapping[str, str]) -> tuple[str, ...]:
    words = tuple(environ.get(PACKAGES_VARIABLE, "").split())
    wrong = [word for word in words if not _PACKAGE.fullmatch(word)]
    if wrong or len(words) > _MAX_PACKAGES:
        raise UsageError(
            f"{PACKAGES_VARIABLE} does not name Debian packages",
            rule="modal.packages",
            hint="write their names with spaces between them",
        )
    return words


def package() -> Path:
    """Where the package is that runs now."""
    import coilclaw

    return Path(os.path.realpath(coilclaw.__path__[0]))


def _with_requirements(image: Any) -> Any:
    """Install what we need in the versions that are pinned: by a source tree, or by being here."""
    tree = package().parent.parent
    locked = tree / "requirements.txt"
    if locked.is_file() and (tree / "pyproject.toml").is_file():
        return image.pip_install_from_requirements(str(locked), extra_options="--require-hashes")
    return image.pip_install(*pins("coilclaw"))


def pins(name: str) -> tuple[str, ...]:
    """Return everything that a distribution needs, each in the version that is installed here."""
    from importlib import metadata

    found: dict[str, str] = {}
    waiting = [name]
    while waiting:
        try:
            distribution = metadata.distribution(waiting.pop())
        except metadata.PackageNotFoundError:
            continue  # for another platform, or another Python
        for text in distribution.requires or ():
            match = _REQUIREMENT.match(text)
            if match is None or "extra ==" in text:
                continue
            wanted = re.sub(r"[-_.]+", "-", match[1]).lower()
            if wanted not in found:
                found[wanted] = _version(wanted)
                waiting.append(wanted)
    return tuple(sorted(f"{one}=={version}" for one, version in found.items() if version))


def _version(name: str) -> str:
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _with_ourselves(image: Any) -> Any:
    """Copy the package in, and what a source tree links into it: Modal follows no such link."""
    here = package()
    places = {here: f"{STAGE}/coilclaw"}
    for folder, names, _ in os.walk(here):
        for path in (Path(folder, name) for name in sorted(names)):
            if path.is_symlink():
                inside = path.relative_to(here).as_posix()
                places[Path(os.path.realpath(path))] = f"{STAGE}/coilclaw/{inside}"
    for source, target in places.items():
        image = image.add_local_dir(source, target, copy=True, ignore=_is_made)
    return image


def _is_made(path: Path) -> bool:
    """Whether a file is made from another; Modal asks by the path below the folder."""
    return path.suffix == ".pyc" or any(
        part == "__pycache__" or (part.startswith(".") and part.endswith("_cache"))
        for part in path.parts
    )
