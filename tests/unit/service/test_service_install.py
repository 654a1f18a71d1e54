"""Installing: by the real ``systemctl``, without a manager that runs."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from coilclaw.gateway.systemd import NAME, ServiceStatus, Systemd, Unit
from coilclaw.kernel.errors import DeniedError, EnvironmentFault

UNIT = Unit(("/bin/true", "serve"), Path("/srv/home"), Path("/srv/work"))


@pytest.fixture
def systemd(tmp_path: Path) -> Systemd:
    if shutil.which("systemctl") is None:
        pytest.skip("systemctl is not installed")
    runtime = tmp_path / "run"
    runtime.mkdir()
    home = tmp_path / "user"
    home.mkdir()
    return Systemd(home, {"PATH": os.environ["PATH"], "XDG_RUNTIME_DIR": str(runtime)})


def link(systemd: Systemd) -> Path:
    return systemd.folder / "default.target.wants" / NAME


def test_without_systemd_it_says_so_and_writes_nothing(tmp_path: Path) -> None:
    bare = Systemd(tmp_path, {"PATH": str(tmp_path)})
    for work in (
        lambda: bare.install(UNIT),
        lambda: bare.install(UNIT, offline=True),
        bare.start,
        bare.stop,
        lambda: bare.logs(1, follow=False, show=lambda _: None),
    ):
        with pytest.raises(EnvironmentFault) as caught:
            work()
        assert caught.value.rule == "service.systemd"
    assert bare.status() == ServiceStatus(bare.path, installed=False, edited=False, reachable=False)
    assert os.listdir(tmp_path) == []


def test_without_a_manager_that_answers_nothing_is_written(systemd: Systemd) -> None:
    with pytest.raises(EnvironmentFault) as caught:
        systemd.install(UNIT)
    assert caught.value.rule == "service.unreachable"
    assert not systemd.folder.exists()


def test_offline_it_is_written_and_enabled_once(systemd: Systemd) -> None:
    assert systemd.install(UNIT, offline=True)
    assert systemd.path.read_text() == UNIT.text()
    assert link(systemd).is_symlink()
    before = systemd.path.stat().st_mtime_ns
    assert not systemd.install(UNIT, offline=True)
    assert systemd.path.stat().st_mtime_ns == before
    status = systemd.status()
    assert (status.installed, status.edited, status.reachable) == (True, False, False)


def test_what_we_wrote_ourselves_is_replaced(systemd: Systemd) -> None:
    systemd.install(UNIT, offline=True)
    newer = replace(UNIT, jit=True)
    assert systemd.install(newer, offline=True)
    assert systemd.path.read_text() == newer.text()


@pytest.mark.parametrize("how", ["edited", "foreign", "link"])
def test_what_somebody_changed_stays_unless_forced(
    systemd: Systemd, tmp_path: Path, how: str
) -> None:
    systemd.install(UNIT, offline=True)
    if how == "edited":
        systemd.path.write_text(UNIT.text() + "# mine\n")
    elif how == "foreign":
        systemd.path.write_text("[Service]\nExecStart=/bin/true\n")
    else:
        elsewhere = tmp_path / "elsewhere"
        elsewhere.write_text("[Service]\nExecStart=/bin/true\n")
        systemd.path.unlink()
        systemd.path.symlink_to(elsewhere)
    before = systemd.path.read_text()
    assert systemd.status().edited
    with pytest.raises(DeniedError) as installing:
        systemd.install(UNIT, offline=True)
    with pytest.raises(DeniedError) as removing:
        systemd.uninstall()
    assert (installing.value.rule, removing.value.rule) == ("service.edited", "service.edited")
    assert systemd.path.read_text() == before
    assert systemd.install(UNIT, force=True, offline=True)
    assert systemd.path.read_text() == UNIT.text()
    assert not systemd.path.is_symlink()


def test_uninstalling_takes_everything_back(systemd: Systemd) -> None:
    assert not systemd.uninstall()
    systemd.install(UNIT, offline=True)
    assert systemd.uninstall()
    assert not os.path.lexists(systemd.path)
    assert not os.path.lexists(link(systemd))
    assert not systemd.uninstall()


def test_nothing_of_ours_reaches_the_service_manager(tmp_path: Path) -> None:
    fake = tmp_path / "bin"
    fake.mkdir()
    (fake / "systemctl").write_text(f"#!/bin/sh\nenv > '{tmp_path}/env'\n")
    (fake / "systemctl").chmod(0o755)
    environ = {"PATH": f"{fake}:{os.environ['PATH']}", "GEMINI_API_KEY": "secret-canary"}
    Systemd(tmp_path, environ).status()
    said = (tmp_path / "env").read_text()
    assert "canary" not in said
    assert f"HOME={tmp_path}" in said
