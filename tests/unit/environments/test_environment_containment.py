"""Which tools a submission may use: those of the system, and directories that are a tool's own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from coilclaw.traces.environments.containment import (
    Limits,
    limit_program,
    program_path,
    tool_places,
)
from coilclaw.workspace.process.confinement import SandboxSupport


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "home"
    for name in ("bin", ".local/bin", ".cargo/bin", ".rustup", ".pyenv/shims", "go/bin"):
        (place / name).mkdir(parents=True)
    monkeypatch.setenv("HOME", str(place))
    return place


def test_a_home_is_never_a_tool(home: Path) -> None:
    path = f"{home}/bin:{home}/.local/bin"
    assert tool_places(path) == (home / "bin", home / ".local" / "bin")


def test_what_leads_on_to_other_programs_is_no_tool(home: Path) -> None:
    assert tool_places(f"{home}/.pyenv/shims") == ()
    assert str(home) not in program_path(f"{home}/.pyenv/shims:/usr/bin")


def test_a_tool_brings_what_is_beside_its_programs(home: Path) -> None:
    assert tool_places(f"{home}/go/bin:/usr/bin") == (home / "go",)
    assert tool_places(f"{home}/.cargo/bin") == (home / ".cargo" / "bin", home / ".rustup")


def test_a_virtual_environment_brings_its_python(home: Path) -> None:
    for name in ("python/bin", "venv/bin"):
        (home / name).mkdir(parents=True)
    (home / "python" / "bin" / "python3").touch(mode=0o755)
    (home / "venv" / "pyvenv.cfg").write_text(f"home = {home}/python/bin\n")
    (home / "venv" / "bin" / "python3").symlink_to(home / "python" / "bin" / "python3")
    assert tool_places(f"{home}/venv/bin") == (home / "venv", home / "python")


def test_programs_of_the_system_come_first(home: Path) -> None:
    path = f"{home}/go/bin:relative:/usr/bin:/bin:{home}/gone/bin"
    assert program_path(path) == f"/usr/bin:/bin:{home}/go/bin"


def test_a_directory_that_is_open_to_everybody_is_none(home: Path) -> None:
    os.chmod(home / "go" / "bin", 0o777)
    assert tool_places(f"{home}/go/bin") == ()


def test_limits_stand_before_the_program() -> None:
    limits = Limits(cpu_s=2.5, memory_bytes=1024, file_bytes=2048, processes=9)
    line = limit_program(
        ["/bin/true", "x"], limits, 10, SandboxSupport(bubblewrap="/usr/bin/bwrap")
    )
    assert line[-2:] == ["/bin/true", "x"]
    if line[0] != "/bin/sh":
        assert line[1:-2] == [
            "--core=0", "--cpu=4", "--data=1024", "--fsize=2048", "--nproc=9", "--",
        ]  # fmt: skip
        # Elsewhere it would count everything that the user runs.
        assert "--nproc=9" not in limit_program(["/bin/true"], limits, 10, SandboxSupport())


def test_without_its_program_the_shell_sets_the_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coilclaw.workspace.process.environment.DEFAULT_PATH", "/nowhere")
    limits = Limits(memory_bytes=64 * 2**20, file_bytes=1024)
    line = limit_program(
        ["/bin/sh", "-c", "ulimit -f; ulimit -d; ulimit -c"], limits, 3, SandboxSupport()
    )
    with os.popen(" ".join(f"'{word}'" for word in line)) as said:
        assert said.read().split() == ["2", "65536", "0"]
