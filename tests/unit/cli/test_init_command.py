"""``coilclaw init``."""

from __future__ import annotations

import os
import random
import signal
import stat
import time
from pathlib import Path

import pytest

from coilclaw.agent.memory.store import Memory
from coilclaw.app.config import sample
from coilclaw.app.config.load import load_config
from coilclaw.app.setup import init
from coilclaw.policy.commands.policy_rules import read_shipped_policy
from tests.support.scale import scaled
from tests.unit.cli.setting_up import World


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def contents(world: World) -> dict[str, bytes]:
    return {
        str(path.relative_to(world.user)): path.read_bytes()
        for path in world.user.rglob("*")
        if path.is_file()
    }


def test_it_makes_everything(world: World) -> None:
    done = world.run("init", "--json")
    assert done.code == 0
    assert done.data == {
        "home": str(world.home),
        "items": [
            {"what": "home", "path": str(world.home), "made": True},
            {"what": "keys", "path": str(world.home / "keys"), "made": True},
            {"what": "policy", "path": str(world.home / "policy.toml"), "made": True},
            {"what": "workspace", "path": str(world.workspace), "made": True},
            {"what": "memory", "path": str(world.home / "memory.sqlite"), "made": True},
            {"what": "configuration", "path": str(world.config), "made": True},
        ],
        "warnings": [],
    }
    assert mode(world.home) == mode(world.home / "keys") == 0o700
    assert mode(world.config) == mode(world.home / "policy.toml") == 0o600
    assert (world.home / "policy.toml").read_text(encoding="utf-8") == read_shipped_policy()
    environ = {"HOME": str(world.user)}
    assert world.config.read_text(encoding="utf-8") == sample.text(world.home, environ)
    with Memory(world.home / "memory.sqlite") as memory:
        assert memory.conversations() == ()
    assert not [path for path in world.home.iterdir() if path.name.startswith(".")]


def test_a_second_time_changes_nothing(world: World) -> None:
    world.run("init")
    before = contents(world)
    done = world.run("init")
    assert done.code == 0
    assert [line.split()[0] for line in done.out.splitlines()] == ["there"] * 6
    assert contents(world) == before


def test_it_never_overwrites_what_is_there(world: World) -> None:
    world.write(f"# mine\nworkspace_dir = '{world.user}/mine'\n")
    (world.home / "policy.toml").write_text("# my rules\n", encoding="utf-8")
    done = world.run("init")
    assert done.code == 0
    assert world.config.read_text(encoding="utf-8").startswith("# mine\n")
    assert (world.home / "policy.toml").read_text(encoding="utf-8") == "# my rules\n"
    assert (world.user / "mine").is_dir()
    assert not world.workspace.exists()


@pytest.mark.parametrize("text", ["[security]\nautonomy = 'godmode'\n", "a = ", "\udcff"])
def test_a_wrong_configuration_is_told_and_nothing_is_touched(world: World, text: str) -> None:
    world.write("")
    world.config.write_bytes(text.encode("utf-8", "surrogateescape"))
    done = world.run("init")
    assert done.code == 2
    assert "config.toml:" in done.err
    assert list(contents(world)) == [".coilclaw/config.toml"]
    assert not world.workspace.exists()


def test_the_workspace_can_be_named(world: World) -> None:
    there = world.user / "a $b" / "work"
    done = world.run("init", "--workspace", str(there))
    assert done.code == 0
    assert there.is_dir()
    config = load_config(world.config, home=world.home, environ={"HOME": str(world.user)})
    assert config.workspace_dir == there
    assert world.run("init", "--workspace", str(there)).code == 0
    assert world.run("init").code == 0


def test_another_workspace_than_the_configured_one_is_refused(world: World) -> None:
    world.run("init")
    before = contents(world)
    done = world.run("init", "--workspace", str(world.user / "other"))
    assert done.code == 2
    assert "coilclaw config set workspace_dir" in done.err
    assert contents(world) == before
    assert not (world.user / "other").exists()


@pytest.mark.parametrize("name", [".coilclaw", "coilclaw-workspace", ".coilclaw/keys"])
def test_something_in_the_way_is_told(world: World, name: str) -> None:
    if "/" in name:
        world.home.mkdir()
    (world.user / name).write_text("mine", encoding="utf-8")
    done = world.run("init")
    assert done.code in {2, 5}
    assert (world.user / name).read_text(encoding="utf-8") == "mine"
    assert not world.config.is_file()


def test_a_home_that_is_open_to_others_is_told_and_left(world: World) -> None:
    world.home.mkdir(mode=0o755)
    done = world.run("init")
    assert "is open to others (mode 755)" in done.err
    assert mode(world.home) == 0o755


def test_what_appears_meanwhile_is_not_overwritten(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.home.mkdir(mode=0o700)
    (world.home / "policy.toml").write_text("# mine", encoding="utf-8")
    monkeypatch.setattr("os.path.lexists", lambda _: False)  # as if it came a moment later
    done = world.run("init", "--json")
    assert done.code == 0
    assert '"policy.toml",\n      "made": false' in done.out.replace(f"{world.home}/", "")
    assert (world.home / "policy.toml").read_text(encoding="utf-8") == "# mine"
    assert not [path for path in world.home.iterdir() if path.name.startswith(".")]


def test_a_strange_umask_does_not_lock_us_out(world: World) -> None:
    usual = os.umask(0o177)
    try:
        done = world.run("init")
    finally:
        os.umask(usual)
    assert done.code == 0
    assert mode(world.home) == mode(world.home / "keys") == 0o700


def test_killed_at_any_instant_it_can_be_done_again(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    whole.mkdir()
    begin = time.monotonic()
    init(whole / ".coilclaw", {"HOME": str(whole)})
    usual_s = time.monotonic() - begin
    rng = random.Random(4)
    for number in range(scaled(full=200, default=25)):
        user = tmp_path / str(number)
        user.mkdir()
        home, environ = user / ".coilclaw", {"HOME": str(user)}
        child = os.fork()
        if child == 0:
            try:
                init(home, environ)
            finally:
                os._exit(0)
        time.sleep(rng.random() * usual_s * 1.2)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        if (home / "config.toml").exists():  # whole, or not there
            assert (home / "config.toml").read_text() == sample.text(home, environ)
        done = init(home, environ)
        assert {item.what for item in done.items} >= {"home", "configuration", "memory"}
        assert (home / "config.toml").read_text() == sample.text(home, environ)
        assert (home / "policy.toml").read_text() == read_shipped_policy()
        with Memory(home / "memory.sqlite") as memory:
            assert memory.conversations() == ()
        assert all(not item.made for item in init(home, environ).items)
