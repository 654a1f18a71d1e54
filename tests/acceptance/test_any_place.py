"""Projects and tools of others, all below /tmp and behind links, through the agent's own shell.

The sandbox covers /tmp. A virtual environment that uv or virtualenv made there, with an editable
install of a public project, runs that project's tests all the same.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import Command
from tests.support.sandboxes import supported

pytestmark = pytest.mark.full
TIMEOUT_S = 600


def _do(*argv: str | Path, cwd: Path) -> None:
    done = subprocess.run(
        argv, cwd=cwd, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _sdist(name: str, place: Path) -> Path:
    """Fetch a project's source and return its directory."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary=:all:"]
    _do(*pip, name, cwd=place)
    (archive,) = place.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(place, filter="data")
    archive.unlink()
    (made,) = (path for path in place.iterdir() if path.is_dir())
    return made.rename(place / "project")


@pytest.fixture
def place() -> Iterator[Path]:
    supported("bubblewrap")
    made = Path(tempfile.mkdtemp(prefix="coilclaw-place-", dir="/tmp"))
    yield made
    shutil.rmtree(made)


def _environment(place: Path, maker: str) -> Path:
    """Make a virtual environment with a tool of others, reached through a link."""
    tools = place / "tools"
    _do(sys.executable, "-m", "venv", tools, cwd=place)
    _do(tools / "bin" / "python", "-m", "pip", "install", "--quiet", maker, cwd=place)
    command = ["uv", "venv", "--seed"] if maker == "uv" else ["virtualenv"]
    _do(tools / "bin" / command[0], *command[1:], place / "real", cwd=place)
    (place / "env").symlink_to("real")
    return place / "env"


def _shell(home: Path, workspace: Path, environment: Path, *argv: str) -> dict[str, Any]:
    home.mkdir(mode=0o700, exist_ok=True)
    (home / "config.toml").write_text(
        f'workspace_dir = "{workspace}"\n[security]\nautonomy = "full"\n'
        "[limits]\nshell_timeout_s = 600\ntool_timeout_s = 600\n"
    )
    coilclaw = Command(home, {"PATH": f"{environment}/bin:/usr/bin:/bin"})
    arguments = json.dumps({"argv": argv})
    done = coilclaw("tool", "run", "shell", "--json", arguments, "--output", "json")
    told: dict[str, Any] = json.loads(done.stdout)
    return told


@pytest.mark.parametrize(
    ("maker", "name", "tests"),
    [("uv", "iniconfig", "testing"), ("virtualenv", "more-itertools", "tests")],
)
def test_a_public_project_is_tested_below_tmp(
    place: Path, tmp_path: Path, maker: str, name: str, tests: str
) -> None:
    environment = _environment(place, maker)
    (place / "sources").mkdir()
    project = _sdist(name, place / "sources")
    python = environment / "bin" / "python"
    _do(python, "-m", "pip", "install", "--quiet", "pytest", "--editable", project, cwd=place)
    (place / "beside").write_text("secret")
    told = _shell(
        tmp_path / "home", project, environment, "python", "-m", "pytest", "-q", "-x", tests
    )
    assert told["success"], told
    assert " passed" in told["output"]
    assert told["metadata"]["sandbox"].startswith("bubblewrap ")
    told = _shell(tmp_path / "home", project, environment, "cat", str(place / "beside"))
    assert (told["success"], "secret" in json.dumps(told)) == (False, False)
